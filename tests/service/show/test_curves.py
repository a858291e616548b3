"""Curves of shares and commitments: hours from the accounting database, then samples."""

import asyncio
import json
from collections.abc import Collection, Sequence
from itertools import pairwise
from typing import Any

import pytest
from typing_extensions import override

from allocator.cluster.engine import Engine
from allocator.cluster.settings import EngineSettings
from allocator.contract import allocator_pb2 as contract
from allocator.fairness import policies
from allocator.service.accounting.queries import Hour
from allocator.service.show import curves
from allocator.service.show.curves import MOST_POINTS, Curves
from allocator.service.show.standing_history import EVERY, MOST_SAMPLES, StandingHistory
from allocator.users.settings import DeclaredUser
from tests.cluster.master_side import SECOND, START_NS, agent_call, framework_info, resources

HOUR = 3600
START = START_NS // SECOND
SETTINGS = EngineSettings(
    policies.create("sdrf", {"half_life": 600.0}), users=(DeclaredUser("a"), DeclaredUser("b"))
)


def hour(start: int, user: str, share: float, commitment: float) -> Hour:
    return Hour(start, HOUR, user, share, commitment)


class Chronicle:
    def __init__(self, hours: list[Hour] | None) -> None:
        self._hours = hours
        self.revision = 0
        self.queries = 0
        self.longest = 0.0
        """The longest interval of a query, in seconds."""
        self.users: list[str] = []
        """The first user of each query."""
        self.running = 0
        self.most_running = 0
        """Maximum number of concurrent queries."""
        self.answers = asyncio.Event()
        """Queries are answered once it is set."""
        self.answers.set()

    async def hours(
        self, users: Collection[str], since: float, until: float
    ) -> Sequence[Hour] | None:
        self.queries += 1
        self.longest = max(self.longest, until - since)
        self.users += list(users)[:1]
        self.running += 1
        self.most_running = max(self.most_running, self.running)
        await self.answers.wait()
        self.running -= 1
        if self._hours is None:
            return None
        return [h for h in self._hours if h.user in users and since <= h.start < until]


def watched(seconds: int, step: int = 5) -> tuple[Engine, StandingHistory]:
    """Return an engine with an agent of which user `a` holds three quarters, and its history."""
    past = StandingHistory()
    engine = Engine(SETTINGS, before_change=lambda at: past.sample_until(engine, at))
    held = {"f": resources("cpus:3;mem:512", "a")}
    framework = contract.AddFramework(
        framework_id="f", info=framework_info("f", "a"), active=True, suppressed_roles=["a"]
    )
    agents = [agent_call("s", "cpus:4;mem:1024", held)]
    snapshot = contract.Snapshot(time_ns=START_NS, agents=agents, frameworks=[framework])
    engine.restore(contract.Options(), snapshot)
    for number in range(1, seconds // step + 1):
        now = START_NS + number * step * SECOND
        event = contract.Event(sequence=number, time_ns=now, tick=contract.Tick())
        engine.apply(contract.Events(events=[event]))
    return engine, past


def read(source: Curves, users: Sequence[str], seconds: float) -> dict[str, Any]:
    answer: dict[str, Any] = json.loads(asyncio.run(source.read(users, seconds)))
    return answer


def test_samples_agree_with_the_engine_and_have_equal_times_for_all_users() -> None:
    engine, past = watched(600)
    answer = read(Curves(engine, past), ["a", "b", "nobody"], HOUR)
    assert answer["until"] == engine.now
    assert answer["seen_since"] == answer["times"][0] < START + 10
    shares, debts = answer["users"]["a"]
    assert len(answer["times"]) == len(shares) == len(debts) > 50
    assert set(shares) == {0.75}
    for instant, owed in zip(answer["times"], debts, strict=True):
        fading = 0.5 ** ((instant - START) / 600)
        assert owed == pytest.approx(0.25 * (1 - fading), abs=1e-4), (
            "Eq. 12, for an entitlement of a half"
        )
    assert set(answer["users"]["nobody"][0]) == {0.0}


def test_hours_before_the_service_start_come_from_the_accounting_database() -> None:
    engine, past = watched(600)
    before = START - START % HOUR - 3 * HOUR
    chronicle = Chronicle(
        [
            *(hour(before + n * HOUR, "a", 0.1 * n, 0.2) for n in range(3)),
            hour(START, "a", 0.9, 0.9),  # replaced by the service's own samples of this hour
        ]
    )
    answer = read(Curves(engine, past, chronicle), ["a", "b"], 24 * HOUR)
    assert answer["chronicle"] is True
    assert answer["times"][:3] == [before + HOUR / 2 + n * HOUR for n in range(3)]
    shares, debts = answer["users"]["a"]
    assert shares[:3] == [0.0, 0.1, 0.2]
    assert debts[:3] == [0.2, 0.2, 0.2]
    assert answer["users"]["b"][0][:3] == [None] * 3, "the database has no rows of user b"
    assert answer["times"][3] >= START
    short = read(Curves(engine, past, chronicle), ["a"], 60)
    assert short["times"][0] >= engine.now - 60


def test_without_an_answer_of_the_accounting_database_only_its_hours_are_missing() -> None:
    engine, past = watched(60)
    answer = read(Curves(engine, past, Chronicle(None)), ["a"], HOUR)
    assert (answer["chronicle"], len(answer["times"])) == (False, 6)


def test_charts_whose_times_differ_by_less_than_an_hour_share_one_query() -> None:
    engine, past = watched(60)
    chronicle = Chronicle([hour(START - START % HOUR - HOUR, "a", 0.5, 0.5)])
    source = Curves(engine, past, chronicle)
    for number in range(100):
        read(source, ["a"], 86400 - number * 0.001)
    assert chronicle.queries == 1


def test_readers_of_the_same_charts_share_one_query_an_hour() -> None:
    engine, past = watched(60)
    chronicle = Chronicle([hour(START - START % HOUR - HOUR, "a", 0.5, 0.5)])
    source = Curves(engine, past, chronicle)

    async def crowd(*users: str) -> list[dict[str, Any]]:
        answers = await asyncio.gather(*(source.read(users, 86400) for _ in range(5)))
        return [json.loads(answer) for answer in answers]

    async def readers() -> None:
        for _ in range(2):
            for answer in await crowd("a", "b"):
                assert answer["users"]["a"][0][0] == 0.5
        await crowd("b", "a")
        assert chronicle.queries == 1, "the order of the users changes, and not the charts"
        chronicle.revision += 1
        await crowd("a", "b")
        assert chronicle.queries == 2, "the first write adds the time between two services"
        tick = contract.Event(sequence=13, time_ns=START_NS + HOUR * SECOND, tick=contract.Tick())
        engine.apply(contract.Events(events=[tick]))
        await crowd("a", "b")
        assert chronicle.queries == 3

    asyncio.run(readers())


def test_a_long_chart_takes_short_queries_between_which_others_use_the_database() -> None:
    engine, past = watched(60)
    chronicle = Chronicle([])
    read(Curves(engine, past, chronicle), ["a"], 1e9)
    assert chronicle.longest <= 25 * HOUR
    assert chronicle.queries == pytest.approx(31, abs=1)


def test_different_charts_together_use_the_database_for_a_fifth_of_the_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    engine, past = watched(60)
    elapsed, sleep = 0.0, asyncio.sleep

    async def pass_time(seconds: float) -> None:
        nonlocal elapsed
        elapsed += max(seconds, 0.0)
        await sleep(0)

    class Slow(Chronicle):
        @override
        async def hours(
            self, users: Collection[str], since: float, until: float
        ) -> Sequence[Hour] | None:
            await pass_time(1.0)
            return await super().hours(users, since, until)

    chronicle = Slow([])
    source = Curves(engine, past, chronicle)

    async def readers() -> None:
        loop = asyncio.get_running_loop()
        monkeypatch.setattr(loop, "time", lambda: elapsed)
        monkeypatch.setattr(asyncio, "sleep", pass_time)
        for number in range(5):
            await source.read([f"u{number}"], 10 * 86400)

    asyncio.run(readers())
    assert chronicle.queries >= 5 * 9
    assert elapsed >= 5 * (chronicle.queries - 1)


def test_disconnected_readers_leave_at_most_a_single_query_behind() -> None:
    engine, past = watched(60)
    chronicle = Chronicle([])
    source = Curves(engine, past, chronicle)

    async def readers() -> None:
        chronicle.answers.clear()
        for number in range(10):
            reading = asyncio.create_task(source.read([f"u{number}"], 86400))
            for _ in range(5):
                await asyncio.sleep(0)
            reading.cancel()
            await asyncio.wait([reading])
        assert chronicle.queries == 1
        chronicle.answers.set()
        assert json.loads(await source.read(["a"], 86400))["chronicle"] is True
        assert chronicle.most_running == 1

    asyncio.run(readers())


def test_a_chart_comes_without_hours_if_the_queries_of_others_take_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    engine, past = watched(60)
    chronicle = Chronicle([])
    source = Curves(engine, past, chronicle)
    monkeypatch.setattr(curves, "_PATIENCE", 0.01)

    async def readers() -> None:
        await source.read(["known"], 86400)
        chronicle.answers.clear()
        slow = asyncio.create_task(source.read(["slow"], 86400))
        await asyncio.sleep(0)
        assert json.loads(await source.read(["late"], 86400))["chronicle"] is False
        known = json.loads(await source.read(["known"], 86400))
        assert known["chronicle"] is True, "a query whose result is known does not wait"
        chronicle.answers.set()
        assert json.loads(await slow)["chronicle"] is True
        assert json.loads(await source.read(["late"], 86400))["chronicle"] is True
        assert chronicle.users == ["known", "slow", "late"]

    asyncio.run(readers())


def test_a_failed_query_is_repeated_after_a_minute() -> None:
    engine, past = watched(60)
    chronicle = Chronicle(None)
    source = Curves(engine, past, chronicle)
    for _ in range(2):
        read(source, ["a"], HOUR)
    assert chronicle.queries == 1
    tick = contract.Event(sequence=13, time_ns=START_NS + 130 * SECOND, tick=contract.Tick())
    engine.apply(contract.Events(events=[tick]))
    read(source, ["a"], HOUR)
    assert chronicle.queries == 2


def test_thirty_days_are_means_of_three_hours() -> None:
    engine, past = watched(60)
    first = START - START % HOUR - 720 * HOUR
    chronicle = Chronicle([hour(first + n * HOUR, "a", n % 2, n / 1000) for n in range(720)])
    answer = read(Curves(engine, past, chronicle), ["a"], 30 * 86400)
    accounted = [time for time in answer["times"] if time < answer["seen_since"]]
    assert 240 <= len(accounted) <= MOST_POINTS
    assert {later - earlier for earlier, later in pairwise(accounted[2:-1])} == {3 * HOUR}
    shares, commitments = answer["users"]["a"]
    middle = len(accounted) // 2
    assert shares[middle] in {0.3333, 0.6667}
    number = (accounted[middle] - HOUR / 2 - first) / HOUR
    assert commitments[middle] == pytest.approx(number / 1000)


def test_a_short_chart_begins_with_the_mean_of_its_hour() -> None:
    engine, past = watched(20)
    begun = START - START % HOUR
    chronicle = Chronicle([hour(begun, "a", 0.6, 0.2)])
    answer = read(Curves(engine, past, chronicle), ["a"], 120)
    assert answer["times"][0] == answer["since"] == engine.now - 120
    assert answer["users"]["a"][0][:2] == [0.6, 0.75], "the mean, then samples from memory"


def test_curve_answers_are_bounded() -> None:
    engine, past = watched(2 * HOUR, 10)
    answer = read(Curves(engine, past), [f"u{n}" for n in range(1000)], 1e300)
    assert len(answer["users"]) == curves.MOST_ASKED
    assert MOST_POINTS / 2 < len(answer["times"]) <= MOST_POINTS
    assert answer["times"][-1] >= engine.now - 2 * EVERY


def test_the_last_hour_is_kept_finely_and_the_history_reaches_back_to_the_start() -> None:
    engine, _ = watched(10)
    kept = StandingHistory()
    for number in range(20_000):
        kept.sample_until(engine, engine.now + EVERY * number)
    instants = [sample.time for sample in kept.samples]
    assert instants == sorted(set(instants))
    assert instants[0] == engine.now, "the history reaches back to the start"
    assert len(instants) <= 2 * MOST_SAMPLES
    recent = [instant for instant in instants if instant > engine.now + EVERY * 19_999 - HOUR]
    assert len(recent) == MOST_SAMPLES
    kept.sample_until(engine, engine.now)
    assert [sample.time for sample in kept.samples] == [engine.now], (
        "an earlier time of another master's clock restarts the history"
    )
