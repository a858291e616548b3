"""Reasons why a user's frameworks do not get the free resources, in sentences and as data."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice

from allocator.cluster.engine import Engine
from allocator.cluster.reasons import REASON_ORDER, Explanation, Reason
from allocator.contract import admin_pb2 as admin
from allocator.service.loop.cooperative import Work
from allocator.service.show.formatting import called, counted, duration

MOST = 8
"""Maximum number of a user's clients (a framework in one role) that one explanation covers."""

_SAID: dict[Reason, str] = {
    "set_aside": "its registration contains data that cannot be accepted",
    "inactive": "it is disconnected, deactivated, or has given up the role",
    "suppressed": "it has suppressed offers; it has to revive them",
    "recovering": "after an election offers wait until enough agents are back",
    "unanswered": "it has not answered offers of as much as it may be offered at a time",
    "no_agents": "no agent is known",
    "turn": "{n} would do; it is served in its turn",
    "held": "{n} would do, but held back for somebody whose task fits nowhere",
    "quota": "what {n} would give it is held back for quota: its own limit, or what others lack",
    "refused": "it has itself refused what {n} would give it",
    "left_over": "of what {n} would give it, it has accepted offers and not used all of them: it "
    "left that over, or the master refused what it launched",
    "nothing_free": "{n} would do, but not with what is free now",
    "deactivated": "{n} would do, but deactivated",
    "not_whitelisted": "{n} would do, but not on the master's whitelist",
    "agent_set_aside": "{n} would do, but set aside, since what was said of them is not acceptable",
    "reserved": "{n} would do, but reserved for other roles",
    "too_large": "{n} could not hold its task even if nothing else ran there",
    "no_such_resource": "{n} have none of a resource that its task needs",
    "gpu_resources": "{n} have GPUs, and it lacks the capability GPU_RESOURCES",
    "region_aware": "{n} are in another region than the master, and it lacks the capability "
    "REGION_AWARE",
    "multi_role": "{n} lack the capability MULTI_ROLE, which it has",
    "hierarchical_role": "{n} lack the capability HIERARCHICAL_ROLE, which its role needs",
    "revocable_resources": "{n} would do with revocable resources, and it lacks the capability "
    "REVOCABLE_RESOURCES",
    "shared_resources": "{n} would do with shared resources, and it lacks the capability "
    "SHARED_RESOURCES",
    "reservation_refinement": "{n} would do with what has refined reservations, and it lacks the "
    "capability RESERVATION_REFINEMENT",
    "constraint": "{n} are forbidden by its constraint",
}
"""Sentence for each reason; `{n}` is replaced by a number of agents, such as "3 agents"."""

PASSED_OVER = "no agent could serve it, so that it is passed over"
"""Part of a sentence about a user that wants offers, but that no agent could serve."""

BRIEFLY: dict[str, str] = {
    "no_master": "no master",
    "set_aside": "set aside",
    "inactive": "not connected",
    "suppressed": "suppressed offers",
    "recovering": "waits for agents",
    "unanswered": "offers unanswered",
    "no_agents": "no agents",
    "turn": "its turn comes",
    "held": "held back for somebody",
    "quota": "held back for quota",
    "refused": "refused by itself",
    "left_over": "left over by itself",
    "nothing_free": "nothing free that would do",
    "deactivated": "agents deactivated",
    "not_whitelisted": "agents not on the whitelist",
    "agent_set_aside": "agents set aside",
    "reserved": "reserved for others",
    "too_large": "fits nowhere",
    "no_such_resource": "needs a resource that agents lack",
    "gpu_resources": "lacks GPU_RESOURCES",
    "region_aware": "lacks REGION_AWARE",
    "multi_role": "agents lack MULTI_ROLE",
    "hierarchical_role": "agents lack HIERARCHICAL_ROLE",
    "revocable_resources": "lacks REVOCABLE_RESOURCES",
    "shared_resources": "lacks SHARED_RESOURCES",
    "reservation_refinement": "lacks RESERVATION_REFINEMENT",
    "constraint": "forbidden by its constraint",
}
"""Each reason in a few words, for tables."""


@dataclass(frozen=True, slots=True)
class ExplanationFacts:
    """Facts that `explain` needs: why a user's clients get no more offers, and unservable users."""

    reasons: Sequence[Explanation] = ()
    """Present reasons of the user's first `MOST` clients."""
    waited: Mapping[str, float] = field(default_factory=dict)
    """Seconds that the user has waited since the service began, by reason."""
    seconds_without_master: float | None = None
    """Seconds since a leading master was last connected; None while a master is connected."""
    passed_over: frozenset[str] = frozenset()
    """Users at all levels of the role tree that want offers, but that no agent could serve."""


def find_reasons(engine: Engine, user: str) -> Work[list[Explanation]]:
    """Return why a user's clients get nothing more of the free resources, one result per client.

    Only the first `MOST` clients are examined. Costs O(agents), and for each client O(groups of
    equal agents).
    """
    survey = yield from engine.survey()
    reasons = []
    for client in islice(engine.clients(user.removesuffix("/.")), MOST):
        why = yield from survey.explain(client, closely=True)
        if why is not None:
            reasons.append(why)
    return reasons


def add_reasons(
    explanation: admin.Explanation, engine: Engine, reasons: Sequence[Explanation]
) -> None:
    """Add to an explanation why the user's frameworks get nothing more of the free resources.

    Args:
        explanation: The explanation to complete.
        engine: The engine, for names and the time.
        reasons: The reasons, one per client, as returned by `find_reasons`.
    """
    for why in reasons:
        reason = explanation.reasons.add(
            framework=why.client.framework,
            name=engine.framework_name(why.client.framework),
            role=why.client.role,
            reason=why.reason,
            agents=why.agents,
            reserved_for=sorted(why.reserved_for),
            without=sorted(why.missing_resources),
        )
        if why.until is not None:
            reason.ends_after = max(why.until - engine.now, 0.0)
        explanation.words.append(
            f"Its framework {reason.name} ({reason.framework}) gets nothing more in role "
            f"{called(reason.role)} now: {reasons_text(why, engine.now)}{_ahead(explanation, why)}."
        )
        if why.others_are_smaller and why.reason == "nothing_free":
            explanation.words.append(f"Its framework {reason.name} {words_of_gaps(engine)}")


def words_of_gaps(engine: Engine) -> str:
    """Return the rest of a sentence about a user whose next task fits into no agent's free part.

    The text says that smaller tasks may fill each gap first. It names the settings that would keep
    room for the large task, or that already do. The caller puts the user's name before the text.

    Args:
        engine: The engine, for its settings.
    """
    settings = engine.settings
    if settings.hold_for != "off":
        return (
            "has a task that is larger than others': room for it is kept on an agent in its turn "
            f'(offers.hold_for = "{settings.hold_for}").'
        )
    hold = 'offers.hold_for = "one" would keep room on an agent for it'
    batch = 'offers.allocation = "batch" would let more come free before it is offered'
    if settings.allocation == "batch":
        change = hold
        when = "what comes free within an interval is offered together, and"
    else:
        change, when = f"{hold}; {batch}", "each gap is offered as soon as it is free, and"
    if settings.policy.per_machine:
        change = "" if settings.allocation == "batch" else batch
    waits = f"has a task that is larger than others': {when} smaller tasks may fill every gap, so "
    waits += "that its task may wait until others want nothing more"
    return f"{waits}. To change that: {change}." if change else f"{waits}."


def add_waited(explanation: admin.Explanation, waited: Mapping[str, float]) -> None:
    """Add to an explanation how long each reason has kept the user waiting.

    Args:
        explanation: The explanation to complete.
        waited: Seconds by reason, since the service began.
    """
    explanation.waited.update(waited)
    longest = sorted(waited.items(), key=lambda wait: -wait[1])
    parts = [f"{BRIEFLY[reason]} {duration(wait)}" for reason, wait in longest if wait]
    if parts:
        explanation.words.append(
            f"What has kept it from more, since the service began: {', '.join(parts)}."
        )


def reasons_text(why: Explanation, now: float) -> str:
    """Return a sentence with all reasons why a client gets nothing more.

    The reason that is closest to an offer comes first.

    Args:
        why: The reasons.
        now: Present time of the master's clock, in seconds.
    """
    parts = [
        _SAID[reason].format(n=counted(why.agents[reason], "agent"))
        for reason in REASON_ORDER
        if reason in why.agents
    ]
    if why.reserved_for:
        parts.append(f"reserved for {', '.join(map(_role, sorted(why.reserved_for)))}")
    if why.missing_resources:
        parts.append(f"some agents have no {' and no '.join(sorted(why.missing_resources))}")
    if why.task is not None and "too_large" in why.agents:
        needs = ";".join(f"{name}:{amount:g}" for name, amount in why.task.to_doubles().items())
        parts.append(f"nothing less than {needs} is offered to it")
    if why.declined_agents:
        agents = counted(why.declined_agents, "agent")
        parts.append(
            f"on {agents} it has itself refused what one task needs, and is not offered that"
        )
    if why.until is not None:
        parts.append(f"the first of its refusals ends in {duration(max(why.until - now, 0.0))}")
    return "; ".join(parts) or _SAID[why.reason]


def _role(role: str) -> str:
    return f"role '{role}'" if "*" in role else f"role {role}"


def _ahead(explanation: admin.Explanation, why: Explanation) -> str:
    """Return a clause that names the user that gets offers before this user, and for how long.

    The clause is empty if no such user is known, or if the client does not wait for its turn.

    Args:
        explanation: The explanation of the user, with neighbours in the order and passings.
        why: The reasons why a client of the user gets nothing more.
    """
    if why.reason not in {"turn", "nothing_free"}:
        return ""
    ahead = explanation.above[0].ahead.user if explanation.above else explanation.ahead.user
    if not ahead:
        return ""
    until = next(
        (passing.after for passing in explanation.passings if passing.passed == ahead), None
    )
    how_long = "" if until is None else f", for {duration(until)} if nothing changes"
    return f"; {called(ahead)} is asked before{how_long}"
