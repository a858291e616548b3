"""The service's configuration: one TOML file, validated before anything starts."""

import math
import os
import stat
import tomllib
from pathlib import Path
from typing import Annotated, Any, Literal, Self, TypeVar
from urllib.parse import urlsplit

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
from allocator.cluster.agents.placement_constraints import Constraint, Hosts, parse_attributes
from allocator.cluster.backfill.holds import Holding
from allocator.cluster.input.limits import Limits
from allocator.cluster.settings import DeclaredUser, EngineSettings, UserKey
from allocator.complaints import complaints
from allocator.conformance import complaints as complaints_about
from allocator.fairness.bounds import LARGEST_WEIGHT, LEAST_WEIGHT
from allocator.fairness.policies import Policy
from allocator.fairness.quantities import Quantities
from allocator.files import read_plain, require_plain
from allocator.service.addresses import DEFAULT, host_and_port, is_local, target

DEFAULT_POLICY: dict[str, Any] = {"name": "sdrf", "half_life": "1h"}
"""An hour: long enough to remember a burst of batch jobs, short enough to forget a mistake."""


_TRIALS = 25
"""Of each of the claims that a policy from outside is held against before it is served."""
_Read = TypeVar("_Read", bound=BaseModel)
_PSYCOPG = "postgresql+psycopg://"


_MOST = 1_000_000_000
"""Largest count, number of bytes or seconds in a setting: more than any cluster needs."""
_LONGEST_PATH = 4095
_LONGEST_NAME = 255
"""Bytes of a path, and of a name in it, that Linux takes."""


class ConfigError(ValueError):
    """The configuration cannot be used; the message says where and why."""


class _Section(BaseModel):
    """Its docstrings are the descriptions in docs/configuration.md, see docs/generate.py."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    @field_validator("*", mode="before")
    @classmethod
    def _plausible(cls, value: object, info: ValidationInfo) -> object:
        """Refuse values that would be taken for other ones: true for 1, and text with a NUL."""
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


def _possible_path(path: Path) -> Path:
    """Accept a path that a file can have.

    Raises:
        ValueError: The path is empty or too long.
    """
    if path == Path():
        raise ValueError("the path names no file")
    if len(os.fsencode(path)) > _LONGEST_PATH:
        raise ValueError(f"the path has more than {_LONGEST_PATH} bytes")
    if any(len(os.fsencode(name)) > _LONGEST_NAME for name in path.parts):
        raise ValueError(f"a name in the path has more than {_LONGEST_NAME} bytes")
    return path


_Path = Annotated[Path, AfterValidator(_possible_path)]


class PolicySection(BaseModel):
    """`[policy]`: a name and that policy's own parameters."""

    model_config = ConfigDict(extra="allow", frozen=True)

    name: str
    file: Path | None = None

    @model_validator(mode="after")
    def _known(self) -> Self:
        made = self.create()
        found = complaints_about(made, trials=_TRIALS) if made.origin is not None else []
        if found:
            told = "; ".join(f"not so: {each.claim} ({each.case})" for each in found)
            raise ValueError(f"{self.name!r} cannot be served: {told}")
        return self

    def create(self) -> Policy:
        """Make the policy."""
        if self.file is not None:
            brought = plugins.load_trusted(self.file)
            if self.name not in brought:
                raise ValueError(f"{self.file} defines {', '.join(brought)}, not {self.name!r}")
        return plugins.create(self.name, self.model_extra or {})


MOST_SHADOWS = 4
"""Each costs what ranking costs."""


class ShadowSection(PolicySection):
    """`[[shadow]]`: a policy that follows the same events and decides nothing."""

    @property
    def label(self) -> str:
        """How it is called: its name and what it is told."""
        told = ", ".join(f"{name}={value}" for name, value in (self.model_extra or {}).items())
        return f"{self.name} {told}" if told else self.name


class UserSection(_Section):
    """`[[users.declared]]`: a user that is known before its first framework shows up."""

    name: Annotated[str, Field(min_length=1)]
    """As the master knows it: a role, or what `users.key` says."""
    weight: Annotated[float, Field(ge=LEAST_WEIGHT, le=LARGEST_WEIGHT)] = 1.0
    """Its part of the cluster is this of the sum of all known users'."""
    commitment: (
        Annotated[float, Field(ge=0, le=1)] | dict[str, Annotated[float, Field(ge=0, le=1)]]
    ) = 0.0
    """What it owes in the beginning, in fractions of the cluster: of every resource, or as
    `{ cpus = 0.5 }`.
    """


class UsersSection(_Section):
    """`[users]`: what a user is, and who is known from the start."""

    key: UserKey = "role"
    """What a user is."""
    forget_after: Annotated[float, Field(gt=0, le=_MOST)] = 86400.0
    """Seconds without frameworks and debts after which an undeclared user is forgotten."""
    counts_for: Annotated[float, Field(ge=1)] = 4.0
    """How many times its use a user counts for at most in the sum of weights, if no operator has
    named it. Its use is the larger of the resources that its tasks hold now and their average. The
    average decays as commitments do. `inf`: every known user counts with its whole weight, as in
    the papers. See [who counts as a user](policies.md#who-counts-as-a-user).
    """
    declared: tuple[UserSection, ...] = ()

    @field_validator("declared")
    @classmethod
    def _distinct(cls, declared: tuple[UserSection, ...]) -> tuple[UserSection, ...]:
        names = [user.name for user in declared]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ValueError(f"declared twice: {', '.join(twice)}")
        return declared


class OffersSection(_Section):
    """`[offers]`: when resources are offered, and in what portions."""

    allocation: Literal["event", "batch"] = "event"
    """Whether freed resources are offered at once, or once per allocation interval as stock Mesos
    does.
    """
    demands: dict[str, str] = {}
    """What one task needs, by framework name: `{ spark = "cpus:1;mem:1024" }`."""
    whole_from: Annotated[int, Field(ge=0, le=_MOST)] = 100
    """With so many agents free at once, as after a failover, each framework's tasks are laid on as
    few as will do of those that it may use and does not refuse; with fewer, or with quotas,
    frameworks share each agent. Everybody gets as many tasks either way, or where tasks have
    several sizes, or not all may use the same agents, about as many, in fewer offers and so in
    less time. 0: agents are always shared.
    """
    hold_for: Holding = "off"
    """For how many frameworks at a time an agent may be held back, because the task that they say
    they have fits nowhere now and would on it if it were empty: none, one, or all.
    """
    longest_hold: Annotated[float, Field(gt=0, le=86400.0)] = 600.0
    """Seconds for which an agent is held back at most."""
    learn_demands: bool = False
    """Whether to take what a framework keeps of its offers for its task's demand, if neither it nor
    you say.
    """

    @field_validator("demands")
    @classmethod
    def _amounts(cls, demands: dict[str, str]) -> dict[str, str]:
        for framework, demand in demands.items():
            try:
                empty = not Quantities.parse(demand)
            except ValueError as error:
                raise ValueError(f"{framework}: {error}") from error
            if empty:
                raise ValueError(f"{framework}: no task needs nothing")
        return demands


def _hosts(items: tuple[str, ...]) -> tuple[str, ...]:
    """Accept names, globs, addresses, ranges and networks."""
    return Hosts(items).items


def _attributes(items: tuple[str, ...]) -> tuple[str, ...]:
    """Accept NAME:VALUE."""
    parse_attributes(items)
    return items


_LIMITS = Limits()


class LimitsSection(_Section):
    """`[limits]`: how much of one thing anybody may say; whoever goes beyond is set aside alone."""

    subscription: Annotated[int, Field(ge=1024, le=_MOST)] = _LIMITS.subscription
    """Bytes of what a framework, or an agent, says of itself."""
    name: Annotated[int, Field(ge=64, le=_MOST)] = _LIMITS.name
    """Bytes of a role, of a framework's name, of a principal."""
    role_depth: Annotated[int, Field(ge=1, le=200)] = _LIMITS.role_depth
    """Levels of a role: `eng/web` has two."""
    roles: Annotated[int, Field(ge=1, le=_MOST)] = _LIMITS.roles
    """Of one framework, with all roles above them: `eng/web` and `eng/db` are three."""
    all_roles: Annotated[int, Field(ge=1, le=_MOST)] = _LIMITS.all_roles
    """Roles of all frameworks together, counted for each framework; one takes some 3 kB of memory.
    A principal may have half of what others leave, and so may all frameworks without one together.
    A framework with four roles or fewer does not count and always gets them. One that asks for
    more than are left is set aside until it subscribes again, or a snapshot comes."""
    label: Annotated[int, Field(ge=64, le=_MOST)] = _LIMITS.label
    """Characters of a label that Longshare reads."""
    patterns: Annotated[int, Field(ge=0, le=_MOST)] = _LIMITS.patterns
    """Globs, ranges and networks in each of a framework's lists of hosts; names do not count."""
    attributes: Annotated[int, Field(ge=0, le=_MOST)] = _LIMITS.attributes
    """Attributes that a framework asks for."""
    resources: Annotated[int, Field(ge=8, le=_MOST)] = _LIMITS.resources
    """Different resources in a demand, a request or a minimum that a framework states, and
    alternatives to the latter.
    """
    smallest_demand: Annotated[float, Field(ge=0.0, le=1.0)] = _LIMITS.smallest_demand
    """The least that a task counts as where agents are filled task by task, as a part of what the
    largest agent has of some resource: a framework whose tasks need less gets several at a time. So
    however small its tasks, an agent is not divided into more parts than that. 0: no such bound.
    """
    unanswered: Annotated[float, Field(gt=0.0, le=1.0)] = _LIMITS.unanswered
    """The part of the cluster, in any resource, up to which one framework is offered more while it
    has not answered; the agent that reaches it is still offered as a whole. So one that hoards
    offers leaves the rest to others. Masters say since Mesos 1.10 what is only offered; before,
    this does nothing without `answered_after`. 1: no such bound, as in stock Mesos.
    """
    answered_after: Annotated[float, Field(ge=0.0, le=1e9)] = _LIMITS.answered_after
    """Before Mesos 1.10, where the master does not say what is used: seconds after which an offer
    of which nothing has come back is taken to be used. Until then it counts as unanswered, so
    that `unanswered` bounds who hoards there as well. Set it longer than the master's
    `--offer_timeout`. It costs whoever fills offers to the brim that it gets no more than that
    part of the cluster in that time. 0: what is offered is taken to be used.
    """
    resource: Annotated[int, Field(ge=1024, le=_MOST)] = _LIMITS.resource
    """Bytes of one resource of an agent, with all its ranges, items and labels."""
    idle_users: Annotated[int, Field(ge=0, le=_MOST)] = _LIMITS.idle_users
    """Users without frameworks and debts that stay known; beyond, some are forgotten before
    `users.forget_after`: those that have used least on average, and of equals those longest idle.
    """

    def limits(self) -> Limits:
        """Return what of it concerns the engine."""
        return Limits(**self.model_dump())


class ConstraintSection(_Section):
    """`[constraints.FRAMEWORK]`: where the tasks of the framework of that name may run."""

    whitelist: Annotated[tuple[str, ...], AfterValidator(_hosts)] = ()
    """Hosts on which alone tasks of the framework of that name may run."""
    blacklist: Annotated[tuple[str, ...], AfterValidator(_hosts)] = ()
    """Hosts on which they may not."""
    attributes: Annotated[tuple[str, ...], AfterValidator(_attributes)] = ()
    """Attributes that an agent must have, all of them: `["rack:1", "disk:ssd"]`."""

    def constraint(self) -> Constraint:
        """Return what it says."""
        return Constraint(
            Hosts(self.whitelist), Hosts(self.blacklist), parse_attributes(self.attributes)
        )


class TlsSection(_Section):
    """`[listen.tls]`: files in PEM format."""

    certificate: _Path
    """PEM file of the service, with certificates between it and the authority."""
    key: _Path
    """PEM file of the certificate's key."""
    client_ca: _Path | None = None
    """PEM file: only whoever shows a certificate of this authority may connect."""


class RightsSection(_Section):
    """`[listen.rights]`: who may do what, by the names in a certificate; globs, as `"master-*"`.

    Whoever is not named may do nothing. Absent the section, whoever can connect may do everything.
    """

    masters: tuple[str, ...] = ()
    """Who may be a master: its stream is obeyed."""
    operators: tuple[str, ...] = ()
    """Who may give orders, and read."""
    readers: tuple[str, ...] = ()
    """Who may read only: `longshare shares`, `explain`, `forecast`, `top`, `usage` and `audit`."""


class ListenSection(_Section):
    """`[listen]`: where masters and operators connect."""

    address: Annotated[str, AfterValidator(target)] = DEFAULT
    """Where masters and operators connect: `"unix:///PATH"` or `"HOST:PORT"`."""
    operators: Annotated[str, AfterValidator(target)] | None = None
    """Where operators connect, so that `address` is for masters alone, and who can reach the one
    cannot do what the other may.
    """
    tls: TlsSection | None = None
    rights: RightsSection | None = None
    largest_message: Annotated[int, Field(ge=2**16, lt=2**31)] = 256 * 2**20
    """Bytes of a message; a snapshot of 10⁴ agents and 10³ frameworks is a tenth of the default."""
    most_parts: Annotated[int, Field(ge=2**10, lt=2**31)] = 2**23
    """Parts of a message, at all depths together: agents, resources, names. Each takes some hundred
    bytes of memory, however short it is, and whatever takes more counts for several: an agent for
    20, a framework for 24, a resource for 12 and one more for each 16 bytes.
    """
    sessions: Annotated[int, Field(ge=1, le=1000)] = 16
    """Masters on standby at once; the one that leads always has room."""
    virtual_clocks: bool = False
    """Whether a master may say that its clock is virtual, as in tests and accelerated experiments:
    debts then fade as that clock says, not as time passes.
    """

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.rights is not None and (self.tls is None or self.tls.client_ca is None):
            raise ValueError("rights go by certificates: give [listen.tls] with a client_ca")
        if self.operators == self.address:
            raise ValueError("operators is the same as address; leave it out")
        return self

    def require_protection(self) -> None:
        """Refuse to be reached by strangers.

        Raises:
            ConfigError: other machines can connect, and need not show a certificate.
        """
        if self.tls is not None and self.tls.client_ca is not None:
            return
        for name, address in (("address", self.address), ("operators", self.operators)):
            if address is not None and not is_local(address):
                raise ConfigError(
                    f"listen.{name}: {address!r} can be reached from other machines, and whoever "
                    "does decides about the cluster; give [listen.tls] with a client_ca, listen on "
                    "127.0.0.1, [::1] or a Unix socket, or say --insecure if something else "
                    "protects it"
                )


class MetricsSection(_Section):
    """`[metrics]`: where Prometheus scrapes."""

    address: Annotated[str, AfterValidator(host_and_port)] = "127.0.0.1:9105"
    """Where Prometheus scrapes `/metrics`, with `/healthz` and, at `/`, a page for people:
    `"HOST:PORT"`; port 0: any.
    """
    public: bool = False
    """Whether to listen beyond this machine: everybody there may read, without a password."""
    hosts: tuple[str, ...] = ()
    """Names by which browsers and Prometheus ask for this port, beside `localhost`, this machine's
    host name and addresses; others are refused (421).
    """
    users: Annotated[int, Field(ge=1, le=100_000)] = 2000
    """Users that have metrics of their own, and roles: those who hold or owe most, then those known
    longest; and how many come to have them in an hour who did not. `longshare_unlisted_users` says
    how many have none.
    """

    @model_validator(mode="after")
    def _meant(self) -> Self:
        if not self.public and not is_local(self.address):
            raise ValueError(
                f"{self.address!r} can be reached from other machines; say public = true if "
                "everybody there may know how users stand"
            )
        return self


def _state_directory() -> Path:
    """Return where this service is to keep what must survive it."""
    given = os.environ.get("STATE_DIRECTORY", "").partition(":")[0]  # from systemd
    if given:
        return Path(given)
    base = os.environ.get("XDG_STATE_HOME", "")
    return (Path(base) if base else Path.home() / ".local" / "state") / "longshare"


class StoreSection(_Section):
    """`[store]`: where what users owe outlives the service."""

    kind: Literal["sqlite", "zookeeper", "none"] = "sqlite"
    """A file on a local disk; for masters that fail over between machines; or nothing is kept."""
    path: _Path = Field(default_factory=lambda: _state_directory() / "commitments.sqlite")
    """SQLite's file, made with its folder if it is not there; if absent `commitments.sqlite` in
    `$STATE_DIRECTORY` (systemd), else in `$XDG_STATE_HOME/longshare`, else in
    `~/.local/state/longshare`.
    """
    on_damage: Literal["stop", "set aside"] = "stop"
    """What to do at the start with a store that is ours and damaged: end, so that somebody restores
    it; or keep it under another name, and begin as if nobody owed anything.
    """
    every: Annotated[float, Field(ge=0.05, le=60)] = 1.0
    """Seconds of the wall's clock between saves: a crash costs what changed within."""
    hosts: Annotated[str, Field(min_length=1)] | None = None
    """ZooKeeper's servers, needed if it is the store: `"zk1:2181,zk2:2181,zk3:2181"`."""
    znode: Annotated[str, Field(pattern=r"^(/[^/]+)+$")] = "/longshare/commitments"
    """Path of ZooKeeper's node."""
    credentials: _Path | None = None
    """A file with one line `USER:PASSWORD`; the node is then open to that user alone (digest),
    otherwise to everybody who reaches ZooKeeper.
    """

    def secret(self) -> str | None:
        """Read ZooKeeper's user and password; None: there are none.

        Raises:
            ConfigError: the file cannot be read, says something else, or is open to everybody.
        """
        if self.credentials is None:
            return None
        try:
            credentials = read_plain(self.credentials, private=True).decode("utf-8").strip()
        except OSError as error:
            raise ConfigError(f"store.credentials: {self.credentials}: {error.strerror}") from error
        except UnicodeDecodeError as error:
            raise ConfigError(f"store.credentials: {self.credentials}: {error}") from error
        if not all(credentials.partition(":")):
            raise ConfigError(
                f"store.credentials: {self.credentials} does not contain USER:PASSWORD"
            )
        return credentials

    @model_validator(mode="after")
    def _fits_its_kind(self) -> Self:
        of_others = {
            "sqlite": {"hosts", "znode", "credentials"},
            "zookeeper": {"path"},
            "none": {"path", "on_damage", "every", "hosts", "znode", "credentials"},
        }[self.kind]
        useless = sorted(of_others & self.model_fields_set)
        if useless:
            raise ValueError(f"a store of kind {self.kind!r} has no {', '.join(useless)}")
        if self.kind == "zookeeper" and self.hosts is None:
            raise ValueError("a store of kind 'zookeeper' needs hosts, as in 'zk1:2181,zk2:2181'")
        return self


def _database(where: str) -> str:
    """Accept the URL of a PostgreSQL database, the path of a SQLite file, or `none`."""
    if not where or ("://" in where and not where.startswith(("postgresql://", _PSYCOPG))):
        raise ValueError(f"{where!r} is neither postgresql://HOST/DATABASE, nor a path, nor 'none'")
    if "://" not in where:
        _possible_path(Path(where))
    return where


class AccountingSection(_Section):
    """`[accounting]`: who used what, and who ordered what, in a database."""

    database: Annotated[str, AfterValidator(_database)] | None = None
    """`"postgresql://HOST/DATABASE"`, the path of a SQLite file, or `"none"`; if absent
    `accounting.sqlite` beside the store's file, or where that would be by default; `"none"` if the
    store's kind is that, or if the extra `longshare[accounting]` is not installed.
    """
    every: Annotated[float, Field(ge=1, le=3600)] = 30.0
    """Seconds of the wall's clock between writes."""
    hours: Annotated[int, Field(ge=2, le=400)] = 35
    """Days for which each hour is kept; what is older is added up by day."""
    days: Annotated[int, Field(ge=2, le=36500)] = 1830
    """Days after which nothing is kept, nor of orders."""
    users: Annotated[int, Field(ge=1, le=100_000)] = 2000
    """Users that have rows of their own in a day; what further ones have had is added up under
    `(others)`.
    """

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if self.days < self.hours:
            raise ValueError(f"days is {self.days}, less than hours, {self.hours}")
        return self


class RecorderSection(_Section):
    """`[recorder]`: a file of shares and commitments over time."""

    file: _Path
    """A CSV file, overwritten when the first event comes."""
    every: Annotated[float, Field(ge=0.001, le=_MOST)] = 1.0
    """Seconds of the master's clock between samples; the file's times have three decimals. One
    message of the master has 20,000 rows written at the most, but one sample in any case.
    """


class LogSection(_Section):
    """`[log]`: how much is said, and in what form."""

    format: Literal["console", "json"] = "console"
    """For people, or for programs: one object a line."""
    level: Literal["debug", "info", "warning", "error"] = "info"
    """The least that is worth a line."""


class Config(_Section):
    """All of it; every section has a default."""

    policy: PolicySection = PolicySection.model_validate(DEFAULT_POLICY)
    shadow: Annotated[tuple[ShadowSection, ...], Field(max_length=MOST_SHADOWS)] = ()
    users: UsersSection = UsersSection()
    offers: OffersSection = OffersSection()
    limits: LimitsSection = LimitsSection()
    constraints: dict[str, ConstraintSection] = {}
    listen: ListenSection = ListenSection()
    metrics: MetricsSection = MetricsSection()
    store: StoreSection = Field(default_factory=StoreSection)
    accounting: AccountingSection = AccountingSection()
    recorder: RecorderSection | None = None
    log: LogSection = LogSection()

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.offers.hold_for != "off" and self.policy.create().per_machine:
            raise ValueError(
                f"offers.hold_for: under {self.policy.name} nobody is next on all agents, so none "
                "can be held back for anybody; leave it out"
            )
        return self

    def accounting_database(self) -> str | None:
        """Return where to keep accounts: a URL or a path; None: nowhere."""
        where = self.accounting.database
        if where is None and self.store.kind != "none":
            return str(self.store.path.with_name("accounting.sqlite"))
        return None if where == "none" else where

    @model_validator(mode="after")
    def _shadows_can_follow(self) -> Self:
        counts = self.policy.create().counts_tasks
        labels = [shadow.label for shadow in self.shadow]
        for shadow in self.shadow:
            policy = shadow.create()
            if policy.per_machine:
                raise ValueError(f"shadow {shadow.label}: it has no one order to be shown")
            if policy.counts_tasks and not counts:
                raise ValueError(
                    f"shadow {shadow.label}: it counts tasks, and can follow such policies alone"
                )
            if labels.count(shadow.label) > 1:
                raise ValueError(f"shadow {shadow.label}: it is given twice")
        return self

    def require_files(self, own: Path, record: Path | None = None) -> None:
        """Refuse files that would overwrite each other, and secrets that everybody may read.

        Args:
            own: The configuration file.
            record: The event log, if there is to be one.

        Raises:
            ConfigError: a file that the service writes is named twice. Or a file that exists is of
                the wrong kind, or holds a secret and is open to every user of the machine.
        """
        written, read = self._files(own, record)
        _require_distinct(written, read)
        for name, path in read.items():
            _require_plain(name, path, secret=name in _SECRETS)
        if _has_password(self.accounting.database):
            _require_plain("accounting.database has a password", own, secret=True)

    def apart_from(self, name: str, record: Path | None = None) -> list[Path]:
        """Return the other files of the service that one may never be, with SQLite's companions.

        Args:
            name: The setting of the one, as "recorder.file".
            record: The event log, if there is to be one.
        """
        written, read = self._files(None, record)
        return [
            Path(f"{path}{ending}")
            for other, path in (*written.items(), *read.items())
            for ending in ("", *_BESIDE)
            if other != name
        ]

    def _files(
        self, own: Path | None, record: Path | None
    ) -> tuple[dict[str, Path], dict[str, Path]]:
        """Return the files that the service writes, and those that it only reads, by setting."""
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
        """Return the policies that follow, by label."""
        return {shadow.label: shadow.create() for shadow in self.shadow}

    def engine_settings(self) -> EngineSettings:
        """Return what of it concerns the engine."""
        return EngineSettings(
            policy=self.policy.create(),
            user_key=self.users.key,
            forget_after=self.users.forget_after,
            roles_leave_room=True,
            counts_for=None if math.isinf(self.users.counts_for) else self.users.counts_for,
            allocation=self.offers.allocation,
            demands={name: Quantities.parse(text) for name, text in self.offers.demands.items()},
            constraints={name: each.constraint() for name, each in self.constraints.items()},
            whole_from=self.offers.whole_from,
            exact_ties=False,
            learn_demands=self.offers.learn_demands,
            hold_for=self.offers.hold_for,
            longest_hold=self.offers.longest_hold,
            hold_by_turns=True,
            shared_volumes_once=True,
            limits=self.limits.limits(),
            users=tuple(
                DeclaredUser(user.name, user.weight, user.commitment)
                for user in self.users.declared
            ),
        )


def load(path: Path) -> Config:
    """Read and validate a configuration file.

    Raises:
        ConfigError: the file cannot be read, is not TOML, or says something that cannot be;
            the message names the file, each key, and what is wrong with it.
    """
    return _read(path, Config)


def load_listen(path: Path) -> ListenSection:
    """Read where a service listens; other sections are not looked at, and no policy is loaded.

    Raises:
        ConfigError: as `load`.
    """
    return _read(path, _Listen).listen


class _Listen(BaseModel):
    listen: ListenSection = ListenSection()


def _read(path: Path, model: type[_Read]) -> _Read:
    try:
        return model.model_validate(tomllib.loads(read_plain(path).decode("utf-8")))
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: not valid TOML: {error}") from error
    except ValidationError as error:
        found = "".join(f"\n  {complaint}" for complaint in complaints(error, model))
        raise ConfigError(f"{path}:{found}") from error


_SECRETS = frozenset({"store.credentials", "listen.tls.key"})
_BESIDE = ("-journal", "-wal", "-shm")
"""Endings of what SQLite writes beside its file."""


def _require_distinct(written: dict[str, Path], read: dict[str, Path]) -> None:
    known: dict[object, str] = {}
    for name, path in (*read.items(), *written.items()):
        endings = ("", *_BESIDE) if name in {"store.path", "accounting.database"} else ("",)
        for ending in endings:
            for identity in _identities(Path(f"{path}{ending}")):
                owner = known.setdefault(identity, name)
                if owner != name and name in written:
                    raise ConfigError(
                        f"{name}: {path} is also the file of {owner}, and the service writes "
                        f"{name}; give each a path of its own"
                    )


def _identities(path: Path) -> list[object]:
    """Return what two names of one file have in common: where it leads, and which file it is."""
    identities: list[object] = [Path(os.path.realpath(path))]
    try:
        status = path.stat()
    except OSError:  # it is made later, or whoever opens it says what is wrong
        return identities
    if not stat.S_ISCHR(status.st_mode):
        identities.append((status.st_dev, status.st_ino))
    return identities


def _require_plain(name: str, path: Path, *, secret: bool) -> None:
    try:
        require_plain(path, path.stat(), private=secret)
    except FileNotFoundError:  # perhaps it is made before the service starts
        return
    except OSError as error:
        raise ConfigError(f"{name}: {path}: {error.strerror}") from error


def _has_password(database: str | None) -> bool:
    if database is None or "://" not in database:
        return False
    try:
        return urlsplit(database).password is not None
    except ValueError:
        return False
