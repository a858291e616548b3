"""The Standard Workload Format of the Parallel Workloads Archive."""

from pathlib import Path

import numpy as np

from allocator.simulation.formats.conversion import Conversion, Gathering, LeftOut, Sieve, Tasks
from allocator.simulation.formats.text import integers, microseconds, numbers, spaced

_FIELDS = (
    "job",
    "submitted",
    "waited",
    "runtime",
    "processors",
    "cpu_time",
    "memory",
    "requested_processors",
    "requested_time",
    "requested_memory",
    "status",
    "user",
    "group",
    "application",
    "queue",
    "partition",
    "preceding",
    "think_time",
)


def convert(path: Path) -> Conversion:
    """Read jobs: each is one task that takes all its processors at once, resource `cpus`.

    Processors are those that were allocated or, where that is unknown, requested. Memory is not
    read: most logs lack it, and a demand that only some tasks have would favour the others.

    Raises:
        OSError: The file cannot be read.
        TraceError: It is packed in a way that cannot be unpacked.
    """
    left_out = LeftOut()
    gathering = Gathering(("cpus",))
    for batch in spaced(path, _FIELDS, b";", left_out):
        sieve = Sieve(left_out, path.name, batch.lines)
        job, unreadable = integers(batch.columns["job"])
        sieve.drop("job is no number", unreadable)
        values = {}
        for name in ("submitted", "runtime", "processors", "requested_processors", "user"):
            values[name], unreadable = numbers(batch.columns[name])
            sieve.drop(f"{name.replace('_', ' ')} is no number", unreadable)
        submitted, far_submission = microseconds(values["submitted"])
        runtime, far_runtime = microseconds(values["runtime"])
        sieve.drop("submission time is unknown", submitted < 0)
        sieve.drop("run time is unknown or none", runtime <= 0)
        sieve.drop("a time is beyond 285 years", far_submission | far_runtime)
        allocated = values["processors"]
        processors = np.where(allocated > 0, allocated, values["requested_processors"])
        sieve.drop("processors are unknown or none", processors <= 0)
        sieve.drop("user is unknown", values["user"] < 0)
        demand = processors[:, np.newaxis]
        gathering.add(Tasks(submitted, runtime, batch.columns["user"], job, demand), sieve.kept)
    return Conversion(gathering.trace(), left_out)
