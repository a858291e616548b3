"""Each record of a site's accounting becomes a task, or is left out with a reason."""

import gzip
import json
from pathlib import Path

import numpy as np
import pytest

from allocator.simulation.formats import htcondor, slurm
from allocator.simulation.formats.conversion import Conversion, resource_hours
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
    if "cpu=" in given.get("AllocTRES", ""):
        fields["AllocCPUS"] = ""  # AllocTRES tells the cores alone
    return "|".join((fields | given)[name] for name in HEADER.split("|"))


def seconds(conversion: Conversion) -> list[tuple[float, float]]:
    trace = conversion.trace
    return list(zip(trace.submitted / 1e6, trace.runtime / 1e6, strict=True))


def test_an_allocation_is_a_task_from_its_start_to_its_end(tmp_path: Path) -> None:
    converted = sacct(tmp_path, row("7"))
    assert converted.trace.resources == ("cpus", "mem", "gpus")
    assert converted.trace.demand.tolist() == [[4.0, 16384.0, 1.0]]
    assert converted.trace.users == ("ann",)
    assert converted.trace.job.tolist() == [7]
    assert seconds(converted) == [(3600.0, 3600.0)]  # from midnight before the first
    assert converted.recorded_waits == [600_000_000]
    assert left_out(converted) == {}


def test_tasks_of_an_array_are_one_job_and_steps_are_ignored(tmp_path: Path) -> None:
    converted = sacct(
        tmp_path,
        row("100", JobID="99_1"),
        row("99", JobID="99_2"),
        row("99.batch", JobID="99_2.batch", User=""),
        row("99.0", JobID="99_2.0", User=""),
        row("120", JobID="120+1"),
        row("130", JobID="130_[5-9%2]", Start="Unknown", End="Unknown", State="PENDING"),
    )
    assert converted.trace.job.tolist() == [99, 99, 120]
    assert left_out(converted) == {"is a step of a job, not a job": [4, 5], "never started": [7]}


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"Start": "None", "State": "CANCELLED by 1000"}, "never started"),
        ({"Start": "Unknown", "End": "Unknown", "State": "PENDING"}, "never started"),
        ({"Start": "2026-03-01T02:10:00", "State": "CANCELLED by 1000"}, "never started"),
        ({"End": "Unknown", "State": "RUNNING"}, "had not ended"),
        ({"End": "2026-03-01T00:10:00"}, "ended before it started"),
        ({"User": ""}, "no user"),
        ({"JobID": "x"}, "job is not a number"),
        ({"Submit": "yesterday"}, "submission is not a time"),
        ({"AllocTRES": "cpu=many"}, "cpus are not numbers"),
        ({"AllocTRES": "cpu=1,mem=lots"}, "memory is not an amount"),
        (
            {"AllocTRES": "", "AllocCPUS": "0", "ReqMem": "0"},
            "asks for no resource that the trace can have",
        ),
    ],
)
def test_records_other_than_tasks_are_omitted_with_a_named_reason(
    tmp_path: Path, given: dict[str, str], reason: str
) -> None:
    converted = sacct(tmp_path, row("7", **given))
    assert left_out(converted) == {reason: [2]}
    assert len(converted.trace) == 0


def test_every_attempt_that_ran_is_a_task_regardless_of_its_end(tmp_path: Path) -> None:
    states = ("FAILED", "TIMEOUT", "NODE_FAIL", "OUT_OF_MEMORY", "CANCELLED by 7", "REQUEUED")
    requeued = row("7", Submit="2026-03-01T03:00:00", Eligible="2026-03-01T03:00:00",
                   Start="2026-03-01T04:00:00", End="2026-03-01T04:30:00")  # fmt: skip
    converted = sacct(tmp_path, *(row("7", State=state) for state in states), requeued)
    assert seconds(converted) == [(3600.0, 3600.0)] * 6 + [(10800.0, 1800.0)]


def test_the_time_until_the_begin_time_of_a_job_is_not_waiting(tmp_path: Path) -> None:
    later, early, unknown = (
        row("1", Eligible="2026-03-01T01:09:00"),
        row("2", Eligible="2026-03-01T01:15:00"),
        row("3", Eligible="Unknown"),
    )
    converted = sacct(tmp_path, later, early, unknown)
    assert sorted(seconds(converted)) == [(3600.0, 3600.0), (4140.0, 3600.0), (4200.0, 3600.0)]


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
    converted = sacct(tmp_path, row("7", NNodes="3", AllocTRES="", ReqMem=memory))
    expected = [[4.0, mib]] if mib else [[4.0]]
    assert converted.trace.demand.tolist() == expected


def test_times_are_seconds_since_1970_or_of_a_zone_whose_clocks_change(tmp_path: Path) -> None:
    epoch = row(
        "1", Submit=str(MIDNIGHT), Eligible="", Start=str(MIDNIGHT + 5), End=str(MIDNIGHT + 9)
    )
    assert seconds(sacct(tmp_path, epoch)) == [(0.0, 4.0)]
    night = {"Submit": "2026-10-25T01:00:00", "Eligible": "2026-10-25T01:00:00"}
    over = row("1", **night, Start="2026-10-25T02:50:00", End="2026-10-25T02:10:00")
    converted = sacct(tmp_path, over, zone="Europe/Berlin")
    assert seconds(converted) == [(82800.0, 1200.0)], "twenty minutes: the hour from 2 came twice"
    spring = row("1", Submit="2026-03-29T01:00:00", Eligible="", Start="2026-03-29T01:30:00",
                 End="2026-03-29T03:30:00")  # fmt: skip
    assert seconds(sacct(tmp_path, spring, zone="Europe/Berlin")) == [(0.0, 3600.0)]
    assert seconds(sacct(tmp_path, spring)) == [(3600.0, 7200.0)]
    with pytest.raises(
        TraceError, match="time zone 'Mars' is unknown; write a name such as Europe/Berlin"
    ):
        sacct(tmp_path, spring, zone="Mars")


def test_columns_may_be_in_any_order_or_compressed_and_missing_columns_are_named(
    tmp_path: Path,
) -> None:
    names = "End|Start|AllocCPUS|User|Submit|JobID"
    path = tmp_path / "sacct.txt.gz"
    rows = f"{names}\n{MIDNIGHT + 9}|{MIDNIGHT}|2|bob|{MIDNIGHT}|5\nx|y\n"
    path.write_bytes(gzip.compress(rows.encode()))
    converted = slurm.convert(path)
    assert converted.trace.demand.tolist() == [[2.0]]
    assert left_out(converted) == {"has more or fewer fields than the header": [3]}
    with pytest.raises(TraceError, match="has no column User, End in its first line"):
        sacct(tmp_path, header="JobID|Submit|Start|AllocCPUS")
    with pytest.raises(TraceError, match="none of the columns AllocTRES, AllocCPUS, ReqCPUS"):
        sacct(tmp_path, header="JobID|User|Submit|Start|End")


def assumed(conversion: Conversion) -> dict[str, list[int]]:
    lines: dict[str, list[int]] = {}
    for reason, _, line in conversion.assumed:
        lines.setdefault(reason, []).append(line)
    return lines


def demands(conversion: Conversion) -> list[dict[str, float]]:
    trace = conversion.trace
    return [
        {name: amount for name, amount in zip(trace.resources, amounts, strict=True) if amount}
        for amounts in trace.demand.tolist()
    ]


@pytest.mark.parametrize(
    ("gres", "gpus"),
    [
        ("gres/gpu:a100=2", 2),
        ("gres/gpu:a100=2,gres/gpu:v100=1", 3),
        ("gres/gpu=3,gres/gpu:a100=2,gres/gpu:v100=1", 3),
        ("gres/gpu:nvidia_a100_1g.5gb=1", 1),
        ("gres/gpu:3g.20gb=2,gres/gpu:1g.5gb=4", 6),
        ("gres/gpu=4", 4),
        ("gres/gpu=4,gres/gpu:a100=1", 4),
        ("gres/gpu:1g.33gb:2", 2),
    ],
)
def test_gpus_count_whether_slurm_names_their_kinds_or_not(
    tmp_path: Path, gres: str, gpus: float
) -> None:
    converted = sacct(tmp_path, row("7", AllocTRES=f"billing=4,cpu=4,{gres},mem=16G,node=1"))
    assert demands(converted) == [{"cpus": 4.0, "mem": 16384.0, "gpus": gpus}]
    kinds = [entry.split("=")[0].removesuffix(":2") for entry in gres.split(",") if ":" in entry]
    assert assumed(converted) == {f"{kind} counts in gpus": [2] for kind in kinds}


def test_generic_resources_have_their_own_names_and_unread_resources_are_named(
    tmp_path: Path,
) -> None:
    tres = "cpu=4,mem=1G,gres/shard=3,gres/nic:cx6=2,gres/mps:a100=1K,license/matlab=2,bb/dw=4G"
    converted = sacct(tmp_path, row("7", AllocTRES=tres), row("8", AllocTRES="cpu=1,mem=1G,node=1"))
    assert demands(converted) == [
        {"cpus": 4.0, "mem": 1024.0, "gres/shard": 3.0, "gres/nic": 2.0, "gres/mps": 1024.0},
        {"cpus": 1.0, "mem": 1024.0},
    ]
    assert assumed(converted) == {
        "bb/dw of AllocTRES is not read": [2],
        "license/matlab of AllocTRES is not read": [2],
        "gres/mps:a100 counts in gres/mps": [2],
        "gres/nic:cx6 counts in gres/nic": [2],
    }
    assert "node of AllocTRES" in converted.ignored


TIMED = f"{HEADER}|ElapsedRaw|Elapsed|Suspended|CPUTimeRAW"


@pytest.mark.parametrize(
    "told",
    [
        "3600||04:00:00|36000",
        "3600|||",
        "|01:00:00||",
        "||04:00:00|",
        "|||36000",
        "3600|01:00:00|04:00:00|",
    ],
)
def test_a_suspended_job_runs_for_its_elapsed_time(tmp_path: Path, told: str) -> None:
    times = {"Start": "2026-03-01T10:00:00", "End": "2026-03-01T15:00:00"}
    suspended = f"{row('7', **times, AllocTRES='cpu=10,mem=1G')}|{told}"
    whole = f"{row('8')}|3600|01:00:00|00:00:00|14400"
    converted = sacct(tmp_path, suspended, whole, header=TIMED)
    assert converted.trace.runtime.tolist() == [3600 * 10**6] * 2
    assert resource_hours(converted.trace)["cpus"] == 14.0
    [(reason, lines)] = assumed_but_gpus(converted).items()
    assert reason.startswith("elapsed time is not End - Start")
    assert lines == [2]
    assert all(check.agrees for check in converted.checks)


def assumed_but_gpus(conversion: Conversion) -> dict[str, list[int]]:
    return {reason: at for reason, at in assumed(conversion).items() if "gpu" not in reason}


def test_the_files_own_core_seconds_are_compared(tmp_path: Path) -> None:
    rows = [f"{row(job)}|3600|||{cpu_time}" for job, cpu_time in (("7", 14400), ("8", 28800))]
    [check] = sacct(tmp_path, *rows, f"{row('9')}|3600|||", header=TIMED).checks
    assert (check.figure, check.unit, check.rows) == ("CPUTimeRAW", "core-hours", 2)
    assert (check.in_file, check.in_trace, check.agrees) == (12.0, 8.0, False)
    assert list(check.differing) == [("CPUTimeRAW", "sacct.txt", 3)]


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90", 90), ("01:30", 90), ("01:30.500", 90.5), ("00:01:30", 90), ("1-02:03:04", 93784)],
)
def test_durations_are_read_in_all_of_slurms_forms(
    tmp_path: Path, text: str, seconds: float
) -> None:
    converted = sacct(tmp_path, f"{row('7')}||{text}||", header=TIMED)
    assert converted.trace.runtime.tolist() == [seconds * 10**6]
    converted = sacct(tmp_path, f"{row('7')}||soon||", header=TIMED)
    assert left_out(converted) == {"Elapsed is not a duration": [2]}


@pytest.mark.parametrize(
    ("state", "reason"),
    [
        ("RUNNING", "had not ended"),
        ("SUSPENDED", "had not ended"),
        ("PENDING", "never started"),
        ("CONFIGURING", "never started"),
        ("R", "had not ended"),
    ],
)
def test_a_state_other_than_an_end_makes_no_task_even_with_an_end_time(
    tmp_path: Path, state: str, reason: str
) -> None:
    for end in ("2026-03-01T01:10:00", "2026-03-01T02:10:00"):
        converted = sacct(tmp_path, row("7", State=state, End=end), row("8"))
        assert left_out(converted) == {reason: [2]}


def test_an_unknown_state_is_named_and_makes_no_task(tmp_path: Path) -> None:
    converted = sacct(
        tmp_path, row("8", State="MELTED"), row("9", State="CANCELLED+"), row("7", State="")
    )
    assert left_out(converted) == {"the state 'MELTED' is unknown": [2]}
    assert len(converted.trace) == 2


@pytest.mark.parametrize(
    ("former", "resources"),
    [
        ("gpu:0(IDX:N/A)", {}),
        ("gpu:2", {"gpus": 2}),
        ("gpu:p100:2(IDX:0,3),hbm:0", {"gpus": 2}),
        ("hbm:0,gpu:V100:4,gpu:1g.5gb,bandwidth:1K", {"gpus": 5, "gres/bandwidth": 1024}),
    ],
)
def test_generic_resources_of_former_columns_are_used_without_an_allocation(
    tmp_path: Path, former: str, resources: dict[str, float]
) -> None:
    header = f"{HEADER}|ReqGRES"
    converted = sacct(tmp_path, f"{row('7', AllocTRES='cpu=4,mem=1G')}|{former}", header=header)
    assert demands(converted) == [{"cpus": 4.0, "mem": 1024.0} | resources]
    assert "AllocTRES has no generic resources: ReqGRES is used" in assumed(converted)
    converted = sacct(tmp_path, f"{row('7')}|{former}", header=header)
    assert demands(converted) == [{"cpus": 4.0, "mem": 16384.0, "gpus": 1.0}]


def test_columns_have_no_case_and_the_raw_number_will_do(tmp_path: Path) -> None:
    lower = HEADER.lower().replace("|jobid|", "|job|")
    array = row("100", JobID="99_[1-3]")
    assert sacct(tmp_path, array, header=lower).trace.job.tolist() == [100]
    several = assumed(sacct(tmp_path, array))
    assert several["JobID names several tasks of an array: they count as one"] == [2]


def test_output_of_fixed_width_is_refused_and_other_marks_than_bars_are_read(
    tmp_path: Path,
) -> None:
    fixed = (
        "JobID        User      Submit              Start               End        AllocCPUS",
        "------------ --------- ------------------- ------------------- ---------- ---------",
    )
    with pytest.raises(TraceError, match=r"of fixed width, .* with --parsable2 \(-P\), or with"):
        sacct(tmp_path, *fixed[1:], header=fixed[0])
    bars = (HEADER, row("7"))
    for mark, quote in ((";", ""), ("\t", ""), (",", '"')):
        lines = [mark.join(f"{quote}{f}{quote}" for f in line.split("|")) for line in bars]
        converted = sacct(tmp_path, *lines[1:], header=lines[0])
        assert demands(converted) == [{"cpus": 4.0, "mem": 16384.0, "gpus": 1.0}]
    trailing = sacct(tmp_path, f"{row('7')}|", header=f"{HEADER}|")  # sacct --parsable
    assert len(trailing.trace) == 1
    assert trailing.ignored == ("billing of AllocTRES", "node of AllocTRES")


def test_files_that_were_put_together_count_no_row_twice(tmp_path: Path) -> None:
    converted = sacct(tmp_path, row("7"), HEADER, row("7"), row("8"))
    assert left_out(converted) == {"repeats the header": [3], "repeats an earlier row": [4]}
    assert converted.left_out.rows_read == 4
    assert len(converted.trace) == 2


def test_job_numbers_are_distinct_by_cluster_and_user(tmp_path: Path) -> None:
    rows = [
        f"{row('7', User=user)}|{cluster}"
        for user, cluster in (("ann", "a"), ("ann", "b"), ("bob", "b"))
    ]
    trace = sacct(tmp_path, *rows, f"{row('7', JobID='7_2')}|b", header=f"{HEADER}|Cluster").trace
    assert len(set(trace.job.tolist())) == 3
    assert trace.job[1] == trace.job[3]


@pytest.mark.parametrize(
    ("given", "reason", "demand"),
    [
        ({"AllocTRES": "", "AllocCPUS": "2K", "ReqMem": "1G"}, None, {"cpus": 2048, "mem": 1024}),
        ({"AllocTRES": "cpu=4,mem"}, "trackable resources are not a list of NAME=AMOUNT", None),
        ({"AllocTRES": "cpu=4,gres/gpu=x"}, "gres/gpu are not numbers", None),
        (
            {"AllocTRES": "", "AllocCPUS": "0", "ReqMem": "1G"},
            "CPUs are not given: the task gets 0 cores",
            {"mem": 1024},
        ),
        (
            {"AllocTRES": "cpu=1", "ReqMem": "0n"},
            "memory is not given, or is the whole node: the task gets 0 MiB",
            {"cpus": 1},
        ),
        ({"AllocTRES": "cpu=1", "ReqMem": "4Gcn"}, "memory is not an amount", None),
    ],
)  # fmt: skip
def test_amounts_that_are_not_understood_are_named(
    tmp_path: Path, given: dict[str, str], reason: str | None, demand: dict[str, float] | None
) -> None:
    converted = sacct(tmp_path, row("7", **given))
    assert demands(converted) == ([demand] if demand else [])
    named = assumed(converted) if demand else left_out(converted)
    assert named == ({reason: [2]} if reason else {})


def test_each_guess_about_a_record_of_slurm_is_named(tmp_path: Path) -> None:
    header = "JobID|User|Submit|Start|End|State|ElapsedRaw|AllocCPUS|ReqCPUS|ReqMem"

    def job(number: int, **given: str) -> str:
        fields = {
            "JobID": str(number), "User": "ann", "Submit": "2026-03-01T01:00:00",
            "Start": "2026-03-01T01:00:00", "End": "2026-03-01T02:00:00", "State": "COMPLETED",
            "ElapsedRaw": "3600", "AllocCPUS": "4", "ReqCPUS": "4", "ReqMem": "16G",
        }  # fmt: skip
        return "|".join((fields | given).values())

    converted = sacct(
        tmp_path,
        job(1),
        job(2, ReqMem="16Gn"),
        job(3, Start="2026-03-01T00:30:00", ElapsedRaw="5400"),
        job(4, AllocCPUS="0"),
        job(5, State=""),
        job(6, ElapsedRaw="7200"),
        header=header,
    )
    assert len(converted.trace) == 6
    assert assumed(converted) == {
        "the number of nodes is not given: ReqMem counts for one node": [3],
        "Start is before Submit: the task is submitted at its start": [4],
        "AllocCPUS is 0: ReqCPUS is used": [5],
        "State is empty: the job counts as ended": [6],
        "elapsed time is longer than End - Start, as with a wrong --timezone: the task runs for "
        "the elapsed time": [7],
    }


def test_utf_16_as_of_powershell_is_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "sacct.txt"
    path.write_text(f"{HEADER}\n{row('7')}\n", encoding="utf-16")
    with pytest.raises(TraceError, match="is UTF-16; save it as UTF-8"):
        slurm.convert(path)


def test_requested_resources_replace_an_empty_allocation(tmp_path: Path) -> None:
    rows = f"{row('7', AllocTRES='', AllocCPUS='')}|cpu=8,mem=2G,node=1,gres/gpu:a100=1"
    converted = sacct(tmp_path, rows, header=f"{HEADER}|ReqTRES")
    assert demands(converted) == [{"cpus": 8.0, "mem": 2048.0, "gpus": 1.0}]
    assert "AllocTRES is empty: ReqTRES is used" in assumed(converted)


def number(value: int | None, *, plain: bool) -> object:
    if plain:
        return value or 0
    return {"set": value is not None, "infinite": False, "number": value or 0}


def json_job(*, plain: bool, job: int = 7, **given: object) -> dict[str, object]:
    resources = [("cpu", "", 4), ("mem", "", 16384), ("node", "", 1), ("billing", "", 4),
                 ("gres", "gpu:a100", 2)]  # fmt: skip
    return {
        "job_id": job,
        "user": "ann",
        "cluster": "c",
        "name": "x|y",
        "array": {"job_id": number(0, plain=plain), "task_id": number(None, plain=plain)},
        "het": {"job_id": 0, "job_offset": number(None, plain=plain)},
        "state": {"current": "COMPLETED" if plain else ["COMPLETED"], "reason": "None"},
        "time": {
            "elapsed": 3600,
            "eligible": number(MIDNIGHT, plain=plain),
            "start": number(MIDNIGHT + 600, plain=plain),
            "end": number(MIDNIGHT + 600 + 7200, plain=plain),
            "submission": number(MIDNIGHT, plain=plain),
            "suspended": number(3600, plain=plain),
        },
        "tres": {
            "allocated": [
                {"type": kind, "name": name, "id": place, "count": count}
                for place, (kind, name, count) in enumerate(resources)
            ],
            "requested": [],
        },
        "required": {"CPUs": 4, "memory_per_node": number(16384, plain=plain)},
        "steps": [],
    } | given  # fmt: skip


@pytest.mark.parametrize("plain", [True, False], ids=["numbers", "objects"])
def test_the_json_of_all_versions_of_sacct_is_read(tmp_path: Path, *, plain: bool) -> None:
    of_array = {"array": {"job_id": 5, "task_id": number(2, plain=plain)}}
    jobs = [
        json_job(plain=plain),
        json_job(plain=plain, job=8, **of_array),
        json_job(plain=plain, job=9, **of_array, state={"current": "RUNNING"}),
        json_job(plain=plain, job=10, state={"current": ["CANCELLED"]}, time={"start": 0}),
        json_job(plain=plain, job=11, user="", association={"user": "bob"}),
        7,
    ]
    path = written(tmp_path / "sacct.json", json.dumps({"jobs": jobs, "errors": []}))
    converted = slurm.convert(path)
    assert demands(converted) == [{"cpus": 4.0, "mem": 16384.0, "gpus": 2.0}] * 3
    assert converted.trace.job.tolist() == [7, 5, 11]
    assert converted.trace.users == ("ann", "bob")
    assert seconds(converted) == [(0.0, 3600.0)] * 3
    assert left_out(converted) == {
        "had not ended": [3],
        "never started": [4],
        "is not an object": [6],
    }
    assert {"steps", "name", "billing of AllocTRES"} <= {*converted.ignored}
    [check] = converted.checks
    assert (check.figure, check.in_file, check.agrees) == ("End - Start - Suspended", 12.0, True)


@pytest.mark.parametrize(
    ("field", "reason"),
    [
        ({"state": 3}, "the state '3' is unknown"),
        ({"tres": "cpu=4"}, "trackable resources are not a list of objects"),
        ({"time": {"start": 1, "end": 2, "submission": 0}}, "submission is not a time"),
    ],
)
def test_a_json_field_of_another_form_is_named(
    tmp_path: Path, field: dict[str, object], reason: str
) -> None:
    job = {
        "job_id": 1,
        "user": "ann",
        "state": "COMPLETED",
        "time": {"start": MIDNIGHT, "end": MIDNIGHT + 9, "submission": MIDNIGHT},
        "tres": {"allocated": [{"type": "cpu", "count": 4}]},
        "required": {"CPUs": 4},
    }
    # A list without the answer around it is what `jq .jobs` prints.
    converted = slurm.convert(written(tmp_path / "a.json", json.dumps([job, job | field])))
    assert len(converted.trace) == 1
    assert left_out(converted) == {reason: [2]}


def test_json_that_is_not_of_sacct_is_refused(tmp_path: Path) -> None:
    for content, complaint in (
        ("{", "is not JSON"),
        ('{"nodes": []}', "has no list of jobs, as sacct --json prints it"),
        ('{"jobs": [], "errors": ["no database"]}', "errors of sacct: .*no database"),
    ):
        with pytest.raises(TraceError, match=complaint):
            slurm.convert(written(tmp_path / "sacct.json", content))
    assert len(slurm.convert(written(tmp_path / "s.json", '{"jobs": []}')).trace) == 0


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


def test_a_job_of_the_history_is_a_task_with_the_total_run_time(tmp_path: Path) -> None:
    twice = JOB | {"ProcId": 1, "NumJobStarts": 2, "RemoteWallClockTime": 450.5}
    converted = history(tmp_path, JOB, twice)
    assert converted.trace.resources == ("cpus", "mem")
    assert converted.trace.demand.tolist() == [[2.0, 2048.0]] * 2
    assert converted.trace.job.tolist() == [12, 12]
    assert seconds(converted) == [(60.0, 300.0), (60.0, 450.5)]
    assert converted.recorded_waits is not None
    assert converted.recorded_waits.tolist() == [30_000_000] * 2


def test_expressions_are_no_amounts_and_names_of_attributes_have_no_case(tmp_path: Path) -> None:
    expression = {"RequestMemory": "/Expr(ifThenElse(MemoryUsage > 1, 2, 3))/"}
    given = JOB | expression | {"MEMORYProvisioned": 4096, "requestgpus": 1}
    converted = history(tmp_path, given, JOB | expression)
    assert converted.trace.resources == ("cpus", "mem", "gpus")
    assert converted.trace.demand.tolist() == [[2.0, 4096.0, 1.0], [2.0, 0.0, 0.0]]


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"RemoteWallClockTime": 0.0, "JobStartDate": 0, "JobStatus": 3}, "never ran"),
        ({"RemoteWallClockTime": 0.0}, "RemoteWallClockTime is 0, although JobStartDate is given"),
        ({"EpochWriteDate": 7}, "describes one run of a job, as condor_history -epochs prints it"),
        ({"RemoteWallClockTime": "undefined", "JobStartDate": 0, "JobStatus": 3}, "never ran"),
        ({"JobUniverse": 7}, "ran on the schedd's machine, in the universe scheduler"),
        ({"JobUniverse": 9}, "ran elsewhere, in the universe grid"),
        ({"JobUniverse": 12}, "ran on the schedd's machine, in the universe local"),
        ({"Owner": None}, "no owner"),
        ({"QDate": "undefined"}, "QDate is not a time"),
        ({"QDate": 0}, "QDate is not a time"),
        ({"ClusterId": True}, "ClusterId is not a number"),
        ({"RequestCpus": 0, "RequestMemory": 0}, "asks for no resource that the trace can have"),
    ],
)
def test_a_job_that_is_no_task_is_left_out_by_name(
    tmp_path: Path, given: dict[str, object], reason: str
) -> None:
    converted = history(tmp_path, JOB, JOB | given, 7)
    assert left_out(converted) == {reason: [2], "is not an object": [3]}


DATED = {key: value for key, value in JOB.items() if key != "RemoteWallClockTime"}


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({}, 300.0),
        ({"RemoteWallClockTime": None}, 300.0),
        ({"CompletionDate": 0, "EnteredCurrentStatus": MIDNIGHT + 190, "JobStatus": 3}, 100.0),
        ({"CompletionDate": 0}, "has no RemoteWallClockTime, nor CompletionDate"),
        ({"CompletionDate": MIDNIGHT}, "ended before it started"),
        ({"JobStartDate": None}, "has no RemoteWallClockTime, nor JobStartDate and CompletionDate"),
        ({"JobStatus": 2}, "had not ended"),
    ],
)
def test_a_job_without_a_wall_clock_time_runs_from_its_start_to_its_completion(
    tmp_path: Path, given: dict[str, object], told: float | str
) -> None:
    converted = history(tmp_path, DATED | given)
    if isinstance(told, str):
        assert left_out(converted) == {told: [1]}
        return
    assert seconds(converted) == [(60.0, told)]
    [(reason, lines)] = assumed(converted).items()
    assert reason.startswith("has no RemoteWallClockTime: the task runs from JobStartDate")
    assert lines == [1]


def test_requests_that_are_expressions_or_unknown_are_named(tmp_path: Path) -> None:
    expressions = {"RequestCpus": "/Expr(1 + 1)/", "RequestMemory": "/Expr(MemoryUsage)/"}
    bare = {key: value for key, value in JOB.items() if not key.startswith("Request")}
    converted = history(
        tmp_path,
        JOB | expressions,
        bare | {"ProcId": 1},
        JOB | expressions | {"MemoryProvisioned": 64, "ProcId": 2},
    )
    assert demands(converted) == [{"cpus": 1.0}, {"cpus": 1.0}, {"cpus": 1.0, "mem": 64.0}]
    assert assumed(converted) == {
        "RequestCpus is an expression or not a number: 1 is used": [1, 3],
        "RequestMemory is an expression or not a number: 0 is used": [1],
        "RequestCpus is not given: 1 is used": [2],
        "RequestMemory is not given: 0 is used": [2],
    }


def test_provisioned_amounts_that_are_not_numbers_or_zero_are_named(tmp_path: Path) -> None:
    converted = history(
        tmp_path,
        JOB | {"CpusProvisioned": "4", "MemoryProvisioned": "2 GB"},
        JOB | {"CpusProvisioned": 0, "ProcId": 1},
    )
    assert demands(converted) == [{"cpus": 2.0, "mem": 2048.0}, {"mem": 2048.0}]
    assert assumed(converted) == {
        "CpusProvisioned is not a number: RequestCpus is used": [1],
        "MemoryProvisioned is not a number: RequestMemory is used": [1],
        "CpusProvisioned is 0: the task gets 0": [2],
    }


def test_arrays_and_jobs_of_several_schedds_are_read_in_sequence(tmp_path: Path) -> None:
    local_job, remote_job = (
        JOB | {"GlobalJobId": f"{schedd}#12.0#1"} for schedd in ("here", "there")
    )
    arrays = written(
        tmp_path / "two.json", json.dumps([local_job, JOB]), json.dumps([remote_job], indent=1)
    )
    lines = written(
        tmp_path / "lines.jsonl", json.dumps(local_job), json.dumps(JOB | {"ClusterId": 13})
    )
    converted = htcondor.convert(arrays, lines)
    assert converted.left_out.rows_read == 5
    assert [*converted.left_out] == [
        ("repeats the GlobalJobId of an earlier job", "lines.jsonl", 1)
    ]
    assert len(converted.trace) == 4
    assert len(set(converted.trace.job.tolist())) == 4, "each schedd has a cluster 12 of its own"
    repeated = htcondor.convert(written(tmp_path / "j.jsonl", json.dumps(JOB), json.dumps(JOB)))
    [(reason, at)] = assumed(repeated).items()
    assert reason.startswith("repeats ClusterId, ProcId, Owner and QDate of an earlier job")
    assert at == [2]


def test_slot_time_is_compared_and_attributes_that_are_not_read_are_named(tmp_path: Path) -> None:
    weighed = JOB | {"CumulativeSlotTime": 600.0, "Cmd": "/bin/sleep"}
    converted = history(tmp_path, weighed, JOB, weighed | {"ProcId": 1, "CumulativeSlotTime": 1200})
    [check] = converted.checks
    assert (check.figure, check.rows, check.agrees) == ("CumulativeSlotTime", 2, False)
    assert (check.in_file, check.in_trace) == (0.5, 1200 / 3600)
    assert [line for _, _, line in check.differing] == [3]
    assert converted.ignored == ("Cmd",)


def test_files_other_than_a_history_are_refused_and_an_empty_history_is_empty(
    tmp_path: Path,
) -> None:
    for content, complaint in (("[{", "is not JSON"), ("{}", "has neither a JSON array of jobs")):
        path = written(tmp_path / "history.json", content)
        with pytest.raises(TraceError, match=complaint):
            htcondor.convert(path)
    assert len(htcondor.convert(written(tmp_path / "history.json", "")).trace) == 0
    assert np.array_equal(history(tmp_path).trace.submitted, np.empty(0))
