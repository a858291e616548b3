"""With a real slurmdbd: the tree of accounts, its shares, and jobs that only `sacct` remembers."""

import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from typer.testing import CliRunner

from allocator.cli import app
from allocator.fairness.policies import create
from allocator.slurm.bridge import Bridge, BridgeSettings
from allocator.slurm.client import CommandError, SlurmClient
from allocator.slurm.state import StateSettings
from allocator.slurm.users import UserKey
from allocator.users.settings import DeclaredUser
from frameworks.local_slurm.cluster import LocalSlurm, SlurmError
from frameworks.local_slurm.configuration import NodeGroup, SlurmSettings
from tests.slurm.real import ROOT, from_sacct, holding, poll_until, reason_to_skip

HALF_LIFE = 15.0
MIN_JOB_AGE = 5.0
CORES, MEMORY = 16, 2000
SETTINGS = SlurmSettings(
    nodes=(NodeGroup("n", 2, CORES // 2, MEMORY // 2),),
    accounting=True,
    # Users without association may submit jobs.
    overrides={"AccountingStorageEnforce": "nosteps", "MinJobAge": f"{MIN_JOB_AGE:g}"},
)
USERS = ("games", "man", "news", "mail")
ACCOUNTS = """\
add account physics fairshare=3
add account lab parent=physics fairshare=2
add account man parent=physics
add account maths
add user games account=lab fairshare=5
add user man account=physics fairshare=parent
add user man account=lab
add user news account=maths fairshare=7
add user news account=maths partition=main fairshare=2
add cluster elsewhere
add account lab cluster=elsewhere fairshare=99
quit
"""
"""Commands of sacctmgr. `man` is an account of physics, and a user of physics."""

pytestmark = [
    pytest.mark.usefixtures("ends_as_recorded"),
    pytest.mark.slow,
    pytest.mark.long,
    pytest.mark.skipif(
        reason_to_skip(accounting=True) is not None, reason=str(reason_to_skip(accounting=True))
    ),
]


OTHERS_TABLE = Path("temporary") / "#sql-temptable-1-1-1.MAI"
"""A temporary table of another database, in the folder for temporary files at the start."""


@pytest.fixture(scope="module")
def slurm() -> Iterator[LocalSlurm]:
    with (
        TemporaryDirectory(prefix="longshare-accounting-") as folder,
        pytest.MonkeyPatch.context() as patch,
    ):
        table = Path(folder) / "slurm" / OTHERS_TABLE
        table.parent.mkdir(parents=True)
        table.touch()
        patch.setenv("TMPDIR", str(table.parent))
        with LocalSlurm(Path(folder) / "slurm", SETTINGS, ROOT) as running:
            patch.undo()
            Path(folder).chmod(0o755)  # other users run commands of Slurm
            running.run("sacctmgr", "--immediate", text=ACCOUNTS)
            yield running


@pytest.fixture(autouse=True)
def without_jobs(slurm: LocalSlurm) -> Iterator[None]:
    yield
    for user in USERS:
        slurm.run("scancel", f"--user={user}")
    while slurm.run("squeue", "--noheader"):
        time.sleep(0.2)


def bridge_to(
    slurm: LocalSlurm, key: UserKey, since: float | None = None, declared: Iterable[str] = ()
) -> Bridge:
    """Return a bridge that reads the accounts at each poll, and the records of slurmdbd."""
    policy = create("sdrf", {"half_life": HALF_LIFE})
    state = StateSettings(policy, key, lag=1.0, declared=tuple(map(DeclaredUser, declared)))
    settings = BridgeSettings(state, accounts_every=0.0, nodes_every=0.0)
    began = float(int(time.time())) if since is None else since
    return Bridge(SlurmClient(slurm.environment, timeout=20.0), settings, began)


def await_forgotten_jobs(slurm: LocalSlurm) -> None:
    """Wait until slurmctld has forgotten all ended jobs."""
    while slurm.run("squeue", "--noheader", "--states=all"):
        time.sleep(0.5)


@contextmanager
def listing_ended_jobs(slurm: LocalSlurm) -> Iterator[None]:
    """Let slurmctld list ended jobs for an hour: even rare polls then need no records."""
    conf = slurm.conf.read_text()
    longer = conf.replace(f"MinJobAge={MIN_JOB_AGE:g}\n", "MinJobAge=3600\n")
    try:
        slurm.conf.write_text(longer)
        slurm.run("scontrol", "reconfigure")
        yield
    finally:
        slurm.conf.write_text(conf)
        slurm.run("scontrol", "reconfigure")


def expected_from_sacct(
    slurm: LocalSlurm, began: float, until: float
) -> dict[str, dict[str, float]]:
    capacity = {"cpus": float(CORES), "mem": float(MEMORY)}
    joined = dict.fromkeys(USERS, began)
    return from_sacct(slurm, joined, [(began, capacity)], HALF_LIFE, until=until)


def test_a_database_removes_no_temporary_table_of_another_database(slurm: LocalSlurm) -> None:
    """The start of a second database would fail."""
    assert (slurm.folder / OTHERS_TABLE).exists()


def test_jobs_count_below_nested_accounts_with_the_shares_of_this_cluster(
    slurm: LocalSlurm,
) -> None:
    bridge = bridge_to(slurm, "tree")
    for user, cores in (("games", 1), ("man", 2), ("news", 3), ("mail", 4)):
        slurm.submit(f"--cpus-per-task={cores}", "--mem=10", user=user, script="sleep 60")
    slurm.submit("--cpus-per-task=4", "--mem=10", "--account=lab", script="sleep 60")
    expected = {
        "physics/lab/games": 5,
        "physics/man (user)": 2,
        "maths/news": 3,
        "(no account)/mail": 4,
    }
    cycle = poll_until(bridge, lambda _: holding(bridge, expected), 60.0)
    weights = {
        ("physics",): 3.0,
        ("physics", "lab"): 2.0,
        ("physics", "lab", "games"): 5.0,
        ("physics", "man (user)"): 1.0,  # fairshare=parent
        ("maths", "news"): 9.0,
        ("(no account)", "mail"): 1.0,
    }
    assert {path: cycle.tree.standing(path).weight for path in weights} == weights
    assert cycle.tree.standing(("physics",)).allocation.to_doubles()["cpus"] == 7.0


def test_changed_shares_apply_at_the_next_reading_and_changed_parents_after_a_restart(
    slurm: LocalSlurm,
) -> None:
    """Slurm lets coordinators move their sub-accounts below any account, with any shares."""
    bridge = bridge_to(slurm, "tree")
    slurm.submit("--cpus-per-task=2", "--mem=10", user="games", script="sleep 60")
    poll_until(bridge, lambda _: holding(bridge, {"physics/lab/games": 2}), 60.0)
    modify = ("sacctmgr", "--immediate", "modify", "account")
    slurm.run(*modify, "physics", "set", "fairshare=8")
    slurm.run(*modify, "lab", "set", "parent=maths")
    try:
        poll_until(bridge, lambda cycle: cycle.tree.standing(("physics",)).weight == 8.0, 60.0)
        assert bridge.state.associations.parents["lab"] == "physics"
        assert bridge.rejected.counts["sacctmgr"] == 1
        slurm.submit("--cpus-per-task=3", "--mem=10", user="games", script="sleep 60")
        poll_until(bridge, lambda _: holding(bridge, {"physics/lab/games": 5}), 60.0)
        restarted = bridge_to(slurm, "tree")
        cycle = poll_until(restarted, lambda _: holding(restarted, {"maths/lab/games": 5}), 60.0)
        assert cycle.tree.standing(("maths", "lab")).weight == 2.0
        slurm.run("scancel", "--user=games")
        poll_until(bridge, lambda _: holding(bridge, {}), 60.0)
        assert not bridge.state.findings.lost
    finally:
        slurm.run(*modify, "physics", "set", "fairshare=3")
        slurm.run(*modify, "lab", "set", "parent=physics")


def test_jobs_of_one_account_count_together_with_its_shares(slurm: LocalSlurm) -> None:
    await_forgotten_jobs(slurm)  # their accounts would have a part of the entitlements
    bridge = bridge_to(slurm, "account")
    slurm.submit("--cpus-per-task=2", "--mem=10", user="games", script="sleep 60")
    slurm.submit("--cpus-per-task=3", "--mem=10", "--account=lab", user="man", script="sleep 60")
    slurm.submit("--cpus-per-task=4", "--mem=10", user="mail", script="sleep 60")
    slurm.submit(
        "--cpus-per-task=1", "--mem=10", "--account=physics", user="man", script="sleep 60"
    )
    expected = {"physics/lab": 5, "physics/physics": 1, "(no account)": 4}
    cycle = poll_until(bridge, lambda _: holding(bridge, expected), 60.0)
    weights = {("physics",): 3.0, ("physics", "lab"): 2.0, ("physics", "physics"): 1.0}
    assert {path: cycle.tree.standing(path).weight for path in weights} == weights
    slurm.run("sacctmgr", "--immediate", "modify", "account", "lab", "set", "fairshare=1000000")
    try:
        lab = ("physics", "lab")
        cycle = poll_until(bridge, lambda cycle: cycle.tree.standing(lab).weight == 1e6, 60.0)
        assert cycle.tree.standing(("physics",)).entitlement == pytest.approx(0.75)
    finally:
        slurm.run("sacctmgr", "--immediate", "modify", "account", "lab", "set", "fairshare=2")


def test_jobs_of_an_outage_count_exactly_and_runaway_jobs_do_not(slurm: LocalSlurm) -> None:
    bridge = bridge_to(slurm, "user", declared=USERS)
    began = bridge.state.settled.now
    slurm.submit("--cpus-per-task=6", "--mem=100", user="games", script="sleep 4")
    poll_until(bridge, lambda _: holding(bridge, {"games": 6}), 60.0)
    stored, since = bridge.state.settled.tree.memory(), bridge.state.settled.now
    # The service is away. Slurm runs other jobs, and forgets all.
    slurm.submit("--cpus-per-task=8", "--mem=500", user="man", script="sleep 3")
    runaway = slurm.submit("--mem=50", user="man", script="true")
    await_forgotten_jobs(slurm)
    while "DBD Agent queue size: 0\n" not in slurm.run("sdiag"):
        time.sleep(0.5)  # slurmctld has not yet sent all records to slurmdbd
    slurm.change_records(f"UPDATE trial_job_table SET time_end=0, state=1 WHERE id_job={runaway}")
    bridge = bridge_to(slurm, "user", since, USERS)
    bridge.state.inherit(stored)
    bridge.poll()
    bridge.state.settle(bridge.state.observed)
    expected = expected_from_sacct(slurm, began, bridge.state.settled.now)
    assert {user: bridge.state.settled.commitments((user,))[0] for user in expected} == {
        user: pytest.approx(amounts, abs=1e-9) for user, amounts in expected.items()
    }
    assert expected["man"]["cpus"] > 0.0, slurm.run("sacct", "--allusers")
    assert not bridge.state.findings.unseen
    (correction,) = bridge.state.findings.corrections
    assert correction.job == runaway
    assert "only slurmdbd shows as running" in correction.reason


def test_a_bridge_waits_until_slurmctld_has_sent_its_records_to_slurmdbd(slurm: LocalSlurm) -> None:
    bridge = bridge_to(slurm, "user", declared=USERS)
    began = bridge.state.settled.now
    bridge.poll()
    slurm.kill_accounting()
    try:  # Slurm runs a job and forgets it, and slurmdbd has no record of it
        slurm.submit("--cpus-per-task=5", "--mem=200", user="news", script="sleep 2")
        await_forgotten_jobs(slurm)
        observed = bridge.state.observed
        with pytest.raises(CommandError, match=r"has not sent [1-9]\d* messages to slurmdbd yet"):
            bridge.poll()
        assert bridge.state.observed == observed
    finally:
        slurm.start_accounting()
    deadline = time.monotonic() + 60.0
    while bridge.state.observed == observed:
        with suppress(CommandError):
            bridge.poll()
        assert time.monotonic() < deadline, slurm.run("sdiag")
    bridge.state.settle(bridge.state.observed)
    expected = expected_from_sacct(slurm, began, bridge.state.settled.now)
    assert bridge.state.settled.commitments(("news",))[0] == pytest.approx(expected["news"])
    assert expected["news"]["cpus"] > 0.0
    assert not bridge.state.findings.unseen


def test_a_bridge_waits_for_slurmdbd_for_a_bounded_time_and_then_tells_what_it_missed(
    slurm: LocalSlurm, monkeypatch: pytest.MonkeyPatch
) -> None:
    observed = time.time() - 1000.0
    bridge = bridge_to(slurm, "user", observed, USERS)
    bridge.poll(observed)
    slurm.kill_accounting()
    try:
        slurm.submit("--mem=200", user="news", script="true")
        await_forgotten_jobs(slurm)
        for name in ("SLURM_CONF", "PATH"):
            monkeypatch.setenv(name, slurm.environment[name])
        result = CliRunner().invoke(app, ["slurm", "check"])
        assert "DBD Agent queue size=" in result.output
        first = observed + MIN_JOB_AGE + 1.0
        end_of_wait = first + bridge.settings.records_wait
        for now in (first, end_of_wait - 1.0):
            with pytest.raises(CommandError, match=r"slurmdbd|sacct"):
                bridge.poll(now)
        bridge.poll(end_of_wait)
        assert bridge.records_failure
        later = end_of_wait + MIN_JOB_AGE + 1.0
        bridge.poll(later)  # does not wait once more
        assert bridge.state.findings.unseen == [
            (observed, end_of_wait - MIN_JOB_AGE),
            (end_of_wait, later - MIN_JOB_AGE),
        ]
    finally:
        slurm.start_accounting()
    deadline = time.monotonic() + 60.0
    while bridge.records_failure:
        bridge.poll()
        time.sleep(MIN_JOB_AGE + 1.0)
        assert time.monotonic() < deadline, slurm.run("sdiag")


class NeverSent(SlurmClient):
    """Client of a slurmctld whose queue for slurmdbd never becomes empty."""

    def queued_records(self) -> int:
        """Return 1."""
        return 1


def test_after_the_wait_the_records_that_slurmdbd_has_count(slurm: LocalSlurm) -> None:
    bridge = bridge_to(slurm, "user", declared=USERS)
    bridge.poll()
    observed = bridge.state.observed
    slurm.submit("--cpus-per-task=8", "--mem=500", user="man", script="sleep 2")
    await_forgotten_jobs(slurm)
    while bridge.client.queued_records():
        time.sleep(0.5)
    bridge.client = NeverSent(slurm.environment, timeout=20.0)
    first = observed + MIN_JOB_AGE + 1.0
    with pytest.raises(CommandError, match="has not sent 1 messages"):
        bridge.poll(first)
    end_of_wait = first + bridge.settings.records_wait
    tree = bridge.poll(end_of_wait).tree
    assert tree.commitments(("man",))[0]["cpus"] > 0.0
    assert bridge.state.findings.unseen == [(observed, end_of_wait - MIN_JOB_AGE)]


def test_a_changed_configuration_of_slurm_applies_from_the_next_reading_of_the_nodes(
    slurm: LocalSlurm,
) -> None:
    bridge = bridge_to(slurm, "user")
    bridge.poll()
    conf = slurm.conf.read_text()
    slurm.conf.write_text(conf.replace(f"MinJobAge={MIN_JOB_AGE:g}\n", "MinJobAge=3600\n"))
    slurm.kill_accounting()
    try:
        with pytest.raises(CommandError, match="sacct"):
            bridge.poll(bridge.state.observed + 60.0)  # squeue may have forgotten jobs
        slurm.run("scontrol", "reconfigure")
        bridge.poll(bridge.state.observed + 60.0)  # squeue still shows all jobs
    finally:
        slurm.start_accounting()
        slurm.conf.write_text(conf)
        slurm.run("scontrol", "reconfigure")


def test_without_slurmdbd_the_order_continues_with_the_known_accounts(slurm: LocalSlurm) -> None:
    with listing_ended_jobs(slurm):
        bridge = bridge_to(slurm, "tree")
        bridge.poll()
        slurm.submit("--mem=10", user="games", script="sleep 60")
        slurm.kill_accounting()
        try:
            cycle = poll_until(bridge, lambda _: holding(bridge, {"physics/lab/games": 1}), 60.0)
            poll_until(bridge, lambda _: "sacctmgr" in bridge.accounts_failure, 60.0)
            assert cycle.tree.standing(("physics",)).weight == 3.0
            with pytest.raises(CommandError, match="sacctmgr"):
                bridge_to(slurm, "tree").poll()  # the tree of accounts was never read
            bridge_to(slurm, "user").poll()  # needs no accounts
        finally:
            slurm.start_accounting()
        poll_until(bridge, lambda _: not bridge.accounts_failure, 60.0)


def test_the_admin_level_operator_suffices_to_set_site_factors(slurm: LocalSlurm) -> None:
    job = slurm.submit("--mem=10", "--begin=now+1hour", user="games")

    def update() -> None:
        own = ("setpriv", "--reuid=man", "--regid=man", "--clear-groups")
        slurm.run(*own, "scontrol", "update", f"jobid={job}", "sitefactor=500")

    with pytest.raises(SlurmError, match="Invalid user id"):
        update()
    modify = ("sacctmgr", "--immediate", "modify", "user", "man", "set")
    slurm.run(*modify, "adminlevel=operator")
    try:
        update()
    finally:
        slurm.run(*modify, "adminlevel=none")
    assert "Priority=500 " in slurm.run("scontrol", "--oneliner", "show", "job", str(job))
