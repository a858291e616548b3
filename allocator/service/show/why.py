"""Why what is free does not go to the frameworks of a user, in words and for programs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice

from allocator.cluster.engine import Engine
from allocator.cluster.reasons import ORDER, Reason, Why
from allocator.contract import admin_pb2 as admin
from allocator.service.loop.slices import Work
from allocator.service.show.speech import called, counted, duration

MOST = 8
"""Frameworks of a user that are looked at when it is explained, each in each of its roles."""

_SAID: dict[Reason, str] = {
    "set_aside": "what it has said of itself cannot be accepted",
    "inactive": "it is disconnected, deactivated, or has given up the role",
    "suppressed": "it has suppressed offers; it has to revive them",
    "recovering": "after an election offers wait until enough agents are back",
    "unanswered": "it has not answered offers of as much as it may be offered at a time",
    "no_agents": "no agent is known",
    "turn": "{n} would do; it is served in its turn",
    "held": "{n} would do, but held back for somebody whose task fits nowhere",
    "quota": "what {n} would give it is held back for quota: its own limit, or what others lack",
    "refused": "it has itself refused what {n} would give it",
    "nothing_free": "{n} would do, but not with what is free now",
    "deactivated": "{n} would do, but deactivated",
    "not_whitelisted": "{n} would do, but not on the master's whitelist",
    "agent_set_aside": "{n} would do, but set aside, since what was said of them is not acceptable",
    "too_large": "{n} could not hold its task even if nothing else ran there",
    "capability": "{n} ask for a capability that it lacks, or lack one that it needs",
    "constraint": "{n} are forbidden by its constraint",
}
"""{n}: so many agents."""

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
    "nothing_free": "nothing free that would do",
    "deactivated": "agents deactivated",
    "not_whitelisted": "agents not on the whitelist",
    "agent_set_aside": "agents set aside",
    "too_large": "fits nowhere",
    "capability": "lacks a capability",
    "constraint": "forbidden by its constraint",
}
"""Each reason in a few words."""


@dataclass(frozen=True, slots=True)
class Kept:
    """What keeps a user from more."""

    found: Sequence[Why] = ()
    """Of its first frameworks, now."""
    waited: Mapping[str, float] = field(default_factory=dict)
    """Seconds by reason, since the service began."""
    alone: float | None = None
    """For how many seconds no leading master has been connected; None: one is."""


def look_into(engine: Engine, user: str) -> Work[list[Why]]:
    """Work out why the first frameworks of a user get nothing more of what is free.

    O(agents), and for each framework O(different agents).
    """
    survey = yield from engine.survey()
    found = []
    for client in islice(engine.clients(user.removesuffix("/.")), MOST):
        why = yield from survey.look(client, closely=True)
        if why is not None:
            found.append(why)
    return found


def add_reasons(explanation: admin.Explanation, engine: Engine, found: Sequence[Why]) -> None:
    """Add to an explanation why frameworks get nothing more of what is free."""
    for why in found:
        told = explanation.reasons.add(
            framework=why.client.framework,
            name=engine.framework_name(why.client.framework),
            role=why.client.role,
            reason=why.reason,
            agents=why.agents,
        )
        if why.until is not None:
            told.ends_after = max(why.until - engine.now, 0.0)
        explanation.words.append(
            f"Its framework {told.name} ({told.framework}) gets nothing more in role "
            f"{called(told.role)} now: {in_words(why, engine.now)}{_ahead(explanation, why)}."
        )


def add_waited(explanation: admin.Explanation, waited: Mapping[str, float]) -> None:
    """Add to an explanation for how long a user has got nothing more, by reason."""
    explanation.waited.update(waited)
    longest = sorted(waited.items(), key=lambda each: -each[1])
    told = [f"{BRIEFLY[name]} {duration(each)}" for name, each in longest if each]
    if told:
        explanation.words.append(
            f"What has kept it from more, since the service began: {', '.join(told)}."
        )


def in_words(why: Why, now: float) -> str:
    """Say what keeps a client from more, the closest to an offer first.

    Args:
        why: What was found.
        now: By the clock that `why.until` goes by.
    """
    parts = [
        _SAID[reason].format(n=counted(why.agents[reason], "agent"))
        for reason in ORDER
        if reason in why.agents
    ]
    if why.task is not None and "too_large" in why.agents:
        needs = ";".join(f"{name}:{each:g}" for name, each in why.task.to_doubles().items())
        parts.append(f"nothing less than {needs} is offered to it")
    if why.refusing:
        agents = counted(why.refusing, "agent")
        parts.append(
            f"on {agents} it has itself refused what one task needs, and is not offered that"
        )
    if why.until is not None:
        parts.append(f"the first of its refusals ends in {duration(max(why.until - now, 0.0))}")
    return "; ".join(parts) or _SAID[why.reason]


def _ahead(explanation: admin.Explanation, why: Why) -> str:
    """Say who is asked before, and until when."""
    if why.reason not in {"turn", "nothing_free"} or not explanation.HasField("ahead"):
        return ""
    ahead = explanation.ahead.user
    until = next((p.after for p in explanation.passings if p.passed == ahead), None)
    how_long = "" if until is None else f", for {duration(until)} if nothing changes"
    return f"; {called(ahead)} is asked before{how_long}"
