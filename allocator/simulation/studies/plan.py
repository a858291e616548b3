"""The file that describes a sweep: traces to simulate, and policies, loads and rules to try."""

import itertools
import tomllib
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    model_validator,
)

from allocator.complaints import alternatives, complaints, listed
from allocator.simulation.holding import Blocking
from allocator.simulation.setting import LARGEST_LOAD, LEAST_LOAD, Setting

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable


def _large_enough(load: float) -> float:
    """Return a load unchanged; raise an error if it is too small for a pool with any capacity.

    Raises:
        ValueError: The load is too small.
    """
    if load < LEAST_LOAD:
        raise ValueError(f"it must be at least {LEAST_LOAD:g}")
    return load


Value = float | str
"""Value of a policy parameter."""
Load = Annotated[
    float, Field(gt=0, allow_inf_nan=False), Field(le=LARGEST_LOAD), AfterValidator(_large_enough)
]


class SweepError(ValueError):
    """Raised if a sweep's file is invalid; the message says where and why."""


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class TraceFile(_Strict):
    """A sweep's entry for an existing trace file.

    Args:
        path: The Parquet file, relative to the folder of the sweep's file.
    """

    path: Path


class Generated(_Strict):
    """A sweep's entry for generated traces, one per seed.

    Args:
        generate: Name of the generator.
        tasks: Number of tasks; None selects the generator's default.
        seeds: Seeds, one trace for each.
    """

    generate: str
    tasks: Annotated[int, Field(gt=0)] | None = None
    seeds: Annotated[tuple[int, ...], Field(min_length=1)] = (1,)


class Recorded(_Strict):
    """A sweep's entry for a recorded workload in the folder named by LONGSHARE_DATA.

    Without the file, the entry is skipped.

    Args:
        recorded: Name of the file, in the Standard Workload Format.
    """

    recorded: str


class Policies(BaseModel):
    """A sweep's entry for one policy. A parameter may have several values; each is simulated.

    Args:
        policy: Name of the policy.
        per: Entity that the policy treats as a user: "user" or "job".
        sampled: How the policy learns of usage: "original" samples with the emulated scheduler's
            period, a duration such as "5m" with another period. None: accounts are exact at every
            instant.
    """

    model_config = ConfigDict(extra="allow", frozen=True)

    policy: str
    per: Literal["user", "job"] = "user"
    sampled: float | str | None = None

    @model_validator(mode="after")
    def _all_exist(self) -> Self:
        for parameters in self.settings():
            Setting(self.policy, parameters, (), per=self.per, sampled=self.sampled)
        return self

    def settings(self) -> Iterator[dict[str, Value]]:
        """Yield every combination of parameter values, as arguments of the policy."""
        extra: dict[str, Any] = self.__pydantic_extra__ or {}
        values = [value if isinstance(value, list) else [value] for value in extra.values()]
        for chosen in itertools.product(*values):
            yield dict(zip(extra, chosen, strict=True))


class Grid(_Strict):
    """A sweep's entry for many simulations: each policy at each load, with common rules.

    Args:
        policies: The policies to compare.
        loads: Capacities of a pool, divided by the trace's mean use. Empty: the trace's own
            machines.
        blocking: Rule for a user whose next task does not fit on any machine now.
        users: Users among which the cluster is divided: "known" (all, from the start) or
            "appearing" (each from its first submission on).
        engine: Simulator: `fast` where it supports the options; `reference` also measures the time
            of each operation.
        keep: `tasks` also keeps each task's wait and each job's times. `windows` also keeps the
            evenness of users' shares over time windows, and the tail of tasks' waits.
        events: True to count the Live Tree's events, which increases the run time by half.
        liars: Number of users for which lies are simulated, one user at a time and every kind of
            lie, to measure their gains.
    """

    policies: Annotated[tuple[Policies, ...], Field(min_length=1)]
    loads: tuple[Load, ...] = ()
    blocking: Blocking = "head-of-line"
    users: Literal["known", "appearing"] = "known"
    engine: Literal["fast", "reference"] = "fast"
    keep: Literal["users", "tasks", "windows"] = "users"
    events: bool = True
    liars: Annotated[int, Field(ge=0)] = 0


class Sweep(_Strict):
    """Content of a sweep's file: a title, traces, and what to simulate on each trace.

    Args:
        title: Title of the report, in one line.
        traces: Traces to simulate.
        grids: Simulations to run on each trace.
    """

    title: str
    traces: Annotated[tuple[TraceFile | Generated | Recorded, ...], Field(min_length=1)]
    grids: Annotated[tuple[Grid, ...], Field(min_length=1, alias="grid")]


def names() -> list[str]:
    """Return the names of the sweeps that are part of Longshare."""
    return sorted(
        entry.name.removesuffix(".toml")
        for entry in files(__package__).iterdir()
        if entry.name.endswith(".toml")
    )


def read_sweep(source: str) -> tuple[Sweep, Path]:
    """Read a sweep from a file, or a sweep that is part of Longshare by its name.

    Returns:
        The sweep; and the folder to which paths in the file are relative.

    Raises:
        SweepError: The file does not exist or is invalid.
    """
    file: Traversable = Path(source)
    if source in names():
        file = files(__package__) / f"{source}.toml"
    try:
        sweep = Sweep.model_validate(tomllib.loads(file.read_text(encoding="utf-8-sig")))
    except OSError as error:
        raise SweepError(
            f"{source}: {error.strerror}; name a file, or a study{alternatives(source, names())}"
        ) from error
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise SweepError(f"{source}: not valid TOML: {error}") from error
    except ValidationError as error:
        raise SweepError(f"{source}: {listed(complaints(error, Sweep))}") from error
    return sweep, Path(source).parent
