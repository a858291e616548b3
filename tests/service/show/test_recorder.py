"""The recorder's samples are exact, and recording does not change decisions."""

import csv
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from allocator.cluster.engine import Engine
from allocator.cluster.input.limits import Limits
from allocator.cluster.settings import EngineSettings
from allocator.contract import allocator_pb2 as contract
from allocator.cooperative import Cooperative
from allocator.fairness import policies
from allocator.service.show.metric_definitions import register
from allocator.service.show.metrics import RECORDER
from allocator.service.show.recorder import COLUMNS, MOST_ROWS, Recorder
from allocator.service.show.standing_history import StandingHistory
from allocator.users.settings import DeclaredUser
from tests.cluster.master_side import SECOND, START_NS, agent_call, framework_info, resources

SETTINGS = EngineSettings(
    policies.create("sdrf", {"delta": 0.99}), users=(DeclaredUser("a"), DeclaredUser("b"))
)
FRAMEWORK = contract.AddFramework(framework_id="f1", info=framework_info("f1", "a"), active=True)


def ticks(after: int, instants: Iterable[float]) -> list[contract.Event]:
    """Return ticks at these seconds since the start, with sequence numbers after `after`."""
    return [
        contract.Event(
            sequence=number, time_ns=START_NS + round(instant * SECOND), tick=contract.Tick()
        )
        for number, instant in enumerate(instants, start=after + 1)
    ]


def drive(engine: Engine, *instants: float) -> list[bytes]:
    """Play an agent, a framework, and ticks at these seconds since the start; return decisions."""
    snapshot = contract.Snapshot(
        time_ns=START_NS, agents=[agent_call("s1", "cpus:4;mem:4096")], frameworks=[FRAMEWORK]
    )
    decided = [engine.restore(contract.Options(), snapshot)]
    decided += [engine.apply(contract.Events(events=[event])) for event in ticks(0, instants)]
    return [decisions.SerializeToString(deterministic=True) for decisions in decided]


def recorded(path: Path, every: float, *instants: float) -> list[dict[str, str]]:
    recorder = Recorder(path, every)
    engine = Engine(SETTINGS, before_change=lambda at: recorder.sample_until(engine, at))
    assert drive(engine, *instants) == drive(Engine(SETTINGS), *instants), (
        "recording changes no decision"
    )
    recorder.close()
    with path.open() as file:
        return list(csv.DictReader(file))


def test_samples_match_the_equations_however_rare_events_are(tmp_path: Path) -> None:
    rows = recorded(tmp_path / "r.csv", 2.5, 0.1, 7.3, 26.0)
    mine = [row for row in rows if (row["user"], row["resource"]) == ("a", "cpus")]
    start = START_NS / SECOND
    assert [float(row["time"]) - start for row in mine] == [2.5 * k for k in range(1, 11)]
    for row in mine:
        owed = 0.5 * (1 - 0.99 ** (float(row["time"]) - start))
        assert float(row["commitment"]) == pytest.approx(owed, rel=1e-5)
        assert float(row["priority"]) == pytest.approx(1.0 + owed, rel=1e-5)
        assert (float(row["allocation"]), float(row["share"])) == (4.0, 1.0)


def test_every_user_has_a_row_for_every_resource(tmp_path: Path) -> None:
    rows = recorded(tmp_path / "r.csv", 1.0, 0.5, 3.5)
    assert tuple(rows[0]) == COLUMNS
    keys = [(row["time"], row["user"], row["resource"]) for row in rows]
    assert len(keys) == len(set(keys)) == 3 * 2 * 2


def test_after_a_long_silence_only_the_latest_samples_are_written(tmp_path: Path) -> None:
    rows = recorded(tmp_path / "r.csv", 0.01, 0.005, 3600.0)
    assert len(rows) == MOST_ROWS, "two users with two resources each"
    instants = sorted({round((float(row["time"]) - START_NS / SECOND) * 100) for row in rows})
    assert instants == list(range(360_001 - MOST_ROWS // 4, 360_001))


def test_the_rows_written_for_a_message_are_bounded(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path / "r.csv", 1.0)
    engine = Engine(SETTINGS, before_change=lambda at: recorder.sample_until(engine, at))
    snapshot = contract.Snapshot(
        time_ns=START_NS, agents=[agent_call("s1", "cpus:4;mem:4096")], frameworks=[FRAMEWORK]
    )
    engine.restore(contract.Options(), snapshot)
    for message in range(2):
        recorder.allow()
        instants = [(200 * message + n) * 7199 for n in range(1, 201)]
        engine.apply(contract.Events(events=ticks(200 * message, instants)))
    recorder.close()
    with (tmp_path / "r.csv").open() as file:
        times = [float(row["time"]) - START_NS / SECOND for row in csv.DictReader(file)]
    first = [at for at in times if at <= 200 * 7199]
    assert len(first) == len(times) - len(first) == MOST_ROWS


def test_at_least_a_sample_is_written_for_a_message_however_many_users(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("allocator.service.show.recorder.MOST_ROWS", 3)
    recorder = Recorder(tmp_path / "r.csv", 1.0)
    engine = Engine(SETTINGS)
    drive(engine)
    for instant in range(6):
        if instant in {1, 4}:
            recorder.allow()
        recorder.sample_until(engine, START_NS / SECOND + instant)
    recorder.close()
    with (tmp_path / "r.csv").open() as file:
        times = {float(row["time"]) - START_NS / SECOND for row in csv.DictReader(file)}
    assert times == {1.0, 4.0}


def test_an_excluded_resource_is_recorded_with_its_share(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path / "r.csv", 1.0)
    engine = Engine(SETTINGS, before_change=lambda at: recorder.sample_until(engine, at))
    engine.restore(
        contract.Options(fairness_excluded=["gpus"]),
        contract.Snapshot(
            time_ns=START_NS,
            agents=[agent_call("s1", "cpus:4;gpus:2", {"f1": resources("cpus:1;gpus:1", "a")})],
            frameworks=[contract.AddFramework(framework_id="f1", info=framework_info("f1", "a"))],
        ),
    )
    recorder.sample_until(engine, START_NS / SECOND + 1)
    recorder.close()
    with (tmp_path / "r.csv").open() as file:
        rows = {(row["user"], row["resource"]): row for row in csv.DictReader(file)}
    gpus = rows["a", "gpus"]
    assert (gpus["allocation"], gpus["share"], gpus["commitment"]) == ("1", "0.5", "0")
    assert float(gpus["priority"]) == 0.25, "the priority comes from cpus"


def test_a_name_that_looks_like_a_formula_is_recorded_as_text(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path / "r.csv", 1.0)
    users = tuple(DeclaredUser(name) for name in ("=1+1", "@x", "-2", "plain"))
    engine = Engine(EngineSettings(policies.create("drf", {}), users=users))
    engine.restore(
        contract.Options(),
        contract.Snapshot(time_ns=START_NS, agents=[agent_call("s1", "cpus:4")]),
    )
    recorder.sample_until(engine, START_NS / SECOND)
    recorder.sample_until(engine, START_NS / SECOND + 1)
    recorder.close()
    with (tmp_path / "r.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert {row["user"] for row in rows} == {"'=1+1", "'@x", "'-2", "plain"}
    assert {float(row["allocation"]) for row in rows} == {0.0}


def test_a_clock_that_is_set_back_is_followed(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path / "r.csv", 1.0)
    engine = Engine(SETTINGS)
    drive(engine)
    for instant in (100.5, 101.5, 50.5, 51.5):
        recorder.sample_until(engine, instant)
    recorder.close()
    with (tmp_path / "r.csv").open() as file:
        times = {row["time"] for row in csv.DictReader(file)}
    assert times == {"101.000", "51.000"}


def test_a_full_disk_ends_the_recording_but_not_the_allocation(
    capsys: pytest.CaptureFixture[str],
) -> None:
    recorder = Recorder(Path("/dev/full"), 0.001)
    engine = Engine(SETTINGS, before_change=lambda at: recorder.sample_until(engine, at))
    scraped = CollectorRegistry()
    register(scraped, (RECORDER, recorder))
    assert scraped.get_sample_value("longshare_recorder_failed") == 0.0
    assert drive(engine, 0.5, 1.0, 3.0) == drive(Engine(SETTINGS), 0.5, 1.0, 3.0)
    recorder.flush()
    recorder.close()
    assert scraped.get_sample_value("longshare_recorder_failed") == 1.0
    assert capsys.readouterr().out.count("recorder stopped") == 1


def test_allocations_are_written_to_the_last_digit(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path / "r.csv", 1.0)
    engine = Engine(SETTINGS, before_change=lambda at: recorder.sample_until(engine, at))
    agent = agent_call("s1", "cpus:4;mem:1234567.125")
    engine.restore(
        contract.Options(),
        contract.Snapshot(time_ns=START_NS, agents=[agent], frameworks=[FRAMEWORK]),
    )
    tick = contract.Event(sequence=1, time_ns=START_NS + SECOND, tick=contract.Tick())
    engine.apply(contract.Events(events=[tick]))
    recorder.close()
    with (tmp_path / "r.csv").open() as file:
        rows = {(row["user"], row["resource"]): row for row in csv.DictReader(file)}
    assert rows["a", "mem"]["allocation"] == "1234567.125"


def test_a_new_file_after_rotation_has_its_own_header(tmp_path: Path) -> None:
    path = tmp_path / "r.csv"
    recorder = Recorder(path, 1.0)
    engine = Engine(SETTINGS, before_change=lambda at: recorder.sample_until(engine, at))
    drive(engine, 0.5, 2.5)
    path.rename(tmp_path / "r.csv.1")
    recorder.reopen()
    recorder.reopen()
    recorder.sample_until(engine, START_NS / SECOND + 4.5)
    recorder.close()
    times = []
    for name in ("r.csv.1", "r.csv"):
        with (tmp_path / name).open() as file:
            rows = list(csv.DictReader(file))
        assert rows
        times += [float(row["time"]) - START_NS / SECOND for row in rows]
    assert sorted(set(times)) == [1.0, 2.0, 3.0, 4.0]
    assert all(times.count(instant) == 4 for instant in set(times)), (
        "two users with two resources each"
    )


@pytest.mark.parametrize("plant", [Path.symlink_to, Path.hardlink_to])
@pytest.mark.parametrize("begun", [False, True])
def test_a_link_planted_in_place_of_the_recording_overwrites_nothing(
    tmp_path: Path, plant: Callable[[Path, Path], None], *, begun: bool
) -> None:
    store, path = tmp_path / "store" / "s", tmp_path / "writable" / "r.csv"
    store.parent.mkdir()
    store.write_bytes(b"what users owe")
    watched = Engine(SETTINGS)
    drive(watched)
    recorder = Recorder(path, 1.0, [store])
    if begun:
        recorder.sample_until(watched, 10.0)
    path.unlink()
    plant(path, store)
    recorder.sample_until(watched, 20.0)
    recorder.reopen()
    recorder.flush()
    recorder.sample_until(watched, 30.0)
    recorder.close()
    assert store.read_bytes() == b"what users owe"
    assert recorder.failed


def test_a_recording_path_redirected_to_the_store_overwrites_nothing(
    tmp_path: Path,
) -> None:
    store, path = tmp_path / "store" / "r.csv", tmp_path / "writable" / "r.csv"
    store.parent.mkdir()
    store.write_bytes(b"what users owe")
    watched = Engine(SETTINGS)
    drive(watched)
    recorder = Recorder(path, 1.0, [store])
    path.parent.rename(tmp_path / "moved")
    path.parent.symlink_to(store.parent)
    recorder.sample_until(watched, 20.0)
    recorder.reopen()
    recorder.sample_until(watched, 30.0)
    recorder.close()
    assert store.read_bytes() == b"what users owe"
    with pytest.raises(OSError, match="give each a path of its own"):
        Recorder(path, 1.0, [store])
    assert store.read_bytes() == b"what users owe"


@pytest.mark.parametrize("plant", [Path.symlink_to, Path.hardlink_to])
def test_a_link_at_the_recording_path_is_refused_at_the_start(
    tmp_path: Path, plant: Callable[[Path, Path], None]
) -> None:
    foreign_file, path = tmp_path / "other", tmp_path / "r.csv"
    foreign_file.write_bytes(b"of another program")
    plant(path, foreign_file)
    with pytest.raises(OSError, match="link"):
        Recorder(path, 1.0)
    assert foreign_file.read_bytes() == b"of another program"


def test_the_state_of_many_users_is_copied_in_steps(tmp_path: Path) -> None:
    def steps(users: int) -> int:
        recorder, past = Recorder(tmp_path / f"{users}.csv", 1.0), StandingHistory()

        def sample(at: float) -> Cooperative[None]:
            for work in (recorder.sampling(engine, at), past.sampling(engine, at)):
                if work is not None:
                    yield from work

        settings = replace(SETTINGS, limits=Limits(roles=users))
        engine = Engine(settings, before_change=sample)
        drive(engine)
        info = framework_info("f2", *(f"r{number}" for number in range(users)))
        added = contract.AddFramework(framework_id="f2", info=info)
        event = contract.Event(sequence=1, time_ns=START_NS, add_framework=added)
        engine.apply(contract.Events(events=[event]))
        [tick] = ticks(1, [20.0])
        number = sum(1 for _ in engine.apply_in_steps(contract.Events(events=[tick])))
        recorder.close()
        return number

    assert steps(2400) >= steps(40) + 2 * 2400 // 200
