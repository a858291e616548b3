"""Attempts from sacct and jobcomp, with the peculiarities of both."""

import time
import tracemalloc
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from allocator.fairness.quantities import Quantities
from allocator.slurm.client import _BLOCK_BYTES, JobcompFile, complete_lines
from allocator.slurm.records import Record, read_accounting, read_jobcomp
from allocator.slurm.rows import COLUMN_END, RejectedRecords, ShapeError
from allocator.slurm.timelines import Attempt, Step

REQUEUED = (
    "1|games|phys|REQUEUED|100|100|106|00:00:00|billing=2,cpu=2,mem=1G,node=1\n"
    "1|games|phys|COMPLETED|106|230|260|00:00:00|billing=2,cpu=2,mem=1G,node=1\n"
)
RESIZED = (
    "2|games|phys|RESIZING|100|100|106|00:00:00|cpu=40,mem=2G,node=2\n"
    "2|games|phys|COMPLETED|106|100|125|00:00:00|cpu=38,mem=1G,node=1\n"
)
SUSPENDED = "3|games|phys|COMPLETED|100|100|120|00:00:03|cpu=5,mem=1G,node=1\n"
JOBCOMP = (
    "JobId=5 UserId=games(5) GroupId=root(0) Name=a b JobState=COMPLETED Partition=main "
    "TimeLimit=60 StartTime=1970-01-01T00:01:40 EndTime=1970-01-01T00:02:00 NodeList=n1 NodeCnt=1 "
    "ProcCnt=40 WorkDir=/ Tres=cpu=1,mem=60000M,node=1 Account= QOS= "
    "SubmitTime=1970-01-01T00:01:00 DerivedExitCode=0:0 ExitCode=0:0 "
)


@pytest.fixture
def berlin(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Change the time zone of this process to one that sets its clocks back on 26 October 2025."""
    with monkeypatch.context() as changed:
        changed.setenv("TZ", "Europe/Berlin")
        time.tzset()
        yield
    time.tzset()


def read_sacct(text: str) -> list[Record]:
    """Read rows with bars between the columns."""
    rows = text.splitlines()
    return read_accounting(printed(f"{row}|" for row in rows))


def printed(rows: Iterable[str]) -> bytes:
    """Return rows in the form of `SlurmClient.accounting`."""
    return "".join(f"{row}\n" for row in rows).replace("|", COLUMN_END).encode()


def cores(number: int, mem: int) -> Quantities:
    return Quantities.parse(f"cpus:{number};mem:{mem}")


def test_each_attempt_of_a_requeued_job_is_a_record() -> None:
    first, second = read_sacct(REQUEUED)
    assert first.attempt == Attempt(100.0, [Step(100.0, cores(2, 1024))], [], 106.0)
    assert second.attempt == Attempt(230.0, [Step(230.0, cores(2, 1024))], [], 260.0)
    assert (first.user, first.account, first.exact) == ("games", "phys", True)


def test_sizes_of_one_attempt_are_one_record() -> None:
    (record,) = read_sacct(RESIZED)
    sizes = [Step(100.0, cores(40, 2048)), Step(106.0, cores(38, 1024))]
    assert record.attempt == Attempt(100.0, sizes, [], 125.0)


def test_an_attempt_that_ran_without_resources_is_counted_as_rejected() -> None:
    rejected = RejectedRecords()
    rows = (
        "8|games|phys|CANCELLED|100|130|130|00:00:00||",
        "9|games|phys|FAILED|100|110|170|00:00:00||",
    )
    assert read_accounting(printed(rows), rejected=rejected) == []
    assert rejected.counts == {"sacct": 1}
    _, [reason] = rejected.take_new()
    assert "job 9: AllocTRES is empty, although the attempt ran" in reason


def test_the_sum_of_suspensions_counts_although_their_times_are_unknown() -> None:
    (record,) = read_sacct(SUSPENDED)
    assert record.attempt.paused(120.0) == 3.0
    assert not record.exact


def test_jobs_that_never_started_are_no_attempts_and_running_ones_have_no_end() -> None:
    text = (
        "7|games|phys|PENDING|100|Unknown|Unknown|00:00:00|\n"
        "8|games|phys|RUNNING|100|110|Unknown|00:00:00|cpu=1,mem=1G,node=1\n"
    )
    (record,) = read_sacct(text)
    assert (record.job, record.attempt.end) == (8, None)


@pytest.mark.usefixtures("berlin")
def test_jobcomp_tells_allocated_cores_and_otherwise_requested_resources() -> None:
    (record,) = read_jobcomp([JOBCOMP.replace("T00:", "T01:")])
    assert record.attempt == Attempt(100.0, [Step(100.0, cores(40, 60000))], [], 120.0)
    assert (record.job, record.user, record.account) == (5, "games", "")


@pytest.mark.usefixtures("berlin")
@pytest.mark.parametrize(
    ("start", "end", "seconds"),
    [
        ("2025-10-25T23:30:00", "2025-10-26T04:30:00", 6 * 3600.0),
        ("2025-10-26T02:50:00", "2025-10-26T02:10:00", 20 * 60.0),
        ("2026-03-29T01:30:00", "2026-03-29T03:30:00", 3600.0),
    ],
)
def test_jobcomp_is_read_with_the_changes_of_clocks(start: str, end: str, seconds: float) -> None:
    line = JOBCOMP.replace("1970-01-01T00:01:40", start).replace("1970-01-01T00:02:00", end)
    (record,) = read_jobcomp([line])
    assert record.attempt.end is not None
    assert record.attempt.end - record.attempt.start == seconds


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("1|games|phys|COMPLETED|1|1|2|0", "8 columns instead of 9"),
        ("1|games|phys|COMPLETED|now|1|2|0|cpu=1", "a time is not a number"),
        ("1|games|phys|COMPLETED|1|1|2|0|cpu=x", "job 1: cpus are not numbers"),
    ],
)
def test_an_unknown_form_of_the_accounting_is_an_error(text: str, message: str) -> None:
    with pytest.raises(ShapeError, match=message):
        read_sacct(text)


def test_a_missing_field_of_jobcomp_is_an_error_that_names_it() -> None:
    with pytest.raises(ShapeError, match="the field ProcCnt is missing"):
        read_jobcomp([JOBCOMP.replace("ProcCnt=40 ", "")])


@pytest.mark.usefixtures("berlin")
def test_records_of_jobs_that_ended_long_before_a_time_are_not_measured() -> None:
    measured: list[str] = []

    def measure(text: str) -> Quantities:
        measured.append(text)
        return cores(1, 60000)

    later = JOBCOMP.replace("JobId=5", "JobId=6").replace("1970-01-01T00:0", "1970-01-02T00:0")
    records = read_jobcomp([JOBCOMP, later] * 3, measure, None, 86_400.0)
    assert [record.job for record in records] == [6] * 3
    assert len(measured) == 3
    assert not read_jobcomp([JOBCOMP], measure, None, 86_400.0)


def test_a_file_of_jobcomp_is_read_in_blocks_with_long_lines_in_parts(tmp_path: Path) -> None:
    path = tmp_path / "jobcomp"
    texts = ["a" * _BLOCK_BYTES, "", "b\udcff", "c" * (3 * _BLOCK_BYTES), "d"]
    path.write_bytes("\n".join([*texts, "unfinished"]).encode(errors="surrogateescape"))
    lines = list(complete_lines(path))
    assert lines[:3] == texts[:3]
    assert "".join(lines[3:-1]) + lines[-1] == "".join(texts[3:])
    assert max(map(len, lines)) <= 2 * _BLOCK_BYTES
    assert list(complete_lines(path, 1))[:3] == [texts[0][1:], *texts[1:3]]


def test_a_record_of_jobcomp_without_an_end_is_read_in_parts() -> None:
    endless = ["JobId=1 UserId=games(5) GroupId=games(60) Name=x", *["y" * 1000] * 3000]
    (record,) = read_jobcomp([*endless, JOBCOMP, JOBCOMP.replace("JobId=5", "JobId=6")])
    assert record.job == 6


def test_records_before_the_settled_time_are_not_read_again(tmp_path: Path) -> None:
    path = tmp_path / "jobcomp"
    file = JobcompFile()

    def shown(settled: float) -> list[str]:
        return list(file.lines(path, settled))

    file.note_size(path, 0.0, 0.0)
    path.write_text(f"{JOBCOMP}\n")
    file.note_size(path, 100.0, 40.0)
    path.write_text(f"{JOBCOMP}\n{JOBCOMP}\nJobId=7")
    file.note_size(path, 200.0, 140.0)  # a record is being written
    path.write_text(f"{JOBCOMP}\n{JOBCOMP}\n{JOBCOMP}\n")
    assert len(shown(160.0)) == 3, "the clock of slurmctld may be late"
    assert len(shown(161.0)) == 2
    for second in range(300, 400):
        file.note_size(path, float(second), second - 60.0)
    assert len(file._sizes) < 20
    assert not shown(400.0)
    path.write_text(f"{JOBCOMP}\n")
    file.note_size(path, 500.0, 440.0)
    assert len(shown(440.0)) == 1, "the file has begun again"


def test_many_unreadable_records_keep_few_reasons() -> None:
    rejected = RejectedRecords()
    name = "Name=x EndTime=then"
    forged = [
        JOBCOMP.replace("Name=a b", name).replace("JobId=5", f"JobId={n}") for n in range(20_000)
    ]
    tracemalloc.start()
    try:
        read_jobcomp([*forged, JOBCOMP], rejected=rejected)
        kept = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert rejected.counts == {"jobcomp": 20_000}
    number, reasons = rejected.take_new()
    assert (number, len(reasons)) == (20_000, 100)
    assert kept < 4e6
