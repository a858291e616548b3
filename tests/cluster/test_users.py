"""The tree of users compared with a plain computation of the order."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from allocator.cluster.frameworks.framework import Client
from allocator.cluster.input.limits import Limits
from allocator.cluster.settings import EngineSettings
from allocator.cluster.users import Users
from allocator.fairness import policies
from allocator.fairness.commitment import decayed
from allocator.fairness.pool import Pool
from allocator.fairness.quantities import Quantities
from allocator.users.memory import Memory, MemoryChanges, RememberedUser
from allocator.users.settings import DeclaredUser
from allocator.users.tree import UserTree
from tests.cluster.master_side import MasterSide
from tests.cluster.one_by_one import order
from tests.counted import counted, counted_steps
from tests.examples import examples

ROLES = ["a", "a/b", "a/b/c", "a/d", "e", "f/g", "f/h"]
CAPACITY = Quantities.parse("cpus:100;mem:1000")
DRF = EngineSettings(policies.create("drf", {}))
HALF_LIFE = 100.0
SDRF = EngineSettings(policies.create("sdrf", {"half_life": HALF_LIFE}))


def new_users(settings_: EngineSettings, now: float = 1000.0) -> Users:
    users = Users(settings_, now, ())
    users.set_capacity(CAPACITY)
    return users


def join(users: Users, role: str, *, wants: bool = True) -> Client:
    client = Client(role, f"framework of {role}")
    users.add(users.get(role), client)
    users.set_wanting(users.get(role), client, wanting=wants)
    return client


class PlainTree:
    """Adds everything up at each question."""

    def __init__(self) -> None:
        self.held: dict[str, Quantities] = {}
        self.counts: Counter[str] = Counter()
        self.weights: dict[str, float] = {}

    def allocate(self, role: str, cpus: int) -> None:
        self.held[role] = self.held.get(role, Quantities()) + Quantities({"cpus": 1000 * cpus})
        for node in [*self.path(role), f"{role}/."]:
            self.counts[node] += 1

    def path(self, role: str) -> list[str]:
        parts = role.split("/")
        return ["/".join(parts[: n + 1]) for n in range(len(parts))]

    def order(self, above: str = "") -> list[str]:
        below = {
            f"{role}/." if role == above else self.path(role)[above.count("/") + bool(above)]
            for role in self.held
            if role == above or not above or role.startswith(above + "/")
        }
        if below == {f"{above}/."}:
            return [above]
        ordered = []
        for node in sorted(below, key=self.key):
            ordered += [above] if node == f"{above}/." else self.order(node)
        return ordered

    def key(self, node: str) -> tuple[float, int, str]:
        role = node.removesuffix("/.")
        held = sum(
            (
                q["cpus"]
                for holder, q in self.held.items()
                if holder == role or (node == role and holder.startswith(role + "/"))
            ),
            start=0,
        )
        return held / CAPACITY["cpus"] / self.weights.get(node, 1.0), self.counts[node], node


@examples(200)
@given(
    joined=st.permutations(ROLES),
    steps=st.lists(st.tuples(st.sampled_from(ROLES), st.integers(1, 3)), max_size=25),
    weights=st.dictionaries(
        st.sampled_from([*ROLES, "f"]), st.sampled_from([0.5, 1.0, 2.0, 3.0]), max_size=4
    ),
)
def test_each_level_is_ordered_by_the_allocations_of_subtrees(
    joined: list[str], steps: list[tuple[str, int]], weights: dict[str, float]
) -> None:
    users, plain = new_users(DRF), PlainTree()
    clients = {role: join(users, role) for role in joined}
    plain.held = {role: Quantities() for role in ROLES}
    users.set_weights(weights)
    plain.weights = weights
    for role, cpus in steps:
        users.allocate(users.get(role), clients[role], Quantities({"cpus": 1000 * cpus}))
        plain.allocate(role, cpus)
        assert [client.role for client in order(users)] == plain.order()


def test_a_subtree_has_the_entitlement_of_its_top_role() -> None:
    users = new_users(DRF)
    for role in ("a/b", "a/c", "d"):
        join(users, role)
    users.set_weights({"a": 3.0, "a/c": 2.0})
    entitled = {standing.user: standing.entitlement for standing in users.standings()}
    assert entitled == pytest.approx({"a": 3 / 4, "a/b": 1 / 4, "a/c": 1 / 2, "d": 1 / 4})


def test_a_role_that_gets_sub_roles_keeps_its_allocation_and_commitment() -> None:
    users = new_users(SDRF)
    client = join(users, "a")
    join(users, "z")
    users.allocate(users.get("a"), client, Quantities.parse("cpus:80"))
    users.advance(1000.0 + HALF_LIFE)
    join(users, "a/b")
    standings = {standing.user: standing for standing in users.standings()}
    assert standings["a"].commitments["cpus"] == pytest.approx(0.15)
    assert standings["a/."].commitments["cpus"] == pytest.approx(0.15)
    assert standings["a/."].allocation == standings["a"].allocation == Quantities.parse("cpus:80")
    assert [c.role for c in order(users)] == ["z", "a/b", "a"]


def test_a_removed_subtree_is_forgotten_from_its_leaves_up() -> None:
    users = new_users(DRF)
    client = join(users, "a/b/c")
    join(users, "z")
    users.remove(users.get("a/b/c"), client)
    for day in range(1, 5):
        users.advance(1000.0 + 86401.0 * day)
        users.forget_idle()
    assert [standing.user for standing in users.standings()] == ["z"]


def test_a_virtual_leaf_is_forgotten_when_its_role_is_left_and_has_no_commitment() -> None:
    users = new_users(SDRF)
    client = join(users, "a")
    join(users, "a/b")
    join(users, "z")
    amount = Quantities.parse("cpus:80")
    users.allocate(users.get("a"), client, amount)
    users.advance(1000.0 + 10 * HALF_LIFE)
    users.release(users.get("a"), client, amount)
    users.remove(users.get("a"), client)
    parts = []
    for seconds in (0.0, 86300.0, 86401.0):
        users.advance(1000.0 + 10 * HALF_LIFE + seconds)
        users.forget_idle()
        parts.append({standing.user: standing.entitlement for standing in users.standings()})
    assert [part.get("a/.") for part in parts] == [0.25, 0.25, None]
    assert [part["a/b"] for part in parts] == [0.25, 0.25, 0.5]


@pytest.mark.parametrize("order", [3.0, None])
def test_an_operators_weight_wins_over_the_masters_and_the_masters_over_the_configured_weight(
    order: float | None,
) -> None:
    users = new_users(EngineSettings(DRF.policy, users=(DeclaredUser("a", weight=5.0),)))

    def weight() -> float:
        return users.pool.standing("a").weight

    assert weight() == 5.0
    users.order_weight("a", order)
    users.set_weights({"a": 2.0})
    assert weight() == (order or 2.0)
    users.order_weight("a", None)
    assert weight() == 2.0


@given(
    owed=st.floats(0, 1),
    before=st.floats(0, 1),
    held=st.integers(0, 100),
    passed=st.floats(0, 999),  # a memory of time 0 has no time
)
def test_overuse_common_to_before_and_after_a_gap_is_charged_for_the_gap(
    owed: float, before: float, held: int, passed: float
) -> None:
    users = new_users(SDRF)
    client = join(users, "a")
    join(users, "b")
    if held:
        users.allocate(users.get("a"), client, Quantities({"cpus": 1000 * held}))
    memory = Memory(1000.0 - passed, {"a": RememberedUser({"cpus": owed}, {"cpus": before})})
    users.inherit(memory)
    after = max(held / 100 - 0.5, 0.0)
    expected = decayed(owed, min(before, after), passed, HALF_LIFE / 0.6931471805599453)
    assert users.pool.standing("a").commitments["cpus"] == pytest.approx(expected, abs=1e-9)


def test_overuse_in_a_gap_is_measured_by_the_present_entitlement_of_the_parent() -> None:
    users = new_users(SDRF)
    client = join(users, "a/b")
    users.allocate(users.get("a/b"), client, Quantities.parse("cpus:80"))
    join(users, "z")  # leaves role a with its sub-roles half of the cluster
    users.inherit(Memory(1000.0 - HALF_LIFE, {"a/b": RememberedUser({"cpus": 0.0}, {"cpus": 0.3})}))
    owed = {standing.user: standing.commitments for standing in users.standings()}
    assert owed["a/b"]["cpus"] == pytest.approx(0.15)


def test_the_successor_knows_exactly_the_users_with_a_commitment_or_weight() -> None:
    users = new_users(SDRF)
    users.inherit(
        Memory(
            900.0,
            {
                "gone/owes": RememberedUser({"cpus": 0.5}),
                "gone/even": RememberedUser({"cpus": 0.0}),
                "weighed": RememberedUser(weight=2.0),
            },
        )
    )
    known = {standing.user for standing in users.standings()}
    assert known == {"gone", "gone/owes", "weighed"}
    assert users.memory().users["gone/owes"].commitments["cpus"] == pytest.approx(0.25)
    assert users.memory().users["weighed"].weight == 2.0


def test_while_overuse_is_not_charged_no_commitments_arise_on_any_level() -> None:
    users = new_users(SDRF)
    client = join(users, "a/b")
    join(users, "a/d")
    join(users, "z")
    users.allocate(users.get("a/b"), client, Quantities.parse("cpus:80"))
    for times, charging in enumerate((False, True), start=1):
        users.set_charging(charging=charging)
        users.advance(1000.0 + times * HALF_LIFE)
        owing = {
            standing.user
            for standing in users.standings()
            if any(owed > 0.0 for owed in standing.commitments.values())
        }
        assert owing == ({"a", "a/b"} if charging else set())


def test_the_standing_of_a_virtual_leaf_can_be_read() -> None:
    users = new_users(SDRF)
    client = join(users, "a")
    join(users, "a/b")
    users.allocate(users.get("a"), client, Quantities.parse("cpus:80"))
    standing = users.standing("a/.")
    assert standing is not None
    assert standing.allocation == Quantities.parse("cpus:80")
    assert users.standing("b/.") is None


def test_an_allocation_counts_once_on_each_level() -> None:
    users = new_users(DRF)
    client = join(users, "a/b")
    user = users.get("a/b")
    for _ in range(2):
        users.allocate(user, client, Quantities.parse("cpus:1"))
    held = Quantities.parse("cpus:2"), 2
    assert user.clients.holding(client) == held
    assert [pool.holding(name) for pool, name in user.memberships()] == [held, held]


@pytest.mark.interpreted
def test_each_level_gets_its_entitlement_once_however_many_roles_one_event_adds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    calls = []

    def set_part(pool: Pool[str], part: float) -> bool:
        calls.append((pool, part))
        return True

    monkeypatch.setattr(Pool, "set_part", set_part)
    master = MasterSide()
    roles = ["/".join(f"{role}.{level}" for level in range(25)) for role in range(10)]
    master.add_framework("f1", *roles)
    assert len(master.engine.users()) == 250
    assert len(calls) == 240, "all users except the last role of each branch"
    master.tick()
    assert len(calls) == 240, "no entitlement has changed"


@pytest.mark.parametrize("policy", ["drf", "sdrf"])
def test_forgetting_many_users_at_once_costs_in_proportion_to_their_number(policy: str) -> None:
    def work(number: int) -> int:
        chosen = policies.create(policy, {"half_life": 60.0} if policy == "sdrf" else {})
        users = new_users(EngineSettings(chosen))
        for index in range(number):
            role = f"a/{index}" if index % 2 else f"r{index}"
            users.remove(users.get(role), join(users, role))
        users.advance(1e6)
        before = len(users.names())
        cost = counted(users.forget_idle)
        assert before - len(users.names()) >= number
        return cost

    few, many, doubled = (work(number) for number in (50, 100, 200))
    assert doubled - many < 2.5 * (many - few)


def test_a_role_that_gets_its_first_sub_role_costs_the_same_with_any_number_of_other_roles() -> (
    None
):
    def work(count: int) -> int:
        users = new_users(EngineSettings(policies.create("sdrf", {"half_life": 60.0})))
        for index in range(count):
            join(users, f"r{index}")
        users.standings()
        users.get("new")
        return counted(lambda: [join(users, f"r{index}/b") for index in range(5)])

    assert work(200) == pytest.approx(work(50), rel=0.05)


LIMIT = 40
SUBTREES = replace(DRF, forgets_subtrees=True, limits=Limits(idle_users=LIMIT))


def without_clients(users: UserTree[Client], joined: Iterable[Client]) -> list[str]:
    """Return the users of all levels without a client at or below them."""
    leaves = [f"{client.role}/." for client in joined]
    return [
        name
        for name in users.names()
        if name not in leaves and not any(leaf.startswith(f"{name}/") for leaf in leaves)
    ]


@pytest.mark.parametrize("levels", [1, 4, 32])
def test_names_of_all_levels_count_for_the_limit_of_idle_users(levels: int) -> None:
    users = new_users(SUBTREES)
    for number in range(200):
        role = "/".join([f"r{number}", *"x" * (levels - 1)])
        users.remove(users.get(role), join(users, role))
        users.advance(users.now + 1.0)
        users.forget_idle()
        assert len(users.names()) <= LIMIT
    assert len(users.names()) > LIMIT - LIMIT // 20 - levels


def test_under_former_event_logs_only_the_lowest_level_counts_for_the_limit() -> None:
    users = new_users(replace(SUBTREES, forgets_subtrees=False))
    for number in range(200):
        role = "/".join([f"r{number}", *"x" * 31])
        users.remove(users.get(role), join(users, role))
        users.advance(users.now + 1.0)
        users.forget_idle()
    assert len(users.names()) > 25 * LIMIT


@pytest.mark.parametrize("subtrees", [True, False])
def test_a_branch_without_clients_is_forgotten_with_its_last_user(*, subtrees: bool) -> None:
    users = new_users(replace(DRF, forget_after=100.0, forgets_subtrees=subtrees))
    kept = join(users, "a/x")
    for role in ("a/b/c/d", "e/f/g"):
        users.remove(users.get(role), join(users, role))
    users.advance(users.now + 100.0)
    users.forget_idle()
    known = ["a", "a/x"] if subtrees else ["a", "a/b", "a/b/c", "a/x", "e", "e/f"]
    assert sorted(users.names()) == known
    users.remove(users.get("a/x"), kept)
    users.advance(users.now + 99.0)
    users.forget_idle()
    assert "a/x" in users
    users.advance(users.now + 1.0)
    users.forget_idle()
    assert ("a" in users) is not subtrees


def test_a_branch_stays_known_while_a_user_below_has_commitments_or_a_name() -> None:
    users = new_users(replace(SDRF, forget_after=10.0, forgets_subtrees=True))
    for role in ("a/b/c", "d/e", "f/g"):
        users.remove(users.get(role), join(users, role))
    users.set_commitments("a/b", {"cpus": 0.5}, 0.0)
    users.order_weight("d/e", 2.0)
    users.advance(users.now + 10.0)
    users.forget_idle()
    assert users.names() == ["a", "d", "a/b", "d/e"]
    users.advance(users.now + 20 * HALF_LIFE)
    users.order_weight("d/e", None)
    users.forget_idle()
    assert users.names() == ["d", "d/e"]
    users.advance(users.now + 10.0)
    users.forget_idle()
    assert users.names() == []


@given(st.randoms(use_true_random=False))
@settings(deadline=None)
def test_no_more_users_than_the_limit_are_idle_after_any_changes(chance: Random) -> None:
    users = new_users(replace(SUBTREES, limits=Limits(idle_users=5), forget_after=50.0))
    joined: dict[Client, None] = {}
    for number in range(60):
        role = "/".join(chance.choices("abc", k=chance.randint(1, 4)))
        client = Client(role, f"f{number}")
        if chance.random() < 0.6:
            users.add(users.get(role), client)
            joined[client] = None
        elif joined:
            client = chance.choice(list(joined))
            users.remove(users.get(client.role), client)
            del joined[client]
        tree: UserTree[Client] = users.fork() if number % 10 == 0 else users
        tree.advance(users.now + chance.choice([0.0, 1.0, 20.0]))
        tree.forget_idle()
        assert len(without_clients(tree, joined)) <= 5
        assert all(client.role in tree for client in joined)


def test_idle_users_are_not_sorted_at_each_tick() -> None:
    limit = 400
    users = new_users(replace(SUBTREES, limits=Limits(idle_users=limit)))
    costs = []
    for number in range(limit + 100):
        users.remove(users.get(f"r{number}"), join(users, f"r{number}"))
        users.advance(users.now + 1.0)
        costs.append(counted(users.forget_idle))
    assert sum(cost > limit for cost in costs) == 5, "once for each twentieth of the limit"


def test_idle_users_with_commitments_beyond_the_limit_are_not_sorted_at_each_tick() -> None:
    users = new_users(replace(SDRF, forgets_subtrees=True, limits=Limits(idle_users=10)))
    roles = [f"r{number}" for number in range(400)]
    for role in roles:
        users.remove(users.get(role), join(users, role))
    for role in roles:
        users.set_commitments(role, {"cpus": 0.5}, 0.0)
    costs = []
    for _ in range(100):
        users.advance(users.now + 1.0)
        costs.append(counted(users.forget_idle))
    assert len(users.names()) == 400
    assert sum(cost > 400 for cost in costs) == 2, "once a minute"


def commitment(users: Users, name: str) -> float:
    """Return the commitment of a user or virtual leaf to CPUs; -1 if it is unknown."""
    standing = users.standing(name)
    return -1.0 if standing is None else standing.commitments.get("cpus", 0.0)


OWN = replace(SDRF, forget_after=10.0, forgets_subtrees=True, leaf_keeps_commitments=True)


def with_commitments_of_a_gone_sub_role(settings_: EngineSettings) -> Users:
    """Return users with the framework of `a`, which owes nothing, and a sub-role that has left."""
    users = new_users(settings_)
    join(users, "a")
    users.remove(users.get("a/b"), join(users, "a/b"))
    users.set_commitments("a", {"cpus": 0.5}, 0.0)
    users.advance(users.now + 10.0)
    users.forget_idle()
    assert "a/b" not in users
    users.advance(users.now + 1.0)
    users.forget_idle()
    return users


@pytest.mark.parametrize("restarts", [0, 1, 2])
def test_frameworks_of_a_role_do_not_get_the_commitments_of_a_gone_sub_role(restarts: int) -> None:
    users = with_commitments_of_a_gone_sub_role(OWN)
    for _ in range(restarts):
        memory = users.memory()
        users = new_users(OWN, now=memory.time)
        join(users, "a")
        users.inherit(memory)
        users.forget_idle()
    join(users, "a/x")
    assert commitment(users, "a") == pytest.approx(0.463, abs=0.001)
    assert commitment(users, "a/.") == 0.0


def test_under_former_event_logs_these_frameworks_get_all_commitments_of_the_role() -> None:
    users = with_commitments_of_a_gone_sub_role(replace(OWN, leaf_keeps_commitments=False))
    join(users, "a/x")
    assert commitment(users, "a/.") == commitment(users, "a") > 0.4


@pytest.mark.parametrize("stored", [True, False], ids=["leaf stored", "leaf unknown"])
def test_a_snapshot_without_a_sub_role_keeps_its_commitments_from_the_other_frameworks(
    *, stored: bool
) -> None:
    before = new_users(OWN)
    if stored:
        join(before, "a")
    join(before, "a/b")
    for name in ("a", "a/b"):
        before.set_commitments(name, {"cpus": 0.5}, 0.0)
    users = new_users(OWN)
    join(users, "a")
    users.inherit(before.memory())
    join(users, "a/x")
    assert [commitment(users, name) for name in ("a", "a/b", "a/.")] == [0.5, 0.5, 0.0]


def test_frameworks_of_a_role_do_not_get_the_mean_use_of_a_gone_sub_role() -> None:
    """Their weight in entitlements would count for resources that they have never used."""
    users = new_users(replace(OWN, counts_for=4.0))
    join(users, "a")
    client = join(users, "a/b")
    users.allocate(users.get("a/b"), client, CAPACITY)
    users.update_entitlements()
    for _ in range(2):
        users.advance(users.now + 60.0)
        users.look(None)
    users.release(users.get("a/b"), client, CAPACITY)
    users.remove(users.get("a/b"), client)
    users.set_commitments("a", {}, 0.0)
    users.set_commitments("a/b", {}, 0.0)
    for _ in range(2):
        users.advance(users.now + 10.0)
        users.forget_idle()
    assert "a/b" not in users
    join(users, "a/x")
    pool = users.get("a").sub_pool
    assert pool is not None
    assert users.pool.mean_use("a")["cpus"] > 0.1
    assert pool.mean_use("a/.").get("cpus", 0.0) == 0.0


def test_the_pool_below_a_role_ends_when_only_its_own_frameworks_have_commitments() -> None:
    users = with_commitments_of_a_gone_sub_role(OWN)
    assert users.get("a").sub_pool is not None
    users.advance(users.now + 20 * HALF_LIFE)
    users.forget_idle()
    assert users.get("a").sub_pool is None
    assert set(users.names()) == {"a"}


def test_a_new_branch_is_the_only_change_for_the_store() -> None:
    users = new_users(replace(SUBTREES, counts_for=4.0))
    for number in range(20):
        join(users, f"r{number}/b")
    users.changes()
    join(users, "new/b")
    changes = users.changes()
    assert not changes.complete
    assert set(changes.courses) == {"new", "new/b"}


def test_the_store_forgets_a_virtual_leaf_with_the_tree() -> None:
    users = new_users(replace(SUBTREES, forget_after=10.0))
    join(users, "a/b")
    users.remove(users.get("a"), join(users, "a"))
    assert "a/." in users.changes().courses
    users.advance(users.now + 10.0)
    users.forget_idle()
    changes = users.changes()
    assert not changes.complete
    assert set(changes.removed) == {"a/."}


def crowded(idle: int, *, limit: int) -> Users:
    """Return users of which most are idle, all told to the store, and one minute later."""
    users = new_users(
        replace(SUBTREES, counts_for=4.0, limits=Limits(idle_users=limit)),
    )
    for number in range(idle):
        users.remove(users.get(f"r{number}"), join(users, f"r{number}"))
    users.changes()
    users.advance(users.now + 60.0)
    return users


def test_forgotten_users_make_the_store_read_no_other_users() -> None:
    def cost(idle: int) -> int:
        users = crowded(idle, limit=idle - 10)
        gone = users.forget_idle()
        changes: list[MemoryChanges] = []
        calls = counted(lambda: changes.append(users.changes()))
        assert set(changes[0].removed) == set(gone)
        assert not changes[0].complete
        return calls // len(gone)

    cost(40)  # fills the caches
    assert cost(400) <= cost(100) + 5


def test_a_user_that_came_back_before_the_store_was_told_is_not_removed() -> None:
    users = crowded(4, limit=2)
    gone = users.forget_idle()
    users.advance(users.now + 1.0)
    join(users, gone[0])
    changes = users.changes()
    assert gone[0] not in changes.removed
    assert gone[0] in changes.courses
    assert set(gone[1:]) <= set(changes.removed)


def test_idle_users_are_sorted_and_forgotten_in_short_steps() -> None:
    """The longest step does not grow with the users; the order is that of one step."""

    def longest(idle: int) -> int:
        users = crowded(idle, limit=idle // 2)
        expected = crowded(idle, limit=idle // 2).forget_idle()
        costs, gone = counted_steps(users.forget_idle_in_steps())
        assert gone == expected
        return max(costs)

    longest(100)  # fills the caches
    assert longest(1600) < 1.5 * longest(400)


@pytest.mark.parametrize("settings_", [DRF, SDRF])
def test_all_users_are_exported_for_the_store_in_many_short_steps(
    settings_: EngineSettings,
) -> None:
    users = new_users(replace(settings_, exact_ties=False))
    for number in range(2000):
        join(users, f"role{number}")
    costs, changes = counted_steps(users.changes_in_steps())
    assert len(changes.courses) == 2000
    assert max(costs) * 5 < sum(costs)


@given(st.randoms(use_true_random=False))
@settings(deadline=None)
def test_a_framework_that_holds_nothing_never_owes_what_sub_roles_have_used(chance: Random) -> None:
    """Sub-roles come, hold resources, leave and are forgotten, also across snapshots."""
    rules = replace(OWN, counts_for=4.0, limits=Limits(idle_users=chance.choice([0, 2])))
    users = new_users(rules)
    join(users, "a")
    holding: dict[Client, Quantities] = {}
    for number in range(60):
        action = chance.choice(["join", "leave", "wait", "wait", "forget", "snapshot"])
        if action == "join":
            role = chance.choice(["a/b", "a/c/d", "e", "e/f"])
            client = Client(role, f"f{number}")
            holding[client] = Quantities({"cpus": chance.choice([0, 5_000, 40_000])})
            users.add(users.get(role), client)
            users.allocate(users.get(role), client, holding[client])
        elif action == "leave" and holding:
            client = chance.choice(list(holding))
            users.release(users.get(client.role), client, holding.pop(client))
            users.remove(users.get(client.role), client)
        elif action == "wait":
            users.advance(users.now + chance.choice([1.0, 5.0, 100.0]))
            users.look(None)
        elif action == "forget":
            users.forget_idle()
        else:
            memory = users.memory()
            users = new_users(rules, now=users.now)
            join(users, "a")
            for client, quantities in holding.items():
                users.add(users.get(client.role), client)
                users.allocate(users.get(client.role), client, quantities)
            users.inherit(memory)
        users.update_entitlements()
        pool = users.get("a").sub_pool
        if pool is not None:
            assert commitment(users, "a/.") == pytest.approx(0.0, abs=0.001)
            assert pool.mean_use("a/.").get("cpus", 0.0) == pytest.approx(0.0, abs=0.001)
