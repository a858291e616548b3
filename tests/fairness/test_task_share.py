"""Task shares and their policies, on the TSF paper's examples and beyond."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from allocator.fairness import policies
from allocator.fairness.machines import AllExcept, Machines, MayUse
from allocator.fairness.pool import Pool
from allocator.fairness.quantities import Quantities
from tests.counted import counted, things


class Filling:
    """Users that fill machines with whole tasks, always the user that the policy puts first."""

    def __init__(
        self,
        policy: str,
        machines: dict[str, str],
        users: dict[str, tuple[str, set[str]]],
        weights: dict[str, float] | None = None,
    ) -> None:
        """Create machines (name → resources) and users (name → demand, usable machines)."""
        self.users = {name: (Quantities.parse(need), on) for name, (need, on) in users.items()}
        self.machines: Machines[str] = Machines()
        self.free = {name: Quantities.parse(text) for name, text in machines.items()}
        self.total = dict(self.free)
        for name, capacity in self.free.items():
            self.machines.put(name, capacity)
        self.pool: Pool[str] = Pool(
            policies.create(policy, {}),
            capacity=sum(self.free.values(), start=Quantities()),
            machines=self.machines,
        )
        self.running: Counter[tuple[str, str]] = Counter()
        for name, (demand, on) in self.users.items():
            self.machines.restrict(name, on.__contains__)
            self.pool.add(name, weight=(weights or {}).get(name, 1.0))
            self.pool.set_demand(name, demand)
            self.pool.set_active(name, True)

    def fill(self, *machines: str) -> "Filling":
        for machine in machines:
            while self._start(machine):
                pass
        return self

    def _start(self, machine: str) -> bool:
        held = {
            user: sum([self.users[user][0]] * count, start=Quantities())
            for (user, where), count in self.running.items()
            if where == machine and count
        }
        for user in self.pool.order_on(self.total[machine], held):
            demand, on = self.users[user]
            if machine in on and self.free[machine].contains(demand):
                self.free[machine] -= demand
                self.pool.allocate(user, demand)
                self.running[user, machine] += 1
                return True
        return False

    def end(self, user: str, machine: str) -> None:
        demand = self.users[user][0]
        self.free[machine] += demand
        self.pool.release(user, demand)
        self.running[user, machine] -= 1

    def tasks(self) -> dict[str, int]:
        return {u: sum(self.running[u, m] for m in self.free) for u in self.users}


def test_monopolies_of_table_2_equal_those_of_the_paper() -> None:
    machines: Machines[str] = Machines()
    for node in range(1, 51):
        machines.put(str(node), Quantities.parse(f"cpus:{1 if node <= 25 else 2};mem:1024"))
    demands = ["cpus:1;mem:512", "cpus:0.5;mem:512", "cpus:0.5;mem:512", "cpus:1;mem:512"]
    assert [machines.monopoly(Quantities.parse(d)) for d in demands] == [75, 100, 100, 75]
    machines.restrict("job 2", lambda node: int(node) <= 25)
    assert machines.constrained_monopoly("job 2", Quantities.parse(demands[1])) == 50
    assert machines.monopoly(Quantities.parse(demands[1])) == 100
    machines.discard("1")
    assert machines.constrained_monopoly("job 2", Quantities.parse(demands[1])) == 48
    assert machines.monopoly(Quantities.parse(demands[1])) == 98


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["put", "discard", "restrict", "free"]),
            st.integers(0, 5),
            st.integers(0, 4),
            st.integers(0, 4),
        )
    )
)
def test_monopolies_equal_a_recount_of_all_machines_after_any_change(
    steps: list[tuple[str, int, int, int]],
) -> None:
    machines: Machines[str] = Machines()
    present: dict[str, Quantities] = {}
    allowed = {f"{n}" for n in range(6)}
    demand = Quantities({"cpus": 1, "mem": 2})
    for step, number, cpus, mem in steps:
        name = f"{number}"
        if step == "put":
            present[name] = Quantities({"cpus": cpus, "mem": mem})
            machines.put(name, present[name])
        elif step == "discard":
            present.pop(name, None)
            machines.discard(name)
        elif step == "restrict":
            allowed = {f"{n}" for n in range(number)}
            machines.restrict("u", allowed.__contains__)
        else:
            allowed = {f"{n}" for n in range(6)}
            machines.restrict("u", None)
        tasks = {name: min(has["cpus"], has["mem"] // 2) for name, has in present.items()}
        assert machines.monopoly(demand) == sum(tasks.values())
        usable = sum(count for name, count in tasks.items() if name in allowed)
        assert machines.constrained_monopoly("u", demand) == usable


PLACES: dict[frozenset[str] | None, MayUse | None] = {
    None: None,
    frozenset("0"): frozenset("0").__contains__,
    frozenset("01"): AllExcept(None, {"2"}),
    frozenset("12"): AllExcept(None, {"0"}),
    frozenset("2"): AllExcept(frozenset("02").__contains__, {"0"}),
}
"""Sets of usable machines, of three, and their predicates."""
DEMANDS = [Quantities({"cpus": 1}), Quantities({"cpus": 1, "mem": 2})]


class SeveralKinds(RuleBasedStateMachine):
    """Users with several kinds of tasks, each with a set of usable machines, or None for all."""

    def __init__(self) -> None:
        super().__init__()
        self.machines: Machines[str] = Machines()
        self.there: dict[str, Quantities] = {}
        self.kinds: dict[str, list[frozenset[str] | None]] = {"u": [], "v": []}

    @rule(name=st.sampled_from("012"), cpus=st.integers(0, 3), mem=st.integers(0, 3))
    def put(self, name: str, cpus: int, mem: int) -> None:
        self.there[name] = Quantities({"cpus": cpus, "mem": mem})
        self.machines.put(name, self.there[name])

    @rule(name=st.sampled_from("012"))
    def discard(self, name: str) -> None:
        self.there.pop(name, None)
        self.machines.discard(name)

    @rule(user=st.sampled_from("uv"), kind=st.sampled_from(list(PLACES)))
    def admit(self, user: str, kind: frozenset[str] | None) -> None:
        self.kinds[user].append(kind)
        self.machines.admit(user, PLACES[kind])

    @rule(user=st.sampled_from("uv"), number=st.integers(0, 9))
    def withdraw(self, user: str, number: int) -> None:
        if number < len(self.kinds[user]):
            kind = self.kinds[user].pop(number)
            self.machines.withdraw(user, PLACES[kind])

    @rule(user=st.sampled_from("uv"), kind=st.sampled_from(list(PLACES)))
    def restrict(self, user: str, kind: frozenset[str] | None) -> None:
        self.kinds[user] = [] if kind is None else [kind]
        self.machines.restrict(user, PLACES[kind])

    @invariant()
    def counts_what_is_there(self) -> None:
        for user, kinds in self.kinds.items():
            for demand in DEMANDS:
                usable = sum(
                    min(size[name] // amount for name, amount in demand.items())
                    for name, size in self.there.items()
                    if not kinds or any(kind is None or name in kind for kind in kinds)
                )
                assert self.machines.constrained_monopoly(user, demand) == usable


TestSeveralKinds = SeveralKinds.TestCase


def test_a_kind_of_tasks_that_was_not_admitted_cannot_be_withdrawn() -> None:
    machines: Machines[str] = Machines()
    machines.put("1", Quantities.parse("cpus:1"))
    machines.admit("u", {"1"}.__contains__)
    for user, may_use in (("u", None), ("v", None), ("u", {"1"}.__contains__)):
        with pytest.raises(KeyError):
            machines.withdraw(user, may_use)
    assert machines.constrained_monopoly("u", Quantities.parse("cpus:1")) == 1


def test_a_constraint_without_users_is_not_evaluated_for_further_machines() -> None:
    machines: Machines[str] = Machines()
    asked = Counter[str]()

    def noting(name: str) -> MayUse:
        def admits(machine: str) -> bool:
            asked[name] += 1
            return machine == "1"

        return admits

    for number in range(3):
        machines.restrict("u", noting(f"{number}"))
        machines.put("1", Quantities.parse("cpus:1"))
        assert machines.constrained_monopoly("u", Quantities.parse("cpus:1")) == 1
    machines.restrict("u", None)
    machines.put("1", Quantities.parse("cpus:2"))
    assert machines.constrained_monopoly("u", Quantities.parse("cpus:1")) == 2
    assert asked == {"0": 1, "1": 2, "2": 2}


def test_a_machine_costs_the_same_with_any_number_of_different_machines() -> None:
    machines: Machines[str] = Machines()
    demand = Quantities.parse("cpus:0.001")
    machines.restrict("u", bool)
    costs = []
    for number in range(1, 200):
        has = Quantities({"cpus": number})
        costs.append(counted(lambda has=has: machines.put(f"{has}", has)))  # type: ignore[misc]
        assert machines.monopoly(demand) == machines.constrained_monopoly("u", demand)
        assert machines.monopoly(demand) == number * (number + 1) // 2
    assert costs[-1] == pytest.approx(costs[10], rel=0.05)


def test_excluding_a_machine_costs_the_same_with_any_number_of_machines() -> None:
    def cost(number: int) -> int:
        machines: Machines[str] = Machines()
        for machine in range(number):
            machines.put(f"{machine}", Quantities.parse("cpus:1"))
        calls = counted(lambda: machines.restrict("u", AllExcept(None, {"3"})))
        assert machines.constrained_monopoly("u", Quantities.parse("cpus:1")) == number - 1
        return calls + counted(lambda: machines.restrict("u", AllExcept(None, {"4"})))

    assert cost(400) < cost(20) + 20


def test_a_bounded_number_of_demands_is_cached() -> None:
    machines: Machines[str] = Machines()
    machines.put("1", Quantities.parse("cpus:1"))
    for amount in range(1, 5000):
        assert machines.monopoly(Quantities({"cpus": amount})) == 1000 // amount
    assert things(machines) < 5000


def test_a_task_without_demand_has_a_monopoly_of_zero() -> None:
    machines: Machines[str] = Machines()
    machines.put("m", Quantities.parse("cpus:1"))
    assert machines.monopoly(Quantities()) == 0


FIG_2 = {"m1": "cpus:18;mem:18", "m2": "cpus:18;mem:18"}
BOTH = {"m1", "m2"}


@pytest.mark.parametrize(
    ("policy", "u2_may_use", "expected"),
    [
        ("cdrf", {"m2"}, {"u1": 12, "u2": 4}),
        ("cdrf", BOTH, {"u1": 8, "u2": 6}),  # 9 in fractions: whole tasks waste the rest of m1
        ("tsf", {"m2"}, {"u1": 9, "u2": 6}),
        ("tsf", BOTH, {"u1": 8, "u2": 6}),
    ],
)
def test_in_figure_2_lying_about_constraints_helps_under_cdrf_and_not_under_tsf(
    policy: str, u2_may_use: set[str], expected: dict[str, int]
) -> None:
    users = {"u1": ("cpus:1;mem:2", BOTH), "u2": ("cpus:1;mem:3", u2_may_use)}
    assert Filling(policy, FIG_2, users).fill("m1", "m2").tasks() == expected


@pytest.mark.parametrize("policy", ["cdrf", "tsf"])
def test_in_figure_3_u1_envies_u2_under_cdrf_and_not_under_tsf(policy: str) -> None:
    places = {"u1": {"m1"}, "u2": {"m1", "m2", "m3"}, "u3": {"m2"}, "u4": {"m2"}}
    places |= {user: {"m3"} for user in ("u5", "u6", "u7")}
    machines = dict.fromkeys(("m1", "m2", "m3"), "cpus:3")
    users = {user: ("cpus:1", on) for user, on in places.items()}
    filling = Filling(policy, machines, users).fill("m1", "m2", "m3")
    if policy == "cdrf":
        assert filling.tasks() == {user: 3 if user == "u2" else 1 for user in users}
    envies = filling.running["u2", "m1"] > filling.tasks()["u1"]
    assert envies == (policy == "cdrf")


def test_figure_4_gives_6_1_and_3_tasks_and_shares_3_1_and_3_sevenths() -> None:
    filling = Filling(
        "tsf",
        {"m1": "cpus:9;mem:12", "m2": "cpus:3;mem:4", "m3": "cpus:9;mem:12"},
        {
            "u1": ("cpus:1;mem:2", {"m1", "m2"}),
            "u2": ("cpus:3;mem:1", {"m2"}),
            "u3": ("cpus:1;mem:4", {"m1", "m2", "m3"}),
        },
    ).fill("m3", "m1", "m2")
    assert filling.tasks() == {"u1": 6, "u2": 1, "u3": 3}
    shares = {s.user: s.task_share for s in filling.pool.standings()}
    assert shares == {"u1": 3 / 7, "u2": 1 / 7, "u3": 3 / 7}


def test_weights_divide_task_shares() -> None:
    users = {name: ("cpus:1", {"m"}) for name in ("u", "v")}
    filling = Filling("tsf", {"m": "cpus:9"}, users, {"u": 2.0}).fill("m")
    assert filling.tasks() == {"u": 6, "v": 3}


def test_an_added_machine_changes_task_shares() -> None:
    filling = Filling("tsf", {"m": "cpus:4"}, {"u": ("cpus:1", {"m"})}).fill("m")
    assert filling.pool.standing("u").task_share == 1.0
    filling.machines.put("n", Quantities.parse("cpus:4.5"))
    filling.pool.machines_changed()
    assert filling.pool.standing("u").task_share == 0.5


@pytest.mark.parametrize("policy", ["tsf", "cdrf", "drfh"])
def test_a_user_with_unknown_demand_is_ranked_by_its_dominant_share(policy: str) -> None:
    filling = Filling(policy, {"m": "cpus:9;mem:9"}, {"u": ("cpus:1;mem:2", {"m"})})
    filling.pool.add("w")
    filling.pool.allocate("w", Quantities.parse("cpus:1;mem:3"))
    standing = filling.pool.standing("w")
    assert standing.task_share is None
    assert standing.priority == 3 / 9


def test_a_task_that_fits_on_no_machine_causes_no_division_by_zero() -> None:
    filling = Filling("tsf", {"m": "cpus:1"}, {"u": ("cpus:2", {"m"}), "v": ("cpus:1", set())})
    assert filling.fill("m").tasks() == {"u": 0, "v": 0}
    assert filling.pool.standing("u").task_share is None
    assert filling.pool.standing("v").task_share == 0.0


def test_an_uncounted_resource_does_not_affect_task_shares() -> None:
    machines: Machines[str] = Machines()
    machines.put("m", Quantities.parse("cpus:4;gpus:1"))
    capacity = Quantities.parse("cpus:4;gpus:1")
    pool: Pool[str] = Pool(
        policies.create("tsf", {}), capacity=capacity, excluded=["gpus"], machines=machines
    )
    pool.add("u")
    pool.set_demand("u", Quantities.parse("cpus:1;gpus:1"))
    pool.allocate("u", Quantities.parse("cpus:1;gpus:1"))
    assert pool.standing("u").task_share == 0.25
