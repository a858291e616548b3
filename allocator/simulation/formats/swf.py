"""Converter for the Standard Workload Format (SWF) of the Parallel Workloads Archive."""

import re
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from allocator.simulation.formats.conversion import (
    Conversion,
    RowFilter,
    SkippedRows,
    TaskRows,
    Text,
    TotalCheck,
    TraceBuilder,
)
from allocator.simulation.formats.text import (
    microseconds,
    numbers,
    spaced,
    text_lines,
    whole_numbers,
)

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


_READ = (
    "job",
    "submitted",
    "runtime",
    "processors",
    "requested_processors",
    "status",
    "user",
)
_ALSO_READ = ("waited", "cpu_time")
"""Columns that are read for a check, or may be unknown."""
_ROUNDING = 1.0
"""Seconds by which times differ because they are whole seconds."""
_PARTS = (2, 3, 4)
"""Status values of lines that describe only one part of a job's execution."""
_STATUSES = (-1, 0, 1, *_PARTS, 5)
_HEADER = re.compile(r"\s*;\s*(MaxRecords|MaxJobs|MaxProcs)\s*:(.*)", re.IGNORECASE)
_NUMBER = re.compile(r"\s*(\d+)(\s\D*)?")


def convert(path: Path) -> Conversion:
    """Convert a log: each job becomes one task that holds all its processors at once (`cpus`).

    Processors are the allocated processors or, if unknown, the requested processors. Memory is not
    read: most logs lack it, and a demand of only some tasks would favour the other tasks.

    A log may have a line for a whole job and a line for each part of its execution. The line for
    the whole job counts. If a job has only parts, they are one task with the core-seconds of all
    parts.

    Raises:
        OSError: The file cannot be read.
        TraceError: The file is UTF-16, or cannot be decompressed.
    """
    left_out, assumed = SkippedRows(), SkippedRows()
    header = _header(path)
    machine_size = header.get("MaxProcs")
    builder = TraceBuilder(("cpus",))
    whole_jobs = [np.empty(0, np.int64)]
    whole_lines = [np.empty(0, np.int64)]
    parts: list[_Parts] = []
    for batch in spaced(path, _FIELDS, b";", left_out):
        rows = RowFilter(left_out, path.name, batch.lines)
        job, unreadable = whole_numbers(batch.columns["job"])
        rows.drop("job is not a number", unreadable)
        values = {}
        for name in _READ[1:]:
            values[name], unreadable = numbers(batch.columns[name])
            rows.drop(f"{name.replace('_', ' ')} is not a number", unreadable)
        part = np.isin(values["status"], _PARTS)
        submitted, late_submission = microseconds(values["submitted"])
        runtime, long_runtime = microseconds(values["runtime"])
        rows.drop("submission time is unknown", (submitted < 0) & ~part)
        rows.drop("run time is unknown or none", runtime <= 0)
        rows.drop("a time is beyond 285 years", late_submission | long_runtime)
        allocated = values["processors"]
        processors = np.where(allocated > 0, allocated, values["requested_processors"])
        rows.drop("processors are unknown or none", processors <= 0)
        rows.drop("user is unknown", values["user"] < 0)
        whole = rows.kept & ~part
        unknown = whole & ~np.isin(values["status"], _STATUSES)
        assumed.add(
            "status is unknown: the line counts as a whole job", path.name, batch.lines[unknown]
        )
        requested = rows.kept & (allocated <= 0)
        assumed.add(
            "allocated processors are unknown: the requested processors are used",
            path.name,
            batch.lines[requested],
        )
        demand = processors[:, np.newaxis]
        if machine_size:
            assumed.add(
                "has more processors than MaxProcs in the file's header",
                path.name,
                batch.lines[rows.kept & (processors > machine_size)],
            )
        cpu_time, unknown_cpu_time = numbers(batch.columns["cpu_time"])
        too_busy = ~unknown_cpu_time & (cpu_time > values["runtime"] + _ROUNDING)
        assumed.add(
            "the CPU time of a processor is longer than the run time",
            path.name,
            batch.lines[rows.kept & too_busy],
        )
        waited, unknown_wait = numbers(batch.columns["waited"])
        for name, unreadable in (("CPU time", unknown_cpu_time), ("wait", unknown_wait)):
            assumed.add(
                f"the {name} is not a number: it counts as unknown",
                path.name,
                batch.lines[rows.kept & unreadable],
            )
        waits, late = microseconds(np.where(unknown_wait, -1.0, waited))
        waits[late] = -1
        tasks = TaskRows(submitted, runtime, batch.columns["user"], job, demand, waits=waits)
        builder.add(tasks, whole)
        whole_jobs.append(job[whole])
        whole_lines.append(batch.lines[whole])
        parts.append(_Parts.of(tasks, batch.lines, rows.kept & part))
    jobs, lines = np.concatenate(whole_jobs), np.concatenate(whole_lines)
    _, first = np.unique(jobs, return_index=True)
    assumed.add(
        "repeats the job number of an earlier line: the line counts as another task",
        path.name,
        np.delete(lines, first),
    )
    _add_parts(builder, parts, jobs, left_out, path.name)
    has_parts = any(len(batch.lines) for batch in parts)
    return Conversion(
        builder.trace(),
        left_out,
        assumed,
        tuple(name.replace("_", " ") for name in _FIELDS if name not in (*_READ, *_ALSO_READ)),
        tuple(_checks(header, left_out.rows_read, has_parts=has_parts)),
        warnings=tuple(
            f"the number after {name} in the file's header is not understood"
            for name, value in header.items()
            if value is None
        ),
        recorded_waits=builder.recorded_waits,
    )


@dataclass(frozen=True)
class _Parts:
    """Lines of a log that each describe one part of a job's execution; one array entry per line."""

    submitted: NDArray[np.int64]
    runtime: NDArray[np.int64]
    user: Text
    job: NDArray[np.int64]
    processors: NDArray[np.float64]
    lines: NDArray[np.int64]

    @classmethod
    def of(cls, tasks: TaskRows, lines: NDArray[np.int64], kept: NDArray[np.bool_]) -> "_Parts":
        """Create an instance from some rows of a batch.

        Args:
            tasks: The batch; each row was parsed as a task.
            lines: Line number of each row.
            kept: A mask of the rows to select.
        """
        return cls(
            tasks.submitted[kept],
            tasks.runtime[kept],
            tasks.user.filter(pa.array(kept)),
            tasks.job[kept],
            tasks.demand[kept, 0],
            lines[kept],
        )


def _add_parts(
    builder: TraceBuilder,
    batches: list[_Parts],
    whole_jobs: NDArray[np.int64],
    left_out: SkippedRows,
    file: str,
) -> None:
    """Add a task for each job that has only lines for parts of its execution.

    The task is submitted with the first part and has the core-seconds of all parts.

    Args:
        builder: Receives the tasks.
        batches: All lines for parts of executions, batch by batch.
        whole_jobs: Numbers of the jobs that have a line for the whole job.
        left_out: Collects the lines that become no task of their own, with the reason.
        file: Name of the file.
    """
    if not batches:
        return
    job = np.concatenate([batch.job for batch in batches])
    submitted = np.concatenate([batch.submitted for batch in batches])
    runtime = np.concatenate([batch.runtime for batch in batches])
    processors = np.concatenate([batch.processors for batch in batches])
    lines = np.concatenate([batch.lines for batch in batches])
    users = pa.chunked_array([batch.user for batch in batches], pa.string()).combine_chunks()
    rows = RowFilter(left_out, file, lines)
    rows.drop("is a part of a job whose whole line is read", np.isin(job, whole_jobs))
    _, first, job_index = np.unique(job, return_index=True, return_inverse=True)
    further = np.ones(len(job), np.bool_)
    further[first] = False
    rows.drop("submission time is unknown", (submitted < 0)[first][job_index])
    rows.drop("is a further part of a job: it lengthens the task of the first part", further)
    processors_of_job = np.zeros(len(first))
    np.maximum.at(processors_of_job, job_index, processors)
    core_microseconds = np.bincount(job_index, runtime * processors, len(first))
    ran = np.rint(core_microseconds / np.maximum(processors_of_job, 1)).astype(np.int64)
    tasks = TaskRows(
        submitted, ran[job_index], users, job, processors_of_job[job_index][:, np.newaxis]
    )
    builder.add(tasks, rows.kept)


def _header(path: Path) -> dict[str, int | None]:
    """Return the numbers of rows, jobs and processors in a file's header; None if unreadable."""
    numbers_by_name: dict[str, int | None] = {}
    names = {"maxrecords": "MaxRecords", "maxjobs": "MaxJobs", "maxprocs": "MaxProcs"}
    with closing(text_lines(path)) as lines:
        for line in lines:
            if not line.lstrip().startswith(";"):
                if line.strip():
                    break
            elif match := _HEADER.match(line):
                number = _NUMBER.fullmatch(match[2])
                if number or match[2].strip() not in {"", "-1"}:
                    numbers_by_name[names[match[1].lower()]] = int(number[1]) if number else None
    return numbers_by_name


def _checks(
    header: Mapping[str, int | None], rows_read: int, *, has_parts: bool
) -> Iterator[TotalCheck]:
    """Compare the number of rows read with the number in the file's header.

    Yield one result; none if the header does not state the number.

    Args:
        header: The numbers in the header.
        rows_read: Number of rows of the file.
        has_parts: Whether rows describe parts of jobs. The file then has more rows than jobs.
    """
    for name in ("MaxRecords", *(() if has_parts else ("MaxJobs",))):
        number = header.get(name)
        if number is not None:
            yield TotalCheck(name, "rows", rows_read, float(number), rows_read, 0.0)
            return
