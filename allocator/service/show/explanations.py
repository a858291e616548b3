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
    "set_aside": "its registration contains invalid data",
    "inactive": "it is disconnected or deactivated, or has given up the role",
    "suppressed": "it has suppressed offers and must revive them",
    "recovering": "after the master's failover, offers wait until enough agents have re-registered",
    "unanswered": "it must first answer its outstanding offers, which have reached their limit",
    "no_agents": "no agent is registered",
    "turn": "{n} could serve it when its turn comes",
    "held": "{n} could serve it, but {are} held for a client whose task fits on no agent now",
    "quota": "{n} could serve it, but quota keeps the resources back: its role's limit, or "
    "guarantees of other roles",
    "refused": "it has declined the resources of {n} that could serve it",
    "left_over": "it has not used all resources of its last offers from {n}: it left resources "
    "over, or the master refused its launches",
    "nothing_free": "{n} could serve it, but {have} too little free now",
    "deactivated": "{n} could serve it, but {are} deactivated",
    "not_whitelisted": "{n} could serve it, but {are} not on the master's whitelist",
    "agent_set_aside": "{n} could serve it, but the service has rejected data about them",
    "reserved": "{n} could serve it, but {are} reserved for other roles",
    "too_large": "{n} {are} too small for one of its tasks, even if no other task runs there",
    "no_such_resource": "{n} {have} none of a resource that its task needs",
    "gpu_resources": "{n} {have} GPUs, and it lacks the capability GPU_RESOURCES",
    "region_aware": "{n} {are} in another region than the master, and it lacks the capability "
    "REGION_AWARE",
    "multi_role": "{n} {lack} the capability MULTI_ROLE, which it has",
    "hierarchical_role": "{n} {lack} the capability HIERARCHICAL_ROLE, which its role needs",
    "revocable_resources": "{n} could serve it with revocable resources, but it lacks the "
    "capability REVOCABLE_RESOURCES",
    "shared_resources": "{n} could serve it with shared resources, but it lacks the capability "
    "SHARED_RESOURCES",
    "reservation_refinement": "{n} could serve it with refined reservations, but it lacks the "
    "capability RESERVATION_REFINEMENT",
    "constraint": "its placement constraint forbids {n}",
}
"""Sentence for each reason; `{n}` is replaced by a number of agents, such as "3 agents"."""

PASSED_OVER = "no agent could serve it, so it is passed over"
"""Part of a sentence about a user that wants offers, but that no agent could serve."""

BRIEFLY: dict[str, str] = {
    "no_master": "no master",
    "set_aside": "invalid registration",
    "inactive": "not connected",
    "suppressed": "suppressed offers",
    "recovering": "failover recovery",
    "unanswered": "offers unanswered",
    "no_agents": "no agents",
    "turn": "waits for its turn",
    "held": "held for another task",
    "quota": "held back for quota",
    "refused": "offers declined",
    "left_over": "offers not used",
    "nothing_free": "too little free",
    "deactivated": "agents deactivated",
    "not_whitelisted": "agents not on the whitelist",
    "agent_set_aside": "agents rejected",
    "reserved": "reserved for other roles",
    "too_large": "task fits no agent",
    "no_such_resource": "needs a resource that agents lack",
    "gpu_resources": "lacks GPU_RESOURCES",
    "region_aware": "lacks REGION_AWARE",
    "multi_role": "agents lack MULTI_ROLE",
    "hierarchical_role": "agents lack HIERARCHICAL_ROLE",
    "revocable_resources": "lacks REVOCABLE_RESOURCES",
    "shared_resources": "lacks SHARED_RESOURCES",
    "reservation_refinement": "lacks RESERVATION_REFINEMENT",
    "constraint": "placement constraint",
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
            f"Its framework {reason.name} ({reason.framework}) gets no more offers in role "
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
            "has a task that is larger than other users' tasks. In its turn, the service keeps an "
            f'agent free for the task (offers.hold_for = "{settings.hold_for}").'
        )
    hold = 'set offers.hold_for = "one", which keeps an agent free for it'
    batch = 'set offers.allocation = "batch", which collects free resources before it offers them'
    if settings.allocation == "batch":
        change = hold
        when = "free resources are offered once per interval, so"
    else:
        change, when = f"{hold}, or {batch}", "free resources are offered at once, so"
    if settings.policy.per_machine:
        change = "" if settings.allocation == "batch" else batch
    waits = f"has a task that is larger than other users' tasks: {when} smaller tasks may fill "
    waits += "every gap, and its task may wait until other users want no more"
    return f"{waits}. To change that, {change}." if change else f"{waits}."


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
            f"Reasons why it waited, since the service started: {', '.join(parts)}."
        )


def reasons_text(why: Explanation, now: float) -> str:
    """Return a sentence with all reasons why a client gets nothing more.

    The reason that is closest to an offer comes first.

    Args:
        why: The reasons.
        now: Present time of the master's clock, in seconds.
    """
    parts = [
        _sentence(reason, why.agents[reason]) for reason in REASON_ORDER if reason in why.agents
    ]
    if why.reserved_for:
        roles = ", ".join(map(_role, sorted(why.reserved_for)))
        parts.append(f"the reservations are for {roles}")
    if why.missing_resources:
        parts.append(f"some agents have no {' and no '.join(sorted(why.missing_resources))}")
    if why.task is not None and "too_large" in why.agents:
        needs = ";".join(f"{name}:{amount:g}" for name, amount in why.task.to_doubles().items())
        parts.append(f"it is offered no less than {needs}")
    if why.declined_agents:
        agents = counted(why.declined_agents, "agent")
        parts.append(
            f"it has declined the resources of one task on {agents}, and is not offered them again"
        )
    if why.until is not None:
        parts.append(f"its first offer filter ends in {duration(max(why.until - now, 0.0))}")
    return "; ".join(parts) or _SAID[why.reason]


def _sentence(reason: Reason, agents: int) -> str:
    one = agents == 1
    are, have, lack = ("is", "has", "lacks") if one else ("are", "have", "lack")
    return _SAID[reason].format(n=counted(agents, "agent"), are=are, have=have, lack=lack)


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
    return f"; {called(ahead)} is served first{how_long}"
