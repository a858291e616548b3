"""The Live Tree is in order at every instant, after any operations."""

import doctest
import random
from collections.abc import Iterator
from unittest import mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from allocator.fairness import live_tree
from allocator.fairness.live_tree import LiveTree
from allocator.fairness.priorities import Envelope, Envelopes, PriorityLine, StraightLines, envelope
from tests.examples import examples, scaled
from tests.fairness.reference import envelope_order, line_order

Tree = LiveTree[int, PriorityLine]


@pytest.fixture(scope="module", params=[3, 64], ids="blocks of {}".format, autouse=True)
def block_length(request: pytest.FixtureRequest) -> Iterator[None]:
    """Short blocks split and empty often; the other length is the default."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(live_tree, "_LONGEST_BLOCK", request.param)
        yield


def lines(*pairs: tuple[int, int]) -> Tree:
    tree: Tree = LiveTree(StraightLines(), now=0)
    for i, (value, slope) in enumerate(pairs):
        tree.insert(i, PriorityLine(value, slope))
    tree._check()
    return tree


def test_the_examples_in_the_documentation_are_true() -> None:
    assert doctest.testmod(live_tree).failed == 0


def test_an_empty_tree_has_no_ends_and_moves_through_time() -> None:
    tree = lines()
    tree.update(10)
    assert (list(tree), len(tree), tree.now) == ([], 0, 10)
    for end in (tree.minimum, tree.maximum):
        with pytest.raises(KeyError, match="empty"):
            end()


def test_an_id_cannot_be_inserted_twice() -> None:
    tree = lines((1, 0))
    with pytest.raises(KeyError, match="0 is in the tree already"):
        tree.insert(0, PriorityLine(5, 5))
    assert tree[0] == PriorityLine(1, 0)
    assert 0 in tree
    assert 1 not in tree


@pytest.mark.parametrize("method", ["delete", "__getitem__"])
def test_an_absent_id_is_named_in_the_error(method: str) -> None:
    with pytest.raises(KeyError, match="7 is not in the tree"):
        getattr(lines((1, 0)), method)(7)


def test_elements_change_places_at_their_crossing_and_not_before() -> None:
    tree = lines((0, 3), (4, 1))
    tree.update(1.99)
    assert list(tree) == [0, 1]
    tree.update(2)
    assert list(tree) == [1, 0], "at the crossing the line with the smaller slope is first"
    assert tree.events == 1


def test_time_does_not_run_backwards() -> None:
    tree = lines((0, 3), (4, 1))
    tree.update(5)
    tree.update(1)
    assert tree.now == 5
    assert list(tree) == [1, 0]


def test_ties_are_ordered_by_id() -> None:
    tree = lines((1, 1), (1, 1), (1, 1))
    tree.update(100)
    assert list(tree) == [0, 1, 2]
    tree.delete(1)
    assert list(tree) == [0, 2]
    tree._check()


def test_elements_with_equal_values_separate_at_once() -> None:
    assert list(lines((0, 5), (0, -5), (0, 1))) == [1, 2, 0]


def test_an_insertion_at_the_instant_of_a_crossing_finds_its_place() -> None:
    tree = lines((0, 2), (4, 0))
    tree.update(2)
    tree.insert(2, PriorityLine(4, 0))
    assert list(tree) == [1, 2, 0]
    tree._check()


def test_all_elements_may_cross_in_one_point() -> None:
    tree = lines(*[(-10 * slope, slope) for slope in range(20)])
    assert list(tree) == list(reversed(range(20)))
    tree.update(10)
    assert list(tree) == list(range(20))
    tree._check()


def test_many_crossings_between_two_updates_cost_one_event_for_each_pair() -> None:
    tree = lines(*[(-i * i, i) for i in range(50)])
    before = list(tree)
    tree.update(10**6)
    assert list(tree) == list(range(50)) != before
    tree._check()
    assert len(list(tree.crossings())) == 0


def test_envelopes_that_touch_without_crossing_keep_their_places() -> None:
    # The bend of 1 + |s − 1/2| touches the flat line at 1.
    bent = envelope([(1.5, -1.0), (0.5, 1.0)], 1.0)
    tree: LiveTree[str, Envelope] = LiveTree(Envelopes(), now=-1.0)
    tree.insert("bent", bent)
    tree.insert("flat", Envelope(((1.0, 0.0),)))
    for s in (0.75, 0.5, 0.25):
        tree.update(-s)
        assert list(tree) == ["flat", "bent"]
        tree._check()


def test_upcoming_crossings_name_both_elements_and_the_time() -> None:
    tree = lines((0, 3), (4, 1), (100, 1))
    assert list(tree.crossings()) == [(2, 0, 1)]
    tree.update(2)
    assert list(tree.crossings()) == [(50, 0, 2)]


def test_replacing_an_attribute_moves_the_element() -> None:
    tree = lines((0, 0), (1, 0), (2, 0))
    tree.replace(0, PriorityLine(1, 1))
    assert list(tree) == [1, 0, 2]
    assert list(reversed(tree)) == [2, 0, 1]
    assert (tree.minimum(), tree.maximum()) == (1, 2)
    tree._check()


small = st.integers(-5, 5)
actions = st.lists(
    st.one_of(
        st.tuples(st.just("insert"), st.integers(0, 12), small, small),
        st.tuples(st.just("delete"), st.integers(0, 12), small, small),
        st.tuples(st.just("update"), st.integers(0, 12), st.integers(1, 4), small),
    ),
    max_size=60,
)


@given(actions)
@examples(200)
def test_straight_lines_are_in_order_after_every_action(
    plan: list[tuple[str, int, int, int]],
) -> None:
    tree: Tree = LiveTree(StraightLines(), now=0)
    model: dict[int, PriorityLine] = {}
    now = 0.0
    for action, i, a, b in plan:
        if action == "update":
            now += i / a
            tree.update(now)
        elif action == "insert":
            # Small integers cause ties and simultaneous crossings.
            (tree.replace if i in model else tree.insert)(i, PriorityLine(a - b * round(now), b))
            model[i] = PriorityLine(a - b * round(now), b)
        elif i in model:
            tree.delete(i)
            del model[i]
        assert list(tree) == line_order(model, now)
        tree._check()


@given(
    st.lists(st.tuples(st.integers(0, 5), st.integers(-3, 3)), max_size=20),
    st.randoms(),
    st.sampled_from([1, 2, 3, 256]),
)
def test_filling_a_tree_equals_inserting_all_elements(
    pairs: list[tuple[int, int]], rng: random.Random, sorted_a_step: int
) -> None:
    one_by_one = lines(*pairs)
    elements = [(i, PriorityLine(value, slope)) for i, (value, slope) in enumerate(pairs)]
    if rng.random() < 0.5:
        rng.shuffle(elements)
    filled: Tree = LiveTree(StraightLines(), now=0)
    with mock.patch.object(live_tree, "_SORTED_A_STEP", sorted_a_step):
        filled.fill(elements)
    for now in range(1, 9):
        filled._check()
        assert list(filled) == list(one_by_one)
        assert sorted(filled.crossings()) == sorted(one_by_one.crossings())
        filled.update(now)
        one_by_one.update(now)


@given(
    st.lists(st.tuples(st.integers(0, 5), st.integers(-3, 3)), max_size=30),
    st.randoms(),
    st.integers(0, 2),
)
def test_adding_several_elements_at_once_equals_inserting_each(
    pairs: list[tuple[int, int]], rng: random.Random, begin: int
) -> None:
    one_by_one, at_once = lines(), lines()
    elements = [(i, PriorityLine(value, slope)) for i, (value, slope) in enumerate(pairs)]
    if rng.random() < 0.5:
        rng.shuffle(elements)
    number = rng.randrange(len(elements) + 1)
    for part in (elements[:number], elements[number:]):
        at_once.insert_all(part)
        for element, line in part:
            one_by_one.insert(element, line)
        at_once._check()
        at_once.update(begin)
        one_by_one.update(begin)
    for now in range(begin, 9):
        at_once.update(now)
        one_by_one.update(now)
        at_once._check()
        assert list(at_once) == list(one_by_one)
        assert sorted(at_once.crossings()) == sorted(one_by_one.crossings())
    if elements:
        with pytest.raises(KeyError, match="in the tree already"):
            at_once.insert_all(elements[:1])


@pytest.mark.interpreted
def test_elements_that_follow_each_other_are_added_with_few_comparisons() -> None:
    class Counting(StraightLines):
        comparisons = 0

        def compare(self, a: PriorityLine, b: PriorityLine, now: float) -> int:
            self.comparisons += 1
            return super().compare(a, b, now)

    priorities = Counting()
    tree: Tree = LiveTree(priorities, now=0)
    tree.fill((i, PriorityLine(0, 0)) for i in range(0, 4000, 1000))
    priorities.comparisons = 0
    tree.insert_all([(i, PriorityLine(0, 0)) for i in range(1001, 1999)])
    assert priorities.comparisons < 4 * 1000, "a search would compare ten times"


def test_a_hundred_elements_stay_in_order_after_random_operations() -> None:
    rng = random.Random(0)
    tree, model, now = (
        lines(*((i, 0) for i in range(100))),
        {i: PriorityLine(i, 0) for i in range(100)},
        0,
    )
    for step in range(500):
        i = rng.randrange(100)
        if rng.random() < 0.1:
            now += rng.randrange(3)
            tree.update(now)
        elif i in model and rng.random() < 0.1:
            del model[i]
            tree.delete(i)
        else:
            line = PriorityLine(rng.randrange(-100, 100) - now, rng.randrange(-9, 10))
            (tree.replace if i in model else tree.insert)(i, line)
            model[i] = line
        assert list(tree) == line_order(model, now)
        if step % 50 == 0:
            tree._check()


@pytest.mark.parametrize("size", [3, 10, 300])
def test_long_and_short_updates_sort_as_a_plain_sort(size: int) -> None:
    rng = random.Random(size)
    model = {
        number: PriorityLine(rng.randrange(50), rng.randrange(-50, 50)) for number in range(size)
    }
    tree: Tree = LiveTree(StraightLines(), now=0)
    tree.fill(model.items())
    for _ in range(40):
        tree.update(tree.now + rng.choice((0.001, 0.02, 1, 20)))
        number = rng.randrange(size)
        model[number] = PriorityLine(rng.randrange(50), rng.randrange(-50, 50))
        tree.replace(number, model[number])
        tree._check()
        assert list(tree) == line_order(model, tree.now)


def test_crossings_are_reported_soonest_first_however_often_all_elements_are_replaced() -> None:
    rng = random.Random(0)
    tree = lines(*((i, -i) for i in range(30)))
    for _ in range(300):
        slope = rng.randrange(-50, 50)
        tree.replace(rng.randrange(30), PriorityLine(rng.randrange(1000) - slope * 7, slope))
        upcoming = [crossing.when for crossing in tree.crossings()]
        assert upcoming == sorted(upcoming)
    tree._check()


coefficients = st.sampled_from([0.0, 0.1, 0.25, 1 / 3, 0.5, 2 / 3, 0.75, -0.1, -0.25, -1 / 3])
envelopes = st.builds(
    lambda pairs, count: (pairs, count),
    st.lists(st.tuples(coefficients, coefficients), min_size=1, max_size=4),
    st.integers(0, 1),
)


@given(
    st.lists(
        st.one_of(
            st.tuples(st.integers(0, 9), envelopes),
            st.floats(0.01, 1.0, exclude_max=True),
            st.sampled_from([0.5, 0.75, 0.9, 2 / 3]),
        ),
        max_size=50,
    )
)
@examples(300)
def test_sdrf_priorities_are_in_exact_order_after_every_action(
    plan: list[float | tuple[int, tuple[list[tuple[float, float]], int]]],
) -> None:
    tree: LiveTree[int, Envelope] = LiveTree(Envelopes(), now=-1.0)
    model: dict[int, Envelope] = {}
    full: dict[int, Envelope] = {}
    s = 1.0
    for step in plan:
        if isinstance(step, float):
            s *= step
            tree.update(-s)
        else:
            i, (pairs, count) = step
            pruned = envelope(pairs, s, count)
            (tree.replace if i in model else tree.insert)(i, pruned)
            model[i] = pruned
            full[i] = Envelope(tuple(pairs), count)
        assert list(tree) == envelope_order(full, s), "lines that were left out never matter"
        tree._check()


ABSENT = np.int64(2**60)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
def test_thousands_of_operations_on_hundreds_of_lines_agree_with_a_scan(seed: int) -> None:
    rng = random.Random(seed)
    tree: Tree = LiveTree(StraightLines(), now=0)
    model: dict[int, PriorityLine] = {}
    # Value, slope and number of each line as one number, and its growth with time.
    keys, growths = np.full(300, ABSENT), np.zeros(300, np.int64)
    now = 0
    for step in range(scaled(100_000)):
        i = rng.randrange(300)
        if i not in model or rng.random() < 0.4:
            line = PriorityLine(rng.randrange(-1000, 1000) - now, rng.randrange(-4, 5))
            (tree.replace if i in model else tree.insert)(i, line)
            model[i] = line
            growths[i] = line.slope * 10_000
            keys[i] = line.value * 10_000 + (line.slope + 4) * 1000 + i
        elif rng.random() < 0.1:
            del model[i]
            tree.delete(i)
            keys[i], growths[i] = ABSENT, 0
        else:
            now += rng.random() < 0.2
            tree.update(now)
        if model:
            assert tree.minimum() == np.argmin(keys + growths * now)
        if step % 500 == 0:
            assert list(tree) == line_order(model, now)
            tree._check()
