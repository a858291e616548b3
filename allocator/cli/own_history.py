"""Converts event logs of an allocator to a trace, so that a cluster's own past can be simulated.

Services and simulations do not depend on each other; this module converts between the two.
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
from allocator.formatting import counted, duration
from allocator.service.record.event_log import EventLogError, decode_settings, read
from allocator.service.record.history import History, reconstruct_all
from allocator.service.record.replay import new_engine, open_log
from allocator.simulation.trace import MICROSECONDS, UNCONSTRAINED, MachineClass, Trace

if TYPE_CHECKING:
    from allocator.cluster.engine import Engine
    from allocator.contract import log_pb2 as log
    from allocator.service.record.agent_history import Presence

_FIRST = ("cpus", "mem", "disk", "gpus")
_TASKS = "tasks"
"""Key of commitments that are measured in tasks."""
_Key = tuple[Constraint, ...]


@dataclass(frozen=True)
class OwnHistory:
    """A trace that was made from event logs, with notes on what the trace cannot reproduce.

    Args:
        trace: The tasks.
        policy: Name of the policy at the end of the recording.
        notes: Sentences about differences between trace and cluster.
    """

    trace: Trace
    policy: str
    notes: tuple[str, ...]


def convert(
    paths: Sequence[Path], watch: Callable[[int], None] = lambda _bytes: None
) -> OwnHistory:
    """Convert event logs of one cluster to a trace. The logs may be in any order.

    Args:
        paths: The logs.
        watch: Callback for progress, which receives the size in bytes of each entry.

    Raises:
        EventLogError: a file is no log, or two logs overlap in time.
        OSError: a file cannot be read.
    """
    starts = sorted((start, path) for path in paths if (start := _first_snapshot(path)) is not None)
    if not starts:
        raise EventLogError(f"no master ever connected in these logs: {', '.join(map(str, paths))}")
    ordered = [path for _start, path in starts]
    cut_off: list[Path] = []
    settings: list[EngineSettings] = []

    def opened() -> "Iterator[tuple[Engine, Iterator[log.LogEntry]]]":
        for path in ordered:
            header, entries = open_log(path, partial(_append_path, cut_off, path))
            settings.append(decode_settings(header.settings))
            yield new_engine(header), _watched(entries, watch)

    history = reconstruct_all(opened())
    for (before, after), first, second in zip(history.gaps, ordered, ordered[1:], strict=False):
        if after < before:
            raise EventLogError(
                f"{first} and {second} overlap by {before - after:.0f} s; give each log once, and "
                "only logs of one cluster"
            )
    notes = [*(f"{path}: its last entry is incomplete, and is left out" for path in cut_off)]
    trace = _Conversion(history, settings[-1], notes).trace()
    return OwnHistory(trace, settings[-1].policy.name, tuple(notes))


def _append_path(paths: list[Path], path: Path, _bytes: int) -> None:
    paths.append(path)


def _first_snapshot(path: Path) -> int | None:
    """Return the time of an event log's first snapshot, to sort logs by it.

    The time is in nanoseconds; None for a log without a snapshot.
    """
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
    """Converts a recorded history into a trace.

    Args:
        history: Tasks, agents and users of the event logs.
        settings: Settings of the recorded allocator.
        notes: List to which sentences about what the trace cannot reproduce are added.
    """

    def __init__(self, history: History, settings: EngineSettings, notes: list[str]) -> None:
        self._history = history
        self._notes = notes
        self._seconds = history.end - history.begin
        self._resources = self._select_resources()
        self._tasks = sorted(
            (
                task
                for task in history.tasks
                if any(task.demand[resource] for resource in self._resources)
            ),
            key=lambda task: (task.ready, task.start),
        )
        names = [*history.first_weights, *history.entitlements]
        self._parents = (
            {name.rpartition("/")[0] for name in names if "/" in name}
            if settings.user_key == "role"
            else set()
        )
        """Names of roles that have sub-roles."""

    def trace(self) -> Trace:
        """Return the trace, and add notes on what it cannot reproduce.

        Tasks are in order of submission.
        """
        tasks, history = self._tasks, self._history
        users = tuple(dict.fromkeys([*(task.user for task in tasks), *self._users_without_tasks()]))
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

    def _select_resources(self) -> tuple[str, ...]:
        """Return the resources for the trace: those that tasks held and that count in shares.

        Well-known resources such as cpus come first. A note lists resources that do not count.
        """
        held: set[str] = set()
        for task in self._history.tasks:
            held.update(task.demand)
        if left_out := sorted(held & set(self._history.excluded)):
            self._notes.append(
                f"resources that do not count in shares are left out: {', '.join(left_out)}"
            )
        counted = held - set(self._history.excluded)
        return (*(name for name in _FIRST if name in counted), *sorted(counted - {*_FIRST}))

    def _amounts(self, quantities: Quantities) -> tuple[float, ...]:
        amounts = quantities.to_doubles()
        return tuple(amounts.get(name, 0.0) for name in self._resources)

    def _users_without_tasks(self) -> Iterator[str]:
        """Yield users that the log knows but that ran no tasks.

        The trace must contain them, because policies count them in the number of users.
        """
        for name in self._history.first_weights:
            if name not in self._parents:
                yield name.removesuffix("/.") if self._parents else name

    def _weights(self, users: Sequence[str]) -> tuple[float, ...]:
        history = self._history
        if self._parents:
            self._notes.append(
                "the trace has no role tree: all users are at the top, and their weights are their "
                "entitlements at the end"
            )
            known = {
                name.removesuffix("/."): entitlement
                for name, entitlement in history.entitlements.items()
            } | {
                name.removesuffix("/."): entitlement
                for name, entitlement in history.entitlements.items()
                if name.endswith("/.")
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
                    f"the weight of {counted(changed, 'user')} changed: the trace has the first one"
                )
        bounded = [min(max(weight, LEAST_WEIGHT), LARGEST_WEIGHT) for weight in weights]
        return tuple(bounded) if any(weight != 1.0 for weight in bounded) else ()

    def _commitments(self, users: Sequence[str]) -> tuple[tuple[float, ...], ...]:
        commitments = []
        for user in users:
            leaf = f"{user}/." if user in self._parents else user
            by_resource, default = self._history.debts.get(leaf, ({}, 0.0))
            in_tasks = by_resource.get(_TASKS, 0.0)
            amounts = (
                max(by_resource.get(resource, default), in_tasks) for resource in self._resources
            )
            commitments.append(tuple(min(amount, LARGEST_COMMITMENT) for amount in amounts))
        return tuple(commitments) if any(map(any, commitments)) else ()

    def _machines(
        self, keys: Sequence[_Key]
    ) -> tuple[tuple[MachineClass, ...], tuple[tuple[int, ...], ...]]:
        """Convert the recorded agents to machines, which are present during the whole trace.

        Args:
            keys: The different placement constraints of the tasks.

        Returns:
            Classes of equal agents, each with its average number of agents; and for each constraint
            the indices of the classes that meet the constraint.
        """
        classes: dict[tuple[object, ...], list[Presence]] = {}
        for presence in sorted(
            self._history.presences, key=lambda presence: (presence.since, presence.host.name)
        ):
            capabilities = (
                self._amounts(presence.total),
                *(presence.admitted_by(constraint) for constraint in keys),
            )
            classes.setdefault(capabilities, []).append(presence)
        present = [
            sum(presence.until - presence.since for presence in presences)
            for presences in classes.values()
        ]
        counts = [round(seconds / self._seconds) for seconds in present]
        groups = list(classes.values())
        for constraint in [(), *keys]:  # each constraint of a task needs an agent
            usable = [
                index for index, group in enumerate(groups) if group[0].admitted_by(constraint)
            ]
            if usable and not any(counts[index] for index in usable):
                counts[max(usable, key=present.__getitem__)] = 1
        used_classes = [index for index, count in enumerate(counts) if count]
        if (came := sum(map(len, groups))) != sum(counts):
            self._notes.append(
                f"agents joined, changed or left: {came} in all, {sum(counts)} at a time on "
                "average; the trace has the average number from beginning to end"
            )
        names: dict[str, int] = {}
        machines = []
        for index in used_classes:
            host = groups[index][0].host
            names[host.name] = names.get(host.name, 0) + 1
            suffix = f" ({names[host.name]})" if names[host.name] > 1 else ""
            machines.append(
                MachineClass(
                    host.name + suffix,
                    counts[index],
                    self._amounts(groups[index][0].total),
                    {
                        attribute.name: attribute.text.value
                        for attribute in host.attributes
                        if attribute.type == mesos.Value.TEXT
                    },
                )
            )
        allowed = tuple(
            tuple(
                number
                for number, index in enumerate(used_classes)
                if groups[index][0].admitted_by(constraint)
            )
            for constraint in keys
        )
        return tuple(machines), allowed

    def _note_edges(self) -> None:
        history, notes = self._history, self._notes
        if history.running_at_first:
            notes.append(
                f"{counted(history.running_at_first, 'task')} ran when recording began: the trace "
                "submits them then, with the rest of their run time"
            )
        if history.running_at_end:
            notes.append(
                f"{counted(history.running_at_end, 'task')} ran when recording ended: the trace "
                "ends them then"
            )
        for before, after in history.gaps:
            notes.append(
                f"the recording has a gap of {duration(after - before)}, after "
                f"{duration(before - history.begin)}: tasks that ended in the gap end with it"
            )


def _microseconds(seconds: Sequence[float]) -> NDArray[np.int64]:
    return np.rint(np.array(seconds, np.float64) * MICROSECONDS).astype(np.int64)
