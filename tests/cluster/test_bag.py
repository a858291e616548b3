"""Bags of resources compared with lists of single units."""

import random
from collections import Counter
from collections.abc import Iterator
from unittest import mock

import pytest

from allocator.cluster.resources import (
    NOTHING,
    InvalidResource,
    Kind,
    Resources,
    decoded,
    parse_total,
    ranges,
)
from allocator.cluster.resources import bag as bag_module
from allocator.cluster.resources.amounts import Amount
from allocator.contract import mesos_pb2 as mesos
from allocator.fairness.quantities import Quantities
from tests.cluster.master_side import resource, resources

NAMES = ("cpus", "mem", "disk", "ports", "licences")


def drawn(lot: random.Random) -> Resources:
    """Draw a bag of a few kinds: thousandths, ports or items, in any order."""
    made = []
    for _ in range(lot.randrange(6)):
        reserved = lot.choice([[], [], ["eng"], ["eng", "eng/web"]])
        name = lot.choice(["cpus", "mem", "ports", "licences", "disk", "disk"])
        if name == "ports":
            first = lot.randrange(6)
            entry = resource(name, f"[{first}-{first + lot.randrange(4)}]", reserved=reserved)
        elif name == "licences":
            items = ",".join(lot.sample("abcd", lot.randrange(1, 4)))
            entry = resource(name, f"{{{items}}}", reserved=reserved)
        else:
            entry = resource(name, str(lot.randrange(4) / 1000), reserved=reserved)
        if name == "disk" and lot.random() < 0.8:
            entry.disk.persistence.id = lot.choice("vw")
            if lot.random() < 0.5:
                entry.shared.SetInParent()
        if lot.random() < 0.2:
            entry.revocable.SetInParent()
        made.append(parse_total([entry.SerializeToString()]))
    together = NOTHING
    for bag in made:
        together = together + bag
    return together


def units(kind: Kind, amount: Amount) -> Iterator[tuple[object, int]]:
    """Yield the units of an entry: the unit's identity and its size in thousandths."""
    if isinstance(amount, int):
        yield from ((number, kind.whole or 1) for number in range(amount))
    elif isinstance(amount, tuple):
        each = ranges.intervals(amount)
        yield from ((n, 1000) for begin, end in each for n in range(begin, end + 1))
    else:
        yield from ((item, 1000) for item in sorted(amount))


def counted(bag: Resources) -> Counter[tuple[Kind, object]]:
    """Count each thousandth, copy, port and item of a bag."""
    return Counter(
        (kind, None if isinstance(amount, int) else unit)
        for kind, amount in bag.items()
        for unit, _size in units(kind, amount)
    )


SEEDS = range(400)


def test_bags_add_and_subtract_like_their_units() -> None:
    for seed in SEEDS:
        lot = random.Random(seed)
        a, b = drawn(lot), drawn(lot)
        both = counted(a) + counted(b)
        for kind, unit in both:
            if unit is not None:
                both[kind, unit] = 1  # The same port or item counts once.
        assert counted(a + b) == both, seed
        assert counted(a - b) == counted(a) - counted(b), seed
        assert (b in a) == (counted(b) <= counted(a)), seed
        assert (a == b) == (counted(a) == counted(b)), seed


def test_a_part_is_taken_out_of_a_bag_only_if_the_bag_contains_all_of_it() -> None:
    for seed in SEEDS:
        lot = random.Random(seed)
        a, b = drawn(lot), drawn(lot)
        for bag, part in ((a, b), (a + b, b), (a + b, a), (a, a), (a, NOTHING)):
            remaining = bag.without(part)
            assert (remaining is not None) == (part in bag), seed
            if remaining is not None:
                assert [*remaining.items()] == [*(bag - part).items()], seed


@pytest.mark.parametrize("many", [0, 16])
def test_a_changed_bag_has_the_parts_of_a_new_bag_with_its_entries(many: int) -> None:
    """A bag with many kinds takes unchanged parts over from the bag before the change."""
    roles = ["eng", "eng/web", "eng/web/x", "other"]
    lot = random.Random(7)
    with mock.patch.object(bag_module, "_MANY", many):
        for _ in range(200):
            changed = drawn(lot) + drawn(lot) + drawn(lot)
            for _ in range(6):
                if lot.random() < 0.8:
                    assert changed.unreserved == changed.offerable_to("other")
                change = drawn(lot)
                changed = changed + change if lot.random() < 0.5 else changed - change
                fresh = Resources(dict(changed.items()))
                for role in roles:
                    expected = fresh.where(lambda kind, role=role: kind.offerable_to(role))  # type: ignore[misc]
                    assert [*changed.offerable_to(role).items()] == [*expected.items()]
                below = fresh.where(lambda kind: kind.reservation in (None, "eng", "eng/web"))
                assert changed.offerable_below("eng") == below
                assert changed.reservations == fresh.reservations
                assert changed.plain == fresh.where(lambda kind: kind.plain)
                assert changed.divisible == fresh.divisible == changed.plain.divisible
                assert changed.counted == fresh.counted
                assert changed.reserved == fresh.reserved


def test_a_limit_keeps_as_much_as_adding_unit_by_unit_keeps() -> None:
    for seed in SEEDS:
        lot = random.Random(seed)
        bag = drawn(lot)
        amounts = {name: lot.randrange(5) for name in NAMES if lot.random() < 0.8}
        limit = Quantities(amounts)
        kept: Counter[tuple[Kind, object]] = Counter()
        for kind, amount in bag.items():
            for _unit, size in units(kind, amount):
                if isinstance(amount, int) and amounts.get(kind.name, 0) >= size:
                    amounts[kind.name] -= size
                    kept[kind, None] += 1
        shrunk = bag.limited_to(limit)
        assert counted(shrunk) == kept, seed
        assert all(shrunk.values()), "no amount is zero"


def test_a_demand_takes_as_much_as_taking_unit_by_unit_takes() -> None:
    for seed in SEEDS:
        lot = random.Random(seed)
        bag = drawn(lot)
        amounts = {"ports": lot.choice([0, 700, 1000, 2000]), "licences": lot.choice([0, 1000])}
        amounts |= {name: lot.randrange(4) for name in ("cpus", "disk")}
        demand = Quantities(amounts)
        wanted: Counter[tuple[Kind, object]] = Counter()
        for kind, amount in bag.items():
            for unit, size in units(kind, amount):
                if kind.whole is None and amounts.get(kind.name, 0) > 0:
                    amounts[kind.name] -= size
                    wanted[kind, None if isinstance(amount, int) else unit] += 1
        taken = bag.take_demand(demand)
        if any(rest > 0 for rest in amounts.values()):
            assert taken is None, seed
        else:
            assert taken is not None
            assert counted(taken) == wanted, seed


def test_a_bag_sums_its_units_by_name_and_by_reservation() -> None:
    for seed in SEEDS:
        bag = drawn(random.Random(seed))
        copies, scalars, quantities, free = (Counter[str]() for _ in range(4))
        reserved: dict[str, Counter[str]] = {}
        for kind, amount in bag.items():
            for number, (_unit, size) in enumerate(units(kind, amount)):
                once = number == 0 or not kind.shared
                if isinstance(amount, int):
                    copies[kind.name] += size
                    scalars[kind.name] += size * once
                quantities[kind.name] += size * once
                if kind.reservation is None and not kind.revocable and kind.whole is None:
                    free[kind.name] += size
            if kind.reservation is not None:
                mine = reserved.setdefault(kind.reservation, Counter())
                if isinstance(amount, int):
                    mine[kind.name] += (kind.whole or 1) * (1 if kind.shared else amount)
        assert bag.copies == Quantities(copies), seed
        assert bag.scalars == Quantities(scalars), seed
        assert bag.quantities == Quantities(quantities), seed
        assert bag.divisible == free, seed
        assert dict(bag.reserved) == {role: Quantities(mine) for role, mine in reserved.items()}
        assert bag.has_shared == any(kind.shared for kind in bag)
        assert bag.has_whole == any(kind.whole is not None for kind in bag)
        assert bag.plain == bag.where(lambda kind: kind.reservation is None and not kind.revocable)
        assert bag.revocable == bag.where(lambda kind: kind.revocable)


@pytest.mark.parametrize("text", ["ports:5;ports:[1-3]", "ports:[1-3];ports:5"])
def test_a_name_with_both_an_amount_and_indivisible_pieces_is_not_divisible(text: str) -> None:
    assert parse_total(resources(f"cpus:1;{text}")).divisible == {"cpus": 1000, "ports": 0}


def test_a_bag_is_formatted_with_reservations_and_other_restrictions() -> None:
    spare, volume = resource("cpus", "2"), resource("disk", "64", reserved=["eng"])
    spare.revocable.SetInParent()
    volume.disk.persistence.id = "v"
    volume.shared.SetInParent()
    unusual = [spare.SerializeToString(), volume.SerializeToString(), volume.SerializeToString()]
    plain = resources("cpus:1.5;ports:[1-3,7-7];licences:{b,a}")
    assert repr(parse_total([*plain, *unusual])) == (
        "Resources(cpus:1.5; ports:[1-3,7-7]; licences:{a,b}; cpus{REV}:2; disk(eng)<SHARED>:2×64)"
    )


def test_kinds_that_do_not_add_up_are_not_equal_and_a_kind_equals_no_other_type() -> None:
    cpus, mem = parse_total(resources("cpus:4;mem:64"))
    repeated, _, _ = decoded(resource("cpus", "1").SerializeToString())
    assert cpus == repeated
    assert cpus != mem
    assert cpus != "cpus"


def test_a_second_reservation_refines_the_first() -> None:
    for text, refined in (("cpus:1", False), ("cpus(eng):1", False), ("cpus(eng,eng/web):1", True)):
        [kind] = parse_total(resources(text))
        assert kind.refined == refined


def test_a_resource_provider_without_a_name_passes_through() -> None:
    message = resource("cpus", "1")
    message.provider_id.SetInParent()
    bag = parse_total([message.SerializePartialToString()])
    [data] = bag.messages("eng")
    message.allocation_info.role = "eng"
    assert mesos.Resource.FromString(data) == message


@pytest.mark.parametrize("missing", ["name", "type"])
def test_a_resource_without_a_required_field_is_rejected(missing: str) -> None:
    message = resource("cpus", "1")
    message.ClearField(missing)  # type: ignore[arg-type]
    with pytest.raises(InvalidResource, match="a required field is missing"):
        decoded(message.SerializePartialToString())


def test_text_that_is_not_utf_8_is_rejected_and_shown_escaped() -> None:
    data = resource("cpus", "1").SerializeToString().replace(b"cpus", b"cp\xff\xfe")
    with pytest.raises(InvalidResource) as refused:
        decoded(data)
    assert str(refused.value) == r"resource 'cp\\xff\\xfe': 'cp\\xff\\xfe' is not UTF-8"
    assert refused.value.reason == "text"
