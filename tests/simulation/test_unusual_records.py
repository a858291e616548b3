"""Unusual records of accounting files, made after the reports in docs/lab/field-reports.md."""

import bz2
import gzip
import json
import lzma
import os
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from allocator.simulation.formats import csv, htcondor, slurm, slurm_text, swf, text
from allocator.simulation.formats.conversion import Conversion, resource_hours
from allocator.simulation.trace import TraceError
from tests.simulation.test_accounting_formats import (
    JOB,
    MIDNIGHT,
    assumed,
    demands,
    history,
    json_job,
    seconds,
)
from tests.simulation.test_formats import left_out, written

SACCT = "JobIDRaw|JobID|User|Submit|Start|End|State|ElapsedRaw|CPUTimeRAW|AllocCPUS|ReqMem"
NO_WALL_CLOCK_TIME = (
    "has no number as RemoteWallClockTime: the task runs from JobStartDate to CompletionDate, or "
    "to EnteredCurrentStatus"
)
FURTHER = "is a further size of a resized job: the task begins with the change of size"


def sacct(tmp_path: Path, *lines: str, zone: str = "UTC") -> Conversion:
    return slurm.convert(written(tmp_path / "sacct.txt", *lines), zone)


def record(job: str = "7", **given: str) -> str:
    fields = {
        "JobIDRaw": job, "JobID": job, "User": "ann", "Submit": "1000", "Start": "1000",
        "End": "4600", "State": "COMPLETED", "ElapsedRaw": "3600", "CPUTimeRAW": "14400",
        "AllocCPUS": "4", "ReqMem": "4G",
    }  # fmt: skip
    return "|".join((fields | given).values())


def core_hours(conversion: Conversion) -> float:
    return resource_hours(conversion.trace)["cpus"]


@pytest.mark.parametrize("submit", ["2000", "1000"], ids=["submitted at the change", "as before"])
def test_each_size_of_a_resized_job_counts_only_for_its_own_time(
    tmp_path: Path, submit: str
) -> None:
    converted = sacct(
        tmp_path,
        SACCT,
        record(Submit=submit, AllocCPUS="2", CPUTimeRAW="7200"),
        record(End="2000", State="RESIZING", ElapsedRaw="1000", CPUTimeRAW="4000"),
        record("8"),
    )
    assert seconds(converted) == [(1000.0, 1000.0), (1000.0, 3600.0), (2000.0, 2600.0)]
    assert core_hours(converted) == pytest.approx((4 * 1000 + 2 * 2600 + 4 * 3600) / 3600)
    assert assumed(converted) == {FURTHER: [2]}
    assert all(check.agrees for check in converted.checks)


def test_a_later_attempt_of_a_resized_job_is_whole(tmp_path: Path) -> None:
    converted = sacct(
        tmp_path,
        SACCT,
        record(End="2000", State="RESIZING", ElapsedRaw="1000", CPUTimeRAW="4000"),
        record(Submit="3000", Start="5000", End="6000", ElapsedRaw="1000", CPUTimeRAW="4000"),
    )
    assert seconds(converted) == [(1000.0, 1000.0), (3000.0, 1000.0)]
    assert assumed(converted) == {}


def sacct_json(tmp_path: Path, *jobs: object, **answer: object) -> Conversion:
    path = tmp_path / "sacct.json"
    path.write_text(json.dumps({"jobs": jobs, "errors": [], **answer}))
    return slurm.convert(path)


@pytest.mark.parametrize("plain", [True, False])
def test_flags_of_a_json_state_are_states(tmp_path: Path, *, plain: bool) -> None:
    states = (["PENDING", "REQUEUED"], ["PENDING", "REVOKED"], ["PENDING"], ["PENDING", "RESIZING"],
              ["COMPLETED", "COMPLETING"], ["RUNNING", "COMPLETING"])  # fmt: skip
    jobs = (
        json_job(plain=plain, job=number, state={"current": state})
        for number, state in enumerate(states, 1)
    )
    converted = sacct_json(tmp_path, *jobs)
    assert converted.trace.job.tolist() == [1, 4, 5]
    assert left_out(converted) == {"never started": [2, 3], "had not ended": [6]}


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"time": "noon"}, "time is not an object"),
        ({"array": 3}, "array is not an object"),
        ({"user": ["ann"]}, "user is not a text"),
        ({"required": [4]}, "required is not an object"),
        ({"tres": {"allocated": "cpu=4"}}, "trackable resources are not a list of objects"),
        ({"allocation_nodes": True}, "allocation_nodes is not a number"),
        ({"allocation_nodes": {"value": 3}}, "allocation_nodes is not a number"),
    ],
)
def test_a_json_field_of_an_unknown_form_is_named(
    tmp_path: Path, given: dict[str, Any], reason: str
) -> None:
    assert left_out(sacct_json(tmp_path, json_job(plain=True, **given))) == {reason: [1]}


def test_json_resources_without_a_number_are_named(tmp_path: Path) -> None:
    infinite = {"set": True, "infinite": True, "number": 0}
    listed = [
        {"type": "cpu", "count": infinite},
        {"type": "mem", "count": 1024},
        {"type": "energy", "count": infinite},
        {"type": "gres", "name": "gpu", "count": {"set": False}},
    ]
    job = json_job(plain=True, tres={"allocated": listed}, required={"CPUs": 3})
    converted = sacct_json(tmp_path, job)
    assert demands(converted) == [{"cpus": 3.0, "mem": 1024.0}]
    assert (
        assumed(converted).items()
        >= {
            "cpu of tres/allocated has no number: not read": [1],
            "gres/gpu of tres/allocated has no number: not read": [1],
            "AllocTRES has no cores: ReqCPUS is used": [1],
        }.items()
    )


def test_errors_beside_json_jobs_are_named_and_other_commands_are_refused(tmp_path: Path) -> None:
    converted = sacct_json(tmp_path, json_job(plain=True), errors=[{"error": "lost"}])
    assert converted.warnings == (
        "sacct reports errors, so jobs may be missing: [{'error': 'lost'}]",
    )
    queued = {"job_id": 7, "user_name": "ann", "job_state": ["COMPLETED"], "start_time": 1000}
    with pytest.raises(TraceError, match="jobs of squeue or scontrol; print them with sacct"):
        sacct_json(tmp_path, queued)


def test_names_that_utf_8_cannot_encode_stay_different(tmp_path: Path) -> None:
    path = tmp_path / "names.json"
    names = {"A": b"M\xfcl", "B": b"M\xf6l", "C": b"\\ud800", "D": "Mül".encode(), "E": b" "}
    content = json.dumps({"jobs": [json_job(plain=True, user=name) for name in names]}).encode()
    for name, encoded in names.items():
        content = content.replace(f'"user": "{name}"'.encode(), b'"user": "%s"' % encoded)
    path.write_bytes(content)
    converted = slurm.convert(path)
    assert converted.trace.users == (r"M\xfcl", r"M\xf6l", r"\ud800", "Mül")
    assert left_out(converted) == {"no user": [5]}
    path.write_bytes(json.dumps([JOB | {"Owner": "A"}]).encode().replace(b'"A"', b'"\xe9"'))
    assert htcondor.convert(path).trace.users == (r"\xe9",)


def test_a_field_beyond_the_longest_is_named(tmp_path: Path) -> None:
    row = "{}\tann\t1000\t1000\t4600\t4\t{}"
    header = "JobID\tUser\tSubmit\tStart\tEnd\tAllocCPUS\tComment"
    converted = sacct(tmp_path, header, row.format(7, "x" * 200_000), row.format(8, "x"))
    assert converted.trace.job.tolist() == [8]
    assert left_out(converted) == {"has more or fewer fields than the header": [2]}


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"AllocCPUS": "4294967294"}, "cpus are not numbers"),
        ({"End": "4294967295"}, "had not ended"),
        ({"Submit": "4294967294"}, "submission is not a time"),
    ],
)
def test_slurms_constants_for_no_number_are_no_amounts(
    tmp_path: Path, given: dict[str, str], reason: str
) -> None:
    converted = sacct(tmp_path, SACCT, record(**given))
    assert left_out(converted) == {reason: [2]}


def test_a_memory_request_of_no_number_is_named(tmp_path: Path) -> None:
    converted = sacct(tmp_path, SACCT, record(ReqMem="4294967295"))
    assert demands(converted) == [{"cpus": 4.0}]
    assert assumed(converted) == {
        "memory is not given, or is the whole node: the task gets 0 MiB": [2]
    }


@pytest.mark.parametrize(
    ("given", "nodes", "gpus", "reason"),
    [
        (("ReqGRES", "gpu:2,gpu:1"), "1", 3.0, None),
        (("ReqGRES", "PER_NODE:gpu:2"), "3", 6.0, None),
        (("AllocGRES", "gres:gpu:v100:2"), "1", 2.0, None),
        (
            ("ReqGRES", "PER_NODE:gpu:2"), "", 2.0,
            "ReqGRES is for each node, without NNodes: counts for one node",
        ),
        (
            ("AllocGRES", "gpu:2"), "3", 2.0,
            "AllocGRES may be for each of several nodes: counts once",
        ),
    ],
)  # fmt: skip
def test_former_generic_resources_of_a_node_count_for_each_node(
    tmp_path: Path, given: tuple[str, str], nodes: str, gpus: float, reason: str | None
) -> None:
    column, text = given
    converted = sacct(tmp_path, f"{SACCT}|NNodes|{column}", f"{record()}|{nodes}|{text}")
    assert demands(converted)[0]["gpus"] == gpus
    names = [name for name in assumed(converted) if "node" in name]
    assert names == ([reason] if reason else [])


def test_resources_that_contradict_one_another_are_named(tmp_path: Path) -> None:
    converted = sacct(
        tmp_path,
        f"{SACCT}|ReqTRES|AllocTRES",
        f"{record()}|cpu=2,gres/gpu:a100=2,mem=1G|cpu=8,mem=4G",
        f"{record('8')}|cpu=4,gres/gpu:a100=2,mem=1G|cpu=4,gres/gpu=1,mem=4G",
    )
    assert demands(converted)[0] == {"cpus": 8.0, "mem": 4096.0}
    assert assumed(converted) == {
        "AllocCPUS differs from the cores of another column: not used": [2],
        "gres/gpu:a100 of ReqTRES is not in AllocTRES: the task gets 0": [2],
    }


def test_a_line_break_in_a_name_loses_no_row(tmp_path: Path) -> None:
    header = "JobID|JobName|User|Submit|Start|End|AllocCPUS|ReqMem|"
    end = "|ann|1000|1000|4600|4|1G|"
    converted = sacct(
        tmp_path, header, f"7|a{end}", "8|b", "", f"c{end}", "sacct: error", f"9|d{end}",
        f"10|e|f{end}", "11|cut|ann",
    )  # fmt: skip
    assert converted.trace.job.tolist() == [7, 8, 9]
    assert assumed(converted) == {"a field contains line breaks: several lines are one row": [3]}
    assert left_out(converted) == {"has more or fewer fields than the header": [6, 8, 9]}
    assert converted.left_out.rows_read == 6


def test_a_header_between_rows_names_the_columns_of_the_rows_below(tmp_path: Path) -> None:
    header = "JobID;User;Submit;End;Start;NCPUS;ReqMem;Extra"
    rows = ("JobID|User|Submit|Start|End|AllocCPUS|ReqMem", "7|ann|1000|1000|4600|4|1G")
    converted = sacct(tmp_path, *rows, header, "8;ann;1000;8200;1000;2;1G;x", *rows)
    assert seconds(converted) == [(1000.0, 3600.0), (1000.0, 7200.0)]
    assert left_out(converted) == {
        "is a further header: the rows below have its columns": [3, 5],
        "repeats an earlier row": [6],
    }
    assert converted.ignored == ("Extra",)
    with pytest.raises(TraceError, match="has none of the columns AllocTRES"):
        sacct(tmp_path, *rows, "JobID|User|Submit|Start|End|x|y")


def test_a_column_that_occurs_twice_must_not_differ(tmp_path: Path) -> None:
    header = "JobID|User|Submit|Start|End|ReqTRES|ReqTRES"
    row = "{}|ann|1000|1000|4600|cpu=4,mem=1G|cpu={},mem=1G"
    converted = sacct(tmp_path, header, row.format(7, 4), row.format(8, 5))
    assert converted.trace.job.tolist() == [7]
    assert left_out(converted) == {"the columns named ReqTRES differ": [3]}


def test_a_last_row_without_a_line_break_is_named(tmp_path: Path) -> None:
    path = tmp_path / "sacct.txt"
    path.write_text(f"{SACCT}\n{record()}\n{record('8')}")
    assert assumed(slurm.convert(path)) == {
        "the file ends without a line break: the last row may be cut off": [3]
    }


def test_the_elapsed_time_tells_which_of_two_equal_local_times_is_meant(tmp_path: Path) -> None:
    def night(submit: str, start: str, end: str, elapsed: int) -> str:
        times = {"Submit": submit, "Start": start, "End": end}
        at = {name: f"2026-10-25T{time}:00" for name, time in times.items()}
        return record(**at, ElapsedRaw=str(elapsed), CPUTimeRAW="")

    rows = (
        night("02:50", "02:10", "03:10", 3600),  # submitted before the clocks were set back
        night("01:00", "02:10", "02:30", 4800),
        night("01:00", "02:50", "03:50", 3600),
    )
    converted = sacct(tmp_path, SACCT, *rows, zone="Europe/Berlin")
    assert assumed(converted) == {}
    assert converted.recorded_waits is not None
    assert sorted((converted.recorded_waits / 1e6).tolist()) == [1200.0, 4200.0, 10200.0]


def test_a_parallel_job_of_htcondor_holds_all_its_hosts(tmp_path: Path) -> None:
    parallel = JOB | {"JobUniverse": 11, "MinHosts": 6, "MaxHosts": 6, "CumulativeSlotTime": 600}
    converted = history(tmp_path, parallel, parallel | {"MaxHosts": None, "ProcId": 1})
    assert demands(converted) == [{"cpus": 12.0, "mem": 12288.0}, {"cpus": 2.0, "mem": 2048.0}]
    assert assumed(converted) == {
        "is parallel: holds the requested resources on each of MaxHosts hosts": [1],
        "is parallel, without MaxHosts: counts for one host": [2],
    }
    assert converted.checks == ()


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"JobStartDate": 1}, "JobStartDate is before QDate: the task is submitted at QDate"),
        (
            {"JobStartDate": MIDNIGHT + 500},
            "JobStartDate is after the end: the recorded wait is too long",
        ),
        ({"AssignedGPUs": "CUDA0,CUDA1"}, "GPUs are counted in AssignedGPUs"),
        ({"JobStartDate": "x"}, "JobStartDate is not a time: the recorded wait is unknown"),
        (
            {"RemoteWallClockTime": 9000.0},
            "RemoteWallClockTime is longer than the time from QDate to the end",
        ),
        (
            {"RemoteWallClockTime": "300"},
            NO_WALL_CLOCK_TIME,
        ),
        (
            {"CumulativeSuspensionTime": 60},
            "was suspended: RemoteWallClockTime, with the suspension, counts",
        ),
        (
            {"GPUsProvisioned": 0, "RequestGPUs": 2},
            "GPUsProvisioned is 0, but RequestGPUs is not: the task gets 0",
        ),
        ({"Owner": None, "User": "ann@pool"}, "has no Owner: User is the user"),
    ],
)
def test_contradictions_in_a_record_of_htcondor_are_named(
    tmp_path: Path, given: dict[str, object], reason: str
) -> None:
    assert assumed(history(tmp_path, JOB | given)) == {reason: [1]}


def workload(**given: object) -> str:
    fields = {
        "job": 1, "submitted": 0, "waited": 10, "runtime": 100, "processors": 4, "cpu_time": -1,
        "memory": -1, "requested": 4, "limit": 200, "requested_memory": -1, "status": 1, "user": 3,
    } | given  # fmt: skip
    return " ".join(map(str, (*fields.values(), 1, 1, 1, 1, -1, -1)))


def swf_file(tmp_path: Path, content: bytes) -> Conversion:
    path = tmp_path / "log.swf"
    path.write_bytes(content)
    return swf.convert(path)


def test_the_header_of_a_workload_is_compared_with_its_rows(tmp_path: Path) -> None:
    rows = f"{workload()}\n{workload(job='2.0', processors=600)}\n{workload(job=2.5)}\n"
    rows += f"{workload(job=3, cpu_time=102)}\n"
    converted = swf_file(tmp_path, f"; MaxJobs: 5\n; MaxProcs: 512\n{rows}".encode())
    assert converted.trace.job.tolist() == [1, 2, 3]
    assert left_out(converted) == {"job is not a number": [5]}
    assert assumed(converted) == {
        "has more processors than MaxProcs in the file's header": [4],
        "the CPU time of a processor is longer than the run time": [6],
    }
    assert [(check.figure, check.in_file, check.agrees) for check in converted.checks] == [
        ("MaxJobs", 5.0, False)
    ]
    unreadable = swf_file(tmp_path, f"; MaxRecords: 1,234\n; MaxProcs: 512 64\n{rows}".encode())
    assert unreadable.checks == ()
    assert unreadable.warnings == tuple(
        f"the number after {name} in the file's header is not understood"
        for name in ("MaxRecords", "MaxProcs")
    )
    parts = f"; MaxJobs: 1\n{workload(status=2)}\n{workload(status=3)}\n"
    assert swf_file(tmp_path, parts.encode()).checks == (), "a job has several rows"


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"], ids=["LF", "CR LF", "CR"])
@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"], ids=["no mark", "byte order mark"])
def test_a_workload_may_have_any_line_ends_and_a_byte_order_mark(
    tmp_path: Path, end: str, mark: bytes
) -> None:
    lines = ("; MaxRecords: 2", workload(), workload(job=2))
    converted = swf_file(tmp_path, mark + end.join(lines).encode())
    assert converted.trace.job.tolist() == [1, 2]
    [check] = converted.checks
    assert check.agrees
    assert left_out(converted) == {}


def test_a_workload_in_utf_16_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="is UTF-16"):
        swf_file(tmp_path, workload().encode("utf-16"))


@pytest.mark.parametrize("name", ["sacct", "sacct.txt", "sacct.GZ", "sacct.1"])
def test_the_content_of_a_file_tells_its_compression(tmp_path: Path, name: str) -> None:
    text = f"{SACCT}\n{record()}\n".encode()
    path = tmp_path / name
    zipped = tmp_path / "one.zip"
    with zipfile.ZipFile(zipped, "w") as archive:
        archive.writestr("sacct.txt", text)
    for compressed in (
        gzip.compress(text), bz2.compress(text), lzma.compress(text),
        pa.compress(text, codec="zstd", asbytes=True), zipped.read_bytes(),
    ):  # fmt: skip
        path.write_bytes(compressed)
        assert core_hours(slurm.convert(path)) == 4.0
    path.write_bytes(lzma.compress(text)[:-20])
    with pytest.raises(TraceError, match=f"{name} cannot be read"):
        slurm.convert(path)


@pytest.mark.parametrize("ending", ["\n", "\r\n", ""])
@pytest.mark.parametrize("compress", [bytes, lzma.compress, gzip.compress])
def test_a_line_without_end_is_refused_in_each_format_of_lines(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    compress: Callable[[bytes], bytes],
    ending: str,
) -> None:
    monkeypatch.setattr(text, "LONGEST_LINE", 200)
    monkeypatch.setattr(text, "_BLOCK", 512)
    long = ("x|" * 10_000 + ending).encode()
    path = tmp_path / "file"
    for convert, first in ((swf.convert, workload()), (slurm.convert, SACCT)):
        path.write_bytes(compress(f"{first}\n".encode() + long))
        with pytest.raises(TraceError, match="file:2: the line has more than 200 characters"):
            convert(path)
    path.write_bytes(compress(b"user,submitted_s,runtime_s,cpus\nann,0,3600,2\n" + long))
    with pytest.raises(TraceError, match="file:3: the line has more than 200 characters"):
        csv.convert(path)
    jobs = written(tmp_path / "jobs.csv", "user,submitted_s,runtime_s,cpus", "ann,0,3600,2")
    path.write_bytes(compress(b"machine,cpus,mem,count\n" + long))
    with pytest.raises(TraceError, match="file:2: the line has more than 200 characters"):
        csv.convert(jobs, machines=path)


def test_the_longest_line_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text, "LONGEST_LINE", max(len(SACCT), len(record())) + 1)
    assert core_hours(sacct(tmp_path, SACCT, record())) == 4.0
    monkeypatch.setattr(text, "LONGEST_LINE", len(workload()) + 1)
    assert swf_file(tmp_path, f"{workload()}\n".encode()).trace.job.tolist() == [1]


def test_lines_of_one_row_are_together_no_longer_than_a_line_may_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [SACCT, "x" * 60, "y" * 60, "z" * 60, record()]
    monkeypatch.setattr(slurm_text, "LONGEST_LINE", 150)
    converted = slurm.convert(written(tmp_path / "sacct", *rows))
    assert core_hours(converted) == 4.0
    assert [line for lines in left_out(converted).values() for line in lines] == [2, 3, 4]


@pytest.mark.parametrize("convert", [slurm.convert, htcondor.convert])
def test_a_file_that_inflates_without_end_is_refused_after_few_blocks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, convert: Callable[[Path], object]
) -> None:
    monkeypatch.setattr(text, "_INFLATED", 1 << 17)
    monkeypatch.setattr(text, "_MOST_INFLATION", 10)
    content = b'{"jobs": [' + b"1, " * (1 << 22) + b"1]}"
    inflated = list[int]()
    open_xz = lzma.open

    class Counted(lzma.LZMAFile):
        def read(self, size: int | None = -1) -> bytes:
            block = super().read(-1 if size is None else size)
            inflated.append(len(block))
            return block

    monkeypatch.setattr(lzma, "open", Counted)
    path = tmp_path / "jobs"
    for compressed in (lzma.compress(content), gzip.compress(content)):
        path.write_bytes(compressed)
        with pytest.raises(
            TraceError, match=r"jobs inflates to more than [\d,]+ bytes; .*decompre"
        ):
            convert(path)
    assert sum(inflated) < 2 << 20
    monkeypatch.setattr(lzma, "open", open_xz)
    monkeypatch.setattr(text, "_MOST_INFLATION", 1 << 20)
    path.write_bytes(lzma.compress(json.dumps({"jobs": [], "x": [1] * (1 << 17)}).encode()))
    slurm.convert(path)


def test_a_pipe_is_refused_because_a_converter_reads_its_source_again(tmp_path: Path) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    with pytest.raises(TraceError, match=r"is a pipe, .* save the output to a file"):
        slurm.convert(path)


def test_bars_separate_columns_and_comments_are_no_tasks(tmp_path: Path) -> None:
    path = written(
        tmp_path / "jobs.csv", "user|submitted_s|runtime_s|cpus", "ann|0|3600|2,5", "#bob|0|60|99"
    )
    converted = csv.convert(path)
    assert converted.trace.users == ("ann",)
    assert core_hours(converted) == 2.5
    assert left_out(converted) == {"begins with #, as a comment does": [3]}


@pytest.mark.parametrize(
    ("header", "row"),
    [
        ('user;submitted_s;runtime_s;cpus;"note, free"', 'ann;0;3600;"2,5";"a; b, c"'),
        ("user,submitted_s,runtime_s,cpus,a;b;c;d;e;f", "ann,0,3600,2.5,x;y"),
        ("user\tsubmitted_s\truntime_s\tcpus\ta,b|c", "ann\t0\t3600\t2,5\tx"),
    ],
)
def test_the_column_user_tells_the_separator(tmp_path: Path, header: str, row: str) -> None:
    converted = csv.convert(written(tmp_path / "jobs.csv", header, row), resources=["cpus"])
    assert core_hours(converted) == 2.5
    assert len(converted.ignored) == 1


def test_the_dates_of_a_csv_are_compared_with_its_run_times(tmp_path: Path) -> None:
    converted = csv.convert(
        written(
            tmp_path / "jobs.csv",
            "user,submitted,started,ended,runtime_s,cpus",
            "ann,2026-03-02T08:00:00,2026-03-02T08:00:00,2026-03-02T09:00:00,3600,1",
            "ann,2026-03-02T08:00:00,2026-03-02T08:00:00,2026-03-02T09:00:00,60,1",
            "ann,2026-03-02T08:00:00,,,60,1",
        )
    )
    [check] = converted.checks
    assert (check.figure, check.rows, check.in_file) == ("ended - started", 2, 2.0)
    assert list(check.differing) == [("ended - started", "jobs.csv", 3)]
    assert not check.agrees
    assert converted.ignored == ()


def test_a_duration_that_slurm_could_not_compute_and_a_missing_user_are_named(
    tmp_path: Path,
) -> None:
    converted = sacct(
        tmp_path,
        f"{SACCT}|Suspended",
        f"{record('1', ElapsedRaw='INVALID')}|00:00:00",
        f"{record('2')}|INVALID",
        f"{record('3', User='(null)')}|00:00:00",
    )
    assert assumed(converted) == {
        "ElapsedRaw is not set (INVALID): it is not used": [2],
        "Suspended is not set (INVALID): it is not used": [3],
    }
    assert left_out(converted) == {"no user": [4]}
    assert core_hours(converted) == 8.0


def test_a_wait_or_a_cpu_time_that_is_no_number_is_named(tmp_path: Path) -> None:
    row = "0 {} 100 4 {} -1 4 -1 -1 1 7 1 -1 -1 -1 -1 -1\n"
    rows = [row.format("10", "90"), row.format("1:00", "90"), row.format("-1", "1m")]
    content = "".join(f"{job} {text}" for job, text in enumerate(rows, 1))
    assert assumed(swf_file(tmp_path, content.encode())) == {
        "the wait is not a number: it counts as unknown": [2],
        "the CPU time is not a number: it counts as unknown": [3],
    }
