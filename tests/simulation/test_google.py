"""Google's trace of 2011: the result of every event."""

import gzip
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allocator.simulation.formats import google, text
from allocator.simulation.formats.conversion import Conversion
from allocator.simulation.trace import TraceError
from tests.examples import examples
from tests.simulation.traces import IN_ONE_FOLDER

SUBMIT, SCHEDULE, EVICT, FAIL, FINISH, KILL, LOST, UPDATE_PENDING, UPDATE_RUNNING = range(9)
AFTER = 2**63 - 1


def event(  # noqa: PLR0917 - a row of the table
    time: int, job: int, index: int, kind: int, user: str = "u", cpus: str = "0.5", mem: str = "0.1"
) -> str:
    return f"{time},,{job},{index},,{kind},{user},2,9,{cpus},{mem},0.0001,0"


def table(folder: Path, name: str, *parts: list[str]) -> None:
    (folder / name).mkdir()
    for number, rows in enumerate(parts):
        path = folder / name / f"part-{number:05}-of-{len(parts):05}.csv.gz"
        with gzip.open(path, "wt") as file:
            file.write("".join(f"{row}\n" for row in rows))


def converted(
    folder: Path, *parts: list[str], demand_at: google.DemandAt = google.DemandAt.SUBMIT
) -> Conversion:
    table(folder, "task_events", *parts)
    return google.convert(folder, demand_at)


def tasks(conversion: Conversion) -> list[tuple[int, int, str, int]]:
    trace = conversion.trace
    columns = (trace.submitted, trace.runtime, trace.user, trace.job)
    return [
        (submitted, runtime, trace.users[user], job)
        for submitted, runtime, user, job in zip(*(c.tolist() for c in columns), strict=True)
    ]


def left_out(conversion: Conversion) -> dict[str, list[tuple[str, int]]]:
    rows: dict[str, list[tuple[str, int]]] = {}
    for reason, file, line in conversion.left_out:
        rows.setdefault(reason, []).append((file[:10], line))
    return rows


def test_only_finished_and_failed_attempts_are_tasks(tmp_path: Path) -> None:
    conversion = converted(
        tmp_path,
        [
            event(10, 1, 0, SUBMIT, "ann"),
            event(11, 1, 1, SUBMIT, "ann"),
            event(12, 1, 0, SCHEDULE, "ann"),
            event(13, 2, 0, SUBMIT, "bob", "0.25", "0"),
            event(14, 1, 1, SCHEDULE, "ann"),
            event(15, 2, 0, SCHEDULE, "bob"),
            event(20, 1, 0, FAIL, "ann"),
            event(20, 1, 0, SUBMIT, "ann"),
            event(25, 2, 0, UPDATE_RUNNING, "bob"),
            event(30, 1, 1, EVICT, "ann"),
        ],
        [
            event(31, 1, 0, SCHEDULE, "ann"),
            event(33, 1, 1, SUBMIT, "ann"),
            event(40, 2, 0, FINISH, "bob"),
            event(41, 1, 0, FINISH, "ann"),
            event(45, 1, 1, KILL, "ann"),
            event(46, 3, 0, SUBMIT),
            event(47, 3, 0, SCHEDULE),
            event(48, 3, 0, LOST),
        ],
        [],  # a file may be empty
    )
    assert tasks(conversion) == [(10, 8, "ann", 1), (13, 25, "bob", 2), (20, 10, "ann", 1)]
    assert conversion.trace.resources == ("cpus", "mem")
    assert conversion.trace.demand.tolist() == [[0.5, 0.1], [0.25, 0.0], [0.5, 0.1]]
    assert left_out(conversion) == {
        "evicted": [("part-00000", 2)],
        "killed": [("part-00001", 2)],
        "lost": [("part-00001", 6)],
    }


def test_every_attempt_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    conversion = converted(
        tmp_path,
        [
            event(0, 1, 0, SUBMIT),
            event(0, 1, 0, SCHEDULE),
            event(700, 1, 0, FINISH),
            event(700, 2, 0, FINISH),
            event(700, 3, 0, SUBMIT),
            event(701, 3, 0, FAIL),
            event(700, 4, 0, SUBMIT),
            event(701, 4, 0, SCHEDULE),
            event(700, 5, 0, SUBMIT),
            event(701, 5, 0, SCHEDULE),
            event(AFTER, 5, 0, FINISH),
            event(700, 6, 0, SUBMIT, cpus="0", mem="0"),
            event(701, 6, 0, SCHEDULE, cpus="0", mem="0"),
            event(702, 6, 0, FINISH),
            event(700, 7, 0, SUBMIT, cpus="", mem="0.2"),
            event(701, 7, 0, SCHEDULE, cpus="", mem="0.2"),
            event(702, 7, 0, FINISH),
            event(700, 8, 0, SUBMIT, user=""),
            event(701, 8, 0, SCHEDULE),
            event(702, 8, 0, FINISH),
            event(700, 9, 0, SUBMIT),
            event(699, 9, 0, SCHEDULE),
            event(702, 9, 0, FINISH),
            event(700, 10, 0, SUBMIT),
            event(703, 10, 0, SCHEDULE),
            event(702, 10, 0, FINISH),
            event(700, 11, 0, SUBMIT),
            event(701, 11, 0, SUBMIT),
            event(702, 11, 0, SCHEDULE),
            event(705, 11, 0, FINISH),
            event(705, 12, 0, SCHEDULE),
            event(700, 13, 0, SUBMIT, cpus="-1"),
            event(702, 13, 0, SCHEDULE),
            event(705, 13, 0, FINISH),
        ],
    )
    assert tasks(conversion) == [(701, 3, "u", 11)]
    assert {
        reason: [line for _, line in rows] for reason, rows in left_out(conversion).items()
    } == {
        "submitted before the trace began": [1],
        "ended without having been submitted": [4],
        "never scheduled": [5],
        "never ended": [7],
        "ended after the trace": [9],
        "demand is zero": [12],
        "demand is missing": [15],
        "no user": [18],
        "scheduled before it was submitted": [21],
        "ended before it was scheduled": [24],
        "submitted again before it ended": [27],
        "scheduled without having been submitted": [31],
        "demand is negative": [32],
    }


def test_a_demand_that_the_submission_lacks_is_that_of_the_schedule(tmp_path: Path) -> None:
    conversion = converted(
        tmp_path,
        [
            event(700, 1, 0, SUBMIT, cpus="", mem="0.2"),
            event(701, 1, 0, SCHEDULE, cpus="0.3", mem="0.4"),
            event(702, 1, 0, FINISH, cpus="1", mem="1"),
        ],
    )
    assert conversion.trace.demand.tolist() == [[0.3, 0.2]]
    [(reason, _, line)] = conversion.assumed
    assert (reason, line) == ("demand is missing in SUBMIT: that of SCHEDULE is used", 1)


@pytest.mark.parametrize(
    ("at", "demands", "reason", "lines"),
    [
        ("schedule", [[0.3, 0.2], [0.4, 0.1]], "no CPU or no memory", [4, 7]),
        ("submit", [[0.5, 0.1], [0.5, 0.1], [0.2, 0.0]], "demand is zero", [7]),
    ],
)
def test_the_demand_is_read_from_the_schedule_event_or_from_the_submission(
    tmp_path: Path, at: str, demands: list[list[float]], reason: str, lines: list[int]
) -> None:
    rows = [
        event(10, 1, 0, SUBMIT),
        event(11, 1, 0, SCHEDULE, cpus="0.3", mem="0.2"),
        event(20, 1, 0, FINISH),
        event(30, 2, 0, SUBMIT, cpus="0.2", mem="0"),
        event(31, 2, 0, SCHEDULE, cpus="0.2", mem="0"),
        event(32, 2, 0, FINISH),
        event(40, 3, 0, SUBMIT, cpus="0", mem="0"),
        event(41, 3, 0, SCHEDULE, cpus="0", mem="0"),
        event(42, 3, 0, FAIL),
        event(25, 4, 0, SUBMIT),
        event(26, 4, 0, SCHEDULE, cpus="0.4", mem=""),
        event(27, 4, 0, FAIL),
    ]
    conversion = converted(tmp_path, rows, demand_at=google.DemandAt(at))
    assert conversion.trace.demand.tolist() == demands
    named = ["demand is missing in SCHEDULE: that of SUBMIT is used"] if at == "schedule" else []
    assert list(conversion.assumed.counts()) == named
    assert [line for _, line in left_out(conversion)[reason]] == lines


def test_bad_rows_are_named_with_file_and_line(tmp_path: Path) -> None:
    conversion = converted(
        tmp_path,
        [event(700, 1, 0, SUBMIT), "700,,1", event(701, 1, 0, 9)],
        [
            "x" + event(702, 1, 0, SCHEDULE),
            event(-1, 1, 0, SCHEDULE),
            event(702, 1, -1, SCHEDULE),
            event(702, 1, 0, SCHEDULE, cpus="many"),
            event(702, 1, 0, SCHEDULE),
            event(703, 1, 0, FINISH),
        ],
    )
    assert tasks(conversion) == [(700, 1, "u", 1)]
    assert left_out(conversion) == {
        "not 13 fields": [("part-00000", 2)],
        "event is of an unknown type": [("part-00000", 3)],
        "time is not a whole number": [("part-00001", 1)],
        "time is negative": [("part-00001", 2)],
        "index is not from 0 to 2^31": [("part-00001", 3)],
        "demand of cpus is not a number": [("part-00001", 4)],
    }


@st.composite
def histories(draw: st.DrawFn) -> list[tuple[int, int, int, int]]:
    """Events (time, job, index, kind) of attempts that all finish or fail, in order of time."""
    events = []
    for task in range(draw(st.integers(1, 5))):
        time = 0
        for _ in range(draw(st.integers(1, 4))):
            for kind in (SUBMIT, SCHEDULE, draw(st.sampled_from([FAIL, FINISH]))):
                time += draw(st.integers(1, 20))
                events.append((time, task // 2, task, kind))
    return sorted(events, key=lambda event: event[0])


def attempts(events: list[tuple[int, int, int, int]]) -> Iterator[tuple[int, int, int]]:
    submitted, scheduled = {}, {}
    for time, job, index, kind in events:
        if kind == SUBMIT:
            submitted[index] = time
        elif kind == SCHEDULE:
            scheduled[index] = time
        else:
            yield submitted[index], time - scheduled[index], job


@examples(60, suppress_health_check=IN_ONE_FOLDER)
@given(events=histories(), cuts=st.sets(st.integers(1, 60), max_size=4), block=st.integers(60, 400))
def test_attempts_are_the_same_wherever_files_and_blocks_end(
    events: list[tuple[int, int, int, int]],
    cuts: set[int],
    block: int,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    ends = [0, *sorted(cut for cut in cuts if cut < len(events)), len(events)]
    parts = [[event(*fields) for fields in events[first:last]] for first, last in pairwise(ends)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(text, "_BLOCK", block)
        conversion = converted(tmp_path_factory.mktemp("google"), *parts)
    read_tasks = [(submitted, runtime, job) for submitted, runtime, _, job in tasks(conversion)]
    assert sorted(read_tasks) == sorted(attempts(events))
    assert left_out(conversion) == {}


def test_machines_that_are_alike_are_a_class_and_constraints_choose_among_them(
    tmp_path: Path,
) -> None:
    table(
        tmp_path,
        "machine_events",
        [
            "0,1,0,P,0.5,0.5",
            "0,2,0,P,0.5,0.5",
            "0,3,0,P,0.5,0.5",
            "0,4,0,Q,0.25,0.25",
            "5,4,2,Q,1,1",
            "6,3,1,P,,",
            "7,5,0,P,,0.5",
            "7,6,3,P,1,1",
        ],
    )
    table(
        tmp_path,
        "machine_attributes",
        [
            "0,1,kernel,2,0",
            "0,2,kernel,3,0",
            "0,3,kernel,3,0",
            "0,4,kernel,9,0",
            "1,4,kernel,,1",
            "0,1,colour,red,0",
            "0,1,colour,red,2",
        ],
    )
    table(
        tmp_path,
        "task_constraints",
        [
            "600,1,0,0,kernel,3",
            "600,1,1,2,kernel,3",
            "600,1,2,3,kernel,1",
            "600,1,2,1,kernel,2",
            "600,1,3,1,kernel,3",
            "600,1,4,0,kernel,7",
            "500,1,5,0,kernel,7",
            "600,1,5,0,kernel,",
            "600,1,6,5,kernel,3",
        ],
    )
    rows = [
        row
        for index in range(7)
        for row in (
            event(600, 1, index, SUBMIT),
            event(601, 1, index, SCHEDULE),
            event(602, 1, index, FINISH),
        )
    ]
    conversion = converted(tmp_path, rows)
    trace = conversion.trace
    assert [(m.count, m.capacity, m.attributes) for m in trace.machines] == [
        (1, (0.5, 0.5), {"platform": "P", "kernel": "2"}),
        (2, (0.5, 0.5), {"platform": "P", "kernel": "3"}),
        (1, (1.0, 1.0), {"platform": "Q"}),
    ]
    allowed = [None if c < 0 else trace.constraints[c] for c in trace.constraint]
    assert allowed == [(1,), (0,), (1,), (0, 2), (2,), None]
    assert {
        reason: [line for _, line in rows] for reason, rows in left_out(conversion).items()
    } == {
        "machine has no cpus": [7],
        "machine event is of an unknown type": [8],
        "deleted is neither 0 nor 1": [7],
        "constraint has an unknown operator": [9],
        "no machine meets its constraints": [13],
    }


def test_a_single_file_of_task_events_is_accepted_and_an_empty_folder_is_refused(
    tmp_path: Path,
) -> None:
    with pytest.raises(TraceError, match="has no folder task_events"):
        google.convert(tmp_path)
    rows = [event(1, 1, 0, SUBMIT), event(2, 1, 0, SCHEDULE), event(3, 1, 0, FINISH)]
    (tmp_path / "events.csv").write_text("\n".join(rows))
    assert tasks(google.convert(tmp_path / "events.csv")) == [(1, 1, "u", 1)]


def test_events_that_are_not_read_and_files_that_are_missing_are_named(tmp_path: Path) -> None:
    made_up = event(12, 1, 0, FINISH).replace("12,,", "12,2,")
    rows = [event(10, 1, 0, SUBMIT), event(11, 1, 0, SCHEDULE), event(11, 1, 0, UPDATE_RUNNING)]
    conversion = converted(tmp_path, rows, [made_up])
    assert {(reason, line) for reason, _, line in conversion.assumed} == {
        ("updates a demand: not read", 3),
        ("Google inserted it for a missing event", 1),
    }
    assert conversion.left_out.rows_read == 4
    assert [check.agrees for check in conversion.checks] == [True]
    (tmp_path / "task_events" / "part-00001-of-00002.csv.gz").unlink()
    [check] = google.convert(tmp_path).checks
    assert (check.figure, check.in_file, check.in_trace, check.agrees) == (
        "names of task_events",
        2,
        1,
        False,
    )


def test_the_trace_of_2019_is_distinguished_from_the_trace_of_2011(tmp_path: Path) -> None:
    (tmp_path / "instance_events-000000000000.json.gz").touch()
    with pytest.raises(
        TraceError, match=r"instance_events.* is of the trace of 2019, which is not"
    ):
        google.convert(tmp_path)
