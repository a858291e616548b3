"""The wire contract with the master's side, generated from `proto/` by `make proto`."""

VERSION = 2
"""What a master's side of this release says in `Hello.contract_version`."""
SPOKEN = range(1, VERSION + 1)
"""What it may say for this release to understand it."""
