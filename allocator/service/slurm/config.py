"""Configuration of the service for Slurm: the shared sections, `[slurm]`, and users of Slurm."""

import os
import re
from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any, ClassVar, Self

from pydantic import Field, field_validator, model_validator
from typing_extensions import override

from allocator.service.config import (
    LARGEST_NUMBER,
    CheckedPath,
    DeclaredUsers,
    SettingsSection,
    SharedConfig,
    read_configuration,
)
from allocator.service.scheduler_commands import Scheduler
from allocator.slurm.bridge import BridgeSettings
from allocator.slurm.client import SlurmClient
from allocator.slurm.state import StateSettings
from allocator.slurm.task_shares import reason_against
from allocator.slurm.users import UserKey
from allocator.users.settings import DeclaredUser

_STATE: dict[str, Any] = {setting.name: setting.default for setting in fields(StateSettings)}
_BRIDGE: dict[str, Any] = {setting.name: setting.default for setting in fields(BridgeSettings)}
"""Default of each setting of the state and of the bridge, by name."""
_RESOURCES = ("cpus", "mem", "gpus")
_GENERIC = re.compile(r"(?!gpu$)[^:]+")
"""Names of generic resources; their kinds are added, and GPUs are `gpus`."""
_MASTERS_ONLY = {"operators", "sessions", "most_parts", "virtual_clocks"}
"""Settings of `[listen]` for streams of Mesos masters."""


class SlurmUsersSection(SettingsSection):
    """`[users]`: the property of a job that is its user, and the users known from the start."""

    key: UserKey = "user"
    """Owner to which a job's resources count: its user, its account in the tree of accounts, or,
    with `tree`, the user below this account."""
    forget_after: Annotated[float, Field(gt=0, le=LARGEST_NUMBER)] = 86400.0
    """Seconds without jobs and commitments after which an undeclared user is forgotten."""
    counts_for: Annotated[float, Field(ge=1)] = 4.0
    """Maximum weight of a user in the sum of weights, as a multiple of its use. See
    [who counts as a user](policies.md#who-counts-as-a-user)."""
    declared: DeclaredUsers = ()


class SlurmSection(SettingsSection):
    """`[slurm]`: how the service reads one Slurm, and whether it sets the order of jobs."""

    dry_run: bool = True
    """Whether site factors are only planned and shown. With `false`, the service sets them, and
    Slurm starts jobs in the order of the policy."""
    every: Annotated[float, Field(ge=0.2, le=600)] = 2.0
    """Seconds between two readings. A reading that takes longer delays the next one."""
    nodes_every: Annotated[float, Field(ge=0.2, le=3600)] = _BRIDGE["nodes_every"]
    """Seconds between two readings of the nodes."""
    accounts_every: Annotated[float, Field(ge=1, le=86400)] = _BRIDGE["accounts_every"]
    """Seconds between two readings of the accounts and their shares."""
    lag: Annotated[float, Field(ge=1, le=3600)] = _STATE["lag"]
    """Seconds after which allocations are final. A change that Slurm tells within this time counts
    from its own instant. Accounts and the store follow with this delay."""
    ahead: Annotated[int, Field(ge=1, le=100_000)] = _BRIDGE["ahead"]
    """Maximum number of jobs in the order, for each group of jobs that compete."""
    tasks_ahead: Annotated[int, Field(ge=1, le=100_000)] = _BRIDGE["tasks_ahead"]
    """Maximum number of pending tasks of one array in the order."""
    updates: Annotated[int, Field(ge=1, le=100_000)] = _BRIDGE["updates"]
    """Maximum number of site factors that are set after one reading. The most important are set
    first, the remaining ones after the next reading."""
    excluded: tuple[str, ...] = ()
    """Resources that do not count for shares, such as `"mem"`."""
    timeout: Annotated[float, Field(ge=1, le=600)] = 60.0
    """Seconds after which a client command of Slurm is ended. A list of accounts has ten times as
    long."""
    conf: CheckedPath | None = None
    """Path of `slurm.conf`. Default: Slurm's own, or `SLURM_CONF` in the environment."""

    @field_validator("excluded")
    @classmethod
    def _resources(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        for name in names:
            kind, _, generic = name.partition("/")
            if name not in _RESOURCES and (kind != "gres" or not _GENERIC.fullmatch(generic)):
                raise ValueError(
                    f"{name!r} is not a resource of a job; write {', '.join(_RESOURCES)}, or "
                    "gres/NAME for another generic resource"
                )
        return names


class SlurmConfig(SharedConfig):
    """The whole configuration file of the service for Slurm; each section has a default."""

    scheduler: ClassVar[Scheduler] = "slurm"
    users: SlurmUsersSection = SlurmUsersSection()
    slurm: SlurmSection = SlurmSection()

    @model_validator(mode="after")
    def _has_no_masters(self) -> Self:
        useless = sorted(_MASTERS_ONLY & self.listen.model_fields_set)
        if useless:
            raise ValueError(
                f"listen.{useless[0]}: a service for Slurm has no streams of masters; its "
                "operators connect to listen.address"
            )
        if self.listen.rights is not None and self.listen.rights.masters:
            raise ValueError("listen.rights.masters: a service for Slurm has no masters")
        for user in self.users.declared:
            if not all(user.name.split("/")):
                raise ValueError(
                    f"users.declared: {user.name!r} has an empty part, so no user has this name"
                )
        policy = self.policy.create()
        if reason := reason_against(policy):
            raise ValueError(f"policy: {reason}")
        for shadow in self.shadow:
            follower = shadow.create()
            if reason := reason_against(follower):
                raise ValueError(f"shadow {shadow.label}: {reason}")
            if policy.counts_tasks and not follower.counts_tasks:
                raise ValueError(
                    f"shadow {shadow.label}: the served policy counts tasks, but the shadow does "
                    "not; choose tsf or stsf for both, or for none"
                )
        return self

    @override
    def _files(
        self, own: Path | None, record: Path | None
    ) -> tuple[dict[str, Path], dict[str, Path]]:
        written, read = super()._files(own, record)
        return written, read | ({} if self.slurm.conf is None else {"slurm.conf": self.slurm.conf})

    def bridge_settings(self, *, dry_run: bool = False) -> BridgeSettings:
        """Return the settings of the bridge, with new policy objects.

        Args:
            dry_run: Whether to set no site factors although the configuration allows them.
        """
        section, users = self.slurm, self.users
        state = StateSettings(
            self.policy.create(),
            user_key=users.key,
            excluded=section.excluded,
            counts_for=users.counts_for,
            lag=section.lag,
            forget_after=users.forget_after,
            declared=tuple(
                DeclaredUser(user.name, user.weight, user.commitment) for user in users.declared
            ),
        )
        return BridgeSettings(
            state,
            dry_run=dry_run or section.dry_run,
            nodes_every=section.nodes_every,
            accounts_every=section.accounts_every,
            ahead=section.ahead,
            tasks_ahead=section.tasks_ahead,
            updates=section.updates,
        )

    def client(self) -> SlurmClient:
        """Return a client of the configured Slurm."""
        environment = dict(os.environ)
        if self.slurm.conf is not None:
            environment["SLURM_CONF"] = str(self.slurm.conf)
        return SlurmClient(environment, self.slurm.timeout)


def load(path: Path) -> SlurmConfig:
    """Read and validate a configuration file.

    Raises:
        ConfigError: the file cannot be read, is not TOML, or has invalid settings. The message
            names the file, each key, and the reason.
    """
    return read_configuration(path, SlurmConfig)
