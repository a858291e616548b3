"""A site's own accounting becomes a trace: every record a task, or left out for a reason."""

import gzip
import json
from pathlib import Path

import numpy as np
import pytest

from allocator.simulation.formats import htcondor, slurm
from allocator.simulation.formats.conversion import Conversion
from allocator.simulation.trace import TraceError
from tests.simulation.test_formats import left_out, written

HEADER = "JobIDRaw|JobID|User|Submit|Eligible|Start|End|State|NNodes|AllocCPUS|ReqMem|AllocTRES"
MIDNIGHT = 1772323200  # 2026-03-01T00:00:00Z


def sacct(tmp_path: Path, *rows: str, zone: str = "UTC", header: str = HEADER) -> Conversion:
    return slurm.convert(written(tmp_path / "sacct.txt", header, *rows), zone)


def row(job: str, **given: str) -> str:
    fields = {
        "JobIDRaw": job,
        "JobID": job,
        "User": "ann",
        "Submit": "2026-03-01T01:00:00",
        "Eligible": "2026-03-01T01:00:00",
        "Start": "2026-03-01T01:10:00",
        "End": "2026-03-01T02:10:00",
        "State": "COMPLETED",
        "NNodes": "1",
        "AllocCPUS": "4",
        "ReqMem": "16G",
        "AllocTRES": "billing=4,cpu=4,gres/gpu=1,gres/gpu:a100=1,mem=16G,node=1",
    }
    return "|".join((fields | given)[name] for name in HEADER.split("|"))


def seconds(conversion: Conversion) -> list[tuple[float, float]]:
    trace = conversion.trace
    return list(zip(trace.submitted / 1e6, trace.runtime / 1e6, strict=True))


def test_an_allocation_is_a_task_from_its_start_to_its_end(tmp_path: Path) -> None:
    found = sacct(tmp_path, row("7"))
    assert found.trace.resources == ("cpus", "mem", "gpus")
    assert found.trace.demand.tolist() == [[4.0, 16384.0, 1.0]]
    assert found.trace.users == ("ann",)
    assert found.trace.job.tolist() == [7]
    assert seconds(found) == [(3600.0, 3600.0)]  # from midnight before the first
    assert left_out(found) == {}


def test_tasks_of_an_array_are_one_job_and_steps_are_none(tmp_path: Path) -> None:
    found = sacct(
        tmp_path,
        row("100", JobID="99_1"),
        row("99", JobID="99_2"),
        row("99.batch", JobID="99_2.batch", User=""),
        row("99.0", JobID="99_2.0", User=""),
        row("120", JobID="120+1"),
        row("130", JobID="130_[5-9%2]", Start="Unknown", End="Unknown", State="PENDING"),
    )
    assert found.trace.job.tolist() == [99, 99, 120]
    assert left_out(found) == {"is a step of a job, not a job": [4, 5], "never started": [7]}


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"Start": "None", "State": "CANCELLED by 1000"}, "never started"),
        ({"Start": "Unknown", "End": "Unknown", "State": "PENDING"}, "never started"),
        ({"Start": "2026-03-01T02:10:00", "State": "CANCELLED by 1000"}, "never started"),
        ({"End": "Unknown", "State": "RUNNING"}, "had not ended"),
        ({"End": "2026-03-01T00:10:00"}, "ended before it started"),
        ({"User": ""}, "no user"),
        ({"JobID": "x"}, "job is no number"),
        ({"Submit": "yesterday"}, "submission is no time"),
        ({"AllocTRES": "cpu=many"}, "cpus are no number"),
        ({"AllocTRES": "cpu=1,mem=lots"}, "memory is no amount"),
        ({"AllocTRES": "", "AllocCPUS": "0", "ReqMem": "0"}, "asks for no resource that is read"),
    ],
)
def test_what_is_no_task_is_left_out_by_name(
    tmp_path: Path, given: dict[str, str], reason: str
) -> None:
    found = sacct(tmp_path, row("7", **given))
    assert left_out(found) == {reason: [2]}
    assert len(found.trace) == 0


def test_what_ran_counts_however_it_ended_and_each_attempt_alone(tmp_path: Path) -> None:
    states = ("FAILED", "TIMEOUT", "NODE_FAIL", "OUT_OF_MEMORY", "CANCELLED by 7", "REQUEUED")
    requeued = row("7", Submit="2026-03-01T03:00:00", Eligible="2026-03-01T03:00:00",
                   Start="2026-03-01T04:00:00", End="2026-03-01T04:30:00")  # fmt: skip
    found = sacct(tmp_path, *(row("7", State=state) for state in states), requeued)
    assert seconds(found) == [(3600.0, 3600.0)] * 6 + [(10800.0, 1800.0)]


def test_who_waits_for_its_begin_time_does_not_wait_for_the_cluster(tmp_path: Path) -> None:
    later, early, unknown = (
        row("1", Eligible="2026-03-01T01:09:00"),
        row("2", Eligible="2026-03-01T01:15:00"),
        row("3", Eligible="Unknown"),
    )
    found = sacct(tmp_path, later, early, unknown)
    assert sorted(seconds(found)) == [(3600.0, 3600.0), (4140.0, 3600.0), (4200.0, 3600.0)]


@pytest.mark.parametrize(
    ("memory", "mib"),
    [
        ("4000Mc", 16000.0), ("2Gn", 6144.0), ("16G", 16384.0), ("512000K", 500.0),
        ("1.5T", 1572864.0), ("300", 300.0), ("0n", 0.0), ("", 0.0), ("?", 0.0),
    ],
)  # fmt: skip
def test_memory_is_of_each_core_of_each_node_or_of_all(
    tmp_path: Path, memory: str, mib: float
) -> None:
    found = sacct(tmp_path, row("7", NNodes="3", AllocTRES="", ReqMem=memory))
    expected = [[4.0, mib]] if mib else [[4.0]]
    assert found.trace.demand.tolist() == expected


def test_times_are_seconds_since_1970_or_of_a_zone_whose_clocks_change(tmp_path: Path) -> None:
    epoch = row(
        "1", Submit=str(MIDNIGHT), Eligible="", Start=str(MIDNIGHT + 5), End=str(MIDNIGHT + 9)
    )
    assert seconds(sacct(tmp_path, epoch)) == [(0.0, 4.0)]
    night = {"Submit": "2026-10-25T01:00:00", "Eligible": "2026-10-25T01:00:00"}
    over = row("1", **night, Start="2026-10-25T02:50:00", End="2026-10-25T02:10:00")
    found = sacct(tmp_path, over, zone="Europe/Berlin")
    assert seconds(found) == [(82800.0, 1200.0)], "twenty minutes: the hour from 2 came twice"
    spring = row("1", Submit="2026-03-29T01:00:00", Eligible="", Start="2026-03-29T01:30:00",
                 End="2026-03-29T03:30:00")  # fmt: skip
    assert seconds(sacct(tmp_path, spring, zone="Europe/Berlin")) == [(0.0, 3600.0)]
    assert seconds(sacct(tmp_path, spring)) == [(3600.0, 7200.0)]
    with pytest.raises(TraceError, match="no time zone 'Mars'; write such as Europe/Berlin"):
        sacct(tmp_path, spring, zone="Mars")


def test_columns_may_come_in_any_order_packed_and_what_is_needed_is_named(tmp_path: Path) -> None:
    names = "End|Start|AllocCPUS|User|Submit|JobID"
    path = tmp_path / "sacct.txt.gz"
    rows = f"{names}\n{MIDNIGHT + 9}|{MIDNIGHT}|2|bob|{MIDNIGHT}|5\nx|y\n"
    path.write_bytes(gzip.compress(rows.encode()))
    found = slurm.convert(path)
    assert found.trace.demand.tolist() == [[2.0]]
    assert left_out(found) == {"has not as many fields as the header": [3]}
    with pytest.raises(TraceError, match="has no column User, End in its first line"):
        sacct(tmp_path, header="JobID|Submit|Start|AllocCPUS")
    with pytest.raises(TraceError, match="none of the columns AllocTRES, AllocCPUS, ReqCPUS"):
        sacct(tmp_path, header="JobID|User|Submit|Start|End")


JOB = {
    "ClusterId": 12,
    "ProcId": 0,
    "Owner": "ann",
    "QDate": MIDNIGHT + 60,
    "JobStartDate": MIDNIGHT + 90,
    "CompletionDate": MIDNIGHT + 390,
    "RemoteWallClockTime": 300.0,
    "RequestCpus": 2,
    "RequestMemory": 2048,
    "JobStatus": 4,
    "JobUniverse": 5,
}


def history(tmp_path: Path, *jobs: object) -> Conversion:
    path = tmp_path / "history.json"
    path.write_text(json.dumps(jobs))
    return htcondor.convert(path)


def test_a_job_of_the_history_is_a_task_that_runs_for_all_that_it_ran(tmp_path: Path) -> None:
    twice = JOB | {"ProcId": 1, "NumJobStarts": 2, "RemoteWallClockTime": 450.5}
    found = history(tmp_path, JOB, twice)
    assert found.trace.resources == ("cpus", "mem")
    assert found.trace.demand.tolist() == [[2.0, 2048.0]] * 2
    assert found.trace.job.tolist() == [12, 12]
    assert seconds(found) == [(60.0, 300.0), (60.0, 450.5)]


def test_expressions_are_no_amounts_and_names_of_attributes_have_no_case(tmp_path: Path) -> None:
    expression = {"RequestMemory": "/Expr(ifThenElse(MemoryUsage > 1, 2, 3))/"}
    given = JOB | expression | {"MEMORYProvisioned": 4096, "requestgpus": 1}
    found = history(tmp_path, given, JOB | expression)
    assert found.trace.resources == ("cpus", "mem", "gpus")
    assert found.trace.demand.tolist() == [[2.0, 4096.0, 1.0], [2.0, 0.0, 0.0]]


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"RemoteWallClockTime": 0.0, "JobStatus": 3}, "never ran"),
        ({"RemoteWallClockTime": "undefined"}, "never ran"),
        ({"JobUniverse": 7}, "ran beside the schedd, in the universe scheduler"),
        ({"JobUniverse": 12}, "ran beside the schedd, in the universe local"),
        ({"Owner": None}, "no owner"),
        ({"QDate": "undefined"}, "QDate is no time"),
        ({"ClusterId": True}, "ClusterId is no number"),
        ({"RequestCpus": 0, "RequestMemory": 0}, "asks for no resource that is read"),
    ],
)
def test_a_job_that_is_no_task_is_left_out_by_name(
    tmp_path: Path, given: dict[str, object], reason: str
) -> None:
    found = history(tmp_path, JOB, JOB | given, 7)
    assert left_out(found) == {reason: [2], "is no object": [3]}


def test_what_is_no_history_is_refused_and_an_empty_one_is_empty(tmp_path: Path) -> None:
    for content, complaint in (("[{", "is not JSON"), ("{}", "is not an array of jobs")):
        path = written(tmp_path / "history.json", content)
        with pytest.raises(TraceError, match=complaint):
            htcondor.convert(path)
    assert len(htcondor.convert(written(tmp_path / "history.json", "")).trace) == 0
    assert np.array_equal(history(tmp_path).trace.submitted, np.empty(0))
