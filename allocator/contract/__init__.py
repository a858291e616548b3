"""The wire contract with the master's side, generated from `proto/` by `make proto`."""

VERSION = 4
"""The contract version that this release sends in `Hello.contract_version`."""
SUPPORTED_VERSIONS = range(1, VERSION + 1)
"""Contract versions that this release accepts from a master's side."""
