"""A sweep's file: which traces, policies, loads and rules a study tries."""

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
    """Accept a load at which a pool is not empty."""
    if load < LEAST_LOAD:
        raise ValueError(f"it must be at least {LEAST_LOAD:g}")
    return load


Value = float | str
"""Of a policy's parameter."""
Load = Annotated[
    float, Field(gt=0, allow_inf_nan=False), Field(le=LARGEST_LOAD), AfterValidator(_large_enough)
]


class SweepError(ValueError):
    """A sweep's file cannot be used; the message says where and why."""


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class TraceFile(_Strict):
    """A trace that is there.

    Args:
        path: Parquet; seen from the sweep's file.
    """

    path: Path


class Generated(_Strict):
    """Traces that the generator makes, one for each seed.

    Args:
        generate: The generator's name.
        tasks: How many; the generator's own number if not given.
        seeds: One trace for each.
    """

    generate: str
    tasks: Annotated[int, Field(gt=0)] | None = None
    seeds: Annotated[tuple[int, ...], Field(min_length=1)] = (1,)


class Recorded(_Strict):
    """A workload of real people, in the folder that LONGSHARE_DATA names; left out without it.

    Args:
        recorded: The file's name there, in the Standard Workload Format.
    """

    recorded: str


class Policies(BaseModel):
    """A policy, and for each of its parameters a value or several.

    Args:
        policy: Its name.
        per: Who a user is to it.
        sampled: Look at users as seldom as its original does ("original"), or so often ("5m").
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
        """Go through the combinations of parameters."""
        extra: dict[str, Any] = self.__pydantic_extra__ or {}
        several = [value if isinstance(value, list) else [value] for value in extra.values()]
        for chosen in itertools.product(*several):
            yield dict(zip(extra, chosen, strict=True))


class Grid(_Strict):
    """Every policy at every load.

    Args:
        policies: What is compared.
        loads: Capacities as fractions of the trace's mean use; none: the trace's machines.
        blocking: What happens when the next task of who is next does not fit.
        users: Whether all users count from the start.
        engine: `fast` where it can; `reference` measures the time of each operation.
        keep: `tasks` keeps each task's wait and each job's times beside the users' figures;
            `windows` how even users' parts were, window by window, and the tail of tasks' waits.
        events: Whether the Live Tree's events are counted, which takes half as long again.
        liars: How many users lie, one at a time and in every way, to see what they gain.
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
        title: A line about it.
        traces: What is simulated.
        grids: What is tried on each trace.
    """

    title: str
    traces: Annotated[tuple[TraceFile | Generated | Recorded, ...], Field(min_length=1)]
    grids: Annotated[tuple[Grid, ...], Field(min_length=1, alias="grid")]


def names() -> list[str]:
    """Return the names of the studies that come with Longshare."""
    return sorted(
        entry.name.removesuffix(".toml")
        for entry in files(__package__).iterdir()
        if entry.name.endswith(".toml")
    )


def read_sweep(source: str) -> tuple[Sweep, Path]:
    """Read a sweep's file, or one of the studies by its name; return it and where it lies.

    Raises:
        SweepError: there is none, or it cannot be used.
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
