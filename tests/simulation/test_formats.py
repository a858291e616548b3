"""Traces in other formats: the result of every row."""

import gzip
import os
import zipfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from allocator.simulation.formats import csv, openb, swf
from allocator.simulation.formats.conversion import Conversion, resource_hours
from allocator.simulation.trace import TraceError
from tests.examples import examples
from tests.simulation.traces import IN_ONE_FOLDER

SLOW_PATH = examples(60, suppress_health_check=IN_ONE_FOLDER)


def written(path: Path, *lines: str) -> Path:
    path.write_text("".join(f"{line}\n" for line in lines))
    return path


def left_out(conversion: Conversion) -> dict[str, list[int]]:
    lines: dict[str, list[int]] = {}
    for reason, _, line in conversion.left_out:
        lines.setdefault(reason, []).append(line)
    return lines


def test_a_csv_with_a_header_in_any_order(tmp_path: Path) -> None:
    path = written(
        tmp_path / "t.csv",
        "user,mem,submitted_s,runtime_s,job,cpus",
        "bob,0.5,2.5,0.000001,7,1",
        '"ann, the first",1e3, 1 ,3,9,0',
        "bob,0,1,0,7,.25",
    )
    conversion = csv.convert(path)
    trace = conversion.trace
    assert left_out(conversion) == {}
    assert trace.resources == ("mem", "cpus")
    assert trace.users == ("ann, the first", "bob")
    assert trace.submitted.tolist() == [1_000_000, 1_000_000, 2_500_000]
    assert trace.runtime.tolist() == [3_000_000, 0, 1]
    assert trace.user.tolist() == [0, 1, 1]
    assert trace.job.tolist() == [9, 7, 7]
    assert trace.demand.tolist() == [[1000.0, 0.0], [0.0, 0.25], [0.5, 1.0]]
    assert trace.constraint.tolist() == [-1, -1, -1]


def test_without_a_job_column_every_row_is_a_job(tmp_path: Path) -> None:
    path = written(
        tmp_path / "t.csv", "submitted_s,runtime_s,user,cpus", "0,1,a,1", "x,1,a,1", "0,1,a,1"
    )
    assert csv.convert(path).trace.job.tolist() == [2, 4]


def test_every_bad_row_is_named_with_its_line_and_reason(tmp_path: Path) -> None:
    path = written(
        tmp_path / "t.csv",
        "submitted_s,runtime_s,user,job,cpus,mem",
        "soon,1,a,1,1,1",
        "0,1,a,1,1,1",
        "-1,1,a,1,1,1",
        "1e12,1,a,1,1,1",
        "0,1,a,1,1",
        "0,nan,a,1,1,1",
        "0,-0.5,a,1,1,1",
        "0,1e300,a,1,1,1",
        "",
        "0,1,,1,1,1",
        "0,1,a,1.5,1,1",
        "0,1,a,99999999999999999999,1,1",
        "0,1,a,1,one,1",
        "0,1,a,1,1,inf",
        "0,1,a,1,1,-1",
        "0,1,a,1,0,0",
        "0,1,a,1,1,1,1",
        "0,1,b,9223372036854775807,1,1",
    )
    conversion = csv.convert(path)
    assert left_out(conversion) == {
        "submitted_s is not a number": [2, 10],
        "submission time is negative": [4],
        "submission time is beyond 285 years": [5],
        "not 6 fields": [6, 18],
        "runtime_s is not a number": [7],
        "runtime_s is negative": [8],
        "run time is beyond 285 years": [9],
        "no user": [11],
        "job is not a whole number": [12, 13],
        "demand of cpus is not a number": [14],
        "demand of mem is not a number": [15],
        "demand is negative": [16],
        "demand is zero": [17],
    }
    assert conversion.trace.job.tolist() == [1, 2**63 - 1]


@SLOW_PATH
@given(
    tasks=st.lists(
        st.tuples(
            st.integers(0, 10**15),
            st.integers(0, 10**15),
            st.sampled_from(["a", "Zoë", "x,y", "0"]),
            st.integers(0, 2**63 - 1),
            st.floats(1e-9, 1e9),
        ),
        min_size=1,
    ),
    bad=st.sets(st.integers(0, 40)),
)
def test_a_csv_round_trip_is_exact_to_the_microsecond(
    tasks: list[tuple[int, int, str, int, float]], bad: set[int], tmp_path: Path
) -> None:
    lines = ["submitted_s,runtime_s,user,job,cpus"]
    bad_lines = []
    for place, (submitted, runtime, user, job, cpus) in enumerate(tasks):
        if place in bad:
            lines.append("1,2,3")
            bad_lines.append(len(lines))
        lines.append(
            f"{submitted // 10**6}.{submitted % 10**6:06},{runtime // 10**6}.{runtime % 10**6:06},"
            f'"{user}",{job},{cpus!r}'
        )
    conversion = csv.convert(written(tmp_path / "t.csv", *lines))
    trace = conversion.trace
    expected = sorted(tasks, key=lambda task: task[0])
    assert trace.submitted.tolist() == [task[0] for task in expected]
    assert trace.runtime.tolist() == [task[1] for task in expected]
    assert [trace.users[user] for user in trace.user] == [task[2] for task in expected]
    assert trace.users == tuple(dict.fromkeys(task[2] for task in expected))
    assert trace.job.tolist() == [task[3] for task in expected]
    assert trace.demand[:, 0].tolist() == [task[4] for task in expected]
    assert left_out(conversion).get("not 5 fields", []) == bad_lines
    assert conversion.left_out.rows_read == len(tasks) + len(bad_lines)


def test_jobs_without_a_number_are_names_and_get_numbers(tmp_path: Path) -> None:
    path = written(
        tmp_path / "t.csv",
        "submitted_s,runtime_s,user,job,cpus",
        "0,1,a,render,1",
        "1,1,a,7,1",
        "2,1,b,render,1",
        "3,1,b,,1",
    )
    conversion = csv.convert(path)
    assert left_out(conversion) == {"job is not a whole number": [2, 4, 5]}, "one job is a number"
    path.write_text(path.read_text().replace(",7,", ",train,"), encoding="utf-8")
    conversion = csv.convert(path)
    assert left_out(conversion) == {"no job": [5]}
    assert conversion.trace.job.tolist() == [0, 1, 0]


@pytest.mark.parametrize(
    ("header", "complaint"),
    [
        ("submitted_s,user,cpus", "has no column runtime_s in its first line"),
        ("submitted,user,cpus", "has no column runtime_s in its first line"),
        ("submitted,started,user,cpus", "has no column ended in its first line"),
        (
            "user,start,cpus",
            "no column submitted, started, ended in .* their columns: start becomes started; or",
        ),
        ("submitted_s,runtime_s,user,job", "has no column of a resource"),
        ("submitted_s,runtime_s,user,end", "not an amount by its name: end"),
        ("submitted_s,runtime_s,user,cpus,cpus", "without a name or of the same name"),
        ("submitted_s,runtime_s,user,cpus,", "without a name or of the same name"),
        ("", "has no column submitted_s, runtime_s, user"),
    ],
)
def test_an_invalid_header_is_refused(header: str, complaint: str, tmp_path: Path) -> None:
    with pytest.raises(TraceError, match=complaint):
        csv.convert(written(tmp_path / "t.csv", header, "0,1,a,1"))


@pytest.mark.parametrize("separator", [",", ";"])
def test_columns_of_times_identifiers_or_text_are_no_resources(
    separator: str, tmp_path: Path
) -> None:
    lines = [
        "submitted_s,start,user,runtime_s,endTime,cpus,queue,started_s,JobID,licences",
        "0,0,ann,60,60,2,fast,3,7,1",
        "0,0,bob,60,60,1,slow,3,8,none",
    ]
    path = written(tmp_path / "t.csv", *(line.replace(",", separator) for line in lines))
    conversion = csv.convert(path)
    assert conversion.resource_columns == conversion.trace.resources == ("cpus", "licences")
    assert conversion.ignored == ("start", "endTime", "queue", "started_s", "JobID")
    assert [warning.partition(". ")[0] for warning in conversion.warnings] == [
        "columns became resources only because they contain numbers: licences"
    ]
    assert left_out(conversion) == {"demand of licences is not a number": [3]}
    assert conversion.trace.demand.tolist() == [[2.0, 1.0]]


def rows_with(column: str, numbers: list[int]) -> list[str]:
    """Return the lines of a file with the resource `cpus`, and with another column of numbers."""
    header = f"submitted_s,runtime_s,user,cpus,{column}"
    return [header, *(f"0,1,ann,{line % 2 + 1},{number}" for line, number in enumerate(numbers))]


@pytest.mark.parametrize(
    "column", ["JobNr", "job_no", "TaskNumber", "uuid", "exit_code", "hour", "core_hours"]
)
def test_a_column_named_like_an_identifier_is_no_resource(column: str, tmp_path: Path) -> None:
    conversion = csv.convert(written(tmp_path / "t.csv", *rows_with(column, [1, 2, 2])))
    assert conversion.resource_columns == ("cpus",)
    assert (conversion.ignored, conversion.warnings) == ((column,), ())


@pytest.mark.parametrize(
    ("numbers", "doubt"),
    [
        ([7, 3, 9, 4, 5], "its first 5 numbers all differ, like identifiers"),
        ([1_760_000_000, 1_760_000_005], "its numbers look like times since 1970"),
        ([1_760_000_000_000, 1_760_000_000_000], "its numbers look like times since 1970"),
    ],
)
def test_a_column_of_numbers_that_look_like_no_amounts_is_ignored_with_a_warning(
    numbers: list[int], doubt: str, tmp_path: Path
) -> None:
    path = written(tmp_path / "t.csv", *rows_with("gram", numbers))
    conversion = csv.convert(path)
    assert (conversion.resource_columns, conversion.ignored) == (("cpus",), ("gram",))
    [warning] = conversion.warnings
    assert f"are ignored: gram ({doubt})" in warning
    assert "--resources cpus,NAME" in warning
    named = csv.convert(path, resources=["gram", "cpus"])
    assert (named.resource_columns, named.warnings) == (("cpus", "gram"), ())
    path.write_text(path.read_text().replace("cpus", "end"))
    with pytest.raises(TraceError, match=r"gram \(its .* name it with --resources"):
        csv.convert(path)


def test_a_column_with_a_word_for_a_resource_is_never_doubted(tmp_path: Path) -> None:
    path = written(tmp_path / "t.csv", *rows_with("cpu_num", [7, 3, 9, 4, 5]))
    conversion = csv.convert(path)
    assert (conversion.resource_columns, conversion.warnings) == (("cpus", "cpu_num"), ())


def test_columns_of_resources_can_be_named(tmp_path: Path) -> None:
    path = written(tmp_path / "t.csv", *rows_with("JobNr", [1, 2, 2]))
    assert csv.convert(path, resources=["JobNr"]).resource_columns == ("JobNr",)
    for name in ("JobNumber", "user", "submitted_s"):
        with pytest.raises(TraceError, match=f"column of a resource '{name}' is unknown"):
            csv.convert(path, resources=[name])


def test_two_columns_that_look_like_one_resource_must_be_named(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("submitted_s,runtime_s,user,cpu,mem,cpus\n0,1,a,1,2,0\n1,1,b,0,2,1\n")
    with pytest.raises(TraceError, match=r"columns cpu and cpus, .* --resources cpu,mem"):
        csv.convert(path)
    assert csv.convert(path, resources=["cpu", "mem"]).resource_columns == ("cpu", "mem")


def test_amounts_of_memory_with_a_unit_become_mib(tmp_path: Path) -> None:
    header = "submitted_s,runtime_s,user,cpus,mem,maxMemory,licences"
    amounts = (
        "1,8G,1.5 GiB,1",
        "1,512,64KB,1",
        "1,1T,2g,1",
        "8G,1,1,1",
        "1,1,1,8G",
        "1,9999999P,1,1",
    )
    path = written(tmp_path / "t.csv", header, *(f"0,1,ann,{row}" for row in amounts))
    conversion = csv.convert(path)
    assert conversion.ignored == ()
    assert left_out(conversion) == {
        "demand of cpus is not a number": [5],
        "demand of licences is not a number": [6],
        "demand of mem is not a number": [7],
        "demand of maxMemory is not a number": [4],
    }
    assert conversion.trace.demand.tolist() == [
        [1.0, 8192.0, 1536.0, 1.0],
        [1.0, 512.0, 0.0625, 1.0],
    ]
    assert conversion.assumed.counts() == {
        "maxMemory has a unit: converted to MiB": 2,
        "mem has a unit: converted to MiB": 1,
    }


def test_dates_of_a_csv_become_microseconds_since_the_midnight_before(tmp_path: Path) -> None:
    path = written(
        tmp_path / "t.csv",
        "user,submitted,started,ended,cpus",
        "ann,2026-03-02T01:00:00,2026-03-02T01:00:30,2026-03-02T02:00:00.5,1",
        "bob,2026-03-02 00:30:00+01:00,2026-03-01T23:30:00Z,1772407801,2",
        "cyd,soon,2026-03-01T23:30:00Z,1772407801,2",
        "cyd,2026-03-02T01:00:00,,2026-03-02T02:00:00,2",
        "cyd,2026-03-02T01:00:00,2026-03-02T02:00:00,running,2",
        "cyd,2026-03-02T01:00:00,2026-03-02T02:00:00,2026-03-02T01:59:59,2",
        "cyd,1969-12-31T23:59:59Z,2026-03-02T02:00:00,2026-03-02T02:00:01,2",
        "cyd,0001-01-01T00:00:00,2026-03-02T02:00:00,2026-03-02T02:00:01,2",
        "cyd,2026-03-02T01:00:00,N/A,2026-03-02T02:00:00,2",
        "cyd,2026-03-02T01:00:00,2026-03-02T02:00:00,,2",
    )
    conversion = csv.convert(path, timezone="Europe/Berlin")
    trace = conversion.trace
    hour, second = 3600 * 10**6, 10**6
    assert trace.users == ("bob", "ann")
    assert trace.submitted.tolist() == [23.5 * hour, 24 * hour]
    assert trace.runtime.tolist() == [second, hour - 29.5 * second]
    assert conversion.ignored == ()
    assert left_out(conversion) == {
        "submitted is not a date": [4, 9],
        "started is empty: the task never started": [5],
        "started is not a date": [10],
        "ended is not a date": [6],
        "ended is empty: the task still ran": [11],
        "ended before it started": [7],
        "submission time is negative": [8],
    }


def test_a_csv_task_may_end_while_its_clock_is_set_back(tmp_path: Path) -> None:
    row = "ann,2026-10-25T02:50:00,2026-10-25T02:50:00,2026-10-25T02:10:00,1"
    path = written(tmp_path / "t.csv", "user,submitted,started,ended,cpus", row)
    assert csv.convert(path, timezone="Europe/Berlin").trace.runtime.tolist() == [1200 * 10**6]


def test_columns_of_seconds_come_before_columns_of_dates(tmp_path: Path) -> None:
    path = written(
        tmp_path / "t.csv",
        "submitted,submitted_s,started,ended,runtime_s,user,cpus",
        "2026-03-02,90000,2026-03-02,2026-03-03,7,ann,1",
    )
    conversion = csv.convert(path)
    assert conversion.trace.submitted.tolist() == [90_000 * 10**6]
    assert conversion.trace.runtime.tolist() == [7 * 10**6]
    assert conversion.ignored == ("submitted",), "the others are compared with runtime_s"


def test_names_that_are_not_utf8_stay_apart(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_bytes(b"submitted_s,runtime_s,user,cpus\n0,1,\xff,1\n0,1,\xfe,1\n")
    assert csv.convert(path).trace.users == (r"\xff", r"\xfe")


def test_the_authors_form_has_no_header_and_finishes_for_run_times(tmp_path: Path) -> None:
    conversion = csv.convert_authors(
        written(
            tmp_path / "t.csv",
            "6747250,6747250,15012946,0,0-1398,1,8",
            "9,9,8,0,0-1,1,1",
            "7000000,7000000,7000000,18,18-5,2,0.5",
            "1.5,1.5,2,0,0-2,1,1",
        )
    )
    trace = conversion.trace
    assert trace.resources == ("cpus", "mem")
    assert trace.users == ("0", "18")
    assert trace.submitted.tolist() == [6747250, 7000000]
    assert trace.runtime.tolist() == [8265696, 0]
    assert trace.demand.tolist() == [[1.0, 8.0], [2.0, 0.5]]
    assert left_out(conversion) == {
        "finish time is before the submission": [2],
        "submission time is not a whole number": [4],
    }
    repeated = csv.convert_authors(written(tmp_path / "a.csv", "5,6,9,a,0,1,1", "5,5,9,a,1,1,1"))
    assert assumed(repeated) == {"the second field is not the submission: not read": [1]}


SWF = (
    "; Version: 2.2",
    "",
    " 1 0 -1 83 4 -1 -1 -1 1200 -1 -1 1 1 -1 -1 1 -1 -1",
    " 2 5 -1 83 -1 -1 -1 2 1200 -1 -1 7 1 -1 -1 1 -1 -1",
    " 3 6 -1 0 1 -1 -1 -1 300 -1 -1 1 1 -1 -1 1 -1 -1",
    " 4 6 -1 -1 1 -1 -1 -1 300 -1 -1 1 1 -1 -1 1 -1 -1",
    " 5 6 -1 9 -1 -1 -1 -1 300 -1 -1 1 1 -1 -1 1 -1 -1",
    " 6 6 -1 9 1 -1 -1 -1 300 -1 -1 -1 1 -1 -1 1 -1 -1",
    " 7 -1 -1 9 1 -1 -1 -1 300 -1 -1 1 1 -1 -1 1 -1 -1",
    " 8 7 -1 9 1",
    " 9 x -1 9 1 -1 -1 -1 300 -1 -1 1 1 -1 -1 1 -1 -1",
)


def check_swf(conversion: Conversion) -> None:
    trace = conversion.trace
    assert trace.resources == ("cpus",)
    assert trace.users == ("1", "7")
    assert trace.submitted.tolist() == [0, 5_000_000]
    assert trace.runtime.tolist() == [83_000_000, 83_000_000]
    assert trace.job.tolist() == [1, 2]
    assert trace.demand.tolist() == [[4.0], [2.0]]
    assert left_out(conversion) == {
        "run time is unknown or none": [5, 6],
        "processors are unknown or none": [7],
        "user is unknown": [8],
        "submission time is unknown": [9],
        "not 18 fields": [10],
        "submitted is not a number": [11],
    }
    assert conversion.left_out.rows_read == 2 + 7


def test_swf_jobs_are_tasks_of_many_processors(tmp_path: Path) -> None:
    check_swf(swf.convert(written(tmp_path / "t.swf", *SWF)))


def assumed(conversion: Conversion) -> dict[str, list[int]]:
    lines: dict[str, list[int]] = {}
    for reason, _, line in conversion.assumed:
        lines.setdefault(reason, []).append(line)
    return lines


def swf_line(  # noqa: PLR0917 - a row of the log
    job: int, submitted: int, runtime: int, processors: int, status: object, user: int = 1
) -> str:
    return (
        f"{job} {submitted} -1 {runtime} {processors} -1 -1 {processors} -1 -1 {status} {user} "
        "1 -1 -1 1 -1 -1"
    )


def test_swf_counts_whole_jobs_and_not_their_parts(tmp_path: Path) -> None:
    conversion = swf.convert(
        written(
            tmp_path / "t.swf",
            "; MaxRecords: 5",
            swf_line(1, 0, 400, 1, 1),
            swf_line(1, 0, 100, 1, 2),
            swf_line(1, -1, 300, 1, 3),
            swf_line(2, 5, 300, 3, 0),
            swf_line(3, 6, 9, 1, 7),
        )
    )
    assert conversion.trace.runtime.tolist() == [400 * 10**6, 300 * 10**6, 9 * 10**6]
    assert resource_hours(conversion.trace)["cpus"] * 3600 == pytest.approx(1309)
    assert left_out(conversion) == {"is a part of a job whose whole line is read": [3, 4]}
    assert assumed(conversion) == {"status is unknown: the line counts as a whole job": [6]}
    [check] = conversion.checks
    assert (check.figure, check.in_file, check.in_trace, check.agrees) == ("MaxRecords", 5, 5, True)


def test_a_repeated_job_number_of_swf_is_named(tmp_path: Path) -> None:
    line = swf_line(1, 0, 400, 1, 1)
    conversion = swf.convert(written(tmp_path / "t.swf", line, swf_line(2, 0, 9, 1, 1), line))
    assert len(conversion.trace) == 3
    assert assumed(conversion) == {
        "repeats the job number of an earlier line: the line counts as another task": [3]
    }


def test_a_csv_task_that_starts_before_its_submission_is_named(tmp_path: Path) -> None:
    conversion = csv.convert(
        written(tmp_path / "t.csv", "submitted,started,ended,user,cpus", "9,9,20,a,1", "9,8,20,a,1")
    )
    assert conversion.trace.runtime.tolist() == [11_000_000, 12_000_000]
    assert assumed(conversion) == {
        "started is before submitted: the task is submitted as the row says": [3]
    }


def test_swf_parts_without_a_line_for_the_whole_job_are_one_task(tmp_path: Path) -> None:
    conversion = swf.convert(
        written(
            tmp_path / "t.swf",
            swf_line(8, 2, 100, 4, 2, user=3),
            swf_line(9, 3, 50, 1, 0, user=4),
            swf_line(8, -1, 200, 2, 2, user=3),
            swf_line(8, -1, 300, 4, 4, user=3),
            swf_line(7, -1, 300, 4, 4),
            swf_line(6, 1, 0, 1, 0),  # unusable, but its parts are not
            swf_line(6, 1, 10, 1, 3),
        )
    )
    assert sorted(conversion.trace.job.tolist()) == [6, 8, 9]
    place = conversion.trace.job.tolist().index(8)
    assert conversion.trace.demand[place].tolist() == [4.0]
    assert conversion.trace.runtime[place] == (100 + 200 / 2 + 300) * 10**6
    assert conversion.trace.users[conversion.trace.user[place]] == "3"
    assert left_out(conversion) == {
        "is a further part of a job: it lengthens the task of the first part": [3, 4],
        "submission time is unknown": [5],
        "run time is unknown or none": [6],
    }


def test_swf_rows_are_compared_with_the_header(tmp_path: Path) -> None:
    path = written(tmp_path / "t.swf", ";  MaxRecords: 3", "", "; Note: x", swf_line(1, 0, 9, 1, 1))
    [check] = swf.convert(path).checks
    assert (check.in_file, check.in_trace, check.agrees) == (3, 1, False)
    requested = "1 0 -1 9 -1 -1 -1 2 -1 -1 1 1 1 -1 -1 1 -1 -1"
    conversion = swf.convert(written(tmp_path / "r.swf", requested))
    assert assumed(conversion) == {
        "allocated processors are unknown: the requested processors are used": [1]
    }


@pytest.mark.parametrize(
    ("lines", "commas"),
    [
        (["submitted_s;runtime_s;user;cpus", "0,5;1,25;ann;2", "1;2;bob;0,5"], [2, 3]),
        (["submitted_s\truntime_s\tuser\tcpus", "0.5\t1.25\tann\t2", "1\t2\tbob\t.5"], []),
        (['"submitted_s","runtime_s","user","cpus"', "0.5,1.25,ann,2", "1,2,bob,0.5"], []),
    ],
    ids=["semicolons", "tabs", "quoted"],
)
def test_a_csv_of_another_dialect_is_read_and_its_decimal_commas_are_counted(
    lines: list[str], commas: list[int], tmp_path: Path
) -> None:
    path = tmp_path / "t.csv"
    path.write_bytes(b"\xef\xbb\xbf" + "\r\n".join([*lines, "x", ""]).encode())
    conversion = csv.convert(path)
    assert conversion.trace.submitted.tolist() == [500_000, 1_000_000]
    assert conversion.trace.runtime.tolist() == [1_250_000, 2_000_000]
    assert conversion.trace.demand.tolist() == [[2.0], [0.5]]
    assert assumed(conversion) == ({"has a comma for the decimal point": commas} if commas else {})
    assert left_out(conversion) == {"not 4 fields": [4]}
    assert conversion.left_out.rows_read == 3


def test_a_comma_within_a_number_is_no_number_where_commas_part_fields(tmp_path: Path) -> None:
    path = written(tmp_path / "t.csv", "submitted_s,runtime_s,user,cpus", '0,1,ann,"1,500"')
    assert left_out(csv.convert(path)) == {"demand of cpus is not a number": [2]}
    path = written(tmp_path / "s.csv", "submitted_s;runtime_s;user;cpus", "0;1;ann;1.500,5")
    assert left_out(csv.convert(path)) == {"demand of cpus is not a number": [2]}
    (tmp_path / "u.csv").write_text("submitted_s,runtime_s,user,cpus\n0,1,ann,1\n", "utf-16")
    with pytest.raises(TraceError, match="is UTF-16; save it as UTF-8"):
        csv.convert(tmp_path / "u.csv")


def test_packed_files_are_unpacked(tmp_path: Path) -> None:
    text = written(tmp_path / "t.swf", *SWF)
    with gzip.open(tmp_path / "t.swf.gz", "wb") as file:
        file.write(text.read_bytes())
    check_swf(swf.convert(tmp_path / "t.swf.gz"))
    with zipfile.ZipFile(tmp_path / "t.swf.zip", "w") as archive:
        archive.write(text, "t.swf")
    check_swf(swf.convert(tmp_path / "t.swf.zip"))
    with zipfile.ZipFile(tmp_path / "t.swf.zip", "a") as archive:
        archive.write(text, "again.swf")
    with pytest.raises(TraceError, match="holds 2 files"):
        swf.convert(tmp_path / "t.swf.zip")


@pytest.mark.parametrize("name", ["t.swf.zip", "t.swf.gz", "t.swf"])
def test_a_missing_or_corrupt_file_is_named(name: str, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=name):
        swf.convert(tmp_path / name)
    (tmp_path / name).write_bytes(b"neither\n")
    if name == "t.swf":
        assert left_out(swf.convert(tmp_path / name)) == {"not 18 fields": [1]}
    else:
        with pytest.raises(TraceError, match=f"{name} cannot be read"):
            swf.convert(tmp_path / name)


NODES = (
    "sn,cpu_milli,memory_mib,gpu,model",
    "n0,32000,1000,0,",
    "n1,96000,2000,8,G2",
    "n2,96000,2000,8,G2",
    "n3,64000,2000,2,T4",
    "n4,many,2000,2,T4",
)
PODS_HEADER = (
    "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,"
    "deletion_time,scheduled_time"
)


def test_openb_pods_run_on_the_models_that_they_name(tmp_path: Path) -> None:
    pods = written(
        tmp_path / "pods.csv",
        PODS_HEADER,
        "p0,12000,100,1,500,,LS,Running,0,100,10",
        "p1,1500,100,2,1000,G2|V100,BE,Running,5,25,5",
        "p2,1500,100,1,1000,G2|T4,BE,Failed,5,25,5",
        "p3,1500,100,1,1000,G2|V100,LS,Pending,5,25,",
        "p4,1500,100,1,1000,A10,LS,Running,5,25,5",
        "p5,1500,100,1,1000,,LS,Running,5,25,4",
        "p6,1500,100,1,1000,,LS,Running,5,25,26",
        "p7,0,0,1,0,,LS,Running,5,25,5",
        "p8,1,1,1,0,,LS,Running,5,later,5",
        "p9,1500,100,1,0,,LS,Running,5,25,5",
    )
    conversion = openb.convert(pods, written(tmp_path / "nodes.csv", *NODES))
    trace = conversion.trace
    assert [(m.count, m.capacity, m.attributes) for m in trace.machines] == [
        (1, (32.0, 1000.0, 0.0), {"model": ""}),
        (2, (96.0, 2000.0, 8.0), {"model": "G2"}),
        (1, (64.0, 2000.0, 2.0), {"model": "T4"}),
    ]
    assert trace.users == ("LS", "BE")
    assert trace.submitted.tolist() == [0, 5_000_000, 5_000_000, 5_000_000]
    assert trace.runtime.tolist() == [90_000_000, 20_000_000, 20_000_000, 20_000_000]
    assert trace.demand.tolist() == [
        [12.0, 100.0, 0.5],
        [1.5, 100.0, 2.0],
        [1.5, 100.0, 1.0],
        [1.5, 100.0, 0.0],
    ]
    assert assumed(conversion) == {"one of num_gpu and gpu_milli is 0: 0 GPUs": [11]}
    assert conversion.left_out.rows_read == 10 + 5
    allowed = [None if c < 0 else trace.constraints[c] for c in trace.constraint]
    assert allowed == [None, (1,), (1, 2), None]
    assert left_out(conversion) == {
        "cpu_milli is not a number": [6],
        "never scheduled": [5],
        "no machine has a model of its gpu_spec": [6],
        "scheduled before created": [7],
        "deleted before scheduled": [8],
        "demand is zero": [9],
        "deletion_time is not a time": [10],
    }


def test_openb_files_are_recognised(tmp_path: Path) -> None:
    nodes = written(tmp_path / "nodes.csv", *NODES)
    with pytest.raises(
        TraceError,
        match=r"nodes\.csv is not a file of openb: its first line lacks the columns name,",
    ):
        openb.convert(nodes, nodes)
    pods = written(tmp_path / "pods.csv", PODS_HEADER, "p0,1,1,1,1,,LS,Running,0,1,0")
    with pytest.raises(TraceError, match=r"none\.csv has no machines"):
        openb.convert(pods, written(tmp_path / "none.csv", *NODES[:1], *NODES[-1:]))


@pytest.fixture
def data() -> Path:
    folder = os.environ.get("LONGSHARE_DATA")
    if not folder:
        pytest.skip("LONGSHARE_DATA names no folder with real workloads")
    return Path(folder)


def test_the_lcg_log_has_521_jobs_without_a_run_time(data: Path) -> None:
    conversion = swf.convert(data / "lcg-2005.swf.gz")
    assert len(conversion.trace) == 187_520
    assert len(conversion.trace.users) == 216
    assert conversion.left_out.counts() == {"run time is unknown or none": 521}


def test_openb_has_2388_pods_with_a_gpu_spec(data: Path) -> None:
    conversion = openb.convert(
        data / "openb_pod_list_gpuspec33.csv", data / "openb_node_list_all_node.csv"
    )
    assert len(conversion.trace) + 897 == 8_152
    assert conversion.left_out.counts() == {"never scheduled": 897}
    assert sum(machine.count for machine in conversion.trace.machines) == 1_523
    assert np.count_nonzero(conversion.trace.constraint >= 0) <= 2_388


def test_recorded_waits_of_a_csv_are_kept_in_the_order_of_submissions(tmp_path: Path) -> None:
    path = written(
        tmp_path / "t.csv",
        "user,submitted,started,ended,cpus",
        "bob,2026-03-02T08:05:00,2026-03-02T08:06:00,2026-03-02T09:05:00,1",
        "ann,2026-03-02T08:00:00,2026-03-02T08:00:10,2026-03-02T08:30:10,2",
        "ann,2026-03-02T09:00:00,2026-03-02T08:59:50,2026-03-02T09:30:10,2",
        "ann,2026-03-02T09:00:00,,,2",
    )
    recorded = csv.convert(path).recorded_waits
    assert recorded is not None
    assert recorded.tolist() == [10_000_000, 60_000_000, -1], "a start before submission is unknown"
    seconds = written(tmp_path / "s.csv", "submitted_s,runtime_s,user,cpus", "0,1,ann,1")
    assert csv.convert(seconds).recorded_waits == [-1]


def test_recorded_waits_of_swf_are_the_waits_of_its_third_field(tmp_path: Path) -> None:
    log = written(
        tmp_path / "t.swf",
        "1 0 5 400 1 -1 -1 1 -1 -1 1 7 -1 -1 -1 -1 -1 -1",
        "2 9 -1 400 1 -1 -1 1 -1 -1 1 7 -1 -1 -1 -1 -1 -1",
    )
    recorded = swf.convert(log).recorded_waits
    assert recorded is not None
    assert recorded.tolist() == [5_000_000, -1]
