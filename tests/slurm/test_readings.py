"""Readings of a Slurm whose commands print given texts: the accounts, and unexpected errors."""

import re
from concurrent.futures import wait
from pathlib import Path
from threading import Event

import pytest

from allocator.cooperative import run_to_completion
from allocator.fairness.metering import Meter
from allocator.fairness.policies import create
from allocator.fairness.quantities import Quantities
from allocator.slurm.adapter import SlurmAdapter
from allocator.slurm.bridge import Bridge, BridgeSettings
from allocator.slurm.client import CommandError, SlurmClient
from allocator.slurm.jobs import JobKey
from allocator.slurm.rows import ShapeError
from allocator.slurm.state import StateSettings
from tests.slurm.test_checks import GOOD, association_rows
from tests.slurm.test_jobs import NODE, PENDING, RUNNING, changed, printed

NOW = 1795707940.0
OTHER = changed(RUNNING, jobid="5", arrayjobid="5", username="news", tres_alloc="cpu=39,mem=1G")


class PrintedSlurm(SlurmClient):
    """Client of a Slurm whose commands print given texts."""

    def __init__(self, timeout: float = 60.0) -> None:
        super().__init__({}, timeout)
        self.lines = [RUNNING]
        self.weight = "7"
        self.accounts = [("phys", "man", "", "1")]
        self.lists = 0
        self.list_accounts = self.list_at_once

    def list_at_once(self) -> bytes:
        self.lists += 1
        return association_rows([("phys", "", "root", self.weight), *self.accounts])

    def associations(self) -> bytes:
        """Return what sacctmgr prints."""
        return self.list_accounts()

    def configuration(self) -> dict[str, str]:
        """Return settings of a Slurm with slurmdbd."""
        return GOOD | {"BOOT_TIME": "then", "ClusterName": "trial"}

    def jobs(self) -> bytes:
        """Return a row for each of `lines`."""
        return printed(*self.lines)

    def nodes(self) -> str:
        """Return a node."""
        return f"{NODE.replace('DOWN*+DRAIN+NOT_RESPONDING', 'IDLE')}\n"

    def site_factors(self) -> dict[str, int]:
        """Return no site factors."""
        return {}

    def queued_records(self) -> int:
        """Return 0: slurmdbd has all records."""
        return 0

    def accounting(self, since: float) -> bytes:  # noqa: ARG002
        """Return no records."""
        return b""


def bridge_to(client: PrintedSlurm) -> Bridge:
    state = StateSettings(create("sdrf", {"half_life": 3600.0}), user_key="tree", lag=1.0)
    return Bridge(client, BridgeSettings(state, accounts_every=0.0, nodes_every=0.0), NOW - 10.0)


def weight(bridge: Bridge) -> float:
    return bridge.state.associations.shares["phys", ""]


def await_accounts(bridge: Bridge) -> None:
    """Wait until the reading of the accounts has ended, if one has begun."""
    if bridge._accounts_reading is not None:
        wait([bridge._accounts_reading])


def test_a_slow_list_of_accounts_delays_no_reading_and_the_former_tree_remains() -> None:
    client = PrintedSlurm()
    bridge = bridge_to(client)
    bridge.poll(NOW)
    client.weight, answers = "9", Event()

    def list_slowly() -> bytes:
        answers.wait()
        return client.list_at_once()

    client.list_accounts = list_slowly
    for second in range(1, 5):
        bridge.poll(NOW + second)
        assert (weight(bridge), bridge.state.observed) == (7.0, NOW + second)
    answers.set()
    await_accounts(bridge)
    bridge.poll(NOW + 5.0)
    assert weight(bridge) == 9.0


def test_a_first_list_of_accounts_that_is_slow_is_taken_over_by_a_later_reading() -> None:
    client, answers = PrintedSlurm(timeout=0.01), Event()
    asked: list[None] = []

    def list_slowly() -> bytes:
        asked.append(None)
        answers.wait()
        return client.list_at_once()

    client.list_accounts = list_slowly
    bridge = bridge_to(client)
    for second in range(3):
        with pytest.raises(CommandError, match="sacctmgr has not listed the accounts"):
            bridge.poll(NOW + second)
    answers.set()
    await_accounts(bridge)
    bridge.poll(NOW + 3.0)
    assert (weight(bridge), len(asked)) == (7.0, 1)


def test_a_list_of_accounts_in_another_form_leaves_the_former_tree_and_is_counted() -> None:
    client = PrintedSlurm()
    client.list_accounts = lambda: b"1000000||phys|9|root\n"
    bridge = bridge_to(client)
    with pytest.raises(ShapeError, match="sacctmgr printed no columns"):
        bridge.poll(NOW)
    client.list_accounts = client.list_at_once
    bridge.poll(NOW + 1.0)
    client.list_accounts = lambda: client.list_at_once()[1:]
    bridge.poll(NOW + 2.0)
    await_accounts(bridge)
    bridge.poll(NOW + 3.0)
    assert weight(bridge) == 7.0
    assert "sacctmgr printed no columns" in bridge.accounts_failure
    assert bridge.rejected.counts["sacctmgr"] == 2


def test_an_account_that_moves_to_the_top_stays_below_its_former_account() -> None:
    """Slurm 22.05 lets coordinators move their sub-accounts to the top, with any shares."""
    client = PrintedSlurm()
    client.accounts = [("lab", "", "phys", "1"), ("own", "", "lab", "1000")]
    bridge = bridge_to(client)

    def listed(second: int, *accounts: tuple[str, str, str, str]) -> dict[str, str]:
        client.accounts = list(accounts)
        for later in range(2):
            bridge.poll(NOW + second + later)
            await_accounts(bridge)
        bridge.poll(NOW + second + 2)
        return dict(bridge.state.associations.parents)

    bridge.poll(NOW)
    assert bridge.state.associations.parents == {"lab": "phys", "own": "lab"}
    moved = ("own", "", "root", "1000")
    assert listed(1, ("lab", "", "phys", "1"), moved) == {"lab": "phys", "own": "lab"}
    _, [reason] = bridge.rejected.take_new()
    assert reason.startswith("the account own has moved from lab to the top")
    assert listed(5, moved) == {"own": "phys"}
    assert listed(9, ("lab", "", "root", "1"), moved) == {"own": "phys"}
    assert bridge.rejected.counts["sacctmgr"] == 2


def test_an_account_that_moves_below_another_account_stays_below_its_former_account() -> None:
    """Slurm 22.05 lets coordinators move their sub-accounts below any account, with any shares."""
    client = PrintedSlurm()
    top = [("maths", "", "root", "1"), ("lab", "", "phys", "1"), ("inner", "", "lab", "1")]
    client.accounts = [*top, ("own", "", "lab", "1")]
    bridge = bridge_to(client)
    bridge.poll(NOW)
    for second, above, expected in (
        (1, "maths", "lab"),
        (5, "inner", "inner"),
        (9, "lab", "inner"),
    ):
        client.accounts = [*top, ("own", "", above, "1000000")]
        for later in range(2):
            bridge.poll(NOW + second + later)
            await_accounts(bridge)
        bridge.poll(NOW + second + 2)
        parents = {"lab": "phys", "inner": "lab", "own": expected}
        assert bridge.state.associations.parents == parents
    assert bridge.rejected.counts["sacctmgr"] == 2
    _, [reason, _] = bridge.rejected.take_new()
    assert reason.startswith("the account own has moved from lab to maths")


@pytest.mark.parametrize("line", [RUNNING, PENDING])
def test_a_job_of_a_new_account_waits_for_the_next_list_of_accounts(line: str) -> None:
    client = PrintedSlurm()
    client.lines = []
    state = StateSettings(create("sdrf", {"half_life": 3600.0}), user_key="tree", lag=60.0)
    bridge = Bridge(client, BridgeSettings(state, accounts_every=300.0), NOW - 100.0)
    bridge.poll(NOW)
    start = f"{NOW + 1.0:.0f}"
    times = {"submittime": start, "eligibletime": start}
    if line == RUNNING:
        times["starttime"] = start
    client.lines = [
        changed(line, username="man", account="new", **times),
        changed(line, username="man", account="", jobid="8", **times),
    ]
    client.accounts += [("new", "", "phys", "2")]
    assert set(bridge.poll(NOW + 2.0).tree.users()) == {("(no account)", "man")}
    bridge.poll(NOW + 11.0)
    await_accounts(bridge)
    users = {("(no account)", "man"), ("phys", "new", "man")}
    assert set(bridge.poll(NOW + 12.0).tree.users()) == users
    bridge.poll(NOW + 90.0)
    joined = bridge.state.settled
    assert (
        joined.standing(("phys", "new", "man")).allocation
        == joined.standing(("(no account)", "man")).allocation
    )
    assert not bridge.state.findings.late


def test_a_job_of_an_invented_account_waits_for_one_list_of_accounts() -> None:
    client = PrintedSlurm()
    client.lines = []
    state = StateSettings(create("sdrf", {"half_life": 3600.0}), user_key="tree", lag=60.0)
    bridge = Bridge(client, BridgeSettings(state, accounts_every=300.0), NOW - 100.0)
    bridge.poll(NOW)
    start = f"{NOW + 1.0:.0f}"
    client.lines = [changed(PENDING, account="x", submittime=start, eligibletime=start)]
    for second in range(2, 40, 4):
        bridge.poll(NOW + second)
        await_accounts(bridge)
    assert [user for _, user in bridge.state.pending] == [("x", "games")]
    assert client.lists == 2


def test_after_an_unexpected_error_the_next_reading_succeeds_and_commitments_remain() -> None:
    client = PrintedSlurm()
    bridge = bridge_to(client)
    meter = Meter()
    adapter = SlurmAdapter(bridge.state, meter)
    client.lines = [RUNNING, OTHER]
    for second in range(0, 600, 60):
        bridge.poll(NOW + second)
    former, news = bridge.state.settled.tree, ("(no account)", "news")
    before = bridge.state.settled.standing(news).commitment
    key = JobKey(5, "news")
    bridge.state._held[key] = news, Quantities.parse("gpus:1")  # the pool has no GPUs
    client.lines = [RUNNING]
    with pytest.raises(KeyError, match="gpus"):
        bridge.poll(NOW + 600.0)
    adapter.follow(former)
    assert bridge.state.settled.tree is not former
    assert bridge.state.settled.standing(news).commitment >= before > 0.0
    tree = bridge.poll(NOW + 660.0).tree
    held = {path: tree.standing(path).allocation.to_doubles().get("cpus") for path in tree.users()}
    assert held == {("(no account)", "man"): 1.0, news: None}
    assert (weight(bridge), tree.capacity.to_doubles()["cpus"]) == (7.0, 40.0)
    accounts = run_to_completion(adapter.close_accounts())
    assert {"(no account)/man", "(no account)/news"} <= accounts.keys()


def test_squeue_prints_no_long_lists_of_unavailable_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    formats = []

    def run(_client: SlurmClient, *_command: str, variables: dict[str, str]) -> bytes:
        formats.append(variables["SQUEUE_FORMAT2"])
        return b""

    monkeypatch.setattr(SlurmClient, "_output", run)
    SlurmClient({}).jobs()
    assert len(formats) == 1
    assert re.search(r",reason:100L", formats[0])


def test_messages_of_a_failed_command_are_one_line_with_a_remedy(tmp_path: Path) -> None:
    program = tmp_path / "scontrol"
    program.write_text(
        "#!/bin/sh\n"
        "echo 'scontrol: error: fetch_config: DNS SRV lookup failed' >&2\n"
        "echo 'scontrol: fatal: Could not establish a configuration source' >&2\nexit 1\n"
    )
    program.chmod(0o755)
    with pytest.raises(CommandError) as refused:
        SlurmClient({"PATH": str(tmp_path)}).configuration()
    assert str(refused.value) == (
        "scontrol failed: error: fetch_config: DNS SRV lookup failed; fatal: Could not establish a "
        "configuration source; give the path of slurm.conf, as SLURM_CONF or as the setting "
        "slurm.conf"
    )
