"""The schedulers that the service works for, and the command of each scheduler's service."""

from typing import Literal, TypeAlias

Scheduler: TypeAlias = Literal["mesos", "slurm"]
"""A scheduler that the service works for, as the head of a store states it."""
COMMAND: dict[Scheduler, str] = {"mesos": "longshare serve", "slurm": "longshare slurm serve"}
"""The command of each scheduler's service."""
