"""The tree of users of a Slurm is the tree that all schedulers share."""

import pytest

from allocator.fairness.policies import create
from allocator.fairness.quantities import NO_QUANTITIES, Quantities
from allocator.slurm.shares import ShareTree
from allocator.users.settings import UserSettings

ANN, BOB, CYD = ("physics", "ann"), ("physics", "bob"), ("maths", "cyd")


def shares() -> ShareTree:
    policy = create("sdrf", {"half_life": 60.0})
    tree = ShareTree(UserSettings(policy, tree=True, scheduler="slurm", clients="jobs"), 0.0)
    tree.set_capacity(Quantities.parse("cpus:100"))
    for path in (ANN, BOB, CYD):
        tree.add(path)
    tree.change(ANN, NO_QUANTITIES, Quantities.parse("cpus:80"))
    return tree


def test_changes_of_a_fork_do_not_reach_the_settled_tree() -> None:
    settled = shares()
    settled.tree.order_weight("physics/ann", 3.0, seconds=30.0)
    present = settled.fork()
    present.change(CYD, NO_QUANTITIES, Quantities.parse("cpus:20"))
    present.add(("maths", "dee"))
    present.advance(40.0)
    assert present.standing(CYD).share == 0.2
    assert settled.standing(CYD).share == 0.0
    assert ("maths", "dee") not in settled
    assert present.standing(ANN).weight == 1.0  # the boost has ended there
    assert settled.standing(ANN).weight == 3.0
    settled.advance(40.0)
    assert settled.standing(ANN).weight == 1.0


def test_a_fork_has_the_commitments_that_the_settled_tree_has_at_the_same_time() -> None:
    settled = shares()
    settled.advance(100.0)
    present = settled.fork()
    for tree in (settled, present):
        tree.advance(250.0)
    for path in (ANN, BOB, CYD, ("physics",), ("maths",)):
        assert present.standing(path) == settled.standing(path)
    assert settled.standing(ANN).commitment > 0.1


def test_users_with_pending_jobs_and_their_accounts_are_active() -> None:
    tree = shares()
    tree.activate([BOB])
    assert [name for pool in tree.tree.pools() for name in pool] == ["physics", "physics/bob"]
    tree.activate([CYD])
    assert [name for pool in tree.tree.pools() for name in pool] == ["maths", "maths/cyd"]


def test_a_user_whose_name_an_account_gets_keeps_its_resources_in_a_virtual_leaf() -> None:
    tree = shares()
    tree.advance(30.0)
    commitment = tree.standing(ANN).commitment
    tree.add((*ANN, "dee"))
    leaf = (*ANN, ".")
    assert tree.standing(leaf).allocation == tree.standing(ANN).allocation
    assert tree.standing(leaf).commitment == commitment > 0.0
    assert set(tree.users()) == {leaf, (*ANN, "dee"), BOB, CYD}
    assert set(tree.pools) == {(), ("physics",), ANN, ("maths",)}
    tree.change(ANN, Quantities.parse("cpus:80"), NO_QUANTITIES)
    for path in (leaf, ANN, ("physics",)):
        assert not tree.standing(path).allocation


def test_a_job_counts_for_a_user_whose_name_an_account_has_got_before_the_start() -> None:
    tree = shares()
    tree.add((*BOB, "dee"))
    tree.change(BOB, NO_QUANTITIES, Quantities.parse("cpus:7"))
    assert tree.standing((*BOB, ".")).allocation.to_doubles() == {"cpus": 7.0}
    assert tree.standing(BOB).allocation.to_doubles() == {"cpus": 7.0}


def test_shares_that_slurm_no_longer_tells_become_one() -> None:
    tree = shares()
    tree.set_weights({ANN: 5.0, ("maths",): 2.0})
    assert (tree.standing(ANN).weight, tree.standing(("maths",)).weight) == (5.0, 2.0)
    assert tree.tree.weights.by("physics/ann") == "slurm"
    tree.set_weights({("maths",): 4.0})
    assert (tree.standing(ANN).weight, tree.standing(("maths",)).weight) == (1.0, 4.0)


def test_commitments_and_ordered_weights_survive_in_the_memory() -> None:
    tree = shares()
    tree.advance(100.0)
    tree.tree.order_weight("maths", 2.0)
    restarted = ShareTree(tree._settings, 100.0)
    restarted.inherit(tree.tree.memory())
    assert restarted.standing(ANN).commitments == pytest.approx(tree.standing(ANN).commitments)
    assert restarted.standing(("maths",)).weight == 2.0
