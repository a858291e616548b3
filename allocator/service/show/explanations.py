"""Facts for explanations: why a user's clients get nothing more, now and in the past."""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice

from allocator.contract import admin_pb2 as admin
from allocator.formatting import duration, since
from allocator.service.loop.cooperative import Work
from allocator.users.adapter import SchedulerAdapter
from allocator.users.wording import ClientWait, Wording

MOST = 8
"""Maximum number of a user's clients that one explanation covers."""


@dataclass(frozen=True, slots=True)
class ExplanationFacts:
    """Facts that `explain` needs: why a user's clients get nothing more, and unservable users."""

    reasons: Sequence[ClientWait] = ()
    """Present reasons of the user's first `MOST` clients."""
    waited: Mapping[str, float] = field(default_factory=dict)
    """Seconds that the user has waited since `waited_from`, by reason."""
    waited_from: float | None = None
    """Time of the scheduler's clock since which waits are recorded; None: no record yet."""
    idle_since: Mapping[Hashable, float] = field(default_factory=dict)
    """client → time of the scheduler's clock since which the client has held nothing"""
    seconds_without_master: float | None = None
    """Seconds since the scheduler was last in contact; None while it is in contact."""
    passed_over: frozenset[str] = frozenset()
    """Users at all levels of the tree that are active, but that no machine could serve."""
    about_clients: Sequence[str] = ()
    """Sentences about the user's clients (`Wording.about_clients`)."""


def collect_facts(adapter: SchedulerAdapter, user: str) -> Work[ExplanationFacts]:
    """Survey the machines to explain why a user's clients get nothing more.

    Only the first `MOST` clients are examined. Costs O(machines), and for each client O(groups
    of equal machines).

    Returns:
        All facts except the recorded ones, which `Waits.add_record` adds.
    """
    survey = yield from adapter.survey()
    reasons = list[ClientWait]()
    for client in islice(adapter.clients(user.removesuffix("/.")), MOST):
        why = yield from survey.explain(client, closely=True)
        if why is not None:
            reasons.append(why)
    passed_over = yield from survey.passed_over()
    about_clients = yield from adapter.wording.about_clients(user)
    return ExplanationFacts(reasons, passed_over=passed_over, about_clients=about_clients)


def add_waited(
    explanation: admin.Explanation, facts: ExplanationFacts, wording: Wording, now: float
) -> None:
    """Add to an explanation how long each reason has kept the user waiting.

    Args:
        explanation: The explanation to complete.
        facts: The recorded waits.
        wording: Names the reasons.
        now: Present time of the scheduler's clock, in seconds since the Unix epoch.
    """
    explanation.waited.update(facts.waited)
    longest = sorted(facts.waited.items(), key=lambda wait: -wait[1])
    parts = [f"{wording.reasons[reason]} {duration(wait)}" for reason, wait in longest if wait]
    if parts:
        begin = (
            "the service started"
            if facts.waited_from is None
            else f"the service connected ({since(facts.waited_from, now)})"
        )
        explanation.words.append(f"Its waits since {begin}, by reason: {', '.join(parts)}.")
