"""The command `longshare trace`."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from allocator.cli import app

CSV = """\
submitted_s,runtime_s,user,job,cpus,mem
0,10,ann,1,1,2
1,x,ann,1,1,2
2,30,bob,2,3,0
2,30,bob,2,3
"""


def longshare(*arguments: str) -> Result:
    return CliRunner().invoke(app, arguments)


def converted(folder: Path) -> Path:
    (folder / "t.csv").write_text(CSV)
    result = longshare(
        "trace", "convert", str(folder / "t.csv"), str(folder / "t"), "--from", "csv"
    )
    assert result.exit_code == 0, result.stderr
    return folder / "t"


def test_a_conversion_names_the_rows_it_leaves_out(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(CSV)
    command = ["trace", "convert", str(tmp_path / "t.csv"), str(tmp_path / "t"), "--from", "csv"]
    result = longshare(*command, "--left-out", str(tmp_path / "left-out.csv"))
    assert result.exit_code == 0, result.stderr
    assert result.stdout.splitlines() == [
        "2 tasks of 2 users",
        "rows read: 4",
        "2 rows were left out:",
        "  1: not 6 fields (t.csv:5)",
        "  1: runtime_s is not a number (t.csv:3)",
        "columns of resources: cpus, mem",
        "core-hours: 0.0277777778",
        "resources, amount × hours: cpus 0.0277777778, mem 0.00555555556",
    ]
    assert (tmp_path / "left-out.csv").read_text().splitlines() == [
        "reason,file,line",
        "not 6 fields,t.csv,5",
        "runtime_s is not a number,t.csv,3",
    ]
    assert json.loads(longshare(*command, "--json").stdout) == {
        "rows": 4,
        "tasks": 2,
        "users": 2,
        "users_without_tasks": [],
        "left_out": {
            "not 6 fields": {"rows": 1, "first": ["t.csv:5"]},
            "runtime_s is not a number": {"rows": 1, "first": ["t.csv:3"]},
        },
        "assumed": {},
        "columns_ignored": [],
        "resource_columns": ["cpus", "mem"],
        "warnings": [],
        "machines": 0,
        "resource_hours": {"cpus": pytest.approx(100 / 3600), "mem": pytest.approx(20 / 3600)},
        "core_hours": pytest.approx(100 / 3600),
        "checks": [],
    }


def test_a_doubtful_column_of_a_csv_is_reported_with_the_option_that_decides(
    tmp_path: Path,
) -> None:
    header, *rows = CSV.splitlines()
    lines = [f"{header},fpgas", *(f"{row},1" for row in rows)]
    (tmp_path / "t.csv").write_text("\n".join(lines) + "\n")
    command = ["trace", "convert", str(tmp_path / "t.csv"), str(tmp_path / "t"), "--from", "csv"]
    doubted = longshare(*command)
    assert doubted.exit_code == 0, doubted.stderr
    assert doubted.stderr == (
        "longshare: columns became resources only because they contain numbers: fpgas. If one is no"
        " resource, convert again with the resources alone: --resources cpus,mem\n"
    )
    decided = longshare(*command, "--resources", "cpus,mem")
    assert (decided.exit_code, decided.stderr) == (0, "")
    assert "columns ignored (1): fpgas" in decided.stdout
    wrong = longshare(*command, "--resources", "cpus,memm")
    assert wrong.exit_code == 2
    assert "'memm' is unknown; did you mean mem?" in wrong.stderr


def test_a_trace_is_described(tmp_path: Path) -> None:
    path = str(converted(tmp_path))
    report = json.loads(longshare("trace", "stats", path, "--json").stdout)
    assert (report["tasks"], report["users"], report["jobs"]) == (2, 2, 2)
    assert report["finished_s"] == 32
    assert report["mean_use"] == {"cpus": 100 / 32, "mem": 20 / 32}
    assert report["runtime_s"]["mean"] == 20
    assert "2 tasks in 2 jobs of 2 users" in longshare("trace", "stats", path).stdout


def test_the_first_tasks_are_shown(tmp_path: Path) -> None:
    path = str(converted(tmp_path))
    result = longshare("trace", "head", path, "-n", "1", "--json")
    assert json.loads(result.stdout) == [
        {
            "submitted_s": 0,
            "runtime_s": 10,
            "user": "ann",
            "job": 1,
            "demand": {"cpus": 1, "mem": 2},
            "machines": None,
        }
    ]
    assert "bob" in longshare("trace", "head", path).stdout


def test_an_invalid_file_is_named_and_nothing_is_written(tmp_path: Path) -> None:
    result = longshare("trace", "stats", str(tmp_path / "none"))
    assert result.exit_code == 2
    assert str(tmp_path / "none") in result.stderr
    (tmp_path / "t.csv").write_text(CSV.replace("runtime_s", "lasted"))
    command = ["trace", "convert", str(tmp_path / "t.csv"), str(tmp_path / "t"), "--from", "csv"]
    result = longshare(*command)
    assert result.exit_code == 2
    assert "has no column runtime_s in its first line" in result.stderr
    (tmp_path / "t.csv").write_text(
        "".join(CSV.splitlines(keepends=True)[0::2]).replace("2,", "x,")
    )
    result = longshare(*command)
    assert result.exit_code == 1
    assert "became a task" in result.stderr
    result = longshare(*command[:-1], "openb")
    assert result.exit_code == 2
    assert "--nodes" in result.stderr
    assert not (tmp_path / "t").exists()


def test_a_generated_workload_reports_its_distance_from_the_published_figures(
    tmp_path: Path,
) -> None:
    command = ["trace", "generate", "google-constrained-hour", str(tmp_path / "t")]
    result = longshare(*command, "--tasks", "18000", "--seed", "3", "--json")
    assert result.exit_code == 0, result.stderr
    moments = {moment["name"]: moment for moment in json.loads(result.stdout)["moments"]}
    assert moments["machines"]["got"] == 100
    assert moments["tasks of the biggest job"]["off"] < 0
    report = json.loads(longshare("trace", "stats", str(tmp_path / "t"), "--json").stdout)
    assert (report["tasks"], report["machines"]) == (18_000, 100)
    result = longshare(*command, "--tasks", "10")
    assert result.exit_code == 2
    assert "at least 9000" in result.stderr


def test_slurm_accounting_is_converted_in_the_given_time_zone(
    tmp_path: Path,
) -> None:
    (tmp_path / "sacct").write_text(
        "JobID|User|Submit|Start|End|AllocCPUS\n"
        "1|ann|2026-07-01T00:00:00|2026-07-01T01:00:00|2026-07-01T02:00:00|4\n"
        "2|ann|2026-07-01T00:00:00|None|Unknown|4\n"
    )
    command = ["trace", "convert", str(tmp_path / "sacct"), str(tmp_path / "t"), "--from"]
    result = longshare(*command, "slurm", "--timezone", "Europe/Berlin")
    assert result.exit_code == 0, result.stderr
    assert result.stdout.splitlines() == [
        "1 task of 1 user",
        "rows read: 2",
        "1 row was left out:",
        "  1: never started (sacct:3)",
        "rows read with an assumption:",
        "  1: memory is not given, or is the whole node: the task gets 0 MiB (sacct:2)",
        "core-hours: 4",
        "resources, amount × hours: cpus 4",
    ]
    refused = longshare(*command, "htcondor", "--timezone", "UTC")
    assert refused.exit_code == 2
    assert "--timezone is for --from slurm and --from csv only" in refused.stderr


def test_dates_of_a_csv_are_read_in_the_given_time_zone(tmp_path: Path) -> None:
    (tmp_path / "jobs.csv").write_text(
        "user,submitted,started,ended,cpus,mem\n"
        "ann,2026-07-01T00:30:00,2026-07-01T01:00:00,2026-07-01T02:00:00,4,8G\n"
    )
    command = ["trace", "convert", str(tmp_path / "jobs.csv"), str(tmp_path / "t"), "--from", "csv"]
    assert longshare(*command, "--timezone", "Europe/Berlin").exit_code == 0
    first = longshare("trace", "head", str(tmp_path / "t"), "--json").stdout
    assert json.loads(first)[0]["submitted_s"] == 22.5 * 3600
    refused = longshare(*command, "--timezone", "Europe/Berlyn")
    assert refused.exit_code == 2
    assert "time zone 'Europe/Berlyn' is unknown" in refused.stderr


def test_a_conversion_prints_verifiable_totals(tmp_path: Path) -> None:
    header = "JobID|User|Submit|Start|End|State|AllocTRES|ElapsedRaw|Suspended|CPUTimeRAW|JobName"
    times = "2026-03-01T10:00:00|2026-03-01T10:00:00|2026-03-01T15:00:00"
    (tmp_path / "sacct").write_text(
        f"{header}\n"
        f"1|ann|{times}|COMPLETED|cpu=10,mem=1G,gres/gpu:a100=2|3600|04:00:00|36000|x\n"
        f"2|ann|{times}|COMPLETED|cpu=4,mem=1G|18000|00:00:00|36000|x\n"
        f"3|ann|{times}|RUNNING|cpu=4,mem=1G|18000|00:00:00|72000|x\n"
    )
    command = ["trace", "convert", str(tmp_path / "sacct"), str(tmp_path / "t"), "--from", "slurm"]
    result = longshare(*command)
    assert result.exit_code == 0, result.stderr
    assert result.stdout.splitlines() == [
        "2 tasks of 1 user",
        "rows read: 3",
        "1 row was left out:",
        "  1: had not ended (sacct:4)",
        "rows read with an assumption:",
        (
            "  1: elapsed time is not End - Start, as after a suspension: the task runs for the "
            "elapsed time, without a break (sacct:2)"
        ),
        "  1: gres/gpu:a100 counts in gpus (sacct:2)",
        "columns ignored (1): JobName",
        "core-hours: 30",
        "resources, amount × hours: cpus 30, mem 6,144, gpus 2",
        "CPUTimeRAW: 20 core-hours by the file, 30 by the conversion, from 2 rows; they differ",
        "  1: differ (sacct:3)",
        "End - Start - Suspended: 30 core-hours by the file, 30 by the conversion, from 2 rows",
    ]
    report = json.loads(longshare(*command, "--json").stdout)
    assert (report["rows"], report["core_hours"], report["columns_ignored"]) == (3, 30, ["JobName"])
    assert report["checks"][0] == {
        "what": "CPUTimeRAW",
        "unit": "core-hours",
        "rows": 2,
        "in_file": 20,
        "in_trace": 30,
        "agrees": False,
        "differing": {"rows": 1, "first": ["sacct:3"]},
    }


def test_the_histories_of_several_schedds_become_one_trace(tmp_path: Path) -> None:
    sources = []
    for schedd in ("here", "there"):
        job = {"ClusterId": 1, "ProcId": 0, "Owner": "ann", "QDate": 9, "RemoteWallClockTime": 3600}
        job |= {"GlobalJobId": f"{schedd}#1.0#9", "RequestCpus": 2, "RequestMemory": 512}
        (tmp_path / schedd).write_text(json.dumps(job))
        sources.append(str(tmp_path / schedd))
    command = ["trace", "convert", *sources, str(tmp_path / "t"), "--from"]
    result = longshare(*command, "htcondor", "--json")
    assert result.exit_code == 0, result.stderr
    report = json.loads(result.stdout)
    assert (report["rows"], report["tasks"], report["core_hours"]) == (2, 2, 4)
    refused = longshare(*command, "swf")
    assert refused.exit_code == 2
    assert "--from swf takes one SOURCE" in refused.stderr


def test_a_user_of_the_users_file_without_tasks_is_named(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(CSV)
    (tmp_path / "u.csv").write_text("user;weight\nAnn;2\nbob;3\n")
    command = ["trace", "convert", str(tmp_path / "t.csv"), str(tmp_path / "t"), "--from", "csv"]
    command += ["--users", str(tmp_path / "u.csv")]
    assert "users without tasks: Ann" in longshare(*command).stdout
    assert json.loads(longshare(*command, "--json").stdout)["users_without_tasks"] == ["Ann"]
