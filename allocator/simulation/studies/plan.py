"""The file of a sweep: traces, policies, loads and rules of a study."""

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

from allocator.complaints import complaints
from allocator.simulation.holding import Blocking
from allocator.simulation.setting import LARGEST_LOAD, LEAST_LOAD, Setting

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable


def _large_enough(load: float) -> float:
    """Return a load that is large enough for a nonempty pool, or raise an error."""
    if load < LEAST_LOAD:
        raise ValueError(f"it must be at least {LEAST_LOAD:g}")
    return load


Value = float | str
"""Value of a policy's parameter."""
Load = Annotated[
    float, Field(gt=0, allow_inf_nan=False), Field(le=LARGEST_LOAD), AfterValidator(_large_enough)
]


class SweepError(ValueError):
    """The file of a sweep is invalid; the message gives the place and the reason."""


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class TraceFile(_Strict):
    """An existing trace.

    Args:
        path: Parquet file, relative to the sweep's file.
    """

    path: Path


class Generated(_Strict):
    """Generated traces, one for each seed.

    Args:
        generate: Name of the generator.
        tasks: Number of tasks; None selects the generator's own number.
        seeds: Seeds, one trace for each.
    """

    generate: str
    tasks: Annotated[int, Field(gt=0)] | None = None
    seeds: Annotated[tuple[int, ...], Field(min_length=1)] = (1,)


class Recorded(_Strict):
    """A recorded workload in the folder LONGSHARE_DATA, omitted if its file does not exist.

    Args:
        recorded: Name of the file, in the Standard Workload Format.
    """

    recorded: str


class Policies(BaseModel):
    """A policy, with one or several values for each of its parameters.

    Args:
        policy: Name of the policy.
        per: Whether a user or a job counts as the policy's user.
        sampled: Interval at which the policy's accounts are updated: "original" for that of the
            emulated scheduler, or a duration such as "5m". None keeps exact accounts.
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
        """Yield all combinations of parameters."""
        extra: dict[str, Any] = self.__pydantic_extra__ or {}
        values = [value if isinstance(value, list) else [value] for value in extra.values()]
        for chosen in itertools.product(*values):
            yield dict(zip(extra, chosen, strict=True))


class Grid(_Strict):
    """A grid: every policy at every load.

    Args:
        policies: The policies to compare.
        loads: Capacities as fractions of the trace's mean use; empty selects the trace's machines.
        blocking: Rule for the case that the next task of the first user does not fit.
        users: Whether all users count from the start.
        engine: `fast` where supported; `reference` measures the time of each operation.
        keep: `tasks` also keeps each task's wait and each job's times. `windows` also keeps the
            evenness of users' shares over time windows, and the tail of tasks' waits.
        events: Whether the Live Tree's events are counted, which increases the run time by half.
        liars: Number of users that lie, one at a time and in every way, to measure their gains.
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
    """A study.

    Args:
        title: Title in one line.
        traces: Traces to simulate.
        grids: Settings to simulate on each trace.
    """

    title: str
    traces: Annotated[tuple[TraceFile | Generated | Recorded, ...], Field(min_length=1)]
    grids: Annotated[tuple[Grid, ...], Field(min_length=1, alias="grid")]


def names() -> list[str]:
    """Return the names of the studies that are part of Longshare."""
    return sorted(
        entry.name.removesuffix(".toml")
        for entry in files(__package__).iterdir()
        if entry.name.endswith(".toml")
    )


def read_sweep(source: str) -> tuple[Sweep, Path]:
    """Read the file of a sweep, or a study of Longshare by its name.

    Returns:
        The sweep and the folder of its file.

    Raises:
        SweepError: The file does not exist or is invalid.
    """
    file: Traversable = Path(source)
    if source in names():
        file = files(__package__) / f"{source}.toml"
    try:
        sweep = Sweep.model_validate(tomllib.loads(file.read_text(encoding="utf-8")))
    except OSError as error:
        raise SweepError(
            f"{source}: {error.strerror}; name a file, or a study: {', '.join(names())}"
        ) from error
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise SweepError(f"{source}: {error}") from error
    except ValidationError as error:
        raise SweepError(f"{source}: {'; '.join(complaints(error, Sweep))}") from error
    return sweep, Path(source).parent
