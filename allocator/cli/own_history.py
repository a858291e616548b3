"""A trace of one's own cluster, from the event logs of its allocator.

Services and simulations know nothing of each other; what was recorded becomes a trace here.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from allocator.cluster.agents.placement_constraints import Constraint
from allocator.cluster.settings import EngineSettings
from allocator.contract import mesos_pb2 as mesos
from allocator.fairness.bounds import LARGEST_COMMITMENT, LARGEST_WEIGHT, LEAST_WEIGHT
from allocator.fairness.quantities import Quantities
from allocator.service.record.event_log import EventLogError, decode_settings, read
from allocator.service.record.history import History, reconstruct_all
from allocator.service.record.replay import header_and_rest, new_engine
from allocator.service.show.formatting import counted, duration
from allocator.simulation.trace import MICROSECONDS, UNCONSTRAINED, MachineClass, Trace

if TYPE_CHECKING:
    from allocator.cluster.engine import Engine
    from allocator.contract import log_pb2 as log
    from allocator.service.record.agent_history import Presence

_FIRST = ("cpus", "mem", "disk", "gpus")
_TASKS = "tasks"
"""What debts in tasks go by."""
_Key = tuple[Constraint, ...]


@dataclass(frozen=True)
class OwnHistory:
    """What logs have become.

    Args:
        trace: The tasks.
        policy: In force when recording ended.
        notes: What is not as it was, for people.
    """

    trace: Trace
    policy: str
    notes: tuple[str, ...]


def convert(
    paths: Sequence[Path], watch: Callable[[int], None] = lambda _bytes: None
) -> OwnHistory:
    """Make a trace of one or several event logs of a cluster, given in any order.

    Args:
        paths: The logs.
        watch: Told the size of each entry in bytes.

    Raises:
        EventLogError: A file is no log, or two overlap in time.
        OSError: A file cannot be read.
    """
    begun = sorted((when, path) for path in paths if (when := _first_snapshot(path)) is not None)
    if not begun:
        raise EventLogError(f"no master has ever come: {', '.join(map(str, paths))}")
    ordered = [path for _when, path in begun]
    cut_off: list[Path] = []
    settings: list[EngineSettings] = []

    def opened() -> "Iterator[tuple[Engine, Iterator[log.LogEntry]]]":
        for path in ordered:
            header, rest = header_and_rest(path, partial(_note, cut_off, path))
            settings.append(decode_settings(header.settings))
            yield new_engine(header), _watched(rest, watch)

    history = reconstruct_all(opened())
    for (before, after), first, second in zip(history.gaps, ordered, ordered[1:], strict=False):
        if after < before:
            raise EventLogError(
                f"{first} and {second} overlap by {before - after:.0f} s; give each log once, and "
                "only those of one cluster"
            )
    notes = [*(f"{path}: its last entry is incomplete and left out" for path in cut_off)]
    trace = _Conversion(history, settings[-1], notes).trace()
    return OwnHistory(trace, settings[-1].policy.name, tuple(notes))


def _note(paths: list[Path], path: Path, _bytes: int) -> None:
    paths.append(path)


def _first_snapshot(path: Path) -> int | None:
    """Return when a log's first master came, in its nanoseconds; None: none did."""
    for entry in read(path):
        if entry.HasField("restore") and not entry.restore.outcome.refusal:
            return entry.restore.snapshot.time_ns
    return None


def _watched(
    entries: "Iterator[log.LogEntry]", watch: Callable[[int], None]
) -> "Iterator[log.LogEntry]":
    for entry in entries:
        yield entry
        watch(entry.ByteSize())


class _Conversion:
    """Turns a history into a trace, and notes what gets lost."""

    def __init__(self, history: History, settings: EngineSettings, notes: list[str]) -> None:
        self._history = history
        self._notes = notes
        self._seconds = history.end - history.begin
        self._resources = self._chosen_resources()
        self._tasks = sorted(
            (task for task in history.tasks if any(task.demand[r] for r in self._resources)),
            key=lambda task: (task.ready, task.start),
        )
        names = [*history.first_weights, *history.entitlements]
        self._parents = (
            {n.rpartition("/")[0] for n in names if "/" in n}
            if settings.user_key == "role"
            else set()
        )
        """Roles that have others below them."""

    def trace(self) -> Trace:
        """Return the trace, in order of submission."""
        tasks, history = self._tasks, self._history
        users = tuple(dict.fromkeys([*(task.user for task in tasks), *self._others()]))
        numbers = {user: number for number, user in enumerate(users)}
        jobs: dict[str, int] = {}
        for task in tasks:
            jobs.setdefault(task.framework, len(jobs))
        keys: dict[_Key, int] = {}
        for task in tasks:
            if task.constraints:
                keys.setdefault(task.constraints, len(keys))
        machines, allowed = self._machines(list(keys))
        self._note_edges()
        return Trace(
            resources=self._resources,
            users=users,
            submitted=_microseconds([task.ready - history.begin for task in tasks]),
            runtime=_microseconds([task.end - task.start for task in tasks]),
            user=np.array([numbers[task.user] for task in tasks], np.int32),
            job=np.array([jobs[task.framework] for task in tasks], np.int64),
            demand=np.array([self._amounts(task.demand) for task in tasks], np.float64).reshape(
                len(tasks), len(self._resources)
            ),
            constraint=np.array(
                [keys.get(task.constraints, UNCONSTRAINED) for task in tasks], np.int32
            ),
            machines=machines,
            constraints=allowed,
            weights=self._weights(users),
            commitments=self._commitments(users),
        )

    def _chosen_resources(self) -> tuple[str, ...]:
        """Return what tasks held; what does not count in shares is no part of the trace."""
        held: set[str] = set()
        for task in self._history.tasks:
            held.update(task.demand)
        if left_out := sorted(held & set(self._history.excluded)):
            self._notes.append(f"does not count in shares, left out: {', '.join(left_out)}")
        counted = held - set(self._history.excluded)
        return (*(name for name in _FIRST if name in counted), *sorted(counted - {*_FIRST}))

    def _amounts(self, quantities: Quantities) -> tuple[float, ...]:
        amounts = quantities.to_doubles()
        return tuple(amounts.get(name, 0.0) for name in self._resources)

    def _others(self) -> Iterator[str]:
        """Go through users that are known and have no task: they count all the same."""
        for name in self._history.first_weights:
            if name not in self._parents:
                yield name.removesuffix("/.") if self._parents else name

    def _weights(self, users: Sequence[str]) -> tuple[float, ...]:
        history = self._history
        if self._parents:
            self._notes.append(
                "roles are a tree: users stand side by side here, with their entitlements at the "
                "end for weights"
            )
            known = {n.removesuffix("/."): e for n, e in history.entitlements.items()} | {
                n.removesuffix("/."): e for n, e in history.entitlements.items() if n.endswith("/.")
            }
            weights = [known.get(user, 0.0) * len(users) or 1.0 for user in users]
        else:
            weights = [history.first_weights.get(user, 1.0) for user in users]
            changed = sum(
                history.weights.get(user, weight) != weight
                for user, weight in zip(users, weights, strict=True)
            )
            if changed:
                self._notes.append(
                    f"the weight of {counted(changed, 'user')} changed meanwhile: the first holds"
                )
        bounded = [min(max(weight, LEAST_WEIGHT), LARGEST_WEIGHT) for weight in weights]
        return tuple(bounded) if any(weight != 1.0 for weight in bounded) else ()

    def _commitments(self, users: Sequence[str]) -> tuple[tuple[float, ...], ...]:
        owed = []
        for user in users:
            leaf = f"{user}/." if user in self._parents else user
            by_resource, others = self._history.debts.get(leaf, ({}, 0.0))
            in_tasks = by_resource.get(_TASKS, 0.0)
            amounts = (max(by_resource.get(r, others), in_tasks) for r in self._resources)
            owed.append(tuple(min(amount, LARGEST_COMMITMENT) for amount in amounts))
        return tuple(owed) if any(map(any, owed)) else ()

    def _machines(
        self, keys: Sequence[_Key]
    ) -> tuple[tuple[MachineClass, ...], tuple[tuple[int, ...], ...]]:
        """Return agents in classes, as many of each as there were on average, and constraints."""
        classes: dict[tuple[object, ...], list[Presence]] = {}
        for presence in sorted(self._history.presences, key=lambda p: (p.since, p.host.name)):
            alike = (self._amounts(presence.total), *(presence.admitted_by(key) for key in keys))
            classes.setdefault(alike, []).append(presence)
        present = [sum(p.until - p.since for p in alike) for alike in classes.values()]
        counts = [round(seconds / self._seconds) for seconds in present]
        groups = list(classes.values())
        for key in [(), *keys]:  # where tasks ran, something must be left
            may = [place for place, group in enumerate(groups) if group[0].admitted_by(key)]
            if may and not any(counts[place] for place in may):
                counts[max(may, key=present.__getitem__)] = 1
        kept = [place for place, count in enumerate(counts) if count]
        if (came := sum(map(len, groups))) != sum(counts):
            self._notes.append(
                f"agents came, changed or left: {came} in all, {sum(counts)} at a time on average, "
                "which the trace has from beginning to end"
            )
        names: dict[str, int] = {}
        machines = []
        for place in kept:
            host = groups[place][0].host
            names[host.name] = names.get(host.name, 0) + 1
            again = f" ({names[host.name]})" if names[host.name] > 1 else ""
            machines.append(
                MachineClass(
                    host.name + again,
                    counts[place],
                    self._amounts(groups[place][0].total),
                    {a.name: a.text.value for a in host.attributes if a.type == mesos.Value.TEXT},
                )
            )
        allowed = tuple(
            tuple(number for number, place in enumerate(kept) if groups[place][0].admitted_by(key))
            for key in keys
        )
        return tuple(machines), allowed

    def _note_edges(self) -> None:
        history, notes = self._history, self._notes
        if history.running_at_first:
            notes.append(
                f"{counted(history.running_at_first, 'task')} ran when recording began: submitted "
                "then, with what was left of the time"
            )
        if history.cut_off:
            notes.append(f"{counted(history.cut_off, 'task')} ran when it ended: cut off there")
        for before, after in history.gaps:
            notes.append(
                f"nothing was recorded for {duration(after - before)}, from "
                f"{duration(before - history.begin)} on: what ended then ends with that gap"
            )


def _microseconds(seconds: Sequence[float]) -> NDArray[np.int64]:
    return np.rint(np.array(seconds, np.float64) * MICROSECONDS).astype(np.int64)
