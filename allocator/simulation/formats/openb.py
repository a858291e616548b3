"""Converter for Alibaba's GPU cluster trace of 2023 (openb)."""

from pathlib import Path

import numpy as np
import pyarrow as pa

from allocator.simulation.formats.conversion import (
    Conversion,
    RowFilter,
    SkippedRows,
    TaskRows,
    TraceBuilder,
)
from allocator.simulation.formats.text import (
    header,
    microseconds,
    missing,
    numbers,
    separated,
)
from allocator.simulation.trace import UNCONSTRAINED, MachineClass, TraceError

_NODES = ("sn", "cpu_milli", "memory_mib", "gpu", "model")
_PODS = (
    "name",
    "cpu_milli",
    "memory_mib",
    "num_gpu",
    "gpu_milli",
    "gpu_spec",
    "qos",
    "pod_phase",
    "creation_time",
    "deletion_time",
    "scheduled_time",
)
RESOURCES = ("cpus", "mem", "gpus")
"""Names of the resources. Amounts are cores, MiB and whole GPUs."""


def convert(pods: Path, nodes: Path) -> Conversion:
    """Convert Alibaba's trace: pods become tasks, nodes become machines.

    A pod is submitted when created, and runs from scheduling to deletion. A pod without a
    scheduling time is skipped. Pods name no user, so the pod's quality-of-service class is the
    user. Each pod is a job of its own. Nodes with the same capacity and GPU model are a class. A
    pod with `gpu_spec` may run only on nodes with one of the named GPU models.

    Args:
        pods: CSV file of pods.
        nodes: CSV file of nodes.

    Raises:
        OSError: A file cannot be read.
        TraceError: There are no machines, or a file has other columns.
    """
    for path, names in ((pods, _PODS), (nodes, _NODES)):
        if header(path) != names:
            raise TraceError(
                f"{path} is not a file of openb: its first line lacks the columns {','.join(names)}"
            )
    left_out, assumed = SkippedRows(), SkippedRows()
    machines = _machines(nodes, left_out)
    builder = TraceBuilder(RESOURCES)
    constraints: dict[tuple[int, ...], int] = {}
    for batch in separated(pods, _PODS, left_out, headed=True):
        rows = RowFilter(left_out, pods.name, batch.lines)
        values = {}
        times = {}
        rows.drop("never scheduled", missing(batch.columns["scheduled_time"]))
        for name in ("cpu_milli", "memory_mib", "num_gpu", "gpu_milli"):
            values[name], unreadable = numbers(batch.columns[name])
            rows.drop(f"{name} is not a number", unreadable)
            rows.drop(f"{name} is negative", values[name] < 0)
        for name in ("creation_time", "scheduled_time", "deletion_time"):
            seconds, unreadable = numbers(batch.columns[name])
            times[name], too_large = microseconds(seconds)
            rows.drop(f"{name} is not a time", unreadable | too_large | (seconds < 0))
        rows.drop("scheduled before created", times["scheduled_time"] < times["creation_time"])
        rows.drop("deleted before scheduled", times["deletion_time"] < times["scheduled_time"])
        rows.drop("no qos", missing(batch.columns["qos"]))
        demand = np.column_stack(
            (
                values["cpu_milli"] / 1000,
                values["memory_mib"],
                values["num_gpu"] * values["gpu_milli"] / 1000,
            )
        )
        rows.drop("demand is zero", ~np.any(demand > 0, axis=1))
        encoded = batch.columns["gpu_spec"].dictionary_encode()
        allowed = [_allowed(spec, machines) for spec in encoded.dictionary.to_pylist()]
        numbered = np.array(
            [
                UNCONSTRAINED
                if classes is None
                else constraints.setdefault(classes, len(constraints))
                for classes in allowed
            ],
            np.int32,
        )
        indices = encoded.indices.to_numpy(zero_copy_only=False)
        no_machine = np.array([classes == () for classes in allowed], np.bool_)
        rows.drop("no machine has a model of its gpu_spec", no_machine[indices])
        builder.add(
            TaskRows(
                submitted=times["creation_time"],
                runtime=times["deletion_time"] - times["scheduled_time"],
                user=batch.columns["qos"],
                job=batch.lines,
                demand=demand,
                constraint=numbered[indices],
            ),
            rows.kept,
        )
        inconsistent = (values["num_gpu"] > 0) != (values["gpu_milli"] > 0)
        assumed.add(
            "one of num_gpu and gpu_milli is 0: 0 GPUs",
            pods.name,
            batch.lines[rows.kept & inconsistent],
        )
    return Conversion(
        builder.trace(machines, tuple(constraints)), left_out, assumed, ("name", "pod_phase")
    )


def _allowed(spec: str, machines: tuple[MachineClass, ...]) -> tuple[int, ...] | None:
    if not spec:
        return None
    models = spec.split("|")
    return tuple(index for index, kind in enumerate(machines) if kind.attributes["model"] in models)


def _machines(nodes: Path, left_out: SkippedRows) -> tuple[MachineClass, ...]:
    counts: dict[tuple[str, tuple[float, ...]], int] = {}
    for batch in separated(nodes, _NODES, left_out, headed=True):
        rows = RowFilter(left_out, nodes.name, batch.lines)
        columns = []
        for name, unit in (("cpu_milli", 1000), ("memory_mib", 1), ("gpu", 1)):
            values, unreadable = numbers(batch.columns[name])
            rows.drop(f"{name} is not a number", unreadable)
            rows.drop(f"{name} is negative", values < 0)
            columns.append(values / unit)
        models = batch.columns["model"].filter(pa.array(rows.kept)).to_pylist()
        for model, capacity in zip(models, np.column_stack(columns)[rows.kept], strict=True):
            key = (model, tuple(capacity.tolist()))
            counts[key] = counts.get(key, 0) + 1
    if not counts:
        raise TraceError(f"{nodes} has no machines")
    return tuple(
        MachineClass(
            f"{model or 'no GPU'}: {cpus:g} cores, {mem:g} MiB, {gpus:g} GPUs",
            count,
            (cpus, mem, gpus),
            {"model": model},
        )
        for (model, (cpus, mem, gpus)), count in counts.items()
    )
