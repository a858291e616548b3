"""Configuration of the service: one TOML file, validated before the service starts."""

import math
import os
import stat
import tomllib
from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self, TypeAlias, TypeVar
from urllib.parse import parse_qs, urlsplit

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)

from allocator import plugins
from allocator.cluster.agents.placement_constraints import (
    Constraint,
    Hosts,
    has_open_bracket,
    parse_attributes,
)
from allocator.cluster.backfill.holds import HoldMode
from allocator.cluster.input.limits import Limits
from allocator.cluster.input.text import is_valid_role
from allocator.cluster.settings import EngineSettings, UserKey
from allocator.complaints import complaints
from allocator.conformance import complaints as complaints_about
from allocator.fairness.bounds import LARGEST_WEIGHT, LEAST_WEIGHT
from allocator.fairness.policies import Policy
from allocator.fairness.quantities import Quantities
from allocator.files import (
    open_for_writing,
    read_regular_file,
    reason,
    require_creatable,
    require_own_folder,
    require_regular_file,
    require_writable,
)
from allocator.service.addresses import DEFAULT, anyone_may_bind, host_and_port, is_local, target
from allocator.service.scheduler_commands import COMMAND, Scheduler
from allocator.users.settings import DeclaredUser

DEFAULT_POLICY: dict[str, Any] = {"name": "sdrf", "half_life": "1h"}
"""Default policy. A half-life of one hour remembers a burst of batch jobs, and soon forgets a
mistake."""


_ENGINE: dict[str, Any] = {setting.name: setting.default for setting in fields(EngineSettings)}
"""Default of each engine setting, by name.

The configuration takes its defaults from the engine, so that each default has one source.
"""
_DECLARED: dict[str, Any] = {setting.name: setting.default for setting in fields(DeclaredUser)}
"""Default of each setting of a declared user, by name."""
_CONFORMANCE_TRIALS = 25
"""Number of random cases per requirement with which an external policy is tested before the service
starts."""
_Read = TypeVar("_Read", bound=BaseModel)
_PSYCOPG = "postgresql+psycopg://"


_ROLES_RESERVED_FOR = 600.0
"""Seconds after a snapshot for which frameworks that are not back keep their places in
`limits.all_roles`. Mesos waits as long for agents after a failover."""
LARGEST_NUMBER = 1_000_000_000
"""Maximum of counts, bytes and seconds in settings; no cluster needs more."""
_LONGEST_PATH = 4095
_LONGEST_NAME = 255
"""Maximum length of a path and of a file name on Linux, in bytes."""


class ConfigError(ValueError):
    """The configuration cannot be used; the message names the setting and the reason."""


class AddressTaken(ConfigError):  # noqa: N818 - like StoreInUse
    """Another program listens on a configured address, and may end later."""


class SettingsSection(BaseModel):
    """Base class of the tables of the configuration file.

    `docs/generate.py` copies the docstrings of the tables and settings to
    docs/reference/configuration.md.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    @field_validator("*", mode="before")
    @classmethod
    def _plausible(cls, value: object, info: ValidationInfo) -> object:
        """Reject values that pydantic misreads: `true` as a number, text with a NUL character."""
        field = cls.model_fields[str(info.field_name)]
        if isinstance(value, bool) and field.annotation in {int, float}:
            raise ValueError(f"{str(value).lower()} is not a number")
        texts = value if isinstance(value, list | tuple | dict) else (value,)
        if isinstance(value, dict) and field.annotation == dict[str, str]:
            texts = (*value, *value.values())
        for text in texts:
            if isinstance(text, str) and "\0" in text:
                raise ValueError(f"{text!r} has a NUL character in it")
        return value


def _checked_path(path: Path) -> Path:
    """Return a path unchanged if Linux allows a file of this name.

    Raises:
        ValueError: the path is empty or too long.
    """
    if path == Path():
        raise ValueError("the path names no file")
    if len(os.fsencode(path)) > _LONGEST_PATH:
        raise ValueError(f"the path has more than {_LONGEST_PATH} bytes")
    if any(len(os.fsencode(name)) > _LONGEST_NAME for name in path.parts):
        raise ValueError(f"a name in the path has more than {_LONGEST_NAME} bytes")
    return path


CheckedPath = Annotated[Path, AfterValidator(_checked_path)]


class PolicySection(BaseModel):
    """`[policy]`: the policy that ranks users, by name, and its parameters."""

    model_config = ConfigDict(extra="allow", frozen=True)

    name: str
    file: Path | None = None

    @model_validator(mode="after")
    def _known(self) -> Self:
        policy = self.create()
        violations = (
            complaints_about(policy, trials=_CONFORMANCE_TRIALS)
            if policy.origin is not None
            else []
        )
        if violations:
            details = "; ".join(
                f"a rule is broken: {violation.claim} ({violation.case})"
                for violation in violations
            )
            raise ValueError(f"{self.name!r} cannot be used: {details}")
        return self

    def create(self) -> Policy:
        """Create the policy with its parameters; a policy from a file is loaded first.

        Raises:
            ValueError: the policy is unknown, or its parameters or file cannot be used.
        """
        if self.file is not None:
            policies = plugins.load_trusted(self.file)
            if self.name not in policies:
                raise ValueError(f"{self.file} defines {', '.join(policies)}, not {self.name!r}")
        return plugins.create(self.name, self.model_extra or {})


MOST_SHADOWS = 4
"""Maximum number of shadow policies; each costs as much time as the ranking of users."""


class ShadowSection(PolicySection):
    """`[[shadow]]`: a shadow policy, which shows how users would fare under another policy.

    A shadow policy processes the same events as the served policy, and decides nothing.
    """

    @property
    def label(self) -> str:
        """Name of the shadow in metrics and reports: the policy's name and parameters."""
        parameters = ", ".join(
            f"{name}={value}" for name, value in (self.model_extra or {}).items()
        )
        return f"{self.name} {parameters}" if parameters else self.name


class UserSection(SettingsSection):
    """`[[users.declared]]`: a user that is known before its first framework subscribes."""

    name: Annotated[str, Field(min_length=1)]
    """Name of the user, as defined by `users.key`: for example a role."""
    weight: Annotated[float, Field(ge=LEAST_WEIGHT, le=LARGEST_WEIGHT)] = _DECLARED["weight"]
    """Weight of the user. A user's entitlement is its weight divided by the sum of all known users'
    weights."""
    commitment: (
        Annotated[float, Field(ge=0, le=1)] | dict[str, Annotated[float, Field(ge=0, le=1)]]
    ) = _DECLARED["commitment"]
    """Initial commitment, as a fraction of the cluster between 0 and 1: for every resource, or
    by resource as in `{ cpus = 0.5 }`."""


def _require_distinct_names(declared: tuple[UserSection, ...]) -> tuple[UserSection, ...]:
    """Return declared users, if no user is declared twice.

    Raises:
        ValueError: users are declared twice.
    """
    names = [user.name for user in declared]
    duplicates = sorted({name for name in names if names.count(name) > 1})
    if duplicates:
        raise ValueError(f"declared twice: {', '.join(duplicates)}")
    return declared


DeclaredUsers: TypeAlias = Annotated[
    tuple[UserSection, ...], AfterValidator(_require_distinct_names)
]


class UsersSection(SettingsSection):
    """`[users]`: which property of a framework is its user, and the users known from the start."""

    key: UserKey = _ENGINE["user_key"]
    """Property of a framework that identifies its user."""
    forget_after: Annotated[float, Field(gt=0, le=LARGEST_NUMBER)] = _ENGINE["forget_after"]
    """Seconds without frameworks and commitments after which an undeclared user is forgotten."""
    counts_for: Annotated[float, Field(ge=1)] = 4.0
    """Maximum weight of a user in the sum of weights, as a multiple of its use, if no operator
    has named the user. Users are counted for each resource separately. The use is the mean of
    the share held now and its average. The average decays as commitments do. `inf`: every known
    user counts with its whole weight, as in the papers. Names of users that have left then count
    until `forget_after`, so tenants must not be able to invent names. See
    [who counts as a user](policies.md#who-counts-as-a-user)."""
    declared: DeclaredUsers = ()


class OffersSection(SettingsSection):
    """`[offers]`: when resources are offered, and in which amounts."""

    allocation: Literal["event", "batch"] = _ENGINE["allocation"]
    """When recovered resources are offered: with the event, or once per allocation interval as
    in stock Mesos."""
    demands: dict[str, str] = {}
    """Demand of one task, by framework name: `{ spark = "cpus:1;mem:1024" }`."""
    whole_from: Annotated[int, Field(ge=0, le=LARGEST_NUMBER)] = 100
    """Minimum number of free agents for bulk allocation, for example after a failover. Bulk
    allocation places each framework's tasks on as few agents as possible, among the agents that
    it may use and has not declined. Below the minimum, or with quotas, frameworks share each
    agent. Either way a framework gets as many tasks, but bulk allocation makes fewer offers and
    takes less time. With several task shapes or placement constraints the numbers of tasks are
    approximately equal. 0: agents are always shared."""
    hold_for: HoldMode = _ENGINE["hold_for"]
    """Number of frameworks for which agents may be held at the same time: none, one, or all. An
    agent is held for a framework whose task fits on no agent now, but would fit on this agent if
    it were empty."""
    longest_hold: Annotated[float, Field(gt=0, le=86400.0)] = _ENGINE["longest_hold"]
    """Maximum duration of a hold on an agent, in seconds."""
    learn_demands: bool = _ENGINE["learn_demands"]
    """Whether to derive a framework's task demand from the resources that it keeps of its
    offers, if neither the framework nor `demands` states it."""

    @field_validator("demands")
    @classmethod
    def _amounts(cls, demands: dict[str, str]) -> dict[str, str]:
        for framework, demand in demands.items():
            try:
                empty = not Quantities.parse(demand)
            except ValueError as error:
                raise ValueError(f"{framework}: {error}") from error
            if empty:
                raise ValueError(f"{framework}: a task must need more than 0 of some resource")
        return demands


def _hosts(items: tuple[str, ...]) -> tuple[str, ...]:
    """Return host entries unchanged if each is a name, a glob, an address, a range or a network.

    Raises:
        ValueError: an entry is invalid.
    """
    for item in items:
        if has_open_bracket(item):
            raise ValueError(f"{item!r} has a bracket without its end, so it would match no host")
    return Hosts(items).items


def _attributes(items: tuple[str, ...]) -> tuple[str, ...]:
    """Return attributes unchanged if their form is NAME:VALUE.

    Raises:
        ValueError: an attribute has another form.
    """
    parse_attributes(items)
    return items


_LIMITS = Limits()


class LimitsSection(SettingsSection):
    """`[limits]`: limits on the content of messages; only content beyond a limit is rejected."""

    subscription: Annotated[int, Field(ge=1024, le=LARGEST_NUMBER)] = _LIMITS.subscription
    """Maximum size of a framework's or agent's description, in bytes."""
    name: Annotated[int, Field(ge=64, le=LARGEST_NUMBER)] = _LIMITS.name
    """Maximum length of a role, framework name or principal, in bytes."""
    role_depth: Annotated[int, Field(ge=1, le=200)] = _LIMITS.role_depth
    """Maximum number of levels of a role: `eng/web` has two."""
    roles: Annotated[int, Field(ge=1, le=LARGEST_NUMBER)] = _LIMITS.roles
    """Maximum number of roles of one framework, including the roles above them: `eng/web` and
    `eng/db` are three."""
    all_roles: Annotated[int, Field(ge=1, le=LARGEST_NUMBER)] = _LIMITS.all_roles
    """Maximum number of roles of all frameworks, counted for each framework; one role takes
    about 3 kB of memory. A principal may have half of the roles that other principals leave
    free. All frameworks without a principal count as one principal. A framework with four roles
    or fewer does not count and always gets its roles. After a failover or a restart, the roles of a
    framework that is not back stay reserved for it for 10 minutes. A framework that asks for more
    roles than remain is rejected until it subscribes again or a snapshot arrives."""
    frameworks: Annotated[int, Field(ge=1, le=LARGEST_NUMBER)] = 5_000
    """Maximum number of frameworks that have roles; one takes about 15 kB of memory, plus twice the
    size of its lists of hosts. Sets of clients, which decide offers, grow with the square of the
    number. Principals leave room, and places stay reserved, as for `all_roles`. A restart keeps
    places. A framework above the limit gets no offers until it subscribes again or a snapshot
    arrives."""
    exclusions: Annotated[int, Field(ge=1, le=LARGEST_NUMBER)] = 100_000
    """Maximum number of pairs of a role and an agent that one framework's offer constraints
    exclude (Mesos 1.11); one pair takes about 200 bytes of memory. A framework above the limit
    gets no offers until it subscribes again or a snapshot arrives."""
    all_exclusions: Annotated[int, Field(ge=1, le=LARGEST_NUMBER)] = 2_000_000
    """Maximum number of these pairs of all frameworks together. Above the limit, the
    principal with the most pairs loses offers for its framework with the most pairs."""
    label: Annotated[int, Field(ge=64, le=LARGEST_NUMBER)] = _LIMITS.label
    """Maximum length of a label that Longshare reads, in characters."""
    patterns: Annotated[int, Field(ge=0, le=LARGEST_NUMBER)] = _LIMITS.patterns
    """Maximum number of globs, ranges and networks in each of a framework's lists of hosts;
    names do not count."""
    attributes: Annotated[int, Field(ge=0, le=LARGEST_NUMBER)] = _LIMITS.attributes
    """Maximum number of attributes that a framework requires."""
    resources: Annotated[int, Field(ge=8, le=LARGEST_NUMBER)] = _LIMITS.resources
    """Maximum number of different resources in a framework's demand, request or minimum offer,
    and of alternative minimum offers."""
    minimums: Annotated[int, Field(ge=1, le=LARGEST_NUMBER)] = 8
    """Maximum number of different minimum allocatable resources of a framework, over all its roles
    and alternatives. Each of them is compared with each free agent."""
    filters: Annotated[int, Field(ge=1, le=LARGEST_NUMBER)] = 16
    """Maximum number of offer filters of a framework in one role on one agent. A framework needs
    more than one if it declines different parts of the agent. Above the limit, the filter that ends
    first is dropped, so the framework is offered these resources again."""
    resource_kind: Annotated[int, Field(ge=8192, le=LARGEST_NUMBER)] = 8192
    """Maximum bytes of the texts that distinguish a resource: mostly labels of reservations and
    metadata of disks. Each reservation and label counts as 128 bytes more. A resource with more
    counts, but is not offered. The module allows 8192 at most."""
    all_filters: Annotated[int, Field(ge=1, le=LARGEST_NUMBER)] = 100_000
    """Maximum number of different declined resources, counted on each agent, of the offer filters
    of all frameworks. Each takes about 2 kB of memory; 16 kinds count as one more. A single agent
    may have a 25th. Above a limit, the principal with the most loses its oldest filters, so its
    frameworks are offered these resources again."""
    smallest_demand: Annotated[float, Field(ge=0.0, le=1.0)] = _LIMITS.smallest_demand
    """Minimum size of a task in task-by-task allocation, as a fraction of the largest agent's
    amount of some resource. A framework with smaller tasks gets several tasks at a time. An
    agent is thus divided into a limited number of parts, however small tasks are. 0: no minimum."""
    unanswered: Annotated[float, Field(gt=0.0, le=1.0)] = _LIMITS.unanswered
    """Maximum fraction of the cluster in one framework's outstanding offers, in any resource. A
    framework at the limit gets no further offers until it answers; the agent that reaches the
    limit is still offered as a whole. A framework that hoards offers thus leaves the remainder
    to other frameworks. Masters report outstanding offers since Mesos 1.10; with older masters
    the limit requires `answered_after`. 1: no limit, as in stock Mesos."""
    all_unanswered: Annotated[float, Field(gt=0.0, le=1.0)] = _LIMITS.all_unanswered
    """As `unanswered`, for all frameworks of one principal together. Frameworks without a principal
    have no common limit. If several tenants share a principal, set it above `unanswered`: else one
    tenant could keep offers from the others. 1: no limit."""
    answered_after: Annotated[float, Field(ge=0.0, le=1e9)] = _LIMITS.answered_after
    """Seconds after which an offer is assumed to be used if no resources of it were recovered.
    The setting applies to masters before Mesos 1.10, which do not report used resources. Until
    then the offer counts as outstanding for `unanswered`. The value should exceed the master's
    `--offer_timeout`. A framework that uses its offers completely is limited by `unanswered`
    during this time. 0: offered resources are assumed to be used at once."""
    resource: Annotated[int, Field(ge=1024, le=LARGEST_NUMBER)] = _LIMITS.resource
    """Maximum size in bytes of one resource of an agent, with all its ranges, items and labels;
    also of all resources in a request, and of an operator's operation."""
    entries: Annotated[int, Field(ge=500, le=LARGEST_NUMBER)] = 1000
    """Maximum number of entries in one list: labels and capabilities of a framework, roles of its
    offer filters, attributes of an agent with the items of their values, ranges and items of a
    request, and reservations of a resource with their labels. Offer filters may have four times as
    many quantities."""
    idle_users: Annotated[int, Field(ge=0, le=LARGEST_NUMBER)] = _LIMITS.idle_users
    """Maximum number of known users of all levels without frameworks and commitments. Above the
    limit, users are forgotten before `users.forget_after`: first the users with the least average
    use. Under policies that rank by accumulated use, the first are those whose accumulated use is
    nearest to a new user's. Among equals, the users idle for longest are first. At most as
    many roles stay known by a weight of Mesos other than 1. They count for this number only."""

    def limits(self) -> Limits:
        """Return this section's limits in the form that the engine takes."""
        return Limits(**self.model_dump(), requested=self.entries)


class ConstraintSection(SettingsSection):
    """`[constraints.FRAMEWORK]`: placement constraints of the framework with this name."""

    whitelist: Annotated[tuple[str, ...], AfterValidator(_hosts)] = ()
    """Hosts to which the framework's tasks are restricted."""
    blacklist: Annotated[tuple[str, ...], AfterValidator(_hosts)] = ()
    """Hosts on which the framework's tasks may not run."""
    attributes: Annotated[tuple[str, ...], AfterValidator(_attributes)] = ()
    """Attributes that an agent must have, all of them: `["rack:1", "disk:ssd"]`."""

    def constraint(self) -> Constraint:
        """Return the section as the engine's placement constraint."""
        return Constraint(
            Hosts(self.whitelist), Hosts(self.blacklist), parse_attributes(self.attributes)
        )


class TlsSection(SettingsSection):
    """`[listen.tls]`: the service's certificate and key for TLS, in PEM format."""

    certificate: CheckedPath
    """PEM file of the service's certificate, with the certificates between it and the authority."""
    key: CheckedPath
    """PEM file of the certificate's key."""
    client_ca: CheckedPath | None = None
    """PEM file of a certificate authority; only peers with a certificate of this authority may
    connect."""


class RightsSection(SettingsSection):
    """`[listen.rights]`: rights of peers, by the names in their certificates.

    Names may be globs, such as `"master-*"`. The first 100 names of a certificate count. A peer
    without a listed name has no rights. Without this section, every peer that can connect has all
    rights.
    """

    masters: tuple[str, ...] = ()
    """Names of masters, which may send events and get decisions."""
    operators: tuple[str, ...] = ()
    """Names of operators, who may give operator commands, such as `longshare weight`, and read."""
    readers: tuple[str, ...] = ()
    """Names of readers, who may only read: `longshare shares`, `explain`, `forecast`, `top`,
    `usage` and `audit`."""


class ListenSection(SettingsSection):
    """`[listen]`: addresses at which masters and operators connect, and limits on messages."""

    address: Annotated[str, AfterValidator(target)] = DEFAULT
    """Address for masters and operators: `"unix:///PATH"` or `"HOST:PORT"`."""
    operators: Annotated[str, AfterValidator(target)] | None = None
    """Separate address for operators. `address` then serves masters only: access to one address
    gives no access to the other service."""
    group_may_connect: bool = False
    """Whether the service's group may connect to the Unix socket in `address` (mode 0660), for a
    master of another user. Requires `operators`."""
    tls: TlsSection | None = None
    rights: RightsSection | None = None
    largest_message: Annotated[int, Field(ge=2**16, lt=2**31)] = 256 * 2**20
    """Maximum size of a message in bytes; a snapshot of 10⁴ agents and 10³ frameworks takes a
    tenth of the default."""
    most_parts: Annotated[int, Field(ge=2**10, lt=2**31)] = 2**25
    """Maximum number of parts of a message, at all depths together: agents, resources, names.
    Each part takes about a hundred bytes of memory, however short it is. Larger parts count
    several times: an agent 20 times, a framework 24 times, a resource 12 times plus once for
    each 16 bytes."""
    sessions: Annotated[int, Field(ge=1, le=1000)] = 16
    """Maximum number of masters on standby; the leading master is always admitted."""
    virtual_clocks: bool = False
    """Whether a master may declare its clock virtual, as in tests and accelerated experiments.
    Commitments then decay by the master's clock, not by elapsed time."""

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.rights is not None and (self.tls is None or self.tls.client_ca is None):
            raise ValueError("listen.rights needs certificates; add [listen.tls] with a client_ca")
        if self.operators == self.address:
            raise ValueError("operators is the same as address; remove operators")
        if self.group_may_connect and not self.address.startswith("unix:"):
            raise ValueError("group_may_connect needs a Unix socket in address; remove it")
        if self.group_may_connect and self.operators is None:
            raise ValueError(
                "with group_may_connect, the group could also give orders; set operators"
            )
        return self

    def seizable(self, scheduler: Scheduler) -> list[str]:
        """Return a note for each address that any user of this machine may take.

        A program can take an address while the service restarts, and keep the address.

        Args:
            scheduler: The scheduler of the service. Slurm has no masters that connect.
        """
        peers = "masters and operators" if self.operators is None else "masters"
        peers = "operators" if scheduler == "slurm" else peers
        addresses = {"address": (self.address, peers), "operators": (self.operators, "operators")}
        return [
            f"listen.{name}: while the service restarts, any user of this machine may take "
            f"{address}, and so keep {kept} away. Use a Unix socket, or a port below 1024"
            for name, (address, kept) in addresses.items()
            if address is not None and anyone_may_bind(address)
        ]

    def require_protection(self) -> None:
        """Raise an error if other machines could connect without a certificate.

        Raises:
            ConfigError: an address can be reached from other machines, and clients need no
                certificate.
        """
        if self.tls is not None and self.tls.client_ca is not None:
            return
        for name, address in (("address", self.address), ("operators", self.operators)):
            if address is not None and not is_local(address):
                raise ConfigError(
                    f"listen.{name}: other machines can reach {address!r}, and could then give "
                    "orders; add [listen.tls] with a client_ca, listen on 127.0.0.1, [::1] or a "
                    "Unix socket, or start with --insecure"
                )


class MetricsSection(SettingsSection):
    """`[metrics]`: the HTTP port for Prometheus and the status page."""

    address: Annotated[str, AfterValidator(host_and_port)] = "127.0.0.1:9105"
    """Address at which Prometheus scrapes `/metrics`: `"HOST:PORT"`; port 0: any free port. The
    port also serves `/healthz`, and at `/` a status page for people."""
    public: bool = False
    """Whether other machines may connect; everybody who can connect may read, without a
    password."""
    hosts: tuple[str, ...] = ()
    """Host names by which browsers and Prometheus may request this port, in addition to
    `localhost` and this machine's host name and addresses. Requests by any further name are
    refused (421)."""
    users: Annotated[int, Field(ge=1, le=100_000)] = 2000
    """Maximum number of users with metrics of their own, and of roles. Users with the largest
    allocation or commitment come first, then the users known for longest. The setting also
    limits the number of users added to the metrics per hour. `longshare_unlisted_users` counts
    the users without metrics."""

    @model_validator(mode="after")
    def _meant(self) -> Self:
        if not self.public and not is_local(self.address):
            raise ValueError(
                f"other machines can reach {self.address!r}; set public = true if they may read "
                "the shares of all users"
            )
        return self


def _state_directory() -> Path:
    """Return the default folder for files that must outlive the service.

    The folder is `$STATE_DIRECTORY`, else `longshare` in `$XDG_STATE_HOME`, else
    `~/.local/state/longshare`.
    """
    systemd_directory = os.environ.get("STATE_DIRECTORY", "").partition(":")[0]  # set by systemd
    if systemd_directory:
        return Path(systemd_directory)
    base = os.environ.get("XDG_STATE_HOME", "")
    return (Path(base) if base else Path.home() / ".local" / "state") / "longshare"


class StoreSection(SettingsSection):
    """`[store]`: the store that keeps users' commitments across restarts."""

    kind: Literal["sqlite", "zookeeper", "none"] = "sqlite"
    """Kind of store: a file on a local disk; ZooKeeper, for masters that fail over between
    machines; or no store."""
    path: CheckedPath = Field(default_factory=lambda: _state_directory() / "commitments.sqlite")
    """Path of the SQLite file, created with its folder if missing. Default: `commitments.sqlite`
    in `$STATE_DIRECTORY` (systemd), else in `$XDG_STATE_HOME/longshare`, else in
    `~/.local/state/longshare`."""
    on_damage: Literal["stop", "set aside"] = "stop"
    """Action at the start if a store that Longshare wrote is damaged. `stop`: the service ends, so
    that an operator can restore the store. `set aside`: the damaged store is renamed, and all
    commitments start at zero."""
    every: Annotated[float, Field(ge=0.05, le=60)] = 1.0
    """Seconds of wall-clock time between saves; a crash loses at most the changes of this time."""
    hosts: Annotated[str, Field(min_length=1)] | None = None
    """Addresses of the ZooKeeper servers, required for a ZooKeeper store:
    `"zk1:2181,zk2:2181,zk3:2181"`."""
    znode: Annotated[str, Field(pattern=r"^(/[^/]+)+$")] = "/longshare/commitments"
    """Path of the ZooKeeper node."""
    credentials: CheckedPath | None = None
    """Path of a file with one line `USER:PASSWORD`. Only this user can access the node (digest
    authentication). Without the setting, everybody who reaches ZooKeeper can access the node."""

    def secret(self) -> str | None:
        """Return ZooKeeper's user and password as `USER:PASSWORD`; None if not configured.

        Raises:
            ConfigError: the file cannot be read, has other content, or is readable by other users.
        """
        if self.credentials is None:
            return None
        try:
            credentials = read_file("store.credentials", self.credentials).decode("utf-8").strip()
        except UnicodeDecodeError as error:
            raise ConfigError(f"store.credentials: {self.credentials}: {error}") from error
        if not all(credentials.partition(":")):
            raise ConfigError(
                f"store.credentials: {self.credentials} does not contain USER:PASSWORD"
            )
        return credentials

    @model_validator(mode="after")
    def _fits_its_kind(self) -> Self:
        foreign = {
            "sqlite": {"hosts", "znode", "credentials"},
            "zookeeper": {"path"},
            "none": {"path", "on_damage", "every", "hosts", "znode", "credentials"},
        }[self.kind]
        useless = sorted(foreign & self.model_fields_set)
        if useless:
            raise ValueError(f"a store of kind {self.kind!r} has no {', '.join(useless)}")
        if self.kind == "zookeeper" and self.hosts is None:
            raise ValueError("a store of kind 'zookeeper' needs hosts, as in 'zk1:2181,zk2:2181'")
        return self


def _database(location: str) -> str:
    """Return a database setting unchanged if it is a PostgreSQL URL, a path, or `none`.

    Raises:
        ValueError: the setting has another form.
    """
    if (
        location.lower() == "none" != location
        or not location
        or ("://" in location and not location.startswith(("postgresql://", _PSYCOPG)))
    ):
        raise ValueError(
            f"{location!r} is neither postgresql://HOST/DATABASE, nor a path, nor 'none'"
        )
    if "://" not in location:
        _checked_path(Path(location))
    return location


class AccountingSection(SettingsSection):
    """`[accounting]`: the database of users' usage and of operator commands."""

    database: Annotated[str, AfterValidator(_database)] | None = None
    """Location of the database: `"postgresql://HOST/DATABASE"`, the path of a SQLite file, or
    `"none"`. Default: `accounting.sqlite` next to the store's file or its default path. The
    default is `"none"` if the store's kind is `none`, or if the extra `longshare[accounting]` is
    not installed."""
    every: Annotated[float, Field(ge=1, le=3600)] = 30.0
    """Seconds of wall-clock time between writes to the database."""
    hours: Annotated[int, Field(ge=2, le=400)] = 35
    """Days for which hourly usage is kept; older usage is summed up by day."""
    days: Annotated[int, Field(ge=2, le=36500)] = 1830
    """Days after which usage and operator commands are deleted."""
    users: Annotated[int, Field(ge=1, le=100_000)] = 2000
    """Maximum number of users per day with rows of their own. Further users are summed up under
    `(others)`: those that held and owed least. Declared users always have rows."""

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if self.days < self.hours:
            raise ValueError(f"days ({self.days}) is less than hours ({self.hours}); increase days")
        return self


class RecorderSection(SettingsSection):
    """`[recorder]`: a CSV file in which users' shares and commitments are recorded over time."""

    file: CheckedPath
    """Path of a CSV file, which is overwritten at the first event."""
    every: Annotated[float, Field(ge=0.001, le=LARGEST_NUMBER)] = 1.0
    """Seconds of the master's clock between samples; the file's times have three decimals. One
    message of a master causes at most 20,000 rows, but at least one sample."""


class LogSection(SettingsSection):
    """`[log]`: level and format of the service's log on standard error."""

    format: Literal["console", "json"] = "console"
    """Format: text for people, or one JSON object per line for programs."""
    level: Literal["debug", "info", "warning", "error"] = "info"
    """Minimum level of logged lines."""


_OWN_SECTIONS: dict[Scheduler, set[str]] = {
    "mesos": {"offers", "limits", "constraints"},
    "slurm": {"slurm"},
}
"""Sections of the configuration file that only the service for a scheduler has."""


class SharedConfig(SettingsSection):
    """The sections of the configuration file that are the same for all schedulers."""

    scheduler: ClassVar[Scheduler]
    """The scheduler that the service of this configuration works for."""
    policy: PolicySection = PolicySection.model_validate(DEFAULT_POLICY)
    shadow: Annotated[tuple[ShadowSection, ...], Field(max_length=MOST_SHADOWS)] = ()
    listen: ListenSection = ListenSection()
    metrics: MetricsSection = MetricsSection()
    store: StoreSection = Field(default_factory=StoreSection)
    accounting: AccountingSection = AccountingSection()
    recorder: RecorderSection | None = None
    log: LogSection = LogSection()

    def accounting_database(self) -> str | None:
        """Return the URL or path of the accounting database; None if no accounts are kept."""
        location = self.accounting.database
        if location is None and self.store.kind != "none":
            return str(self.store.path.with_name("accounting.sqlite"))
        return None if location == "none" else location

    @model_validator(mode="before")
    @classmethod
    def _has_no_section_of_another_scheduler(cls, content: object) -> object:
        sections = content.keys() if isinstance(content, dict) else set[str]()
        own = cls.scheduler
        for scheduler, names in _OWN_SECTIONS.items():
            if scheduler != own and (others := sections & names):
                raise ValueError(
                    f"{min(others)}: this section is for `{COMMAND[scheduler]}`, which works for "
                    f"{scheduler.capitalize()}; `{COMMAND[own]}` works for {own.capitalize()}"
                )
        return content

    @model_validator(mode="after")
    def _shadows_can_follow(self) -> Self:
        counts = self.policy.create().counts_tasks
        labels = [shadow.label for shadow in self.shadow]
        for shadow in self.shadow:
            policy = shadow.create()
            if policy.per_machine:
                raise ValueError(
                    f"shadow {shadow.label}: the policy ranks users per agent, so it has no single "
                    "order to show"
                )
            if policy.counts_tasks and not counts:
                raise ValueError(
                    f"shadow {shadow.label}: it counts tasks, but the served policy does not"
                )
            if labels.count(shadow.label) > 1:
                raise ValueError(f"shadow {shadow.label}: it is defined twice; remove one")
        return self

    def require_files(self, own: Path, record: Path | None = None) -> None:
        """Check that no file of the service would overwrite another, and that secrets are private.

        Args:
            own: Path of the configuration file.
            record: Path of the event log; None for no log.

        Raises:
            ConfigError: two settings name one file, and the service writes it; or an existing file
                is of the wrong kind; or a secret is readable by every user of the machine.
        """
        written, read = self._files(own, record)
        _require_distinct(written, read)
        for name, path in read.items():
            _require_plain(name, path, secret=name in _SECRETS)
        if _has_password(self.accounting.database):
            _require_plain("accounting.database has a password", own, secret=True)

    def check_files(self, own: Path, record: Path | None = None) -> None:
        """Check that the service could open every file of the settings.

        Files to read are read as the service reads them. Files to write are neither created nor
        changed. Folders of the systemd unit may be missing.

        Args:
            own: Path of the configuration file.
            record: Path of the event log; None for no log.

        Raises:
            ConfigError: files cannot be opened; a line for each names setting, path and reason.
        """
        written, read = self._files(own, record)
        failures = list[str]()
        for name, path in (*read.items(), *written.items()):
            try:
                if name in read:
                    read_file(name, path)
                else:
                    _require_writable(name, path, self.apart_from(name, record))
            except ConfigError as error:
                failures.append(str(error))
        if not failures:
            self.store.secret()
            return
        raise ConfigError("\n  ".join([f"{own}:", *failures]))

    def apart_from(self, name: str, record: Path | None = None) -> list[Path]:
        """Return the paths of all files that the service uses, except one setting's file.

        A module compares the path of a file with these paths before it writes the file. So the
        module overwrites no other file. The files that SQLite writes next to a database are
        included.

        Args:
            name: Setting of the excluded file, such as `"recorder.file"`.
            record: Path of the event log; None for no log.
        """
        written, read = self._files(None, record)
        return [
            Path(f"{path}{ending}")
            for setting, path in (*written.items(), *read.items())
            for ending in ("", *_COMPANIONS)
            if setting != name
        ]

    def _files(
        self, own: Path | None, record: Path | None
    ) -> tuple[dict[str, Path], dict[str, Path]]:
        """Return the files that the service uses, as two dictionaries from setting to path.

        Args:
            own: Path of the configuration file; None to leave it out.
            record: Path of the event log; None for no log.

        Returns:
            The files that the service writes, then the files that it only reads.
        """
        accounts, listen = self.accounting_database(), self.listen
        tls = listen.tls
        sockets = {
            f"listen.{name}": Path(address.removeprefix("unix:").removeprefix("//"))
            for name, address in (("address", listen.address), ("operators", listen.operators))
            if address is not None and address.startswith("unix:")
        }
        written = {
            "store.path": self.store.path if self.store.kind == "sqlite" else None,
            "accounting.database": (
                Path(accounts) if accounts is not None and "://" not in accounts else None
            ),
            "recorder.file": None if self.recorder is None else self.recorder.file,
            "--record": record,
            **sockets,
        }
        read = {
            "--config": own,
            "policy.file": self.policy.file,
            **{f"shadow {shadow.label}: file": shadow.file for shadow in self.shadow},
            "store.credentials": self.store.credentials,
            "listen.tls.certificate": None if tls is None else tls.certificate,
            "listen.tls.key": None if tls is None else tls.key,
            "listen.tls.client_ca": None if tls is None else tls.client_ca,
        }
        return (
            {name: path for name, path in written.items() if path is not None},
            {name: path for name, path in read.items() if path is not None},
        )

    def shadows(self) -> dict[str, Policy]:
        """Create the shadow policies, and return them by label."""
        return {shadow.label: shadow.create() for shadow in self.shadow}


class Config(SharedConfig):
    """The whole configuration file of the service for Mesos; each section has a default."""

    scheduler: ClassVar[Scheduler] = "mesos"
    users: UsersSection = UsersSection()
    offers: OffersSection = OffersSection()
    limits: LimitsSection = LimitsSection()
    constraints: dict[str, ConstraintSection] = {}

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.users.key == "role":
            for user in self.users.declared:
                if not is_valid_role(user.name.removesuffix("/.")):
                    raise ValueError(
                        f"users.declared: {user.name!r} is not a valid name of a role, so no "
                        "framework can have it; correct or remove it"
                    )
        if self.offers.hold_for != "off" and self.policy.create().per_machine:
            raise ValueError(
                f"offers.hold_for: {self.policy.name} ranks users per agent, so no agent "
                "can be held for a framework; remove the setting"
            )
        return self

    def engine_settings(self) -> EngineSettings:
        """Return the configuration in the form that the engine takes, with new policy objects."""
        return EngineSettings(
            policy=self.policy.create(),
            user_key=self.users.key,
            forget_after=self.users.forget_after,
            roles_leave_room=True,
            roles_reserved_for=_ROLES_RESERVED_FOR,
            roles_reserved_by_principal=True,
            counts_for=None if math.isinf(self.users.counts_for) else self.users.counts_for,
            allocation=self.offers.allocation,
            demands={name: Quantities.parse(text) for name, text in self.offers.demands.items()},
            constraints={name: section.constraint() for name, section in self.constraints.items()},
            whole_from=self.offers.whole_from,
            exact_ties=False,
            learn_demands=self.offers.learn_demands,
            hold_for=self.offers.hold_for,
            longest_hold=self.offers.longest_hold,
            hold_by_turns=True,
            shared_volumes_once=True,
            keeps_accumulated_use=True,
            forgets_subtrees=True,
            leaf_keeps_commitments=True,
            frameworks_keep_places=True,
            few_frameworks_keep_places=True,
            keeps_weighted_users=True,
            skips_refusing_clients=True,
            examines_for_clients=True,
            refusals_wait=True,
            departed_refuse_nothing=True,
            headroom_counts_volumes_once=True,
            leaves_only_in_trees=True,
            leaf_keeps_use=True,
            forgetting_unnames_parents=True,
            ties_after_half_lives=True,
            left_out_agents_wait=True,
            skips_void_calls=True,
            demands_must_agree=True,
            limits_sharing=True,
            compares_by_resource=True,
            newcomers_by_use=True,
            kinds_as_in_mesos=True,
            limits=self.limits.limits(),
            users=tuple(
                DeclaredUser(user.name, user.weight, user.commitment)
                for user in self.users.declared
            ),
        )


def load(path: Path) -> Config:
    """Read and validate a configuration file.

    Raises:
        ConfigError: the file cannot be read, is not TOML, or has invalid settings. The message
            names the file, each key, and the reason.
    """
    return read_configuration(path, Config)


def load_listen(path: Path) -> ListenSection:
    """Read only the section `[listen]`, for clients that need the service's address.

    Other sections are neither checked nor used, so no policy is loaded.

    Raises:
        ConfigError: the file cannot be read, is not TOML, or its section `[listen]` is invalid.
    """
    return read_configuration(path, _Listen).listen


class _Listen(BaseModel):
    """A configuration file of which only the section `[listen]` is read."""

    listen: ListenSection = ListenSection()


def read_configuration(path: Path, model: type[_Read]) -> _Read:
    """Read a TOML file, and validate its content.

    Args:
        path: Path of the file.
        model: The pydantic model that the content must match.

    Raises:
        ConfigError: the file cannot be read or is invalid.
    """
    try:
        return model.model_validate(tomllib.loads(read_regular_file(path).decode("utf-8-sig")))
    except OSError as error:
        raise ConfigError(f"{path}: {reason(error)}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: not valid TOML: {error}") from error
    except ValidationError as error:
        problems = "".join(f"\n  {complaint}" for complaint in complaints(error, model))
        raise ConfigError(f"{path}:{problems}") from error


def read_file(name: str, path: Path) -> bytes:
    """Return the content of the file of a setting.

    Args:
        name: The setting.
        path: Path of the file.

    Raises:
        ConfigError: the file cannot be read, or is a secret but not private.
    """
    try:
        return read_regular_file(path, private=name in _SECRETS)
    except OSError as error:
        raise ConfigError(f"{name}: {path}: {reason(error)}") from error


def _require_writable(name: str, path: Path, apart: list[Path]) -> None:
    """Check that the service could write a file or create a socket. Nothing is changed.

    Args:
        name: Setting of the file or socket.
        path: Path of the file or socket.
        apart: Paths of the service's further files.

    Raises:
        ConfigError: the file cannot be written.
    """
    if any(path.is_relative_to(folder) and not folder.exists() for folder in _MADE_BY_SYSTEMD):
        return
    exists, renamed = os.path.lexists(path), name == "--record" and _has_content(path)
    try:
        if name.startswith("listen."):
            if exists and not path.is_socket():
                raise ConfigError(f"{name}: {path} exists and is not a socket")
            require_creatable(path)
        elif name in {"store.path", "accounting.database"}:
            if exists:
                require_writable(path)
            require_creatable(path, makes_folder=True)  # SQLite writes further files there
        elif exists and not renamed:
            os.close(open_for_writing(str(path), os.O_WRONLY, apart=apart))
        else:
            require_creatable(path, makes_folder=name == "recorder.file")
        if not name.startswith("listen.") and not path.is_char_device():
            require_own_folder(path)
    except OSError as error:
        raise ConfigError(f"{name}: {path}: {reason(error)}") from error


def _has_content(path: Path) -> bool:
    """Return whether a path leads to a regular file with content."""
    return path.is_file() and path.stat().st_size > 0


_MADE_BY_SYSTEMD = tuple(Path(parent, "longshare") for parent in ("/run", "/var/lib", "/var/log"))
"""Folders of the service's unit. systemd creates them at the start."""
_SECRETS = frozenset({"store.credentials", "listen.tls.key"})
"""Settings whose files only the service's own user may be able to read."""
_COMPANIONS = ("-journal", "-wal", "-shm")
"""Suffixes of the files that SQLite writes next to a database file."""


def _require_distinct(written: dict[str, Path], read: dict[str, Path]) -> None:
    """Check that each file to write differs from every other file, also through links.

    Args:
        written: Files that the service writes, by setting.
        read: Files that the service only reads, by setting.

    Raises:
        ConfigError: two settings lead to the same file, and the service writes it.
    """
    known: dict[object, str] = {}
    for name, path in (*read.items(), *written.items()):
        endings = ("", *_COMPANIONS) if name in {"store.path", "accounting.database"} else ("",)
        for ending in endings:
            for identity in _identities(Path(f"{path}{ending}")):
                owner = known.setdefault(identity, name)
                if owner != name and name in written:
                    raise ConfigError(
                        f"{name}: {path} is also the file of {owner}, and the service writes "
                        f"{name}; give each a path of its own"
                    )


def _identities(path: Path) -> list[object]:
    """Return values by which `_require_distinct` recognises two paths to the same file.

    Two such paths have a value in common. The values are the resolved path and, of an existing
    file, the device and inode numbers.
    """
    identities: list[object] = [Path(os.path.realpath(path))]
    try:
        status = path.stat()
    except OSError:  # the file is created later, or opening it reports the error
        return identities
    if not stat.S_ISCHR(status.st_mode):
        identities.append((status.st_dev, status.st_ino))
    return identities


def _require_plain(name: str, path: Path, *, secret: bool) -> None:
    """Check that a file is a regular file, and that a secret is private. A missing file passes.

    Args:
        name: Setting of the file, for the error.
        path: Path of the file.
        secret: Whether the file contains a secret.

    Raises:
        ConfigError: the file is of the wrong kind, or is a secret that other users can read.
    """
    try:
        require_regular_file(path, path.stat(), private=secret)
    except FileNotFoundError:  # the file may be created before the service starts
        return
    except OSError as error:
        raise ConfigError(f"{name}: {path}: {reason(error)}") from error


def _has_password(database: str | None) -> bool:
    """Return whether a database's URL contains a password."""
    if database is None or "://" not in database:
        return False
    try:
        parts = urlsplit(database)
        return parts.password is not None or "password" in parse_qs(parts.query)
    except ValueError:
        return False
