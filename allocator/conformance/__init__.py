"""What Longshare relies on in a policy, as a suite that its author calls from pytest.

def test_my_policy_is_sound() -> None:
    check_policy(MyPolicy(power=3))
"""

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Final

from allocator.conformance import claims
from allocator.fairness.plugin_sandbox import adopted
from allocator.fairness.policies import Policy, ours
from allocator.fairness.policies.policy import Origin

__all__ = ["Complaint", "check_policy", "complaints"]

_CLAIMS: Final[dict[str, Callable[[Policy, Random], str | None]]] = {
    "it says numbers, whatever users hold, weigh and need": claims.says_numbers,
    "it leaves accounts as they are": claims.leaves_accounts,
    "it says the same when asked again": claims.says_the_same,
    "it goes by nothing but what a user holds, weighs, needs and owes": claims.goes_by_holdings,
    "who holds more does not come sooner": claims.more_is_not_sooner,
    "who weighs more does not come later": claims.weight_is_not_later,
    "the order is that of the priorities, by scan and by Live Tree, now and later": claims.orders,
}


@dataclass(frozen=True, slots=True)
class Complaint:
    """Something that Longshare relies on, and a case in which it does not hold."""

    claim: str
    """What should hold."""
    case: str
    """In which case it does not."""


def complaints(policy: Policy, *, trials: int = 50, seed: int = 1) -> list[Complaint]:
    """Hold a policy against all that Longshare relies on; return what does not hold.

    Args:
        policy: One that is ours, that has been read from a file, or a class of one's own.
        trials: Random users and clusters for each claim; 50 take about a second.
        seed: Other seeds try other ones.

    Raises:
        ValueError: it cannot be asked what its users' priorities are; the message says what would
            do.
    """
    asked = policy
    if policy.origin is None and getattr(type(policy), "name", None) not in ours():
        kind = adopted(type(policy), Origin(type(policy).__module__, "", ""))
        asked = kind.model_validate(policy.model_dump())
    found = []
    for claim, violated in _CLAIMS.items():
        random = Random(f"{seed} {claim}")  # noqa: S311 - a search, not a secret
        for _trial in range(trials):
            case = violated(asked, random)
            if case is None and asked.faults.count:
                case = f"it failed: {asked.faults.latest}"
            if case is not None:
                found.append(Complaint(claim, case))
                asked.faults.count = 0
                break
    return found


def check_policy(policy: Policy, *, trials: int = 50, seed: int = 1) -> None:
    """Fail if there is anything that Longshare relies on and a policy does not do.

    Args:
        policy: One that is ours, that has been read from a file, or a class of one's own.
        trials: Random users and clusters for each claim; 50 take about a second.
        seed: Other seeds try other ones.

    Raises:
        AssertionError: there is; the message says what, and in which case.
        ValueError: see `complaints`.
    """
    found = complaints(policy, trials=trials, seed=seed)
    if found:
        told = "".join(f"\n- not so: {each.claim}\n  {each.case}" for each in found)
        raise AssertionError(f"policy {policy.name!r}:{told}")
