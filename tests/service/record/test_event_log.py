"""Event logs replay bit for bit, and damage to an event log is detected."""

import io
import json
import signal
from collections.abc import Callable
from contextlib import suppress
from dataclasses import fields, replace
from pathlib import Path
from unittest import mock

import pytest
from google.protobuf import proto
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from allocator.cli import app
from allocator.cluster.agents.placement_constraints import Constraint, Hosts
from allocator.cluster.input.errors import InvalidEvent
from allocator.cluster.input.limits import Limits
from allocator.cluster.settings import EngineSettings
from allocator.contract import allocator_pb2 as contract
from allocator.contract import log_pb2 as log
from allocator.contract import operator_pb2 as operator
from allocator.fairness import policies
from allocator.fairness.quantities import Quantities
from allocator.service.record.event_log import (
    MAGIC,
    EventLog,
    EventLogError,
    LoggedEngine,
    decode_settings,
    encode_settings,
    read,
    set_aside,
)
from allocator.service.record.history import History, RecordedTask, reconstruct
from allocator.service.record.replay import new_engine, open_log, replay
from allocator.service.record.whatif import modelled
from allocator.users.memory import Memory, RememberedUser
from allocator.users.orders import InvalidOrder
from allocator.users.settings import DeclaredUser
from tests.cluster.master_side import (
    START_NS,
    MasterSide,
    Offered,
    agent_call,
    framework_info,
    resources,
)
from tests.examples import examples
from tests.service.served import Stream, service, wait_for

SETTINGS = EngineSettings(
    policies.create("sdrf", {"half_life": 100.0, "form": "thesis"}),
    user_key="framework_name",
    users=(DeclaredUser("a", 2.0, {"cpus": 0.25}), DeclaredUser("b", commitment=0.1)),
    allocation="batch",
    constraints={
        "f": Constraint(Hosts(("a", "10.0.0.0/8")), Hosts(("b*",)), (("rack", "1"), ("x", "y")))
    },
    demands={"spark": Quantities.parse("cpus:0.001;mem:123456.789")},
    learn_demands=True,
    seed=7,
)


class RecordedMaster(MasterSide):
    """A master whose allocator keeps an event log."""

    def __init__(
        self,
        path: Path,
        engine_settings: EngineSettings = SETTINGS,
        memory: Memory | None = None,
        excluded: tuple[str, ...] = (),
    ) -> None:
        self.event_log = EventLog(path)
        if engine_settings is SETTINGS:
            memory = Memory(1e9, {"a": RememberedUser({"cpus": 0.3}, {"cpus": 0.1}, weight=3.0)})
        self._logged = LoggedEngine(engine_settings, self.event_log, memory=memory)
        super().__init__(excluded=excluded)

    def restore(self, snapshot: contract.Snapshot) -> list[Offered]:
        self.engine = self._logged
        return super().restore(snapshot)


def entries(path: Path) -> list[log.LogEntry]:
    return list(read(path))


def rewrite(path: Path, changed: list[log.LogEntry]) -> None:
    out = io.BytesIO()
    for entry in changed:
        proto.serialize_length_prefixed(entry, out)
    path.write_bytes(MAGIC + out.getvalue())


def record(path: Path, engine_settings: EngineSettings = SETTINGS) -> None:
    """Record a session with an offer, a decline, an order, and refused calls."""
    master = RecordedMaster(path, engine_settings)
    master.add_framework("f1", "a")
    [offer] = master.add_agent("s1", "cpus:4;mem:4096")
    master.recover(offer, "cpus:1", refuse_seconds=3)
    with pytest.raises(InvalidEvent):
        master.remove_agent("nobody")
    master.engine.order(
        operator.Order(set_weight=operator.SetWeight(user="f1 of the tests", weight=2.0))
    )
    with pytest.raises(InvalidOrder):
        master.engine.order(operator.Order(set_weight=operator.SetWeight(user="x", weight=2.0)))
    for _ in range(5):
        master.tick()
    master.event_log.close()


def test_every_setting_is_decoded_as_encoded() -> None:
    all_settings = replace(
        SETTINGS,
        whole_from=100,
        exact_ties=False,
        hold_for="all",
        longest_hold=60.0,
        counts_for=4.0,
        roles_leave_room=True,
        roles_reserved_for=600.0,
        roles_reserved_by_principal=True,
        hold_by_turns=True,
        shared_volumes_once=True,
        keeps_accumulated_use=True,
        forgets_subtrees=True,
        leaf_keeps_commitments=True,
        frameworks_keep_places=True,
        few_frameworks_keep_places=True,
        keeps_weighted_users=True,
        skips_refusing_clients=True,
        examines_for_clients=True,
        refusals_wait=True,
        departed_refuse_nothing=True,
        headroom_counts_volumes_once=True,
        leaves_only_in_trees=True,
        leaf_keeps_use=True,
        forgetting_unnames_parents=True,
        ties_after_half_lives=True,
        left_out_agents_wait=True,
        skips_void_calls=True,
        demands_must_agree=True,
        limits_sharing=True,
        compares_by_resource=True,
        newcomers_by_use=True,
        kinds_as_in_mesos=True,
        limits=Limits(filters=3),
        forget_after=60.0,
    )
    default = EngineSettings(policies.create("drf", {}))
    names = [setting.name for setting in fields(EngineSettings)]
    assert [name for name in names if getattr(all_settings, name) == getattr(default, name)] == []
    assert decode_settings(encode_settings(all_settings)) == all_settings


def test_a_replay_repeats_the_recorded_decisions_bit_for_bit(tmp_path: Path) -> None:
    record(tmp_path / "log")
    replayed = replay(tmp_path / "log")
    assert replayed.difference is None
    assert (replayed.entries, replayed.events, replayed.offers) == (12, 8, 1)


def test_a_newer_memory_of_another_engine_is_taken_over_and_logged(
    tmp_path: Path,
) -> None:
    master = RecordedMaster(tmp_path / "log")
    now = START_NS / 1e9
    owed = {"a": RememberedUser({"cpus": 0.5}, {}), "b": RememberedUser({"mem": 0.25}, {})}
    for memory, expected in (
        (Memory(now - 1.0, {"a": RememberedUser({"cpus": 0.9}, {})}), None),  # outdated
        (Memory(now + 50.0, owed), {"a": 0.5 / 2**0.5, "b": 0.25 / 2**0.5}),
    ):
        before = {s.user: s.commitment for s in master.engine.standings()}
        if expected is not None:
            master.now_ns += 100_000_000_000
        snapshot = contract.Snapshot(
            time_ns=master.now_ns, agents=[agent_call("s", "cpus:4;mem:4")]
        )
        master.engine.restore(master.options, snapshot, memory)
        after = {s.user: s.commitment for s in master.engine.standings()}
        assert after == pytest.approx(before if expected is None else expected)
    master.event_log.close()
    replayed = replay(tmp_path / "log")
    assert (replayed.difference, replayed.entries) == (None, 3)


steps = st.sampled_from(
    [
        *("tick", "minute", "decline", "finish", "agent", "framework", "leave", "bad", "weigh"),
        *("forget", "look"),
    ]
)


@examples(50)
@given(
    history=st.lists(steps, max_size=30),
    allocation=st.sampled_from(["event", "batch"]),
    counts_for=st.sampled_from([None, 4.0]),
)
def test_any_history_replays(
    history: list[str],
    allocation: str,
    counts_for: float | None,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    path = tmp_path_factory.mktemp("log") / "log"
    chosen = EngineSettings(
        policies.create("sdrf", {"half_life": 60.0}),
        allocation=allocation,  # type: ignore[arg-type]
        counts_for=counts_for,
        roles_leave_room=counts_for is not None,
        seed=3,
    )
    master = RecordedMaster(path, chosen)
    offers = master.add_framework("f0", "a")
    for number, step in enumerate(history, start=1):
        offers += take(step, number, master, offers)
    master.event_log.close()
    assert replay(path).difference is None


def take(  # noqa: C901, PLR0911 - a case for each step
    step: str, number: int, master: RecordedMaster, offers: list[Offered]
) -> list[Offered]:
    """Take a step of a history and return the resulting offers."""
    match step:
        case "tick":
            return master.tick()
        case "minute":
            return master.tick(60.0)
        case "decline" if offers:
            return master.recover(offers.pop(), refuse_seconds=2)
        case "finish" if offers:
            return master.recover(offers.pop())
        case "agent":
            return master.add_agent(f"s{number}", "cpus:2;mem:512")
        case "framework":
            return master.add_framework(f"f{number}", "ab"[number % 2])
        case "leave":
            with suppress(InvalidEvent):
                gone = f"f{number - 1}"
                offers[:] = [offer for offer in offers if offer.framework != gone]
                return master.send(contract.RemoveFramework(framework_id=gone))
        case "forget":
            with suppress(InvalidOrder):
                gone_user = operator.ForgetUsers(users=["b"])
                master.engine.order(operator.Order(forget_users=gone_user))
        case "bad":
            with suppress(InvalidEvent):  # later bad events are ignored
                master.remove_agent("nobody")
        case "weigh":
            order = operator.SetWeight(user="a", weight=number / 2)
            master.engine.order(operator.Order(set_weight=order))
        case "look":  # as metrics and the store do; a replay does not
            master.engine.standings()
            next(master.engine.pool.crossings(), None)
            master.engine.memory()
    return []


def test_a_changed_decision_is_found_and_named(tmp_path: Path) -> None:
    path = tmp_path / "log"
    record(path)
    kept = entries(path)
    [index] = [n for n, e in enumerate(kept) if b"cpus" in e.apply.outcome.decisions][:1]
    decisions = contract.Decisions.FromString(kept[index].apply.outcome.decisions)
    decisions.offers[0].framework_id = "somebody else"
    kept[index].apply.outcome.decisions = decisions.SerializeToString(deterministic=True)
    rewrite(path, kept)
    difference = replay(path).difference
    assert difference is not None
    assert difference.entry == index
    assert "somebody else" in difference.recorded
    assert '"f1"' in difference.replayed


@pytest.mark.parametrize("precedes", [True, False])
@pytest.mark.parametrize("differs", [True, False])
def test_a_difference_in_a_log_that_precedes_mesos_kinds_has_a_warning(
    tmp_path: Path, *, precedes: bool, differs: bool
) -> None:
    """Former kinds are not replayed, because kinds are cached for all engines."""
    path = tmp_path / "log"
    record(path, replace(SETTINGS, kinds_as_in_mesos=not precedes))
    kept = entries(path)
    if precedes:
        header = json.loads(kept[0].header.settings)
        del header["kinds_as_in_mesos"]  # as in a log of a former release
        kept[0].header.settings = json.dumps(header).encode()
    if differs:
        kept[-1].apply.outcome.refusal = "another outcome"
    rewrite(path, kept)
    completed = CliRunner().invoke(app, ["replay", str(path), "--json"])
    answer = json.loads(completed.stdout)
    assert (answer["same"], answer["other_kinds"]) == (not differs, precedes)
    assert ("Mesos adds them up" in completed.stderr) is (precedes and differs)


def size_of(entry: log.LogEntry) -> int:
    framed = io.BytesIO()
    proto.serialize_length_prefixed(entry, framed)
    return len(framed.getvalue())


def test_a_truncated_last_entry_is_left_out_and_reported(tmp_path: Path) -> None:
    path = tmp_path / "log"
    record(path)
    whole, kept = path.read_bytes(), entries(path)
    last = size_of(kept[-1])
    assert replay(path).left_out == 0
    for lost in range(1, last):
        path.write_bytes(whole[:-lost])
        replayed = replay(path)
        assert replayed.entries == len(kept) - 2, "the header and the truncated entry do not count"
        assert replayed.difference is None
        assert replayed.left_out == last - lost
    completed = CliRunner().invoke(app, ["replay", str(path)])
    assert completed.exit_code == 0
    assert "last 1 bytes are left out" in completed.stderr


def test_names_with_control_characters_are_escaped_in_the_output(tmp_path: Path) -> None:
    path = tmp_path / "log"
    master = RecordedMaster(path, FORGETFUL)
    for number, role in enumerate(("[red]a[/red]", "[/]", "a\x1b[2Jb")):
        master.add_framework(f"f{number}", role)
    for number in range(9):
        master.add_agent(f"s{number}", "cpus:2;mem:512")
        master.tick(10)
    master.event_log.close()
    command = ["replay", str(path), "--policy", "sdrf", "--set", "half_life=1m"]
    completed = CliRunner().invoke(app, command)
    assert completed.exit_code == 0
    assert "[red]a[" in completed.stdout
    assert r"a\x1b[2Jb" in completed.stdout
    assert "\x1b" not in completed.stdout


@pytest.mark.parametrize("length", [b"\xff\x7f", b"\xff\xff\xff\xff\xff"])
def test_a_damaged_length_is_not_taken_for_the_end_of_the_log(
    tmp_path: Path, length: bytes
) -> None:
    path = tmp_path / "log"
    record(path)
    offset = len(MAGIC) + sum(size_of(entry) for entry in entries(path)[:4])
    data = bytearray(path.read_bytes())
    data[offset : offset + len(length)] = length
    path.write_bytes(data)
    with pytest.raises(EventLogError, match=f"damaged at byte {offset}:"):
        replay(path)


def test_damage_to_the_last_entry_is_not_taken_for_a_truncation(tmp_path: Path) -> None:
    path = tmp_path / "log"
    record(path)
    last = size_of(entries(path)[-1])
    whole = path.read_bytes()
    path.write_bytes(whole[: 1 - last] + b"\xff" * (last - 1))
    with pytest.raises(EventLogError, match=f"damaged at byte {len(whole) - last}:"):
        replay(path)


def test_unreadable_decisions_are_a_difference(tmp_path: Path) -> None:
    path = tmp_path / "log"
    record(path)
    kept = entries(path)
    kept[3].apply.outcome.decisions = b"\xff\xff\xff"
    rewrite(path, kept)
    difference = replay(path).difference
    assert difference is not None
    assert difference.recorded == "3 bytes that are no decisions"


def test_a_file_of_another_format_is_rejected(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text("once upon a time\n")
    with pytest.raises(EventLogError, match="not an event log"):
        entries(path)


def test_damage_in_the_middle_is_reported_with_its_position(tmp_path: Path) -> None:
    path = tmp_path / "log"
    record(path)
    data = bytearray(path.read_bytes())
    for position in range(len(MAGIC) + 40, len(MAGIC) + 60):
        data[position] = 0xFF
    path.write_bytes(data)
    with pytest.raises(EventLogError, match=r"at byte \d+|header cannot be read"):
        replay(path)


def test_a_full_disk_ends_the_log_but_not_the_allocation() -> None:
    event_log = EventLog(Path("/dev/full"))
    engine = LoggedEngine(SETTINGS, event_log)
    harmless = EventLog(Path("/dev/null"))
    twin = LoggedEngine(SETTINGS, harmless)
    snapshot = contract.Snapshot(
        time_ns=1,
        agents=[agent_call(f"s{n}", "cpus:4;mem:4096") for n in range(2000)],
        frameworks=[
            contract.AddFramework(framework_id="f1", info=framework_info("f1", "a"), active=True)
        ],
    )
    options = contract.Options()
    assert engine.restore(options, snapshot) == twin.restore(options, snapshot)
    event_log.close()
    assert event_log.failed
    harmless.close()


def test_an_existing_log_is_never_replaced(tmp_path: Path) -> None:
    path = tmp_path / "log"
    contents = []
    for _ in range(3):
        record(path)
        contents.append(path.read_bytes())
    (tmp_path / "log.old").write_text("somebody else's")
    EventLog(path).close()
    assert [(tmp_path / f"log.{n}").read_bytes() for n in (1, 2, 3)] == contents
    assert replay(tmp_path / "log.2").difference is None
    EventLog(Path("/dev/null")).close()  # no former content to keep


def test_a_killed_service_leaves_a_log_that_replays(tmp_path: Path) -> None:
    path = tmp_path / "events"
    with service(tmp_path, arguments=["--record", str(path)]) as running:
        stream = Stream(running.address)
        stream.open(agents=[agent_call("s1", "cpus:4;mem:4096")])
        addition = contract.AddFramework(
            framework_id="f1", info=framework_info("f1", "a"), active=True
        )
        assert stream.tell(add_framework=addition).decisions.offers
        wait_for(lambda: len(entries(path)) == 3)
        running.stop(signal.SIGKILL)
    replayed = replay(path)
    assert replayed.difference is None
    assert replayed.offers == 1


def test_the_replay_command_reports_differences_and_exit_codes(tmp_path: Path) -> None:
    path = tmp_path / "log"
    record(path)
    completed = CliRunner().invoke(app, ["replay", str(path), "--json"])
    assert completed.exit_code == 0
    assert json.loads(completed.output)["same"] is True
    kept = entries(path)
    kept[3].apply.outcome.refusal = "never"
    rewrite(path, kept)
    completed = CliRunner().invoke(app, ["replay", str(path)])
    assert completed.exit_code == 1
    assert "refused: never" in completed.output
    assert CliRunner().invoke(app, ["replay", str(tmp_path / "none")]).exit_code == 2


def two_users(path: Path) -> None:
    """Record a cluster of single tasks under SDRF: user a takes all agents, then b arrives."""
    chosen = EngineSettings(
        policies.create("sdrf", {"half_life": 50.0}),
        users=(DeclaredUser("a"), DeclaredUser("b")),
    )
    master = RecordedMaster(path, chosen)
    running = master.add_framework("f1", "a")
    for number in range(4):
        running += master.add_agent(f"s{number}", "cpus:1;mem:1024")
    for second in range(400):
        if second == 100:
            running += master.add_framework("f2", "b")
        if second % 10 == 0:
            running = master.begin_anew(running)
        running += master.tick()
    master.event_log.close()


def test_another_policy_is_simulated_on_the_recorded_history(tmp_path: Path) -> None:
    path = tmp_path / "log"
    two_users(path)
    assert replay(path).difference is None
    completed = CliRunner().invoke(app, ["replay", str(path), "--policy", "drf", "--json"])
    assert completed.exit_code == 0, completed.output
    answer = json.loads(completed.output)
    assert answer["recorded_policy"] == "sdrf"
    users = answer["users"]
    for user in ("a", "b"):
        modelled = users[user]["recorded_policy"]
        assert modelled["share"] == pytest.approx(users[user]["recorded"]["share"], abs=0.05)
    # Without memory, user a, which took all agents, waits less, and user b waits more.
    assert users["a"]["other_policy"]["wait"] < users["a"]["recorded_policy"]["wait"] - 1
    assert users["b"]["other_policy"]["wait"] > users["b"]["recorded_policy"]["wait"] + 1


def test_the_recorded_policy_in_the_model_gives_equal_results(tmp_path: Path) -> None:
    path = tmp_path / "log"
    two_users(path)
    arguments = ["--policy", "sdrf", "--set", "half_life=50", "--json"]
    completed = CliRunner().invoke(app, ["replay", str(path), *arguments])
    for fates in json.loads(completed.output)["users"].values():
        assert fates["other_policy"] == fates["recorded_policy"]


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--policy", "fairest"], "unknown"),
        (["--policy", "sdrf", "--set", "delta"], "not KEY=VALUE"),
        (["--policy", "sdrf", "--set", "delta=2"], "delta"),
        (["--set", "delta=0.5"], "needs --policy"),
    ],
)
def test_an_invalid_policy_is_refused(tmp_path: Path, arguments: list[str], complaint: str) -> None:
    record(tmp_path / "log")
    completed = CliRunner().invoke(app, ["replay", str(tmp_path / "log"), *arguments])
    assert completed.exit_code == 2
    assert complaint in completed.output


def history_of(path: Path) -> History:
    header, rest = open_log(path)
    return reconstruct(new_engine(header), rest)


def times_of(tasks: list[RecordedTask]) -> list[tuple[str, float, float, str]]:
    """Return each task's user, start and end in seconds since the beginning, and demand."""
    begin = START_NS / 1e9
    return sorted(
        (task.user, task.start - begin, task.end - begin, str(task.demand)) for task in tasks
    )


FORGETFUL = EngineSettings(policies.create("drf", {}))
FULL = "cpus:4;mem:4096"


def holding(agent: str, framework: str, *held: bytes) -> contract.AddAgent:
    call = agent_call(agent, FULL)
    call.used.add(framework_id=framework, resources=held)
    return call


def sated(framework: str, role: str) -> contract.AddFramework:
    """Return a framework that wants no offers."""
    info = framework_info(framework, role)
    return contract.AddFramework(
        framework_id=framework, info=info, active=True, suppressed_roles=[role]
    )


def test_tasks_missing_in_a_later_snapshot_have_ended(tmp_path: Path) -> None:
    master = RecordedMaster(tmp_path / "log", FORGETFUL)
    for held in ("cpus:3;mem:64", "cpus:1;mem:64"):
        agent = holding("s1", "f1", *resources(held, "a"))
        master.restore(
            contract.Snapshot(
                sequence=master.sequence,
                time_ns=master.now_ns,
                agents=[agent],
                frameworks=[sated("f1", "a")],
            )
        )
        master.tick(10)
    master.event_log.close()
    assert times_of(history_of(tmp_path / "log").tasks) == [
        ("a", 0.0, 10.0, "cpus:2"),
        ("a", 0.0, 20.0, "cpus:1;mem:64"),
    ]


def test_a_framework_may_hold_resources_for_two_roles_on_an_agent(tmp_path: Path) -> None:
    master = RecordedMaster(tmp_path / "log", FORGETFUL)
    held = [*resources("cpus:1", "a"), *resources("cpus:2", "b")]
    master.restore(
        contract.Snapshot(
            time_ns=master.now_ns,
            agents=[holding("s1", "f1", *held)],
            frameworks=[sated("f1", "a")],
        )
    )
    master.tick(5)
    master.event_log.close()
    assert times_of(history_of(tmp_path / "log").tasks) == [
        ("a", 0.0, 5.0, "cpus:1"),
        ("b", 0.0, 5.0, "cpus:2"),
    ]


def test_tasks_on_an_agent_added_before_its_framework_count(tmp_path: Path) -> None:
    master = RecordedMaster(tmp_path / "log", FORGETFUL)
    master.send(holding("s1", "f1", *resources(FULL, "a")))
    master.wait(1)
    master.send(sated("f1", "a"))
    master.wait(49)
    master.send(contract.RemoveAgent(agent_id="s1"))
    master.tick()
    master.event_log.close()
    assert times_of(history_of(tmp_path / "log").tasks) == [("a", 0.0, 50.0, "cpus:4;mem:4096")]


def test_calls_refused_by_the_engine_are_not_part_of_the_history(tmp_path: Path) -> None:
    master = RecordedMaster(tmp_path / "log", FORGETFUL)
    master.add_framework("f1", "a")
    master.add_agent("s1", FULL)
    master.wait(10)
    freed = contract.RecoverResources(
        framework_id="f1", agent_id="s1", resources=resources("cpus:1", "a")
    )
    wrong = contract.RemoveAgent(agent_id="nobody")
    with pytest.raises(InvalidEvent):
        master.send(freed, wrong, contract.RemoveAgent(agent_id="s1"))
    master.tick(10)
    master.event_log.close()
    tasks = times_of(history_of(tmp_path / "log").tasks)
    assert ("a", 0.0, 10.0, "cpus:1") in tasks
    assert ("a", 0.0, 20.0, "cpus:3;mem:4096") in tasks


def test_the_model_starts_and_ends_with_the_recorded_commitments(
    tmp_path: Path,
) -> None:
    chosen = EngineSettings(policies.create("sdrf", {"half_life": 50.0}))
    memory = Memory(START_NS / 1e9, {"a": RememberedUser({"cpus": 0.5, "mem": 0.5})})
    master = RecordedMaster(tmp_path / "log", chosen, memory, excluded=("mem",))
    master.add_framework("f1", "a")
    master.add_agent("s1", FULL)
    master.add_framework("f2", "b")
    master.add_agent("s2", FULL)
    master.tick(100)
    master.event_log.close()
    owed = {standing.user: standing.commitment for standing in master.engine.standings()}
    assert owed["a"] > 0.1
    fates = modelled(history_of(tmp_path / "log"), chosen, chosen.policy)
    for user, fate in fates.items():
        assert fate.cpu_seconds == pytest.approx(400.0)
        assert fate.commitment == pytest.approx(owed[user], abs=1e-9)


def test_a_task_that_never_starts_waits_until_the_end() -> None:
    core = Quantities.parse("cpus:1")
    history = History(
        begin=0.0,
        end=100.0,
        tasks=[RecordedTask("a", 0.0, 0.0, 100.0, core), RecordedTask("a", 20.0, 50.0, 60.0, core)],
        capacities=[(0.0, core)],
    )
    fate = modelled(history, FORGETFUL, FORGETFUL.policy)["a"]
    assert (fate.tasks, fate.wait) == (2, 40.0)
    assert (fate.share, fate.cpu_seconds) == (1.0, 100.0)


@pytest.mark.parametrize("plant", [Path.symlink_to, Path.hardlink_to])
def test_a_link_planted_while_a_former_log_is_moved_overwrites_nothing(
    tmp_path: Path, plant: Callable[[Path, Path], None]
) -> None:
    store, path = tmp_path / "store", tmp_path / "log"
    store.write_bytes(b"what users owe")

    def planted(_path: Path) -> None:
        plant(path, store)

    with (
        mock.patch("allocator.service.record.event_log.set_aside", planted),
        pytest.raises(OSError, match="link"),
    ):
        EventLog(path)
    assert store.read_bytes() == b"what users owe"


def test_a_renamed_log_replaces_no_file_whatever_the_numbers_of_other_files(tmp_path: Path) -> None:
    path, other = tmp_path / "log", tmp_path / "log.1000000000"
    (tmp_path / "log.999999999").touch()
    other.write_text("former log")
    path.write_text("log")
    assert set_aside(path) == tmp_path / "log.1000000001"
    assert other.read_text() == "former log"
