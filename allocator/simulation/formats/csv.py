"""Comma-separated traces: one's own with a header, and the SDRF authors' without."""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from allocator.simulation.formats.conversion import Conversion, Gathering, LeftOut, Sieve, TaskRows
from allocator.simulation.formats.csv_cluster import Constraints, read_machines, with_users
from allocator.simulation.formats.text import (
    LONGEST,
    Rows,
    delimiter,
    header,
    integers,
    microseconds,
    missing,
    numbers,
    separated,
    with_decimal_points,
)
from allocator.simulation.trace import TraceError

_GIVEN = ("submitted_s", "runtime_s", "user", "job", "machines")
_AUTHORS = ("submitted", "again", "finished", "user", "task", "cpus", "mem")
_AUTHORS_RESOURCES = ("cpus", "mem")


def convert(path: Path, users: Path | None = None, machines: Path | None = None) -> Conversion:
    """Read `submitted_s,runtime_s,user[,job][,machines],RESOURCE,...`, in any order.

    The header names the columns; fields stand between commas, or semicolons or tabs, with which a
    number may have a decimal comma. Without a column job every task is a job of its own.

    Args:
        path: The tasks.
        users: A file of users, with weights and debts; docs/traces.md.
        machines: A file of machines, on which the column `machines` says where tasks may run.

    Raises:
        OSError: A file cannot be read.
        TraceError: A header is not of this kind, or the other files cannot be used.
    """
    names = _header(path)
    resources = tuple(name for name in names if name not in _GIVEN)
    if "machines" in names and machines is None:
        raise TraceError(f"{path} has a column machines; say with --machines which there are")
    classes = () if machines is None else read_machines(machines, resources)
    constraints = Constraints(classes)
    left_out, assumed = LeftOut(), LeftOut()
    gathering = Gathering(resources)
    mark = delimiter(path)
    for batch in separated(path, names, left_out, headed=True, delimiter=mark):
        sieve = Sieve(left_out, path.name, batch.lines)
        decimal_comma = np.zeros(len(batch), np.bool_)
        for name in ("submitted_s", "runtime_s", *resources) if mark != "," else ():
            batch.columns[name], commas = with_decimal_points(batch.columns[name])
            decimal_comma |= commas
        seconds, unreadable = numbers(batch.columns["submitted_s"])
        submitted, far = microseconds(seconds)
        sieve.drop("submission time is no number", unreadable)
        sieve.drop("submission time is negative", seconds < 0)
        sieve.drop("submission time is beyond 285 years", far)
        seconds, unreadable = numbers(batch.columns["runtime_s"])
        runtime, far = microseconds(seconds)
        sieve.drop("run time is no number", unreadable)
        sieve.drop("run time is negative", seconds < 0)
        sieve.drop("run time is beyond 285 years", far)
        if "job" in names:
            job, unreadable = integers(batch.columns["job"])
            sieve.drop("job is no whole number", unreadable)
        else:
            job = batch.lines
        constraint: NDArray[np.int32] | None = None
        if "machines" in names:
            constraint, unknown, nowhere = constraints.column(batch.columns["machines"])
            sieve.drop("names machines or an attribute that there are not", unknown)
            sieve.drop("no machine meets its constraints", nowhere)
        demand = _demand(sieve, batch, resources)
        gathering.add(
            TaskRows(submitted, runtime, batch.columns["user"], job, demand, constraint),
            sieve.kept,
        )
        assumed.add(
            "has a comma for the decimal point", path.name, batch.lines[sieve.kept & decimal_comma]
        )
    trace = gathering.trace(classes, constraints.allowed)
    return Conversion(trace if users is None else with_users(trace, users), left_out, assumed)


def convert_authors(path: Path) -> Conversion:
    """Read what the SDRF authors' simulator reads, without a header.

    Its fields: submission, the same again, finish (whole microseconds), user, task, CPU, memory.
    Every task is a job of its own.

    Raises:
        OSError: The file cannot be read.
        TraceError: It is not text in columns.
    """
    left_out, assumed = LeftOut(), LeftOut()
    gathering = Gathering(_AUTHORS_RESOURCES)
    for batch in separated(path, _AUTHORS, left_out):
        sieve = Sieve(left_out, path.name, batch.lines)
        submitted, unreadable = integers(batch.columns["submitted"])
        sieve.drop("submission time is no whole number", unreadable)
        sieve.drop("submission time is negative", submitted < 0)
        sieve.drop("submission time is beyond 285 years", submitted > LONGEST)
        finished, unreadable = integers(batch.columns["finished"])
        sieve.drop("finish time is no whole number", unreadable)
        sieve.drop("finish time is before the submission", finished < submitted)
        sieve.drop("finish time is beyond 285 years", finished > 2 * LONGEST)
        demand = _demand(sieve, batch, _AUTHORS_RESOURCES)
        gathering.add(
            TaskRows(submitted, finished - submitted, batch.columns["user"], batch.lines, demand),
            sieve.kept,
        )
        repeated, unreadable = integers(batch.columns["again"])
        differs = sieve.kept & (unreadable | (repeated != submitted))
        assumed.add(
            "the second field is not the submission: not read", path.name, batch.lines[differs]
        )
    return Conversion(gathering.trace(), left_out, assumed, ("task",))


def _header(path: Path) -> tuple[str, ...]:
    names = header(path)
    absent = [name for name in _GIVEN[:3] if name not in names]
    if absent:
        raise TraceError(f"{path} has no column {', '.join(absent)} in its first line")
    if len(set(names)) < len(names) or "" in names:
        raise TraceError(f"{path} has columns without a name or of the same name in its first line")
    if set(names) <= set(_GIVEN):
        raise TraceError(f"{path} has no column of a resource in its first line")
    return names


def _demand(sieve: Sieve, batch: Rows, resources: tuple[str, ...]) -> NDArray[np.float64]:
    sieve.drop("no user", missing(batch.columns["user"]))
    demand = np.empty((len(batch), len(resources)))
    for place, resource in enumerate(resources):
        demand[:, place], unreadable = numbers(batch.columns[resource])
        sieve.drop(f"demand of {resource} is no number", unreadable)
    sieve.drop("demand is negative", np.any(demand < 0, axis=1))
    sieve.drop("demand is nothing", ~np.any(demand > 0, axis=1))
    return demand
