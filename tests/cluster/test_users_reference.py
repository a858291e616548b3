"""The tree of users after any changes compared with a tree that computes everything afresh."""

import random
from collections.abc import Mapping
from dataclasses import replace

import pytest

from allocator.cluster.frameworks.framework import Client
from allocator.cluster.input.limits import Limits
from allocator.cluster.users import User, Users
from allocator.fairness.commitment import decayed
from allocator.fairness.metering import Meter
from allocator.fairness.quantities import Quantities
from allocator.users.commitments import NEGLIGIBLE_COMMITMENT
from allocator.users.memory import Boost, Memory, RememberedUser, StoredTrajectory
from allocator.users.settings import DeclaredUser
from tests.cluster.test_users import CAPACITY, DRF, HALF_LIFE, SDRF, join, new_users

ROLES = ["a", "a/b", "a/b/c", "a/d", "e", "f/g", "h"]
NAMES = ("cpus", "mem")
SETTINGS = replace(
    SDRF,
    users=(DeclaredUser("e", weight=2.0, commitment={"cpus": 0.2, "mem": 0.1}),),
    forget_after=300.0,
    limits=Limits(idle_users=3),
)
TAU = SETTINGS.policy.tau or 0.0

Debt = dict[str, float]
"""Commitments by resource, with the common commitment of other resources under `others`."""


class Plainly:
    """A plain model of users, computed by the definitions."""

    def __init__(self, now: float) -> None:
        self.now = now
        self.capacity = CAPACITY
        self.charging = True
        self.held: dict[Client, Quantities] = {}
        self.wanting: set[Client] = set()
        self.debts: dict[str, Debt] = {}
        """Commitments of users and of active virtual leaves."""
        self.apart: dict[str, Debt] = {}
        """Commitments of inactive virtual leaves."""
        self.idle: dict[str, float] = {}
        self.masters: dict[str, float] = {}
        self.ordered: dict[str, float] = {}
        self.boosts: dict[str, Boost] = {}
        self.get("e", {"cpus": 0.2, "mem": 0.1, "others": 0.0})

    def below(self, above: str) -> list[str]:
        return [name for name in self.debts if name.rpartition("/")[0] == above]

    def clients(self, name: str) -> list[Client]:
        """Return the clients whose allocations count for a user."""
        if name.endswith("/."):
            return [client for client in self.held if client.role == name[:-2]]
        return [c for c in self.held if c.role == name or c.role.startswith(name + "/")]

    def holds(self, name: str) -> Quantities:
        return sum((self.held[client] for client in self.clients(name)), start=Quantities())

    def weight(self, name: str) -> float:
        if name in self.boosts:
            return self.boosts[name].weight
        weights = {"e": 2.0} | self.masters | self.ordered
        return weights.get(name, 1.0)

    def entitlement(self, name: str) -> float:
        above = name.rpartition("/")[0]
        all_weights = sum(self.weight(sibling) for sibling in self.below(above))
        return (self.entitlement(above) if above else 1.0) * self.weight(name) / all_weights

    def overuse(self, name: str) -> dict[str, float]:
        free = self.entitlement(name) if self.charging else 1e9
        shares = self.holds(name).shares(self.capacity)
        return {resource: max(share - free, 0.0) for resource, share in shares.items()}

    def get(self, name: str, debt: Debt | None = None) -> None:
        if name in self.debts:
            return
        above = name.rpartition("/")[0]
        if above:
            self.get(above)
            if not self.below(above) and self.own(above):
                leaf = f"{above}/."
                self.debts[leaf] = self.apart.pop(leaf, dict(self.debts[above]))
            self.idle.pop(above, None)
        self.debts[name] = debt or dict.fromkeys([*NAMES, "others"], 0.0)
        self.idle[name] = self.now

    def own(self, name: str) -> list[Client]:
        return [client for client in self.held if client.role == name]

    def join(self, client: Client) -> None:
        role, leaf = client.role, f"{client.role}/."
        self.get(role)
        self.idle.pop(role, None)
        self.idle.pop(leaf, None)
        self.held[client] = Quantities()
        if self.below(role) and leaf not in self.debts:
            nothing = dict.fromkeys([*NAMES, "others"], 0.0)
            self.debts[leaf] = self.apart.pop(leaf, nothing)

    def leave(self, client: Client) -> None:
        del self.held[client]
        self.wanting.discard(client)
        self.note_idle(client.role)

    def note_idle(self, name: str) -> None:
        if self.own(name):
            return
        if not self.below(name):
            self.idle[name] = self.now
        elif f"{name}/." in self.debts:
            self.idle[f"{name}/."] = self.now

    def advance(self, now: float) -> None:
        while ends := [b.until for b in self.boosts.values() if b.until <= now]:
            self.fade(min(ends))
            over = [name for name, boost in self.boosts.items() if boost.until <= min(ends)]
            for name in over:
                del self.boosts[name]
            for name in over:
                if name in self.debts:
                    self.note_idle(name)
        self.fade(now)

    def fade(self, now: float) -> None:
        elapsed, self.now = now - self.now, now
        towards = {name: self.overuse(name) for name in self.debts}
        for debts in (self.debts, self.apart):
            for name, debt in debts.items():
                for resource, owed in debt.items():
                    rate = towards.get(name, {}).get(resource, 0.0)
                    debt[resource] = decayed(owed, rate, elapsed, TAU)

    def order(self, name: str, weight: float | None, seconds: float | None) -> None:
        if weight is not None and seconds is not None:
            self.boosts[name] = Boost(weight, self.now + seconds)
            return
        self.boosts.pop(name, None)
        self.ordered.pop(name, None)
        if weight is not None:
            self.ordered[name] = weight
        self.note_idle(name)

    def forgive(self, name: str) -> None:
        for node in self.debts:
            if node == name or node.startswith(name + "/"):
                self.debts[node] = dict.fromkeys([*NAMES, "others"], 0.0)

    def owes(self, name: str) -> bool:
        return max(self.debts[name][resource] for resource in NAMES) >= NEGLIGIBLE_COMMITMENT

    def forget_idle(self) -> None:
        for name, debt in list(self.apart.items()):
            if max(debt[resource] for resource in NAMES) < NEGLIGIBLE_COMMITMENT:
                del self.apart[name]
        long = [name for name, since in self.idle.items() if self.now - since >= 300.0]
        by_age = sorted(self.idle, key=lambda name: self.idle[name])
        for name in max(long, by_age[: max(len(by_age) - 3, 0)], key=len):
            if name not in self.idle:
                continue
            if name == "e" or name in self.ordered or name in self.boosts:
                del self.idle[name]
            elif not self.owes(name):
                del self.idle[name], self.debts[name]
                above = name.rpartition("/")[0]
                if above and not name.endswith("/.") and self.below(above) in ([], [f"{above}/."]):
                    self.debts.pop(f"{above}/.", None)
                    self.idle.pop(f"{above}/.", None)
                    self.note_idle(above)

    def memory(self) -> dict[str, RememberedUser]:
        return {
            name: RememberedUser(
                commitments={resource: debt[resource] for resource in NAMES},
                overuse=self.overuse(name) if name in self.debts else {},
                others=debt["others"],
                weight=self.ordered.get(name),
                boost=self.boosts.get(name),
            )
            for name, debt in (self.apart | self.debts).items()
        }

    def inherit(self, memory: Memory, elapsed: float) -> None:
        """Take over another service's memory, after clients have reported their allocations."""
        now = {name: self.overuse(name) for name in self.debts}
        for name, remembered in memory.users.items():
            both = {
                n: min(remembered.overuse.get(n, 0.0), now.get(name, {}).get(n, 0.0)) for n in NAMES
            }
            debt = {n: decayed(remembered.commitments[n], both[n], elapsed, TAU) for n in NAMES}
            debt["others"] = decayed(remembered.others, 0.0, elapsed, TAU)
            owes = max(debt[n] for n in NAMES) >= NEGLIGIBLE_COMMITMENT
            boost = (
                remembered.boost if remembered.boost and remembered.boost.until > self.now else None
            )
            if name.endswith("/.") and name not in self.debts:
                if owes:
                    self.apart[name] = debt
            elif name in self.debts or owes or remembered.weight or boost:
                self.get(name)
                self.debts[name] = debt
                if remembered.weight:
                    self.ordered[name] = remembered.weight
                if boost:
                    self.boosts[name] = boost


def built(plainly: Plainly) -> Users:
    """Return the real users with the same clients, without any commitments."""
    users = Users(SETTINGS, plainly.now, ())
    users.set_capacity(plainly.capacity)
    users.set_charging(charging=plainly.charging)
    for client, held in plainly.held.items():
        user = users.get(client.role)
        users.add(user, client)
        users.set_wanting(user, client, wanting=client in plainly.wanting)
        users.allocate(user, client, held)
    return users


class Walk:
    """Applies random operations to the real users and to the plain model."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.plainly = Plainly(1000.0)
        self.users = built(self.plainly)
        self.told: dict[str, StoredTrajectory] = {}
        """Memory according to an observer of all changes."""

    def step(self) -> None:
        client = Client(self.chance.choice(ROLES), f"f{self.chance.randint(1, 2)}")
        happens = self.chance.choice("ccccccccootttss")
        if happens == "c" and client not in self.plainly.held:
            self.users.add(self.users.get(client.role), client)
            self.plainly.join(client)
        elif happens == "c":
            self.change(client, self.users.get(client.role))
        elif happens == "o":
            self.order(self.chance.choice([n for n in self.plainly.debts if n[-1] != "."]))
        elif happens == "s":
            self.succeed()
        else:
            now = self.plainly.now + self.chance.choice([0.0, 1.0, 60.0, 300.0])
            for accounts in (self.users, self.plainly):
                accounts.advance(now)
                accounts.forget_idle()

    def change(self, client: Client, user: User) -> None:
        users, plainly = self.users, self.plainly
        amount = Quantities({"cpus": self.chance.randint(0, 30_000), "mem": 1000})
        match self.chance.randint(0, 6):
            case 0 | 6:
                users.release(user, client, plainly.held[client])
                users.remove(user, client)
                plainly.leave(client)
            case 1 | 2:
                users.set_wanting(user, client, wanting=client not in plainly.wanting)
                plainly.wanting ^= {client}
            case 3 if plainly.held[client].contains(amount):
                users.release(user, client, amount)
                plainly.held[client] -= amount
            case _:
                users.allocate(user, client, amount)
                plainly.held[client] += amount

    def order(self, name: str) -> None:
        users, plainly, chance = self.users, self.plainly, self.chance
        match chance.randint(0, 5):
            case 0:
                weights = {chance.choice(ROLES): chance.choice([0.5, 1.0, 3.0])}
                users.set_weights(weights)
                plainly.masters |= weights
            case 1 | 2:
                weight, seconds = chance.choice([(4.0, None), (None, None), (5.0, 70.0)])
                users.order_weight(name, weight, seconds)
                plainly.order(name, weight, seconds)
            case 3:
                owed, inherited = {"cpus": chance.random()}, chance.choice([0.0, 0.3])
                users.set_commitments(name, owed, inherited)
                plainly.debts[name] = {**owed, "mem": inherited, "others": inherited}
            case 4:
                users.reset_commitments(name)
                plainly.forgive(name)
            case _:
                plainly.charging = not plainly.charging
                users.set_charging(charging=plainly.charging)

    def succeed(self) -> None:
        """Replace the users by a successor with their memory."""
        memory, elapsed = self.users.memory(), self.chance.choice([0.0, 20.0, 200.0])
        before, self.plainly = self.plainly, Plainly(self.plainly.now + elapsed)
        self.plainly.capacity, self.plainly.charging = before.capacity, before.charging
        for client, held in before.held.items():
            self.plainly.join(client)
            self.plainly.held[client] = held
        self.plainly.wanting = before.wanting
        self.users = built(self.plainly)
        self.users.inherit(memory)
        self.plainly.inherit(memory, elapsed)
        self.told.clear()

    def check(self) -> None:
        """Compare all results, in any order of questions."""
        looks = [self.stand, self.stand_alone, self.are_remembered, self.have_changed]
        for look in self.chance.sample(looks, len(looks)):
            look()

    def stand(self) -> None:
        users, plainly = self.users, self.plainly
        standings = {standing.user: standing for standing in users.standings()}
        assert standings.keys() == plainly.debts.keys() == set(users.names())
        for name, standing in standings.items():
            assert standing.weight == plainly.weight(name)
            assert standing.entitlement == pytest.approx(plainly.entitlement(name))
            assert standing.allocation == plainly.holds(name)
            assert standing.active == any(c in plainly.wanting for c in plainly.clients(name))

    def stand_alone(self) -> None:
        """Compare the standing of a single user, with one of three first questions."""
        name = self.chance.choice([*self.plainly.debts, "x/.", "e/.", "x"])
        known = name in self.plainly.debts
        entitlement = pytest.approx(self.plainly.entitlement(name)) if known else None
        for ask in self.chance.sample([self.standing, self.twin, self.counted], 3):
            assert ask(name) == entitlement

    def standing(self, name: str) -> float | None:
        standing = self.users.standing(name)
        return None if standing is None else standing.entitlement

    def twin(self, name: str) -> float | None:
        twin = self.users.twin(name)
        return None if twin is None else twin.entitlement(name)

    def counted(self, name: str) -> float | None:
        former = self.users.count(name)
        return None if former is None else former.state.entitlement

    def are_remembered(self) -> None:
        memory = self.users.memory()
        assert (memory.time, memory.tau) == (self.plainly.now, TAU)
        assert_alike(memory.users, self.plainly.memory())

    def have_changed(self) -> None:
        changes = self.users.changes()
        if changes.complete:
            self.told.clear()
        for name in changes.removed:
            self.told.pop(name, None)
        self.told.update(changes.courses)
        now = self.plainly.now
        assert_alike({n: c.at(now) for n, c in self.told.items()}, self.plainly.memory())


def assert_alike(
    actual: Mapping[str, RememberedUser], expected: Mapping[str, RememberedUser]
) -> None:
    assert actual.keys() == expected.keys()
    for name, user in actual.items():
        wanted = expected[name]
        assert user.commitments == pytest.approx(wanted.commitments, abs=1e-9)
        assert user.overuse == pytest.approx(wanted.overuse, abs=1e-9)
        assert user.others == pytest.approx(wanted.others, abs=1e-9)
        assert (user.weight, user.boost) == (wanted.weight, wanted.boost)


@pytest.mark.parametrize("seed", range(8))
def test_users_equal_the_plain_model_after_any_operations(seed: int) -> None:
    walk = Walk(seed)
    for _ in range(150):
        walk.step()
        walk.check()


def test_a_change_of_one_user_is_reported_for_that_user_and_its_ancestors_only() -> None:
    users = new_users(SDRF)
    client = join(users, "a/b")
    for role in ("a", "a/d", "e"):
        join(users, role)
    assert users.changes().complete
    assert users.changes().courses == {}
    users.allocate(users.get("a/b"), client, Quantities.parse("cpus:1"))
    changes = users.changes()
    assert (set(changes.courses), changes.complete) == ({"a", "a/b"}, False)


def test_an_allocation_is_shown_for_its_role_virtual_leaf_and_ancestors() -> None:
    users = new_users(SDRF)
    for role in ("a", "a/b", "a/b/c", "e"):
        join(users, role)
    assert users.get("e").display_names == ("e",)
    assert users.get("a").display_names == ("a", "a/.")
    assert users.get("a/b").display_names == ("a/b", "a/b/.", "a")
    assert users.get("a/b/c").display_names == ("a/b/c", "a/b", "a")


@pytest.mark.parametrize(
    ("owed", "stays"), [(NEGLIGIBLE_COMMITMENT, True), (0.999 * NEGLIGIBLE_COMMITMENT, False)]
)
def test_a_user_with_a_commitment_of_a_thousandth_of_the_cluster_or_more_stays_known(
    owed: float,
    stays: bool,  # noqa: FBT001 - a parameter of the test
) -> None:
    users, debt = new_users(replace(DRF, forget_after=0.0)), RememberedUser({"cpus": owed})
    users.inherit(Memory(1000.0, {"left": debt, "apart/.": debt}))
    client = join(users, "a")
    join(users, "a/b")
    users.inherit(Memory(1000.0, {"a/.": debt}))
    users.remove(users.get("a"), client)
    users.forget_idle()
    owing = {"left", "apart/.", "a/."}
    assert owing & users.memory().users.keys() == (owing if stays else set())


def test_roles_beyond_the_depth_limit_are_not_inherited() -> None:
    users = new_users(replace(SDRF, limits=Limits(role_depth=2)))
    owes = RememberedUser({"cpus": 0.5})
    users.inherit(Memory(1000.0, dict.fromkeys(("a", "a/b", "a/b/c", "e/f/g"), owes)))
    assert set(users.names()) == {"a", "a/b"}


def test_a_user_known_for_an_ordered_weight_only_is_forgotten_after_its_withdrawal() -> None:
    users = new_users(replace(SDRF, forget_after=10.0))
    users.inherit(Memory(1000.0, {"a": RememberedUser(weight=2.0)}))
    users.advance(1020.0)
    users.forget_idle()
    users.order_weight("a", None)
    known = []
    for now in (1020.0, 1029.0, 1030.0):
        users.advance(now)
        users.forget_idle()
        known.append("a" in users)
    assert known == [True, True, False]


def test_an_observer_learns_of_commitments_that_decayed_completely() -> None:
    users = new_users(SDRF)
    users.inherit(Memory(1000.0, {"a/.": RememberedUser({"cpus": 0.01})}))
    assert set(users.changes().courses) == {"a/."}
    users.advance(2000.0)
    users.forget_idle()
    changes = users.changes()
    assert (changes.complete, changes.courses) == (False, {})
    assert set(changes.removed) == {"a/."}


def test_a_forgiven_virtual_leaf_reports_no_commitment() -> None:
    users = new_users(SDRF)
    users.inherit(Memory(1000.0, {"a/.": RememberedUser({"cpus": 0.5})}))
    join(users, "a/b")
    join(users, "a")
    users.forgive_all()
    assert users.changes().courses["a/."].remembered.commitments["cpus"] == 0.0


def test_a_role_that_was_left_after_its_sub_roles_is_forgotten_after_them() -> None:
    users = new_users(replace(DRF, forget_after=10.0))
    clients = [join(users, "a"), join(users, "a/b")]
    join(users, "e/f")
    users.remove(users.get("e"), join(users, "e"))
    known = []
    for now in (1000.0, 1005.0, 1010.0, 1015.0, 1020.0):
        users.advance(now)
        if clients:
            client = clients.pop()
            users.remove(users.get(client.role), client)
        users.forget_idle()
        known.append(set(users.names()))
    stay, everybody = {"e", "e/f"}, {"a", "a/.", "a/b", "e", "e/.", "e/f"}
    assert known == [everybody, everybody, {"a"} | stay, {"a"} | stay, stay]


@pytest.mark.parametrize(
    ("left", "held"),
    [(RememberedUser({"cpus": 0.2}, {"cpus": 0.3}), 0), (RememberedUser({"cpus": 0.2}), 80)],
)
def test_overuse_only_before_or_only_after_a_gap_is_not_charged(
    left: RememberedUser, held: int
) -> None:
    users = new_users(SDRF)
    if held:
        client = join(users, "a")
        users.allocate(users.get("a"), client, Quantities({"cpus": 1000 * held}))
        join(users, "e")
    users.inherit(Memory(1000.0 - HALF_LIFE, {"a": left}))
    standing = users.standing("a")
    assert standing is not None
    assert standing.commitments["cpus"] == pytest.approx(0.1)


def test_a_stored_trajectory_gives_commitments_at_any_later_instant() -> None:
    then = RememberedUser({"cpus": 0.5, "gpus": 0.5}, {"cpus": 0.25}, others=0.5)
    course = StoredTrajectory(1000.0, TAU, then)
    assert course.at(999.0) == then
    assert course.at(1000.5).commitments["gpus"] == pytest.approx(0.5 * 0.5 ** (0.5 / HALF_LIFE))
    later = course.at(1000.0 + HALF_LIFE)
    assert later.commitments == pytest.approx({"cpus": 0.375, "gpus": 0.25})
    assert later.others == pytest.approx(0.25)
    assert StoredTrajectory(1000.0, None, then).at(2000.0) == then


def test_users_that_are_added_later_are_metered_on_every_level() -> None:
    users, meter = new_users(SDRF), Meter()
    users.attach(meter)
    client = join(users, "a/b")
    users.allocate(users.get("a/b"), client, Quantities.parse("cpus:2"))
    users.advance(1010.0)
    for name in users.names():
        users.count(name)
    meter.counted.add_up()
    [tallies] = meter.counted.users.values()
    held = {name: tally.resources["cpus"].held for name, tally in tallies.items()}
    assert held == {"a": 20_000.0, "a/b": 20_000.0}
