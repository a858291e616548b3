"""On which agents the tasks of a client may run, which does not want offers of all of them."""

from allocator.cluster.exclusions import Exclusions
from allocator.cluster.frameworks import Client

PICKY, OTHER = Client("a", "picky"), Client("a", "other")


def test_a_client_may_use_what_its_constraint_admits_and_it_does_not_exclude() -> None:
    exclusions = Exclusions()
    exclusions.add_framework("picky", {"a": ["s1"]})
    may_use = exclusions.may_use(PICKY, None)
    assert may_use is not None
    assert [may_use(agent) for agent in ("s1", "s2")] == [False, True]
    both = exclusions.may_use(PICKY, {"s1", "s3"}.__contains__)
    assert both is not None
    assert [both(agent) for agent in ("s1", "s2", "s3")] == [False, False, True]
    assert exclusions.may_use(OTHER, None) is None, "who excludes nothing may use all"


def test_it_stays_the_same_while_the_constraint_does_and_follows_agents() -> None:
    exclusions = Exclusions()
    exclusions.add_framework("picky", {"a": ["s1"]})
    may_use = exclusions.may_use(PICKY, None)
    assert may_use is not None
    exclusions.put_agent("s2", [PICKY])
    assert exclusions.may_use(PICKY, None) is may_use
    assert not may_use("s2")


def test_what_a_framework_says_anew_is_all_that_it_excludes() -> None:
    exclusions = Exclusions()
    exclusions.add_framework("picky", {"a": ["s1"]})
    exclusions.put_framework("picky", {"a": ["s2"]})
    may_use = exclusions.may_use(PICKY, None)
    assert may_use is not None
    assert [may_use(agent) for agent in ("s1", "s2")] == [True, False]
