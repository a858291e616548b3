"""Offer filters against a plain list of them."""

from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from allocator.cluster.filters import OfferFilters
from allocator.cluster.frameworks import Client
from allocator.cluster.resources import Resources, parse_total
from tests.cluster.master_side import resources

CLIENTS = [Client(role, framework) for role in "ab" for framework in ("f1", "f2", "f3")]
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
    """Every filter is an entry of a list."""

    entries: list[tuple[Client, str, Resources, int]] = field(default_factory=list)

    def over(self, now: int) -> set[str]:
        """Return the agents of which something is refused no more; of equals the longest counts."""
        longest: dict[tuple[Client, str, object], int] = {}
        for client, agent, refused, until in self.entries:
            same = client, agent, refused.key
            longest[same] = max(until, longest.get(same, 0))
        return {agent for (_, agent, _), until in longest.items() if until < now}

    def refuses(self, client: Client, agent: str, offer: Resources) -> bool:
        return any(
            (c, a) == (client, agent) and offer in refused for c, a, refused, _ in self.entries
        )


@settings(max_examples=300)
@given(st.lists(steps, max_size=40))
def test_filters_refuse_exactly_what_a_plain_list_of_them_refuses(
    history: list[tuple[object, ...]],
) -> None:
    filters, plain, now = OfferFilters(), PlainFilters(), 0
    for step in history:
        match step:
            case ("add", Client() as client, str() as agent, int() as size, int() as lasts):
                filters.add(client, agent, SIZES[size], now + lasts)
                plain.entries.append((client, agent, SIZES[size], now + lasts))
            case ("drop" | "forget" as what, Client() as client):
                getattr(filters, what)(client)
                plain.entries = [e for e in plain.entries if e[0] != client]
            case ("drop_agent", str() as agent):
                filters.drop_agent(agent)
                plain.entries = [e for e in plain.entries if e[1] != agent]
            case ("expire", int() as passed):
                now += passed
                assert plain.over(now) <= set(filters.expire(now))
                plain.entries = [e for e in plain.entries if e[3] >= now]
        for agent in AGENTS:
            for offer in SIZES.values():
                blocked = filters.blocked(agent, offer)
                for client in CLIENTS:
                    refused = plain.refuses(client, agent, offer)
                    assert filters.refuses(client, agent, offer) == refused
                    assert bool(blocked >> filters.slot(client) & 1) == refused
    distinct = {(client, agent, r.key) for client, agent, r, _ in plain.entries}
    assert len(filters) == len(distinct)
    assert sum(map(filters.count, CLIENTS)) == len(distinct)


def test_filters_that_are_dropped_again_and_again_leave_nothing_behind() -> None:
    filters = OfferFilters()
    year = 365 * 86400 * 10**9
    for _ in range(50):
        for client in CLIENTS:
            for number in range(100):
                filters.add(client, f"s{number}", SIZES[1], year)
            filters.drop(client)
    filters.add(CLIENTS[0], "s1", SIZES[1], year)
    assert len(filters) == 1
    assert filters.refuses(CLIENTS[0], "s1", SIZES[1])
    assert max(map(filters.slot, CLIENTS)) < 40  # numbers of dropped slots are used again


def test_dropping_a_thousand_filters_of_one_changes_nothing_for_others() -> None:
    filters = OfferFilters()
    year = 365 * 86400 * 10**9
    before, leaving, after = CLIENTS[:3]
    filters.add(before, "s1", SIZES[1], year)
    for number in range(1001):
        filters.add(leaving, f"s{number}", SIZES[1], year)
    filters.add(after, "s1", SIZES[1], year)
    filters.add(after, "s2", SIZES[1], year)
    filters.drop(leaving)
    for agent, refusing in {"s1": {before, after}, "s2": {after}, "s3": set()}.items():
        blocked = filters.blocked(agent, SIZES[1])
        assert {client for client in CLIENTS if blocked >> filters.slot(client) & 1} == refusing
        assert {
            client for client in CLIENTS if filters.refuses(client, agent, SIZES[1])
        } == refusing
