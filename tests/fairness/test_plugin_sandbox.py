"""An error in a plugin's policy costs a user its rank, and affects no other user."""

import json
import math
from collections.abc import Callable
from typing import Any, Self, TypeAlias

import pytest
from pydantic import model_validator
from typing_extensions import override

from allocator.fairness import policies
from allocator.fairness.account import Account
from allocator.fairness.plugin_sandbox import LARGEST, contained
from allocator.fairness.policies.lines import LinePolicy
from allocator.fairness.policies.policy import KeyPolicy, Origin, Policy
from allocator.fairness.policies.sdrf import Sdrf
from allocator.fairness.pool import Pool
from allocator.fairness.quantities import Quantities

CAPACITY = Quantities.parse("cpus:100;mem:100")
ORIGIN = Origin("mine.py", "0", "")
HOLDS = {"a": 30, "b": 10, "c": 20, "d": 0}


Says: TypeAlias = Callable[[Account], Any]


def _pool(policy: Policy, **holds: float) -> Pool[str]:
    pool: Pool[str] = Pool(policy, capacity=CAPACITY)
    for name, cpus in (holds or HOLDS).items():
        pool.add(name)
        pool.set_active(name, True)
        pool.allocate(name, Quantities.from_doubles({"cpus": cpus, "mem": 1}))
    return pool


def _key(answer: Says) -> Policy:
    class Mine(KeyPolicy):
        name = "mine"

        @override
        def key(self, account: Account) -> float:
            return answer(account)  # type: ignore[no-any-return]  # whatever it is

    return contained(Mine, ORIGIN).model_validate({})


def _raises(_account: Account) -> float:
    raise ZeroDivisionError("at run time")


def _leaves(_account: Account) -> float:
    raise SystemExit(1)


NONSENSE = [
    _raises,
    _leaves,
    lambda _: float("nan"),
    lambda _: float("inf"),
    lambda _: -float("inf"),
    lambda _: 10 * LARGEST,
    lambda _: None,
    lambda _: "0.5",
    lambda _: True,
    lambda _: [0.5],
]


@pytest.mark.parametrize("answer", NONSENSE)
def test_a_policy_that_always_fails_is_drf(answer: Says) -> None:
    mine, drf = _pool(_key(answer)), _pool(policies.create("drf", {}))
    assert list(mine) == list(drf) == ["d", "b", "c", "a"]
    assert mine.policy.faults.count > 0
    assert all(standing.priority < float("inf") for standing in mine.standings())


@pytest.mark.parametrize("answer", NONSENSE)
def test_users_for_whom_a_policy_fails_come_last_and_others_in_the_policys_order(
    answer: Says,
) -> None:
    def sometimes(account: Account) -> float:
        if account.share in {0.1, 0.2}:
            return answer(account)  # type: ignore[no-any-return]
        return -account.share

    assert list(_pool(_key(sometimes))) == ["a", "d", "b", "c"]


def test_a_fault_is_reported_with_its_line_and_counted() -> None:
    pool = _pool(_key(_raises))
    list(pool)
    faults = pool.policy.faults
    assert faults.latest.startswith("ZeroDivisionError: at run time (")
    assert faults.latest.endswith(
        f"test_plugin_sandbox.py, line {_raises.__code__.co_firstlineno + 1})"
    )


def test_a_fault_in_a_called_function_is_reported_with_the_line_of_the_call() -> None:
    def reads(_account: Account) -> float:
        return json.loads("{")  # type: ignore[no-any-return]

    pool = _pool(_key(reads))
    list(pool)
    line = reads.__code__.co_firstlineno + 1
    assert pool.policy.faults.latest.endswith(f"test_plugin_sandbox.py, line {line})")


def test_a_line_policy_without_a_cumulative_measure_accumulates_nothing() -> None:
    class Mine(LinePolicy):
        name = "mine"

        @override
        def line(self, account: Account) -> tuple[float, float]:
            return account.cumulative, 0.0

    pool = _pool(contained(Mine, ORIGIN).model_validate({}))
    pool.advance(100.0)
    pool.set_weight("a", 2.0)
    assert [standing.priority for standing in pool.standings()] == [0.0] * 4


@pytest.mark.parametrize("said", [1e12, -1e12])
def test_a_policys_key_may_be_up_to_a_million_millions(said: float) -> None:
    for said_more, faults in ((said, 0), (said + math.copysign(0.5, said), 1)):
        policy = _key(lambda _, number=said_more: number)  # type: ignore[misc]
        assert _pool(policy, a=1).minimum() == "a"
        assert policy.faults.count == faults


def test_each_fault_counts_once() -> None:
    pool = _pool(_key(_raises), a=1)
    assert pool.minimum() == "a"
    assert pool.policy.faults.count == 1


def test_users_for_whom_a_policy_fails_are_ordered_by_share_over_weight_without_a_bound() -> None:
    pool = _pool(_key(_raises), a=60, b=50, c=40)
    for user, weight in (("a", 4.0), ("b", 0.1), ("c", 0.01)):
        pool.set_weight(user, weight)
    assert list(pool) == ["a", "b", "c"]


def test_a_key_policy_goes_by_shares_only_if_it_declares_so() -> None:
    class Mine(KeyPolicy):
        name = "mine"

        @override
        def key(self, account: Account) -> float:
            return account.share

    class Says(Mine):
        goes_by_shares = True

    class Remembers(Sdrf):
        name = "remembers"

    answers = [contained(policy, ORIGIN).goes_by_shares for policy in (Mine, Says, Remembers)]
    assert answers == [False, True, True]


def test_the_priority_of_a_failing_line_is_constant() -> None:
    class Mine(LinePolicy):
        name = "mine"

        @override
        def line(self, account: Account) -> tuple[float, float]:
            raise ZeroDivisionError

    pool = _pool(contained(Mine, ORIGIN).model_validate({}))
    now, later = (
        [standing.priority for standing in pool.standings_at(when)] for when in (0.0, 1e6)
    )
    assert now == later


def test_the_same_faults_give_the_same_order_in_every_engine() -> None:
    def moody(account: Account) -> float:
        return 1.0 / 0 if account.share > 0.15 else account.share

    first, second = _pool(_key(moody)), _pool(_key(moody))
    first.standings()
    first.advance(5.0)
    second.advance(5.0)
    assert list(first) == list(second) == ["d", "b", "c", "a"]


NO_LINES: list[Says] = [
    *NONSENSE,
    lambda _: (1.0,),
    lambda _: (1.0, float("nan")),
    lambda account: [-account.share, 0.0],
    lambda account: (-account.share, 0.0, 0.0),
]


@pytest.mark.parametrize("answer", NO_LINES)
@pytest.mark.parametrize("ranking", ["live-tree", "scan"])
def test_failing_lines_are_ordered_like_drf(answer: Says, ranking: str) -> None:
    class Mine(LinePolicy):
        name = "mine"

        @override
        def line(self, account: Account) -> tuple[float, float]:
            return answer(account)  # type: ignore[no-any-return]

    pool = _pool(contained(Mine, ORIGIN).model_validate({"ranking": ranking}))
    assert list(pool) == ["d", "b", "c", "a"]
    pool.advance(1e6)
    assert list(pool) == ["d", "b", "c", "a"]


NO_MEASURES: list[Says] = [*NONSENSE[:2], lambda _: {"cpus": -1.0}, lambda _: {1: 0.5}]


@pytest.mark.parametrize("answer", NO_MEASURES)
def test_an_invalid_measure_is_replaced_by_shares(answer: Says) -> None:
    class Mine(Sdrf):
        name = "mine"

        @override
        def measure(self, account: Account) -> dict[str, float]:
            return answer(account)  # type: ignore[no-any-return]

    given = {"half_life": 60.0}
    mine = _pool(contained(Mine, ORIGIN).model_validate(given))
    sdrf = _pool(policies.create("sdrf", given))
    for pool in (mine, sdrf):
        pool.advance(100.0)
    priorities = [[s.priority for s in pool.standings()] for pool in (mine, sdrf)]
    assert priorities[0] == priorities[1]


@pytest.mark.parametrize("form", ["journal", "thesis"])
def test_a_user_with_an_empty_measure_has_priority_zero(form: str) -> None:
    class Mine(Sdrf):
        name = "mine"

        @override
        def measure(self, account: Account) -> dict[str, float]:
            return {} if account.weight == 2.0 else account.shares

    pool = _pool(contained(Mine, ORIGIN).model_validate({"half_life": 60.0, "form": form}))
    pool.set_weight("c", 2.0)
    pool.advance(100.0)
    assert list(pool) == ["c", "d", "b", "a"]
    assert pool.standing("c").priority == 0.0


def test_a_policy_that_does_not_fail_keeps_its_own_order() -> None:
    class Twin(KeyPolicy):
        name = "twin"

        @override
        def key(self, account: Account) -> float:
            return account.share / account.weight

    pool = _pool(contained(Twin, ORIGIN).model_validate({}))
    drf = _pool(policies.create("drf", {}))
    assert [s.priority for s in pool.standings()] == [s.priority for s in drf.standings()]
    assert pool.policy.faults.count == 0


@pytest.mark.parametrize("origin", [ORIGIN, None])
def test_any_error_in_a_plugins_parameters_is_reported_with_the_plugins_name(
    monkeypatch: pytest.MonkeyPatch, origin: Origin | None
) -> None:
    class Mine(Sdrf):
        name = "mine"

        @model_validator(mode="after")
        def _checked(self) -> Self:
            raise ZeroDivisionError("of parameters")

    monkeypatch.setitem(policies._POLICIES, "mine", contained(Mine, ORIGIN) if origin else Mine)
    message = "policy 'mine': mine.py failed on its parameters: ZeroDivisionError: of parameters"
    kind, text = (ValueError, message) if origin else (ZeroDivisionError, "of parameters")
    with pytest.raises(kind, match=f"^{text}$"):
        policies.create("mine", {"half_life": 60})


def test_longshares_own_policies_run_outside_the_sandbox() -> None:
    assert all(policies.find(name).origin is None for name in policies.ours())
    with pytest.raises(ValueError, match="Longshare has a policy 'drf'"):
        policies.register(type("Drf", (policies.find("drf"),), {"name": "drf"}))
