"""Turns: while a member waits, each other member has at most one turn before it."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from allocator.fairness.turns import Turns


def test_the_first_turn_goes_by_the_given_order_and_the_next_by_the_last_turn() -> None:
    turns = Turns[str]()
    assert turns.order("abc") == ["a", "b", "c"]
    turns.end("a")
    assert turns.order("abc") == ["b", "c", "a"]
    turns.end("c")
    assert turns.order("abc") == ["b", "a", "c"]


def test_a_new_member_comes_before_a_member_that_had_a_turn_in_its_absence() -> None:
    turns = Turns[str]()
    turns.order("abc")
    turns.end("a")
    turns.end("b")
    assert turns.order("abcd") == ["c", "a", "d", "b"]


def test_a_member_that_is_removed_and_added_again_has_lost_its_position() -> None:
    turns = Turns[str]()
    turns.order("ab")
    turns.end("b")
    turns.forget("a")
    turns.end("c")
    assert turns.order("ab") == ["b", "a"]


def test_a_member_that_needs_no_turn_now_comes_after_waiting_members() -> None:
    turns = Turns[str]()
    turns.order("abc")
    turns.end("d")
    turns.defer("a")
    assert turns.order("abc") == ["b", "c", "a"]


@given(st.lists(st.tuples(st.sets(st.sampled_from("abcdef")), st.permutations("abcdef"))))
def test_each_other_member_has_at_most_one_turn_while_a_member_waits(
    looks: list[tuple[set[str], list[str]]],
) -> None:
    """Any members wait at a look, and the policy orders them in any way."""
    turns, passed = Turns[str](), dict[str, Counter[str]]()
    for waiting, order in looks:
        queue = turns.order(user for user in order if user in waiting)
        passed = {user: passed.get(user, Counter()) for user in queue}
        if queue:
            turns.end(queue[0])
            del passed[queue[0]]
            for counted in passed.values():
                counted[queue[0]] += 1
                assert max(counted.values()) == 1
