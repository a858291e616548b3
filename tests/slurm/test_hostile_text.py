"""Text of Slurm's users changes no other row, and is read exactly or set aside."""

import itertools
import os
import time
import tracemalloc
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from typing_extensions import override

from allocator.fairness.policies import create
from allocator.slurm.bridge import Bridge, BridgeSettings, Cycle
from allocator.slurm.client import SlurmClient, _beginnings
from allocator.slurm.jobs import (
    OWN_COLUMNS,
    SEPARATOR,
    Job,
    JobDetail,
    JobReader,
    read_details,
)
from allocator.slurm.records import Record, read_accounting, read_jobcomp
from allocator.slurm.rows import (
    COLUMN_END,
    RejectedRecords,
    ShapeError,
    UnreadableRowsError,
    plain_name,
)
from allocator.slurm.shares import name_of
from allocator.slurm.state import StateSettings
from allocator.slurm.users import Associations, read_associations, user_path
from allocator.slurm_notation import NEVER
from frameworks.local_slurm.cluster import LocalSlurm
from frameworks.local_slurm.configuration import NodeGroup, SlurmSettings
from tests.slurm.real import ROOT, poll_until, reason_to_skip
from tests.slurm.test_checks import association_rows
from tests.slurm.test_jobs import COLUMNS, RUNNING

TOKENS = (
    "\n", "|", " ", "/", "%", "\r", "\x0b", "\u2028", "\x85", "\xff", "a", "9", "=", ",", "(", ")",
    " JobState=COMPLETED", " StartTime=1970-01-01T00:00:01", " EndTime=1970-01-01T09:00:00",
    " SuspendTime=7 SecsPreSuspend=8", " ResizeTime=9", " StartTime=5", " UserId=news(9)",
    "JobId=7 UserId=news(9) GroupId=news(9) Name=y", " ProcCnt=999", " Account=lab QOS=normal",
    " Tres=cpu=999", " ExitCode=0:0 ", "news", "lab", "|1|", "5|news|lab|2|root",
)  # fmt: skip
"""Parts of hostile texts: separators, line breaks, and fields of Slurm."""


FORGED_ACCOUNT = "x|99999|root\n1000000||phys"
"""Printed with bars between columns, this account is a row of its own."""


def as_slurm_prints(text: str) -> str:
    """Return a text with invalid UTF-8, as decoded by the client."""
    return text.encode().replace("\xff".encode(), b"\xff").decode(errors="surrogateescape")


CHARACTERS = st.characters(exclude_characters="\0", exclude_categories=["Cs"])
TEXTS = st.one_of(
    st.text(CHARACTERS, max_size=12),
    st.lists(st.one_of(st.sampled_from(TOKENS), CHARACTERS), max_size=8).map("".join),
).map(as_slurm_prints)
"""Texts of users of Slurm: any bytes but NUL."""


def job_row(**fields: str) -> bytes:
    """Return a row in the form of `SlurmClient.jobs`."""
    plain = dict(zip(COLUMNS, RUNNING.split("|"), strict=True))
    values = list((plain | fields).values())
    own, texts = values[: len(OWN_COLUMNS)], values[len(OWN_COLUMNS) :]
    return in_row(SEPARATOR.join(own), *texts)


def in_row(*columns: str) -> bytes:
    row = "".join(f"{column}{COLUMN_END}" for column in columns)
    return f"{row}\n".encode(errors="surrogateescape")


HONEST = (job_row(jobid="8", username="man"), job_row(jobid="9", username="news", account="lab"))


def read_jobs(printed: bytes) -> dict[int, Job]:
    return {seen.job.number: seen.job for seen in JobReader().read(printed)}


@given(TEXTS, TEXTS, TEXTS, TEXTS, st.integers(0, 2))
def test_no_text_of_a_job_changes_other_jobs(
    account: str, qos: str, reason: str, gres: str, place: int
) -> None:
    texts = {"account": account, "qos": qos, "reason": reason, "tres-per-node": gres[:3]}
    hostile = job_row(jobid="6", username="games", **texts)
    jobs = read_jobs(b"".join((*HONEST[:place], hostile, *HONEST[place:])))
    (plain,) = read_jobs(job_row(jobid="6", username="games")).values()
    assert {number: jobs[number] for number in (8, 9)} == read_jobs(b"".join(HONEST))
    job = jobs.pop(6)
    assert replace(job, account="", qos="", reason="None") == plain
    assert job.account == ("" if account in NEVER else plain_name(account))
    assert len(jobs) == 2


@given(TEXTS, TEXTS)
def test_names_are_printable_and_different_texts_have_different_names(
    first: str, second: str
) -> None:
    assert plain_name(first).isprintable()
    plain_name(first).encode()  # no half of a character
    assert (plain_name(first) == plain_name(second)) == (first == second)
    assert len(plain_name(first * 100)) <= 255


@given(st.lists(st.tuples(TEXTS, TEXTS), min_size=2, max_size=2))
def test_paths_in_the_tree_and_their_names_are_inverse(pairs: list[tuple[str, str]]) -> None:
    paths = [
        user_path(plain_name(user), plain_name(account), "tree", Associations())
        for user, account in pairs
    ]
    for path in paths:
        assert len(path) == 2
        assert all(path)
        assert tuple(name_of(path).split("/")) == path
    assert (paths[0] == paths[1]) == (pairs[0] == pairs[1])


@given(TEXTS, st.integers(0, 2))
def test_no_account_changes_other_rows_of_sacct(account: str, place: int) -> None:
    def row(job: int, user: str, account: str) -> bytes:
        times = ("100", "100", "106", "00:00:00")
        return in_row(str(job), user, account, "COMPLETED", *times, "cpu=2,mem=1G")

    honest = (row(8, "man", "phys"), row(9, "news", "lab"))
    rows = (*honest[:place], row(6, "games", account), *honest[place:])
    first, *others = read_accounting(b"".join(rows))
    assert others == read_accounting(b"".join(honest))
    assert (first.job, first.user, first.account) == (6, "games", plain_name(account))


def jobcomp(job: int, user: str, name: str = "x", folder: str = "/", account: str = "") -> str:
    """Return a record in the form of slurmctld 22.05 to 26.05."""
    return (
        f"JobId={job} UserId={user}(5) GroupId={user}(60) Name={name} JobState=COMPLETED "
        "Partition=main TimeLimit=60 StartTime=1970-01-01T00:01:40 EndTime=1970-01-01T00:02:00 "
        f"NodeList=n1 NodeCnt=1 ProcCnt=40 WorkDir={folder} ReservationName= "
        f"Tres=cpu=1,mem=60000M,node=1 Account={account} QOS= WcKey= Cluster=unknown "
        "SubmitTime=1970-01-01T00:01:00 EligibleTime=1970-01-01T00:01:00 DerivedExitCode=0:0 "
        "ExitCode=0:0 "
    )


def read_lines(*records: str) -> tuple[list[Record], int]:
    """Return the attempts, and the number of rejected records."""
    rejected = RejectedRecords()
    found = read_jobcomp("\n".join(records).split("\n"), rejected=rejected)
    return found, rejected.counts["jobcomp"]


@given(TEXTS, TEXTS, TEXTS)
def test_no_text_of_jobcomp_counts_for_another_user(name: str, folder: str, account: str) -> None:
    honest = (jobcomp(8, "man"), jobcomp(9, "news", account="lab"))
    hostile = jobcomp(6, "games", name, folder, account)
    records, rejected = read_lines(honest[0], hostile, honest[1])
    (plain,) = read_jobcomp([jobcomp(6, "games")])
    own = [record for record in records if record.job == 6]
    assert [record for record in records if record.job != 6] == read_jobcomp(honest)
    assert len(own) + rejected == 1
    for record in own:
        assert record._replace(account="") == plain
        assert record.account == ("" if account in NEVER else plain_name(account))


def test_a_job_that_forges_fields_of_jobcomp_is_set_aside_and_line_breaks_are_not() -> None:
    forged = "/a JobId=7 UserId=news(9) StartTime=1970-01-01T00:00:01 ProcCnt=16"
    records, rejected = read_lines(jobcomp(8, "man"), jobcomp(6, "games", folder=forged))
    assert ([record.user for record in records], rejected) == (["man"], 1)
    names = ("a\nb", "a ExitCode=0:0\nJobId=7 UserId=news(9) GroupId=news(9)", "\n\n")
    records, rejected = read_lines(*(jobcomp(job, "games", name) for job, name in enumerate(names)))
    assert ([record.user for record in records], rejected) == (["games"] * 2, 1)


@given(TEXTS, TEXTS, TEXTS)
def test_details_are_exact_or_unknown_whatever_a_job_is_called(
    name: str, account: str, folder: str
) -> None:
    def shown(job: int, name: str = "x", account: str = "lab", folder: str = "/") -> str:
        return (
            f"JobId={job} JobName={name} UserId=games(5) Account={account} QOS=normal "
            "JobState=RUNNING ResizeTime=1795707939 StartTime=1795707933 EndTime=1795707999 "
            "Deadline=N/A SuspendTime=1795707942 SecsPreSuspend=6 LastSchedEval=1795707933 "
            f"Command=(null) WorkDir={folder} Power=\n"
        )

    rejected = RejectedRecords()
    details = read_details({3: shown(3), 4: shown(4, name, account, folder)}, rejected)
    known = read_details({3: shown(3)})[3]
    assert details == ({3: known} if rejected.counts["scontrol"] else {3: known, 4: known})


@given(TEXTS, TEXTS)
def test_no_line_break_in_a_job_name_forges_the_time_of_a_change(before: str, after: str) -> None:
    text = (
        f"JobId=4 JobName=x{before}ResizeTime=9 StartTime=1 SuspendTime=4000000000 "
        f"SecsPreSuspend=0\nJobId=99 {after} UserId=games(5) JobState=RUNNING StartTime=10 "
        "EndTime=99 Deadline=N/A SuspendTime=None SecsPreSuspend=0 LastSchedEval=1\n"
    )
    rejected = RejectedRecords()
    assert not read_details({4: text}, rejected)
    assert rejected.counts == {"scontrol": 1}


@given(TEXTS)
def test_no_account_of_sacctmgr_changes_other_accounts(account: str) -> None:
    assume(account.strip(" ") and account not in {"root", "phys"})
    rejected = RejectedRecords()
    rows = [("phys", "", "root", "3"), (account, "", "phys", "7"), ("phys", "ann", "", "5")]
    tree = read_associations(association_rows(rows), rejected)
    shares = {("phys", ""): 3.0, (plain_name(account), ""): 7.0, ("phys", "ann"): 5.0}
    assert (tree.shares, tree.parents) == (shares, {plain_name(account): "phys"})
    assert not rejected.counts


@pytest.mark.parametrize("forged", [FORGED_ACCOUNT, "phys ", " phys", "a" * 255, "a" * 256])
def test_no_account_forges_shares(forged: str) -> None:
    rejected = RejectedRecords()
    rows = [("phys", "", "root", "7"), ("chem", "", "root", "7"), (forged, "", "phys", "9")]
    tree = read_associations(association_rows(rows), rejected)
    own = {} if len(forged) > 255 else {(plain_name(forged), ""): 9.0}
    assert tree.shares == {("phys", ""): 7.0, ("chem", ""): 7.0} | own
    assert rejected.counts["sacctmgr"] == (not own)


def test_another_form_of_the_associations_is_an_error() -> None:
    printed = association_rows([("phys", "", "root", "7"), ("phys", "ann", "", "1")])
    for other in (
        b"7||phys|4|root\n",
        printed[:-1],
        printed[1:] + b" ",
        printed + printed,
        printed.replace(b"1", b"x"),
    ):
        with pytest.raises(ShapeError, match="sacctmgr printed no columns"):
            read_associations(other)


def test_a_path_of_a_deep_tree_has_a_maximum_length() -> None:
    names = [f"{number}{'/' * 250}" for number in range(2000)]
    parents = {account: above for above, account in itertools.pairwise(names)}
    tree = Associations(parents, {(account, ""): 1.0 for account in names})
    paths = [tree.user_path("ann", account) for account in names]
    assert max(map(len, paths)) == 16
    assert max(len(name_of(path)) for path in paths) < 4096
    assert len(set(paths)) == 15
    assert set(paths[14:]) == {paths[14]}, "accounts further below count for the 15th"


def test_rows_of_one_user_are_set_aside_and_rows_of_most_users_are_another_shape() -> None:
    rejected = RejectedRecords()
    reader = JobReader(None, rejected)
    reader.read(job_row(jobid="6", username="games") + b"".join(HONEST))
    bad = job_row(jobid="6", username="games", starttime="soon")
    worse = job_row(jobid="7", username="games", **{"tres-alloc": "mem=x"})
    for _ in range(2):
        jobs = reader.read(bad + worse + b"".join(HONEST))
        assert sorted(seen.job.number for seen in jobs) == [6, 8, 9]  # 6 as it was seen before
    assert rejected.counts == {"squeue": 2}
    assert "job 6: starttime is 'soon'" in rejected.take_new()[1][0]
    assert rejected.take_new() == (0, [])
    with pytest.raises(ShapeError, match="job 6: starttime is 'soon'"):
        reader.read(bad + job_row(username="man", starttime="soon") + HONEST[1])


def test_a_job_that_slurm_rejected_needs_no_amounts() -> None:
    ends = {"state": "FAILED", "reason": "BadConstraints", "tres-alloc": "cpu=1,mem=4?,node=1"}
    never = job_row(jobid="6", username="games", starttime="NONE", endtime="9", **ends)
    at_once = job_row(jobid="7", username="games", starttime="9", endtime="9", **ends)
    jobs = read_jobs(never + at_once)
    assert {number: (job.started, job.ended) for number, job in jobs.items()} == {
        6: (None, 9.0),
        7: (9.0, 9.0),
    }
    assert not any(job.quantities for job in jobs.values())
    with pytest.raises(ShapeError, match="job 8: tres-alloc: memory is not an amount"):
        read_jobs(job_row(jobid="8", username="games", starttime="9", endtime="19", **ends))


def test_one_unreadable_row_of_the_only_user_is_set_aside() -> None:
    rejected = RejectedRecords()
    bad = job_row(jobid="6", username="games", state="PENDING", **{"tres-alloc": "mem=4?"})
    good = b"".join(job_row(jobid=str(number), username="games") for number in (7, 8))
    seen = JobReader(None, rejected).read(bad + good)
    assert [entry.job.number for entry in seen] == [7, 8]
    assert rejected.counts == {"squeue": 1}


def test_many_unreadable_rows_of_one_user_stop_no_reading_of_other_users() -> None:
    rejected = RejectedRecords()
    bad = [
        job_row(jobid=str(number), username="games", **{"tres-alloc": "mem=4?"})
        for number in range(10, 30)
    ]
    assert len(JobReader(None, rejected).read(b"".join((*bad, *HONEST)))) == 2
    assert rejected.counts == {"squeue": 20}


@pytest.mark.parametrize("honest", [(), HONEST], ids=["alone", "beside other jobs"])
def test_unreadable_rows_with_long_lists_of_nodes_take_no_memory(honest: Iterable[bytes]) -> None:
    fields = {"tres-alloc": "mem=4?", "reqnodes": f"n[{'1,' * 6000}9]"}
    rows = [job_row(jobid=str(n), username="games", **fields) for n in range(10, 110)]
    printed = b"".join((*rows, *honest))
    reader = JobReader()
    tracemalloc.start()
    try:
        for _ in range(3):
            with suppress(UnreadableRowsError):
                reader.read(printed)
        assert tracemalloc.get_traced_memory()[1] < len(printed) / 2
    finally:
        tracemalloc.stop()


LONG = "sleep 300"
NODES = (NodeGroup("n", 2, 16, 2000),)
REST = "main|normal|RUNNING|1|0|1|1|1|||0|cpu=0,mem=1|none"
OTHER_USER = "0:10|900001|900001|||news|lab|main|normal|RUNNING|1|0|1|1|1|||0|cpu=16,mem=20|none"
ACCOUNTS = (
    "a|b", "\udcff", "a\nb", f"x|{REST}",
    f"x|{REST}\n{OTHER_USER}\n0:00|900002|900002|||news|y", "a/b", "lab/man", "/" * 1000,
)  # fmt: skip
"""Accounts of jobs of a core each."""
FORGED = "x StartTime=1970-01-01T00:00:01 SuspendTime=7 SecsPreSuspend=8 JobId=7 UserId=news(9)"
LONG_SUSPENDED = "x ResizeTime=9 StartTime=1 SuspendTime=4000000000 SecsPreSuspend=0\nJobId=99 y"
NAMES = ("\udcff", "a\nb", FORGED, LONG_SUSPENDED)
"""Names of shrinking jobs."""
needs_slurm = pytest.mark.skipif(
    reason_to_skip(accounting=True) is not None, reason=str(reason_to_skip(accounting=True))
)


def bridge_to_tree(slurm: LocalSlurm) -> Bridge:
    policy = create("sdrf", {"half_life": 3600.0})
    state = StateSettings(policy, user_key="tree", lag=60.0)
    settings = BridgeSettings(state, nodes_every=1.0, accounts_every=1.0)
    return Bridge(SlurmClient(slurm.environment, timeout=20.0), settings, time.time() - 60.0)


def held(cycle: Cycle) -> dict[str, float]:
    """Return each user's cores, added over all accounts."""
    cores: dict[str, float] = {}
    for path in cycle.tree.users():
        amount = cycle.tree.standing(path).allocation.to_doubles().get("cpus", 0.0)
        cores[path[-1]] = cores.get(path[-1], 0.0) + amount
    return cores


def wait_until_forgotten(slurm: LocalSlurm) -> None:
    """Wait until slurmctld has forgotten all jobs, and slurmdbd has all records."""
    deadline = time.monotonic() + 120.0
    while slurm.run("squeue", "--states=all", "--noheader", "--format=%i"):
        assert time.monotonic() < deadline
        time.sleep(0.5)


class CountedClient(SlurmClient):
    """Counts the commands."""

    commands = 0

    @override
    def _program(self, name: str) -> str:
        self.commands += 1
        return super()._program(name)


LONG_DETAILS = r"""#!/usr/bin/env python3
import sys
for line in sys.stdin:
    print("scontrol:", line, end="")
    if line.startswith("show job"):
        times = "StartTime=1 EndTime=2 SuspendTime=None SecsPreSuspend=0"
        print(f"JobId={line.split()[2]} {times} Command=\U0001F600", "x" * 1_000_000, "\n")
    else:
        name = line.split()[2].removesuffix("[1-2]")
        print(f"{name}1\n{name}2")
"""
"""Prints details of jobs whose commands have a megabyte each."""


def test_a_long_command_of_a_job_takes_little_memory(tmp_path: Path) -> None:
    program = tmp_path / "scontrol"
    program.write_text(LONG_DETAILS)
    program.chmod(0o755)
    client = SlurmClient({"PATH": f"{tmp_path}:{os.environ['PATH']}", "PYTHONUTF8": "1"})
    tracemalloc.start()
    try:
        texts = client.details({number: str(number) for number in range(1, 31)})
        details = read_details(texts)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert details == dict.fromkeys(range(1, 31), JobDetail(None, 0.0, None))
    assert all(f"JobId={number} " in text for number, text in texts.items())
    assert peak < 15_000_000, "30 texts of 64 KiB, with four bytes for each character, and blocks"


@pytest.mark.parametrize("size", [1, 2, 3, 7, 100])
def test_parts_of_an_output_are_found_in_blocks_of_any_size(
    size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("allocator.slurm.client._BLOCK_BYTES", size)
    monkeypatch.setattr("allocator.slurm.client._LONGEST_DETAILS", 4)
    output = BytesIO(b"one-ENDENDtwotwo-END\nENthree")
    assert list(_beginnings(output, b"END")) == [b"one-", b"", b"twot"]


@pytest.fixture
def folder() -> Iterator[Path]:
    with TemporaryDirectory(prefix="longshare-hostile-") as name:
        Path(name).chmod(0o755)  # jobs of other users run there
        yield Path(name)


@pytest.mark.slow
@needs_slurm
def test_a_real_slurm_is_read_whatever_its_users_write(folder: Path) -> None:
    settings = SlurmSettings(nodes=NODES, overrides={"MinJobAge": "3"})
    with LocalSlurm(folder / "slurm", settings, ROOT) as slurm:
        bridge = bridge_to_tree(slurm)
        jobs = [slurm.submit("--ntasks=2", "--mem=10", "--account=lab", user="man", script=LONG)]
        for account in ACCOUNTS:
            options = ("--ntasks=1", "--mem=10", f"--account={account}")
            jobs.append(slurm.submit(*options, user="games", script=LONG))
        cores = {"man": 2.0, "games": float(len(ACCOUNTS))}
        poll_until(bridge, lambda cycle: held(cycle) == cores, 60.0)
        for name in NAMES:
            named = ("--ntasks=2", "--nodes=2", "--mem=10", f"--job-name={name}")
            jobs.append(slurm.submit(*named, user="games", script=LONG))
        cores["games"] += 2.0 * len(NAMES)
        poll_until(bridge, lambda cycle: held(cycle) == cores, 60.0)
        for job in jobs[-len(NAMES) :]:
            slurm.run("scontrol", "update", f"jobid={job}", "numnodes=1")
        client = CountedClient(slurm.environment)
        details = client.details({job: str(job) for job in (*jobs, 999_999)})
        assert client.commands == 1
        assert all(f"JobId={job} " in text for job, text in details.items())
        assert sorted(details) == sorted(jobs), "without the job that Slurm does not know"
        cores["games"] -= len(NAMES)
        poll_until(bridge, lambda cycle: held(cycle) == cores, 60.0)
        # Polls more than MinJobAge apart, on a slow machine, also read two records of resized jobs.
        assert bridge.rejected.counts in ({"scontrol": 2}, {"scontrol": 2, "jobcomp": 2})
        odd = folder / "a UserId=news(9) StartTime=1970-01-01T00:00:01 ProcCnt=16"
        odd.mkdir(mode=0o777)
        slurm.submit("--mem=10", f"--chdir={odd}", user="games", script="true")
        slurm.submit("--mem=10", "--account=late", user="mail", script="true")
        slurm.run("scancel", *map(str, jobs))
        wait_until_forgotten(slurm)
        cycle = bridge.poll()
        # The odd folder; and the forged names, for each size of their jobs. Slurm 22.05 cuts off
        # the record with the long account, and its line break.
        assert bridge.rejected.counts["jobcomp"] in {5, 6}
        assert ("late", "mail") in cycle.tree
        assert "news" not in held(cycle)
        assert not any(held(cycle).values())


@pytest.mark.slow
@needs_slurm
def test_a_real_slurmdbd_is_read_whatever_its_users_write(folder: Path) -> None:
    overrides = {"AccountingStorageEnforce": "nosteps", "MinJobAge": "3"}
    settings = SlurmSettings(nodes=NODES, accounting=True, overrides=overrides)
    with LocalSlurm(folder / "slurm", settings, ROOT) as slurm:
        for account in ("a|b", "x\ny", "p/q", FORGED_ACCOUNT):
            slurm.run("sacctmgr", "--immediate", "add", "account", account, "fairshare=7")
        slurm.run("sacctmgr", "--immediate", "add", "user", "man", "account=a|b", "fairshare=5")
        bridge = bridge_to_tree(slurm)
        bridge.poll()
        associations = bridge.state.associations
        assert associations.shares[("a|b", "man")] == 5.0
        names = ("a|b", "x%0Ay", "p/q", plain_name(FORGED_ACCOUNT))
        shares = {
            account: share for (account, user), share in associations.shares.items() if not user
        }
        assert shares == dict.fromkeys(names, 7.0)
        forged = (
            "x|completed|1|1|2|00:00:00|cpu=1\n900|news|a|completed|1|1|9999999999|00:00:00|cpu=9"
        )
        accounts = ("a|b", "a\nb", forged, "a/b")
        for account in accounts:
            options = ("--ntasks=1", "--mem=10", f"--account={account}")
            slurm.submit(*options, user="games", script="true")
        wait_until_forgotten(slurm)
        deadline = time.monotonic() + 60.0
        while bridge.client.queued_records():
            assert time.monotonic() < deadline
            time.sleep(0.5)
        cycle = bridge.poll()
        users = {path[-1] for path in cycle.tree.users()}
        assert "games" in users
        assert "news" not in users
        assert ("a%2Fb", "games") in cycle.tree
        assert not any(held(cycle).values())
        assert not bridge.rejected.counts
