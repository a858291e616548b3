"""The wire contract with the master's side, generated from `proto/` by `make proto`."""

VERSION = 1
"""What `Hello.contract_version` must say."""
