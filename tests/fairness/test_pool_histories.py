"""The results of a pool do not depend on when and how the pool was read before."""

import math
import random
from collections.abc import Callable, Iterator

import pytest

from allocator.cooperative import run_to_completion
from allocator.fairness import policies
from allocator.fairness.machines import Machines
from allocator.fairness.pool import Pool, PoolClock
from allocator.fairness.quantities import Quantities
from tests.counted import counted
from tests.fairness.forecasts import forecast_passings

CAPACITY = Quantities.parse("cpus:100;mem:200")
TASKS = [Quantities.parse(text) for text in ("cpus:1;mem:3", "cpus:4;mem:1", "cpus:2;disk:1")]
POLICIES: list[tuple[str, dict[str, object]]] = [
    ("sdrf", {"half_life": 60}),
    ("sdrf", {"half_life": 60, "form": "thesis"}),
    ("stsf", {"half_life": 60}),
    ("tsf", {}),
    ("drf", {}),
    ("fifo", {}),
    ("karma", {}),
    ("volcano", {"half_life": 60}),
]
Found = list[object]


class History:
    """The same users and random changes in several pools."""

    def __init__(self, seed: int, policy: policies.Policy) -> None:
        self.chance = random.Random(seed)
        self.charging, self.part = True, 1.0
        self.alone, self.looked_at, self.kept_up, self.watched = self.pools = [
            Pool[str](
                policy,
                now=1000.0,
                capacity=CAPACITY,
                excluded=("disk",),
                machines=Machines(),
                watch=watch,
            )
            for watch in (None, None, None, lambda ranking: ranking)
        ]
        self.journal = self.alone.keep_journal()
        self.follower = Pool[str](
            policy,
            now=1000.0,
            capacity=CAPACITY,
            excluded=("disk",),
            machines=self.alone.machines,
        )
        for number in range(5):
            self.both(Pool.add, f"u{number}")
            self.both(Pool.set_demand, f"u{number}", TASKS[number % 3])
        for number in range(8):
            self.put(f"m{number}")

    def both(self, do: Callable[..., object], *arguments: object, **named: object) -> None:
        for pool in self.pools:
            do(pool, *arguments, **named)

    def put(self, machine: str) -> None:
        kind = Quantities.parse(self.chance.choice(["cpus:4;mem:9", "cpus:8;disk:2", "mem:1"]))
        self.follow()
        for pool in self.pools:
            pool.machines.put(machine, kind)
            pool.machines_changed()
        self.follow()

    def change(self) -> None:
        user = self.chance.choice(sorted(self.alone.users()))
        if self.chance.random() < 0.5:
            self.change_what_a_user_has(user)
        elif self.chance.random() < 0.5:
            self.change_what_holds_for_all()
        else:
            self.change_a_user(user)

    def debts(self) -> dict[str, float]:
        return {name: self.chance.random() for name in ("cpus", "mem", "use")}

    def change_what_a_user_has(self, user: str) -> None:
        chance, held = self.chance, self.alone.held(user)
        if held and chance.random() < 0.3:
            half = {name: amount // 2 for name, amount in held.items()}
            self.both(Pool.release, user, Quantities(half))
        else:
            task = Quantities({name: chance.randint(1, 9999) for name in chance.choice(TASKS)})
            self.both(Pool.allocate, user, task, times=chance.randint(1, 3))

    def change_what_holds_for_all(self) -> None:
        chance = self.chance
        match chance.randrange(5):
            case 0:
                amounts = {"cpus": chance.randint(50_000, 150_000), "mem": 200_000}
                self.both(Pool.set_capacity, Quantities(amounts))
            case 1:
                self.part = chance.choice([1.0, 0.5])
                self.with_follower(Pool.set_part, self.part)
            case 2:
                self.charging = chance.random() < 0.6
                self.with_follower(Pool.set_charging, charging=self.charging)
            case 3:
                self.with_follower(Pool.set_fading, chance.choice([None, 40.0]))
            case _:
                self.put(f"m{chance.randrange(8)}")

    def change_a_user(self, user: str) -> None:
        chance, new = self.chance, f"u{self.chance.randrange(9)}"
        match chance.randrange(6):
            case 0:
                self.both(Pool.set_weight, user, chance.choice([0.5, 1.0, 3.0]))
            case 1:
                self.with_follower(Pool.set_commitment, user, self.debts())
            case 2:
                self.both(Pool.set_demand, user, chance.choice([*TASKS, None]))
            case 3:
                self.both(Pool.set_active, user, chance.random() < 0.8)
            case 4 if len(self.alone) > 3:
                self.both(Pool.release, user, self.alone.held(user))
                self.both(Pool.remove, user)
            case _ if new not in self.alone:
                self.both(Pool.add, new, weight=chance.choice([1.0, 2.0]))
                self.with_follower(Pool.set_commitment, new, self.debts())
                self.both(Pool.set_active, new, True)
            case _:
                pass

    def with_follower(self, do: Callable[..., object], *arguments: object, **named: object) -> None:
        """Apply a change of commitments, which the journal omits, to the follower too."""
        self.follow()
        self.both(do, *arguments, **named)
        do(self.follower, *arguments, **named)

    def follow(self) -> None:
        for now, do, arguments in self.journal:
            self.follower.advance(now)
            do(self.follower, *arguments)
        self.journal.clear()
        self.follower.advance(self.alone.now)

    def wait(self) -> None:
        now = self.alone.now + self.chance.choice([0.0, 0.0, 1.0, 30.0])
        self.both(Pool.advance, now)


def standings(pool: Pool[str]) -> Found:
    values: Found = []
    for standing in sorted(pool.standings(), key=lambda standing: standing.user):
        values += [
            standing.user,
            standing.weight,
            standing.entitlement,
            standing.active,
            str(standing.allocation),
        ]
        values += [standing.priority, standing.commitment, standing.inherited, standing.task_share]
        for amounts in (standing.shares, standing.measured, standing.commitments, standing.overuse):
            values += [part for name in sorted(amounts) for part in (name, amounts[name])]
    return values


def crossings(pool: Pool[str]) -> Found:
    return [part for crossing in pool.crossings() for part in crossing]


def forecast(pool: Pool[str]) -> Found:
    user = min(pool.users())
    return [part for passing in forecast_passings(pool, user, pool.now + 50.0) for part in passing]


def values(pool: Pool[str]) -> Found:
    """Read the ranking values of users, the last user first."""
    return [
        pool.policy.rank(pool.attribute(user), pool.phase_at(pool.now))[0][1]
        for user in sorted(pool.users(), reverse=True)
    ]


def courses(pool: Pool[str]) -> Found:
    """Read the trajectory of each user separately, the last user first."""
    values: Found = []
    for user in sorted(pool.users(), reverse=True):
        course = pool.course(user)
        values += [user, course.inherited, *sorted(course.overuse.items())]
    return [part for value in values for part in (value if isinstance(value, tuple) else (value,))]


def counts(pool: Pool[str]) -> Found:
    values: Found = []
    for user in sorted(pool.users(), reverse=True):
        at, stretch = pool.count(user)
        values += [at, str(stretch.allocation), stretch.entitlement, stretch.active]
        for amounts in (stretch.commitments, stretch.overuse):
            values += [part for name in sorted(amounts) for part in (name, amounts[name])]
    return values


def prospects(pool: Pool[str]) -> Found:
    return [
        part
        for user in sorted(pool.users())
        for rank in (pool.prospect(user).rank[0], pool.prospect(user).rank_of(CAPACITY)[0])
        for part in rank[:2]
    ]


LOOKS: list[Callable[[Pool[str]], Found]] = [
    list,
    standings,
    lambda pool: [pool.minimum()] if pool.active else [],
    crossings,
    forecast,
    counts,
    prospects,
    courses,
    values,
    lambda pool: [*pool.twin(), *standings(pool.twin())],
]


def the_same(actual: Found, expected: Found) -> bool:
    return len(actual) == len(expected) and all(
        math.isclose(first, second, rel_tol=1e-9, abs_tol=1e-9)
        if isinstance(first, float) and isinstance(second, float)
        else first == second
        for first, second in zip(actual, expected, strict=True)
    )


def what_follows_from_what_is_set(pool: Pool[str], part: float, *, charging: bool) -> None:
    assert pool.active == sum(standing.active for standing in pool.standings())
    together = sum(pool.entitlement(user) for user in pool.users())
    assert math.isclose(together, part if len(pool) else 0.0)
    for standing in pool.standings():
        assert standing.entitlement == pool.entitlement(standing.user)
        if pool.policy.name in {"sdrf", "stsf"}:
            assert standing.overuse == {
                name: max(part - standing.entitlement, 0.0) if charging else 0.0
                for name, part in standing.measured.items()
            }
        if pool.policy.counts_tasks:
            demand = pool.accounts()[standing.user].demand
            alone = 0 if demand is None else pool.machines.monopoly(demand)
            assert standing.task_share == (
                max(standing.allocation[n] / (alone * amount) for n, amount in demand.items())
                if demand is not None and alone
                else None
            )


def futures(pool: Pool[str]) -> dict[str, object]:
    """Return the users' commitments after 100 s without changes."""
    still = pool.still().standings_at(pool.now + 100.0)
    return {standing.user: (standing.commitments, standing.inherited) for standing in still}


def steps(history: History, number: int) -> Iterator[None]:
    for _ in range(number):
        history.wait()
        history.change()
        yield


@pytest.mark.parametrize(("policy", "parameters"), POLICIES)
def test_all_readings_equal_those_of_a_pool_that_is_read_at_each_instant(
    policy: str, parameters: dict[str, object]
) -> None:
    history = History(1, policies.create(policy, parameters))
    for _ in steps(history, 100):
        expected = [look(history.kept_up) for look in LOOKS]
        number = history.chance.randrange(len(LOOKS))
        if history.chance.random() < 0.5:
            history.looked_at.rank_ahead()
        assert the_same(LOOKS[number](history.looked_at), expected[number])
        assert the_same(expected[-1], [*expected[0], *expected[1]])
        what_follows_from_what_is_set(history.kept_up, history.part, charging=history.charging)
        if history.chance.random() < 0.1:
            assert [list(pool) for pool in history.pools] == [expected[0]] * 4
            assert the_same(standings(history.watched), expected[1])
            assert the_same(standings(history.alone), expected[1])
            history.follow()
            assert list(history.follower) == expected[0]
            assert the_same(standings(history.follower), expected[1])


def owed(pool: Pool[str]) -> dict[tuple[str, str], float]:
    """Return the users' commitments now."""
    return {
        (standing.user, name): amount
        for standing in pool.still().standings_at(pool.now)
        for name, amount in standing.commitments.items()
    }


@pytest.mark.parametrize(
    ("policy", "parameters"),
    [("sdrf", {"half_life": 60}), ("stsf", {"half_life": 60}), ("drf", {})],
)
def test_a_change_leaves_the_commitments_accrued_until_now_unchanged(
    policy: str, parameters: dict[str, object]
) -> None:
    history = History(3, policies.create(policy, parameters))
    pool, chance = history.alone, history.chance
    for user in pool.users():
        pool.set_commitment(user, history.debts())
    for _ in range(150):
        history.wait()
        before, user = owed(pool), chance.choice(sorted(pool.users()))
        match chance.randrange(5):
            case 0:
                pool.set_weight(user, chance.choice([0.5, 1.0, 3.0]))
            case 1:
                pool.set_demand(user, chance.choice([*TASKS, None]))
            case 2:
                pool.set_active(user, chance.random() < 0.8)
            case 3:
                history.change_what_holds_for_all()
            case _:
                history.change_what_a_user_has(user)
        after = owed(pool)
        assert {key: after[key] for key in before} == pytest.approx(before)


def test_commitments_decay_from_the_setting_of_a_time_constant_on_under_a_policy_without_them() -> (
    None
):
    for policy, fades in (("drf", True), ("sdrf", False)):
        parameters = {"half_life": 60} if policy == "sdrf" else {}
        pool: Pool[str] = Pool(policies.create(policy, parameters), capacity=CAPACITY)
        pool.add("a", commitment={"cpus": 0.4})
        assert pool.standing("a").commitment == 0.4
        pool.advance(60.0)
        pool.set_fading(30.0 / math.log(2.0))
        assert pool.standing("a").commitment == pytest.approx(0.4 if fades else 0.2)
        pool.advance(120.0)
        assert pool.standing("a").commitment == pytest.approx(0.1)


def test_commitments_set_between_readings_are_those_of_their_instant() -> None:
    pool: Pool[str] = Pool(policies.create("drf", {}), capacity=CAPACITY)
    pool.set_fading(30.0 / math.log(2.0))
    pool.add("a")
    for instant in (60.0, 120.0):
        pool.advance(instant)
        pool.set_commitment("a", {"cpus": 0.4})
        pool.add(f"at {instant}", commitment={"cpus": 0.2})
    assert pool.standing("a").commitment == 0.4
    pool.advance(150.0)
    owed = {standing.user: standing.commitment for standing in pool.standings()}
    assert owed == pytest.approx({"a": 0.2, "at 60.0": 0.025, "at 120.0": 0.1})


@pytest.mark.parametrize(
    ("seed", "policy", "parameters"), [(0, "sdrf", {"half_life": 60}), (1, "drf", {})]
)
def test_users_with_a_changed_commitment_trajectory_are_reported(
    seed: int, policy: str, parameters: dict[str, object]
) -> None:
    history, lengths = History(seed, policies.create(policy, parameters)), set[int]()
    pool = history.alone
    for _ in range(200):
        history.wait()
        before = futures(pool)
        pool.take_diverted()
        history.change()
        after, diverted = futures(pool), pool.take_diverted()
        if diverted is not None:
            lengths.add(len(diverted))
            for user in after.keys() - set(diverted):
                assert after[user] == before[user]
    assert lengths == {0, 1}, "a change of one user reports only that user"
    assert pool.take_diverted() == set()


@pytest.mark.interpreted
def test_a_user_ranked_ahead_makes_the_next_read_shorter_unless_many_have_changed() -> None:
    def calls(*, changed: int, ahead: bool) -> int:
        pool = Pool[str](policies.create("sdrf", {"half_life": 60}), now=0.0, capacity=CAPACITY)
        for number in range(50):
            pool.add(f"u{number}")
            pool.set_active(f"u{number}", True)
        first = next(iter(pool))
        for number in range(changed):
            pool.allocate(f"u{number}", TASKS[0])
        if ahead:
            pool.rank_ahead()
        pool.advance(1.0)
        read = counted(lambda: list(pool))
        assert next(iter(pool)) != first
        return read

    assert calls(changed=1, ahead=True) < calls(changed=1, ahead=False)
    assert calls(changed=9, ahead=True) == calls(changed=9, ahead=False)


@pytest.mark.parametrize(("policy", "parameters"), POLICIES)
def test_many_users_that_begin_and_cease_to_want_resources_are_ranked_as_if_each_were_at_once(
    policy: str, parameters: dict[str, object]
) -> None:
    """The second pool has a watch, and ranks each user at the change."""
    chance, clock = random.Random(policy), PoolClock(1000.0)
    machines = Machines[str]()
    machines.put("m", CAPACITY)
    late = Pool[str](
        policies.create(policy, parameters), capacity=CAPACITY, machines=machines, clock=clock
    )
    at_once = Pool[str](
        policies.create(policy, parameters),
        now=1000.0,
        capacity=CAPACITY,
        machines=machines,
        watch=lambda ranking: ranking,
    )
    names = [f"u{number:03}" for number in range(500)]
    for name in names:
        for pool in (late, at_once):
            pool.add(name)
            pool.set_demand(name, TASKS[0])
    for _ in range(12):
        now = late.now + chance.choice([0.0, 1.0, 30.0])
        clock.now = now
        at_once.advance(now)
        begin, number = chance.randrange(400), chance.choice([1, 20, 300])
        changed = names[begin : begin + number]
        if chance.random() < 0.3:
            chance.shuffle(changed)
        wanted = [chance.random() < 0.8 for _ in changed]
        allocated = [chance.random() < 0.1 for _ in changed]
        for pool in (late, at_once):
            for name, active, held in zip(changed, wanted, allocated, strict=True):
                pool.set_active(name, active)
                if held:
                    pool.allocate(name, Quantities({"cpus": 10 + len(name)}))
        if chance.random() < 0.5:
            run_to_completion(clock.rank_in_steps())
        assert list(late) == list(at_once)
        assert late.minimum() == at_once.minimum()


@pytest.mark.interpreted
def test_many_users_that_begin_to_want_resources_can_be_ranked_in_steps() -> None:
    clock = PoolClock(1000.0)
    pool = Pool[str](policies.create("drf", {}), capacity=CAPACITY, clock=clock)
    for number in range(700):
        pool.add(f"u{number}")
    run_to_completion(clock.rank_in_steps())
    for number in range(700):
        pool.set_active(f"u{number}", True)
    assert len(list(clock.rank_in_steps())) == 3
    read = counted(lambda: next(iter(pool)))
    for number in range(700):
        pool.set_active(f"u{number}", False)
        pool.set_active(f"u{number}", True)
    assert counted(lambda: next(iter(pool))) > read + 700


def test_an_unchanged_allocation_accrues_commitments_only_if_the_user_may_have_any() -> None:
    pool = Pool[str](policies.create("sdrf", {"half_life": 60}), now=0.0, capacity=CAPACITY)
    for user in ("idle", "over", "owing", "lacking"):
        pool.add(user)
    pool.allocate("over", CAPACITY)
    pool.set_commitment("owing", {"cpus": 0.5})
    pool.set_commitment("lacking", 0.5)
    list(pool)
    pool.advance(10.0)
    for user in pool.users():
        pool.hold(user, *pool.holding(user))
    assert {user: account.settled_at for user, account in pool.accounts().items()} == {
        "idle": 0.0,
        "over": 10.0,
        "owing": 10.0,
        "lacking": 10.0,
    }
