"""The suite for authors accepts sound policies, and names the fault of unsound policies."""

import random
from collections.abc import Callable
from pathlib import Path

import pytest
from typing_extensions import override

from allocator import plugins
from allocator.api import Account, KeyPolicy, LinePolicy, check_policy, complaints
from allocator.fairness import policies
from tests.plugins.written import LINE, NORM, file


@pytest.mark.parametrize("name", policies.ours())
def test_policies_of_ours_are_sound(name: str) -> None:
    parameters = {"half_life": 600} if name in {"sdrf", "stsf"} else {}
    assert complaints(policies.create(name, parameters), trials=15) == []


def test_policies_of_the_documentation_are_sound(tmp_path: Path) -> None:
    for source in (NORM, LINE):
        (name,) = plugins.load(file(tmp_path, source))
        check_policy(plugins.create(name, {}), trials=15)


def _lottery(account: Account) -> float:
    return account.share + random.random() / 8


def _generous(account: Account) -> float:
    return -account.share


def _counting(account: Account) -> float:
    return account.share + account.count / 64


def _greedy(account: Account) -> float:
    account.weight = 1e6
    return account.share


def _upside_down(account: Account) -> float:
    return account.share * account.weight


def _dividing(account: Account) -> float:
    return account.share / len(account.shares) + 1 / account.share


def _cheerful(account: Account) -> float:
    return max(account.shares.values())


def _impatient(account: Account) -> float:
    return account.share - account.settled_at


_counted = iter(range(10**9))


def _remembering(account: Account) -> float:
    return account.share + next(_counted)


@pytest.mark.parametrize(
    ("says", "claim"),
    [
        (_lottery, "it returns the same values when asked again"),
        (_remembering, "it returns the same values when asked again"),
        (_generous, "a user that holds more does not come sooner"),
        (_counting, "it uses only the holdings, weight, demand and commitments of a user"),
        (_impatient, "it uses only the holdings, weight, demand and commitments of a user"),
        (_greedy, "it does not change accounts"),
        (_upside_down, "a user with a larger weight does not come later"),
        (_dividing, "it returns numbers for all holdings, weights and demands"),
        (_cheerful, "it returns numbers for all holdings, weights and demands"),
    ],
)
def test_each_bad_policy_fails_the_check_of_its_fault(
    says: Callable[[Account], float], claim: str
) -> None:
    class Bad(KeyPolicy):
        name = "bad"

        @override
        def key(self, account: Account) -> float:
            return says(account)

    claims = {complaint.claim for complaint in complaints(Bad())}
    assert claim in claims
    with pytest.raises(AssertionError, match=f"rule broken: {claim}"):
        check_policy(Bad())


class Forgiving(LinePolicy):
    name = "forgiving"

    @override
    def line(self, account: Account) -> tuple[float, float]:
        return 0.0, -account.share


class Waiting(LinePolicy):
    name = "waiting"

    @override
    def line(self, account: Account) -> tuple[float, float]:
        return account.share + account.turn, 0.0


def test_bad_lines_are_caught() -> None:
    assert "a user that holds more does not come sooner" in {
        e.claim for e in complaints(Forgiving())
    }
    claim = "it uses only the holdings, weight, demand and commitments of a user"
    assert claim in {e.claim for e in complaints(Waiting())}


def test_a_policy_whose_keys_drift_after_its_ranking_is_detected() -> None:
    class Drifting(KeyPolicy):
        """Its key depends on time, but the policy never requests a new ranking as time passes."""

        name = "drifting"

        @override
        def key(self, account: Account) -> float:
            return account.share + 0.01 * next(_counted)

    claims = {complaint.claim for complaint in complaints(Drifting())}
    assert "users are ordered by priority, by scan and by Live Tree, now and later" in claims
