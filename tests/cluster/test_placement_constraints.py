"""The syntax of placement constraints, and the agents that satisfy them."""

import ipaddress
from fnmatch import fnmatchcase
from itertools import product
from string import ascii_lowercase, digits
from sys import getsizeof

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allocator.cluster.agents.placement_constraints import (
    Constraint,
    Host,
    Hosts,
    parse_attributes,
    parse_constraint,
)
from allocator.cluster.input.limits import Limits
from allocator.contract import mesos_pb2 as mesos
from tests.counted import counted


def attribute(name: str, value: str) -> mesos.Attribute:
    """Parse one attribute in the syntax of the agent's flag."""
    if value.startswith("["):
        begin, _, end = value[1:-1].partition("-")
        ranges = mesos.Value.Ranges(range=[mesos.Value.Range(begin=int(begin), end=int(end))])
        return mesos.Attribute(name=name, type=mesos.Value.RANGES, ranges=ranges)
    if value.startswith("{"):
        items = mesos.Value.Set(item=value[1:-1].split(","))
        return mesos.Attribute(name=name, type=mesos.Value.SET, set=items)
    try:
        scalar = mesos.Value.Scalar(value=float(value))
    except ValueError:
        text = mesos.Value.Text(value=value)
        return mesos.Attribute(name=name, type=mesos.Value.TEXT, text=text)
    return mesos.Attribute(name=name, type=mesos.Value.SCALAR, scalar=scalar)


def host(name: str, **attributes: str) -> Host:
    listed = [attribute(key, value) for key, value in attributes.items()]
    return Host.of(mesos.SlaveInfo(hostname=name, attributes=listed))


@pytest.mark.parametrize(
    ("items", "inside", "outside"),
    [
        ("node-1", ["node-1", "NODE-1"], ["node-11", "anode-1", "node-1.example"]),
        ("Node-*", ["node-1", "node-"], ["xnode-1"]),
        ("node-[1-3]?.example", ["node-20.example"], ["node-2.example", "node-40.example"]),
        ("*.[!e]*", ["a.b"], ["a.e"]),
        ("10.0.0.7", ["10.0.0.7"], ["10.0.0.8"]),
        ("10.0.0.0/30", ["10.0.0.0", "10.0.0.3"], ["10.0.0.4", "10.0.0.0.example", "node"]),
        ("10.0.0.9-10.0.1.2", ["10.0.0.9", "10.0.0.255", "10.0.1.2"], ["10.0.0.8", "10.0.1.3"]),
        ("fd00::/64", ["fd00::1", "FD00:0:0::1"], ["fd00:0:0:1::1", "10.0.0.1"]),
        ("a, b  10.0.0.1,,c-*", ["a", "b", "10.0.0.1", "c-9"], ["d"]),
    ],
)
def test_a_list_of_hosts_contains_the_hosts_it_names(
    items: str, inside: list[str], outside: list[str]
) -> None:
    hosts = Hosts.parse(items)
    assert [name for name in inside if host(name) not in hosts] == []
    assert [name for name in outside if host(name) in hosts] == []


def test_an_agents_address_may_be_given_by_an_attribute() -> None:
    assert host("node-1", ip="10.0.0.7") in Hosts.parse("10.0.0.0/24")
    assert host("node-1", ip="of no use") not in Hosts.parse("10.0.0.0/24")


@given(
    first=st.integers(0, 2**32 - 1), length=st.integers(0, 300), address=st.integers(0, 2**32 - 1)
)
def test_a_range_contains_the_addresses_between_its_ends(
    first: int, length: int, address: int
) -> None:
    last = min(first + length, 2**32 - 1)
    hosts = Hosts.parse(f"{ipaddress.ip_address(first)}-{ipaddress.ip_address(last)}")
    for candidate in (address, first, last, first - 1, last + 1):
        if 0 <= candidate < 2**32:
            inside = host(str(ipaddress.ip_address(candidate))) in hosts
            assert inside == (first <= candidate <= last)


@pytest.mark.parametrize(
    ("item", "complaint"),
    [
        ("10.0.0.5/24", "has host bits set"),
        ("rack/7", "rack/7"),
        ("10.0.0.9-10.0.0.1", "10.0.0.9-10.0.0.1"),
        ("10.0.0.9-20", "FIRST-LAST"),
        ("10.0.0.9-fd00::1", "FIRST-LAST"),
        ("rack:7", "rack:7"),
    ],
)
def test_an_invalid_item_is_named_in_the_error(item: str, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        Hosts.parse(f"node-1 {item}")


@pytest.mark.parametrize(
    ("wanted", "attributes", "met"),
    [
        ("rack:1", {"rack": "1"}, True),
        ("rack:1.0", {"rack": "1"}, True),
        ("rack:1", {"rack": "2"}, False),
        ("rack:1", {}, False),
        ("rack:a", {"rack": "1"}, False),
        ("zone:west", {"zone": "west"}, True),
        ("zone:West", {"zone": "west"}, False),
        ("zone:west;rack:1", {"zone": "west"}, False),
        ("zone:west;rack:1", {"zone": "west", "rack": "1"}, True),
        ("gpu:V100", {"gpu": "{P100,V100}"}, True),
        ("slot:7", {"slot": "[1-9]"}, True),
        ("slot:10", {"slot": "[1-9]"}, False),
        ("image:a:b", {"image": "a:b"}, True),
    ],
)
def test_an_agent_must_have_all_requested_attributes(
    wanted: str, attributes: dict[str, str], *, met: bool
) -> None:
    constraint = Constraint(attributes=parse_attributes(wanted.split(";")))
    assert constraint.admits(host("node", **attributes)) == met


def labels(**texts: str) -> dict[str | bytes, str | bytes]:
    return {f"longshare.{key}": text for key, text in texts.items()}


def test_all_constraints_of_whitelist_blacklist_and_attribute_labels_must_be_met() -> None:
    given_labels = labels(
        whitelist="node-*", blacklist="node-3 node-4", attributes=" rack:1; zone:west ;"
    )
    constraint = parse_constraint(given_labels, Limits())
    assert constraint.admits(host("node-1", rack="1", zone="west"))
    assert not constraint.admits(host("node-3", rack="1", zone="west"))
    assert not constraint.admits(host("mode-1", rack="1", zone="west"))
    assert not constraint.admits(host("node-1", rack="1"))
    assert str(constraint) == (
        "whitelist node-* and blacklist node-3, node-4 and attributes rack:1;zone:west"
    )


def test_labels_without_constraints_admit_every_agent() -> None:
    for given_labels in (
        labels(),
        labels(whitelist="", blacklist=" , ", attributes=";"),
        labels(other="x"),
    ):
        constraint = parse_constraint(given_labels, Limits())
        assert not constraint
        assert constraint.admits(host("anywhere"))


@pytest.mark.parametrize(
    ("label", "text"), [("whitelist", "a/b"), ("blacklist", "10.0.0.1-9"), ("attributes", "rack")]
)
def test_an_unreadable_label_admits_no_agent_and_is_reported(label: str, text: str) -> None:
    constraint = parse_constraint(labels(**{label: text}), Limits())
    assert constraint
    assert not constraint.admits(host("a"))
    assert str(constraint).startswith(f"label longshare.{label}: ")
    assert text in str(constraint)


@pytest.mark.parametrize("brackets", ["[" * 255, "[!]" * 80 + "[" * 10, "a[1-3]" + "[" * 100])
def test_a_glob_with_an_unclosed_bracket_matches_the_bracket_itself(brackets: str) -> None:
    hosts = Hosts((brackets,))
    for name in (brackets, brackets[:-1], "a1" + "[" * 100, "a[1-3]" + "[" * 100):
        assert (host(name) in hosts) == fnmatchcase(name, brackets)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[" * 10_000, "longer than the name of any host"),
        (" ".join(f"node-{number}*" for number in range(33)), "more than 32 globs"),
        (" ".join(f"10.0.{number}.0/24" for number in range(33)), "more than 32 globs"),
        ("x" * 70_000, "more than 65536 characters"),
    ],
)
def test_a_list_of_hosts_beyond_a_limit_admits_no_agent_and_names_the_limit(
    text: str, said: str
) -> None:
    constraint = parse_constraint(labels(whitelist=text), Limits())
    assert said in str(constraint)
    assert len(str(constraint)) < 400
    assert not constraint.admits(host("node-1"))


def test_a_long_list_of_plain_names_is_within_the_limits() -> None:
    names = " ".join(f"node-{number}" for number in range(6000))
    assert parse_constraint(labels(whitelist=names), Limits()).admits(host("node-5999"))


def test_attributes_beyond_a_limit_admit_no_agent_and_name_the_limit() -> None:
    text = ";".join(f"rack:{number}" for number in range(33))
    constraint = parse_constraint(labels(attributes=text), Limits())
    assert "limits.attributes" in str(constraint)
    assert not constraint.admits(host("node-1"))


def test_a_host_name_and_a_list_of_hosts_may_be_as_long_as_their_limits() -> None:
    assert host("x" * 255) in Hosts.parse("x" * 255)
    with pytest.raises(ValueError, match="longer than the name of any host"):
        Hosts.parse("x" * 256)
    text = ";".join(f"rack:{number}" for number in range(32))
    assert not parse_constraint(labels(attributes=text), Limits()).unreadable


_ITEMS = st.one_of(
    st.from_regex(r"[a-cA-C]{1,3}(-[0-9]{1,2})?", fullmatch=True),
    st.sampled_from(["é", "日本", "x" * 255, "1.2.3.999", "*", "a*", "?b*", "*-[1-3]", "[!a]*"]),
    st.sampled_from(["10.0.0.1", "10.0.0.0/30", "10.0.0.2-10.0.0.9", "fd00::/126", "::a00:1"]),
)
_HOSTNAMES = st.one_of(
    _ITEMS.filter(lambda item: not set(item) & set("*?[/")),
    st.sampled_from(["10.0.0.3", "10.0.0.9", "10.0.0.10", "fd00::3", "fd00::4", ",", "a,b"]),
)


def lists_host(items: list[str], hostname: str) -> bool:
    """Return whether a list contains a host, by a comparison with each item."""
    address = parsed(hostname)
    for item in items:
        first, dash, last = item.partition("-")
        begin, end = parsed(first), parsed(last if dash else first)
        if "/" in item:
            matched = address is not None and address in ipaddress.ip_network(item)
        elif begin is None or end is None:
            matched = fnmatchcase(hostname.lower(), item.lower())
        else:
            same_kind = address is not None and address.version == begin.version
            matched = same_kind and int(begin) <= int(address or 0) <= int(end)
        if matched:
            return True
    return False


def parsed(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """Return an address; None if the text is no address."""
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        return None


@given(items=st.lists(_ITEMS, max_size=150), hostnames=st.lists(_HOSTNAMES, max_size=20))
def test_a_list_contains_the_same_hosts_as_its_single_items(
    items: list[str], hostnames: list[str]
) -> None:
    hosts = Hosts(tuple(items))
    for hostname in hostnames:
        assert (host(hostname) in hosts) == lists_host(items, hostname)
    assert Hosts(hosts.items) == hosts
    assert hash(Hosts(hosts.items)) == hash(hosts)
    assert bool(hosts) == bool(items)


def test_every_name_of_a_long_list_and_no_other_name_is_in_it() -> None:
    names = [f"{'n' * (number % 50)}{number}" for number in range(0, 9000, 2)]
    hosts = Hosts(tuple(names))
    assert all(host(f"n{name}"[1:]) in hosts for name in names)
    assert not any(host(f"{'n' * (number % 50)}{number}") in hosts for number in range(1, 9000, 2))
    assert not any(host(name) in hosts for name in ("", ",", "0,", "zzz"))


def has_value(attribute: mesos.Attribute, value: str) -> bool:
    """Return whether an attribute has a required value, by reading the attribute's message."""
    if attribute.type == mesos.Value.TEXT:
        return attribute.text.value == value
    if attribute.type == mesos.Value.SET:
        return value in attribute.set.item
    try:
        number = float(value)
    except ValueError:
        return False
    if attribute.type == mesos.Value.SCALAR:
        return attribute.scalar.value == number
    return any(r.begin <= number <= r.end for r in attribute.ranges.range)


_VALUES = st.sampled_from(["1", "1.0", "2", "a", "1.5", "nan", "inf", "-1", "1e0", "7"])
_GIVEN = st.sampled_from(["1", "1.5", "a", "{1,a,b,c,d,e}", "{2}", "[1-3]", "[2-9]", "nan", "inf"])


@given(
    attributes=st.lists(st.tuples(st.sampled_from("xyz"), _GIVEN), max_size=6),
    wanted=st.lists(st.tuples(st.sampled_from("xyz"), _VALUES), max_size=4),
)
def test_attributes_meet_the_same_conditions_as_their_messages(
    attributes: list[tuple[str, str]], wanted: list[tuple[str, str]]
) -> None:
    messages = [attribute(name, value) for name, value in attributes]
    agent = Host.of(mesos.SlaveInfo(hostname="h", attributes=messages))
    expected = all(
        any(message.name == name and has_value(message, value) for message in messages)
        for name, value in wanted
    )
    text = ";".join(f"{name}:{value}" for name, value in wanted)
    assert parse_constraint(labels(attributes=text), Limits()).admits(agent) == expected


def test_a_repeated_attribute_costs_one_evaluation() -> None:
    def cost(number: int) -> int:
        text = ";".join(["disk:ssd"] * number)
        constraint, agent = (
            parse_constraint(labels(attributes=text), Limits()),
            host("h", disk="ssd"),
        )
        assert constraint.admits(agent)
        return counted(lambda: constraint.admits(agent))

    assert cost(32) == cost(1)


def test_ranges_and_networks_of_a_list_cost_one_search() -> None:
    def cost(number: int) -> int:
        networks = ",".join(f"10.{second}.0.0/24" for second in range(number))
        constraint, agent = parse_constraint(labels(blacklist=networks), Limits()), host("11.0.0.1")
        assert constraint.admits(agent)
        return counted(lambda: constraint.admits(agent))

    assert cost(32) == cost(1)


def test_a_long_list_takes_about_the_memory_of_its_text_and_has_a_short_description() -> None:
    names = map("".join, product(ascii_lowercase, ascii_lowercase, ascii_lowercase + digits))
    text = ",".join(names)[:65535].rpartition(",")[0]
    hosts = parse_constraint(labels(whitelist=text), Limits()).whitelist
    assert memory(hosts) < 1.5 * len(text)
    assert str(hosts).startswith("aa0, aa1, ")
    assert str(hosts).endswith(f"… ({text.count(',') + 1} items)")
    assert len(str(hosts)) < 330
    mixed = parse_constraint(labels(whitelist=f"{text[:-90]} aaa\U00010400"), Limits()).whitelist
    assert memory(mixed) < memory(hosts) + 2000, "one letter makes no other letter larger"


def memory(hosts: Hosts) -> int:
    """Return the bytes of a list's names."""
    parts = [hosts._begins, hosts._blocks, *hosts._begins, *hosts._blocks]
    return sum(map(getsizeof, parts))


@given(
    globs=st.lists(st.text("ab-[]!*?", min_size=1, max_size=7), min_size=5, max_size=12),
    names=st.lists(st.text("ab-[]!", max_size=7), max_size=10),
)
def test_many_globs_match_the_same_names_as_single_globs(
    globs: list[str], names: list[str]
) -> None:
    hosts = Hosts((*globs, *(f"{n}*z" for n in range(5))))
    for name in names:
        assert (host(name) in hosts) == any(fnmatchcase(name, glob) for glob in globs)


def test_many_globs_cost_a_name_no_more_than_its_length() -> None:
    def cost(number: int) -> int:
        globs = ",".join(f"*e*e*e*e*e*e*e*1{place}" for place in range(number))
        constraint = parse_constraint(labels(blacklist=globs), Limits(entries=1000))
        agent = host("node-00123.cluster.example.org")
        assert constraint.admits(agent)
        return counted(lambda: constraint.admits(agent))

    assert cost(31) == cost(8) < 12
