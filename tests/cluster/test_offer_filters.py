"""Offer filters compared with a plain list of filters."""

import itertools
import math
from collections import Counter, OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typing_extensions import override

from allocator import build
from allocator.cluster.frameworks.framework import Client
from allocator.cluster.input.limits import Limits
from allocator.cluster.offers import offer_filters
from allocator.cluster.offers.offer_filters import OfferFilters, parse_filter_duration
from allocator.cluster.resources import Resources, parse_total
from allocator.contract import allocator_pb2 as contract
from allocator.contract import mesos_pb2 as mesos
from tests.cluster.master_side import MasterSide, framework_info, resources
from tests.counted import counted, counted_steps, things
from tests.examples import examples

CLIENTS = [Client(role, framework) for role in "ab" for framework in ("f1", "f2", "f3")]
PRINCIPALS = {client: "p" + client.framework for client in CLIENTS}
AGENTS = ["s1", "s2"]
SIZES = {size: parse_total(resources(f"cpus:{size};mem:{100 * size}")) for size in (1, 2, 3)}

clients, agents = st.sampled_from(CLIENTS), st.sampled_from(AGENTS)
sizes = st.sampled_from(sorted(SIZES))
steps = st.one_of(
    st.tuples(st.just("add"), clients, agents, sizes, st.integers(0, 30)),
    st.tuples(st.just("drop"), clients),
    st.tuples(st.just("forget"), clients),
    st.tuples(st.just("drop_agent"), agents),
    st.tuples(st.just("expire"), st.integers(0, 5)),
)


@dataclass
class PlainFilters:
    """Offer filters as entries of a list."""

    entries: list[tuple[Client, str, Resources, int]] = field(default_factory=list)

    def over(self, now: int) -> set[str]:
        """Return agents with an expired filter; of equal filters the latest end counts."""
        longest: dict[tuple[Client, str, object], int] = {}
        for client, agent, refused, until in self.entries:
            same = client, agent, refused.key
            longest[same] = max(until, longest.get(same, 0))
        return {agent for (_, agent, _), until in longest.items() if until < now}

    def refuses(self, client: Client, agent: str, offer: Resources) -> bool:
        return any(
            (c, a) == (client, agent) and offer in refused for c, a, refused, _ in self.entries
        )


@examples(300)
@given(st.lists(steps, max_size=40), st.integers(0, 3))
def test_offer_filters_exclude_exactly_what_a_plain_list_excludes(
    history: list[tuple[object, ...]], few: int
) -> None:
    """The limits of slots, filters and instants before a clean-up or an index are varied."""
    with mock.patch.multiple(offer_filters, _FEW=few, _MANY=few, _INDEXED=few):
        compare(history)


def apply_step(
    step: tuple[object, ...], filters: OfferFilters, plain: PlainFilters, now: int
) -> tuple[int, set[str]]:
    """Apply a step to both.

    Returns:
        The time after the step, and agents with an expired filter that `expire` has not returned.
    """
    missed = set[str]()
    match step:
        case ("add", Client() as client, str() as agent, int() as size, int() as lasts):
            until, principal = now + lasts, PRINCIPALS[client]
            filters.add(client, agent, SIZES[size], until, principal=principal)
            plain.entries.append((client, agent, SIZES[size], until))
        case ("drop" | "forget" as method, Client() as client):
            getattr(filters, method)(client)
            plain.entries = [e for e in plain.entries if e[0] != client]
        case ("drop_agent", str() as agent):
            filters.drop_agent(agent)
            plain.entries = [e for e in plain.entries if e[1] != agent]
        case ("expire", int() as passed):
            now += passed
            missed = plain.over(now) - set(filters.expire(now))
            plain.entries = [e for e in plain.entries if e[3] >= now]
    return now, missed


def compare(history: list[tuple[object, ...]]) -> None:
    filters, plain, now = OfferFilters(), PlainFilters(), 0
    for step in history:
        now, missed = apply_step(step, filters, plain, now)
        assert not missed
        for agent in AGENTS:
            for offer in SIZES.values():
                blocked = filters.declining_clients(agent, offer)
                everybody = sum(1 << filters.slot(client) for client in CLIENTS)
                if filters.clients_on(agent):
                    few_blocked = filters.few_declining_clients(agent, offer, everybody)
                    assert few_blocked == blocked & everybody
                assert blocked & everybody & ~filters.clients_on(agent) == 0
                for client in CLIENTS:
                    refused = plain.refuses(client, agent, offer)
                    assert filters.refuses(client, agent, offer) == refused
                    assert bool(blocked >> filters.slot(client) & 1) == refused
                    bit = 1 << filters.slot(client)
                    assert filters.declining_clients(agent, offer, bit) == blocked & bit
    distinct = {(client, agent, r.key) for client, agent, r, _ in plain.entries}
    assert len(filters) == len(distinct)
    assert sum(map(filters.count, CLIENTS)) == len(distinct)


MOST_ENTRIES = 6


@examples(300)
@given(st.lists(steps, max_size=60))
def test_of_too_many_declined_resources_only_a_principal_with_more_than_its_share_loses(
    history: list[tuple[object, ...]],
) -> None:
    """Each principal keeps an equal share of the limit."""
    with mock.patch.multiple(offer_filters, _OF_AN_AGENT=1):
        compare_shares(history)


def compare_shares(history: list[tuple[object, ...]]) -> None:
    filters, plain, now = OfferFilters(0, MOST_ENTRIES), PlainFilters(), 0
    stored: list[tuple[str, str, object, int]] = []  # dropped filters take memory for a while
    safe = dict.fromkeys(PRINCIPALS.values(), True)
    for step in history:
        now, _ = apply_step(step, filters, plain, now)
        stored = [e for e in stored if e[3] >= now and step != ("drop_agent", e[1])]
        if step[0] == "add":
            client, agent, declined, until = plain.entries[-1]
            principal = PRINCIPALS[client]
            stored.append((principal, agent, declined.key, until))
            own = {entry[:3] for entry in stored if entry[0] == principal}
            safe[principal] &= len(own) <= MOST_ENTRIES // len(safe)
        assert sum(len(list(filters.declined_on(agent))) for agent in AGENTS) <= MOST_ENTRIES
        for client, agent, offer in itertools.product(CLIENTS, AGENTS, SIZES.values()):
            refused = filters.refuses(client, agent, offer)
            expected = plain.refuses(client, agent, offer)
            assert refused == expected or (expected and not safe[PRINCIPALS[client]])


def one_by_one() -> OfferFilters:
    """Return offer filters that choose each entry to drop among all entries."""
    if build() == "compiled":
        pytest.skip("classes of compiled modules have no interpreted subclass")

    class OneByOne(OfferFilters):
        @override
        def _drop_beyond_limits(self, agent: str) -> None:
            while self._weights.get(agent, 0) > max(MOST_ENTRIES // 2, 1):
                self._drop_oldest_of_most(list(self._by_agent[agent].values()))
            while self._weight > MOST_ENTRIES:
                largest = max(self._owned_weights, key=self._owned_weights.__getitem__)
                self._drop_oldest_of_most(list(self._owned[largest]))

        def _drop_oldest_of_most(self, entries: list[Any]) -> None:
            weights = Counter[str]()
            for entry in entries:
                weights[entry.principal] += entry.weight
            [(principal, _)] = weights.most_common(1)
            self._drop_for_owner(next(e for e in entries if e.principal == principal))

    return OneByOne(0, MOST_ENTRIES)


@examples(300)
@given(st.lists(st.tuples(clients, agents, st.integers(1, 9), st.sampled_from("pqr")), max_size=60))
def test_the_dropped_filters_are_those_of_the_principal_with_the_most_entries_at_each_moment(
    history: list[tuple[Client, str, int, str]],
) -> None:
    """Frameworks change their principals, as Mesos 1.8 allows."""
    declined = {size: parse_total(resources(f"cpus:{size}")) for size in range(1, 10)}
    with mock.patch.multiple(offer_filters, _OF_AN_AGENT=2):
        filters, plain = OfferFilters(0, MOST_ENTRIES), one_by_one()
        for client, agent, size, principal in history:
            for tried in (filters, plain):
                tried.add(client, agent, declined[size], 10, principal=principal)
            assert state_of(filters) == state_of(plain)


def state_of(filters: OfferFilters) -> list[object]:
    """Return the entries of each principal, oldest first, with the clients that declined them."""
    return [
        (principal, entry.agent, entry.resources.key, entry.until)
        for principal, entries in filters._owned.items()
        for entry in entries
    ]


@pytest.mark.parametrize("number_of_agents", [1, 30])
@pytest.mark.parametrize("moved", [False, True])
def test_a_filter_at_the_limit_takes_few_steps_for_each_entry_that_changes_its_principal(
    number_of_agents: int, *, moved: bool
) -> None:
    """A client of another principal has declined the same resources, or the framework has moved."""

    def steps(entries: int) -> int:
        most = entries if number_of_agents > 1 else 25 * entries
        filters = OfferFilters(0, most)
        for number in range(entries):
            refused = parse_total(resources(f"cpus:{number + 1}"))
            agent = f"s{number % number_of_agents}"
            filters.add(CLIENTS[0], agent, refused, 10, principal="p")
            if not moved:
                filters.add(CLIENTS[1], agent, refused, 10, principal="q")
        refused, owned = parse_total(resources("cpus:0.5")), filters._owned["p"]
        assert isinstance(owned, OrderedDict), "a dictionary would search for its first key"
        count = counted(lambda: filters.add(CLIENTS[0], "s0", refused, 10, principal="q"))
        assert len(owned) < 0.6 * entries, "about half of the entries have changed their principal"
        return count

    assert steps(1200) < 5 * steps(300)


def test_a_tenant_with_ever_different_amounts_keeps_the_limit_of_filters() -> None:
    master = MasterSide(limits=Limits(all_filters=25))
    for principal in ("honest", "hostile"):
        info = mesos.FrameworkInfo.FromString(framework_info(principal, principal))
        info.principal = principal
        master.send(
            contract.AddFramework(
                framework_id=principal, info=info.SerializeToString(), active=True
            )
        )
    year = mesos.Filters(refuse_seconds=365 * 86400.0).SerializeToString()
    for number in range(50):
        agent, principal = f"s{number}", "honest" if number < 5 else "hostile"
        held = resources(f"cpus:{number + 1}", principal)
        master.add_agent(agent, "cpus:100", {principal: held})
        master.send(
            contract.RecoverResources(
                framework_id=principal, agent_id=agent, resources=held, filters=year
            )
        )
    filters = master.engine._cluster.filters
    assert filters.count(Client("honest", "honest")) == 5
    assert len(filters) == 25


@pytest.mark.parametrize("kinds", [1, 31, 32])
def test_declined_resources_of_many_kinds_count_several_times(kinds: int) -> None:
    """An agent may have entries of a weight of 40 in all. 16 kinds weigh as much as an entry."""
    filters, client = OfferFilters(0, 40 * 25), Client("a", "f")
    for number in range(50):
        text = ";".join(f"r{kind}:{number + 1}" for kind in range(kinds))
        filters.add(client, "s", parse_total(resources(text)), 10, principal="p")
    assert len(filters) == 40 // (1 + kinds // 16)
    assert filters.refuses(client, "s", parse_total(resources("r0:50"))), "the last ones stay"


@pytest.mark.parametrize("leave", [OfferFilters.drop, OfferFilters.forget])
def test_filters_that_are_dropped_repeatedly_leave_no_memory_behind(
    leave: Callable[[OfferFilters, Client], None],
) -> None:
    filters = OfferFilters()
    year = 365 * 86400 * 10**9
    for _ in range(50):
        for client in CLIENTS:
            for number in range(100):
                filters.add(client, f"s{number}", SIZES[1], year)
            leave(filters, client)
    filters.add(CLIENTS[0], "s1", SIZES[1], year)
    assert len(filters) == 1
    assert filters.refuses(CLIENTS[0], "s1", SIZES[1])
    assert sum(len(list(filters.declined_on(f"s{number}"))) for number in range(100)) < 1001
    assert max(map(filters.slot, CLIENTS)) < 40  # numbers of dropped slots are reused


@pytest.mark.parametrize("others", [0, 5000])
@pytest.mark.parametrize("seconds", [None, 5, 365 * 86400])
@pytest.mark.parametrize("leave", [OfferFilters.drop, OfferFilters.forget])
def test_slot_numbers_of_clients_stay_small_however_often_filters_are_dropped(
    leave: Callable[[OfferFilters, Client], None], seconds: int | None, others: int
) -> None:
    """A mask of clients has as many bits as the largest slot number; None: no filter exists."""
    filters = OfferFilters()
    for number in range(others):
        filters.add(CLIENTS[0], f"s{number}", SIZES[1], 400 * 86400 * 10**9)
    numbers = set()
    for second in range(2000):
        client = CLIENTS[1] if leave is OfferFilters.drop else Client("b", f"f{second}")
        if seconds is not None:
            filters.add(client, "s1", SIZES[1], (second + seconds) * 10**9)
        filters.expire(second * 10**9)
        numbers.add(filters.slot(client))
        leave(filters, client)
    assert max(numbers) < 70
    assert len(filters) == others
    assert not others or filters.declining_clients("s1", SIZES[1]) >> filters.slot(CLIENTS[0]) & 1


def refused_for_long_and_for_short(filters: OfferFilters, second: int) -> None:
    filters.add(CLIENTS[0], "s1", SIZES[1], 10**18)
    filters.add(CLIENTS[1], "s1", SIZES[1], second * 10**9 - 1)


def agents_that_come_and_go(filters: OfferFilters, second: int) -> None:
    filters.add(CLIENTS[0], f"s{second}", SIZES[1], 10**18 + second)
    filters.drop_agent(f"s{second}")


def refused_again_after_being_revived(filters: OfferFilters, second: int) -> None:
    filters.add(CLIENTS[0], "s1", SIZES[1], 10**18 + second)
    filters.drop(CLIENTS[0])


@pytest.mark.parametrize(
    "happens",
    [refused_for_long_and_for_short, agents_that_come_and_go, refused_again_after_being_revived],
)
def test_expired_filters_leave_no_memory_behind_whatever_their_duration(
    happens: Callable[[OfferFilters, int], None],
) -> None:
    filters = OfferFilters()
    for second in range(10_000):
        happens(filters, second)
        filters.expire(second * 10**9)
    assert len(filters) <= 2
    assert things(filters) < 2000


def test_dropping_a_thousand_filters_of_a_client_keeps_the_filters_of_other_clients() -> None:
    filters = OfferFilters()
    year = 365 * 86400 * 10**9
    before, leaving, after = CLIENTS[:3]
    filters.add(before, "s1", SIZES[1], year)
    for number in range(1001):
        filters.add(leaving, f"s{number}", SIZES[1], year)
    filters.add(after, "s1", SIZES[1], year)
    filters.add(after, "s2", SIZES[1], year)
    filters.drop(leaving)
    assert not list(filters.declined_on("s1000"))
    for agent, refusing in {"s1": {before, after}, "s2": {after}, "s3": set()}.items():
        blocked = filters.declining_clients(agent, SIZES[1])
        assert {client for client in CLIENTS if blocked >> filters.slot(client) & 1} == refusing
        assert {
            client for client in CLIENTS if filters.refuses(client, agent, SIZES[1])
        } == refusing


@pytest.mark.parametrize("how", ["expire", "revive", "forget"])
def test_many_filters_that_end_together_are_removed_in_many_short_steps(how: str) -> None:
    filters = OfferFilters()
    for number in range(8000):
        filters.add(CLIENTS[number % 2], f"s{number // 2}", SIZES[1], 5)
    if how == "expire":
        costs, agents = counted_steps(filters.expire_in_steps(10))
        assert agents == [f"s{number}" for number in range(4000)]
    else:
        drop = filters.drop_in_steps if how == "revive" else filters.forget_in_steps
        (few, _), (costs, _) = (counted_steps(drop(client)) for client in CLIENTS[:2])
        assert sum(few) < 30, "the filters of the first client are not removed yet"
    assert len(filters) == 0
    assert sum(costs) > 8000, "each filter costs a call"
    assert max(costs) * 3 < sum(costs)


def test_a_client_without_filters_is_excluded_from_no_agent() -> None:
    filters = OfferFilters()
    first, second, unknown = CLIENTS[:3]
    before = filters.slot(first)
    filters.add(second, "s1", SIZES[1], 5)
    assert filters.declining_clients("s1", SIZES[1]) == 1 << filters.slot(second)
    assert not filters.declining_clients("s1", SIZES[1]) >> before & 1
    assert [filters.count(client) for client in (first, second, unknown)] == [0, 1, 0]


def test_equal_filters_each_last_to_their_own_instant_inclusive() -> None:
    filters = OfferFilters()
    for client, until in zip(CLIENTS, (5, 6), strict=False):
        filters.add(client, "s1", SIZES[1], until)
    assert filters.expire(5) == []
    assert filters.expire(6) == ["s1"]
    assert [filters.count(client) for client in CLIENTS[:2]] == [0, 1]
    assert filters.expire(7) == ["s1"]
    assert not list(filters.declined_on("s1")), "no filter remains on the agent"


def test_agents_become_candidates_in_the_order_of_their_declines() -> None:
    filters = OfferFilters()
    for client, agent, until in (
        *((CLIENTS[0], "s1", 5), (CLIENTS[0], "s2", 5), (CLIENTS[1], "s1", 5)),
        *((CLIENTS[0], "s4", 9), (CLIENTS[0], "s3", 4)),
    ):
        filters.add(client, agent, SIZES[1], until)
    assert filters.expire(6) == ["s3", "s1", "s2"]
    assert filters.expire(10) == ["s4"]


def test_an_agent_that_was_removed_expires_only_with_its_new_filters() -> None:
    filters = OfferFilters()
    filters.add(CLIENTS[0], "s1", SIZES[1], 9)
    filters.add(CLIENTS[1], "s1", SIZES[1], 5)
    filters.drop_agent("s1")
    filters.add(CLIENTS[2], "s1", SIZES[1], 20)
    assert filters.expire(10) == []
    assert filters.refuses(CLIENTS[2], "s1", SIZES[1])
    assert filters.expire(21) == ["s1"]


def test_agents_expire_in_the_order_of_their_filters_also_after_a_clean_up() -> None:
    with mock.patch.object(offer_filters, "_MANY", 0):
        filters = OfferFilters()
        for until in (50, 40, 30, 20, 10):
            filters.add(CLIENTS[0], f"s{until}", SIZES[1], until)
        for until in range(61, 80):
            filters.add(CLIENTS[0], "gone", SIZES[1], until)
            filters.drop_agent("gone")
        filters.add(CLIENTS[0], "s60", SIZES[1], 60)
    assert filters.expire(15) == ["s10"]
    assert filters.expire(45) == ["s20", "s30", "s40"]


def test_the_longer_of_two_equal_filters_counts() -> None:
    filters = OfferFilters()
    for until in (5, 9, 3):
        filters.add(CLIENTS[0], "s1", SIZES[1], until)
        assert filters.count(CLIENTS[0]) == 1
    assert filters.refused_until(CLIENTS[0], "s1", SIZES[1]) == 9
    assert filters.expire(9) == ["s1"], "the agent becomes a candidate"
    assert filters.count(CLIENTS[0]) == 1
    filters.expire(10)
    assert filters.count(CLIENTS[0]) == 0


def test_no_filter_remains_for_a_removed_agent() -> None:
    filters = OfferFilters()
    filters.add(CLIENTS[0], "s1", SIZES[1], 5)
    filters.add(CLIENTS[0], "s2", SIZES[1], 5)
    filters.drop_agent("s1")
    assert (len(filters), filters.count(CLIENTS[0])) == (1, 1)
    assert [filters.has_filter(CLIENTS[0], agent) for agent in ("s1", "s2", "s3")] == [
        False,
        True,
        False,
    ]
    assert filters.expire(6) == ["s2"]


@pytest.mark.parametrize(
    ("seconds", "counted"),
    [
        (0.0, 0.0),
        (1e-9, 1e-9),
        (7.5, 7.5),
        (-1e-9, 5.0),
        (math.nan, 5.0),
        (31_536_000.0, 31_536_000.0),
        (31_536_001.0, 31_536_000.0),
        (math.inf, 31_536_000.0),
    ],
)
def test_a_filter_lasts_its_refuse_seconds_within_a_year_and_else_five_seconds(
    seconds: float, counted: float
) -> None:
    data = mesos.Filters(refuse_seconds=seconds).SerializeToString()
    assert parse_filter_duration(data) == (round(counted * 10**9), None)


def test_a_filter_without_readable_refuse_seconds_lasts_five_seconds() -> None:
    assert parse_filter_duration(b"") == (5 * 10**9, None)
    lasts, flaw = parse_filter_duration(b"\xff")
    assert lasts == 5 * 10**9
    assert flaw is not None


@pytest.mark.parametrize("indexed", [4, 64])
def test_beyond_the_limit_a_client_loses_its_filter_on_the_agent_that_ends_first(
    indexed: int,
) -> None:
    """The agent's filters are indexed by client, or are too few for an index."""
    with mock.patch.object(offer_filters, "_INDEXED", indexed):
        compare_surplus()


def compare_surplus() -> None:
    filters = OfferFilters(most=16)
    some, other = CLIENTS[:2]
    amounts = [parse_total(resources(f"cpus:{n + 1};mem:{1000 - n}")) for n in range(40)]
    ends = [100 + number * 7 % 40 for number in range(40)]
    for amount, end in zip(amounts, ends, strict=True):
        filters.add(some, "s1", amount, end)
        filters.add(other, "s2", amount, 1000)
    filters.add(other, "s1", amounts[0], 1000)
    assert filters.count(other) == 17, "each client has a limit on each agent"
    kept = [
        end
        for amount, end in zip(amounts, ends, strict=True)
        if filters.refuses(some, "s1", amount)
    ]
    assert sorted(kept) == sorted(ends)[-16:]
    filters.add(some, "s1", amounts[ends.index(max(ends))], 2000)
    assert filters.count(some) == 16, "a longer filter replaces the filter of equal resources"
    filters.expire(3000)
    assert not filters._by_agent
    assert not filters._by_slot
    assert not filters._due


@pytest.mark.parametrize("indexed", [1, 64])
def test_of_filters_that_end_together_the_filter_of_the_resources_declined_first_is_dropped(
    indexed: int,
) -> None:
    with mock.patch.object(offer_filters, "_INDEXED", indexed):
        filters, own = OfferFilters(most=2), CLIENTS[3]
        bags = [parse_total(resources(f"cpus:{n};mem:{9 - n}")) for n in range(3)]
        for client, bag in zip(CLIENTS, (bags[2], bags[0], bags[1]), strict=False):
            filters.add(client, "s1", bag, 5)
        for bag in (bags[1], bags[0], bags[2]):
            filters.add(own, "s1", bag, 5)
    assert [filters.refuses(own, "s1", bag) for bag in bags] == [True, True, False]
