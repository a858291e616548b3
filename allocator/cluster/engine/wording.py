"""Sentences about frameworks: the reasons why they get no free resources, and Mesos's words."""

import heapq
from collections.abc import Hashable, Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar, get_args

from typing_extensions import override

from allocator.cluster.frameworks.framework import MissingCapability
from allocator.cluster.input.text import readable
from allocator.cluster.quota import top_level
from allocator.cluster.reasons import REASON_ORDER, Explanation, Reason
from allocator.contract import admin_pb2 as admin
from allocator.cooperative import Cooperative
from allocator.fairness.quantities import Quantities
from allocator.formatting import called, counted, duration, since
from allocator.users.wording import PageWords, Vocabulary, Wording

if TYPE_CHECKING:
    from allocator.cluster.engine.view import View

_MOST_ROLES = 3
"""Maximum number of roles with unmet guarantees that a sentence names."""
_MOST_SUGGESTIONS = 8
"""Maximum number of a user's frameworks for which agents are searched for similar attributes."""
_MOST_OWNERS = 3
"""Maximum number of users that a sentence names as owners of frameworks with one name."""
_LONGEST_HINT = 1000
"""Length in characters after which a hint about an unknown user ends."""

_MISFIT_REASONS: frozenset[Reason] = frozenset({"too_large", "no_such_resource", "constraint"})
"""Reasons that the sentence on a framework's misfit explains."""
_LASTING_REASONS: frozenset[Reason] = _MISFIT_REASONS.union(get_args(MissingCapability))
"""Reasons that last until somebody changes the framework, the settings or the agents."""

_SAID: dict[Reason, str] = {
    "set_aside": "its registration contains invalid data",
    "inactive": "it is disconnected or deactivated, or has given up the role",
    "suppressed": "it has suppressed offers and must revive them",
    "recovering": "after the master's failover, offers wait until enough agents have re-registered",
    "unanswered": (
        "it, or another framework of its principal, must first answer outstanding offers, which "
        "have reached their limit"
    ),
    "no_agents": "no agent is registered",
    "turn": "{n} could serve it when its turn comes",
    "held": "{n} could serve it, but {are} held for a client whose task fits on no agent now",
    "quota": "{n} could serve it, but quota keeps the resources back",
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

BRIEFLY: dict[str, str] = {
    "no_master": "no master",
    "set_aside": "invalid registration",
    "inactive": "not connected",
    "suppressed": "suppressed offers",
    "recovering": "failover recovery",
    "unanswered": "outstanding-offer limit",
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


VOCABULARY = Vocabulary(
    machine="agent",
    wants="wants offers",
    want="want offers",
    wants_nothing="wants no offers",
    assumed="does",
    gets_nothing="gets no offers",
    passed_over="none of its frameworks can be offered more now, so it is passed over",
    out_of_contact="no master has been connected",
    delays="Quota, constraints and declines",
    remedy="stop tasks; for a lasting change, shorten tasks or set a quota "
    "(docs/how-to/troubleshoot.md#change-holdings-for-good)",
    lasting_wait="framework gets no offers",
    page=PageWords(
        machines="agents",
        applications="frameworks",
        wants="wants offers",
        trail="Latest offers, and reasons",
        connected="A leading master is connected.",
        disconnected="No leading master is connected, so no framework gets offers.",
        clock="the master's",
    ),
)


def _amounts(quantities: Quantities) -> str:
    amounts = sorted(quantities.items())
    return ", ".join(f"{readable(name)} {amount / 1000:g}" for name, amount in amounts if amount)


class MesosWording(Wording):
    """Texts about frameworks, the clients of Mesos.

    Args:
        view: The view of the engine, for names, settings and the time.
    """

    vocabulary = VOCABULARY
    reasons: ClassVar[Mapping[str, str]] = {
        reason: BRIEFLY[reason] for reason in ("no_master", *REASON_ORDER)
    }

    def __init__(self, view: "View") -> None:
        self._view = view

    @override
    def why_inactive(self, user: str) -> str:
        view = self._view
        if not view.frameworks:
            return "no framework is known to the master"
        roles = {client.role for client in view.clients()}
        if view.settings.user_key == "role" and not any(
            role == user.removesuffix("/.") or role.startswith(f"{user}/") for role in roles
        ):
            return f"no framework is registered in the role {user} now"
        return "each of its frameworks is disconnected or inactive, or has suppressed offers"

    @override
    def about_clients(self, user: str) -> Cooperative[list[str]]:
        view = self._view
        words, suggestions = list[str](), 0
        fits = yield from view.task_fits(user.removesuffix("/."))
        for fit in fits:
            name = f"Its framework {view.framework_name(fit.framework)} ({fit.framework})"
            if fit.misfit:
                end = "" if fit.misfit.endswith("?") else "."
                suggestion = ""
                if not fit.agents and suggestions < _MOST_SUGGESTIONS:
                    suggestions += 1
                    suggestion = yield from view.suggest_placement(fit.framework)
                text = f"{name} cannot get offers: {fit.misfit}{end} {suggestion}"
                words.append(text.rstrip())
            if fit.slip:
                end = "" if fit.slip.endswith("?") else "."
                words.append(f"{name} has a label that the service ignores: {fit.slip}{end}")
            if fit.unnamed and not fit.misfit:
                words.append(
                    f"{name} is not offered {', '.join(fit.unnamed)}, because its demand does not "
                    f"name {'this resource' if len(fit.unnamed) == 1 else 'these resources'}."
                )
            if fit.part_of_gpu:
                words.append(
                    f"{name} has a demand of gpus:{fit.part_of_gpu:g}, but Mesos refuses tasks "
                    "with a part of a GPU."
                )
            if not fit.misfit and fit.constraint:
                words.append(
                    f"{name} may run on {fit.agents} of {view.agents} agents: {fit.constraint}."
                )
            if fit.at_a_time > 1:
                words.append(
                    f"{name} has tasks smaller than limits.smallest_demand, so it is offered "
                    f"resources for {fit.at_a_time} tasks at a time."
                )
        if kept_back := self.kept_back(user):
            words.append(kept_back)
        words.extend(
            f"The service has rejected data about the role: {rejected.flaw.words}."
            for rejected in view.rejected_input_of("role", user)
        )
        return words

    @override
    def add_waits(
        self,
        explanation: admin.Explanation,
        waits: Sequence[Explanation],
        idle_since: Mapping[Hashable, float],
        *,
        starved: bool,
    ) -> None:
        view = self._view
        examined = {why.client.framework for why in waits}
        misfits = view.misfits(examined).keys() - view.unreadable_labels(examined).keys()
        for why in waits:
            reason = explanation.reasons.add(
                framework=why.client.framework,
                name=view.framework_name(why.client.framework),
                role=why.client.role,
                reason=why.reason,
                agents=why.agents,
                reserved_for=sorted(why.reserved_for),
                without=sorted(why.missing_resources),
            )
            if why.until is not None:
                reason.ends_after = max(why.until - view.now, 0.0)
            if why.client.framework in misfits and why.reason in _MISFIT_REASONS:
                continue  # `about_clients` has already given the reason
            text = f"{reasons_text(why, view.now)}{_ahead(explanation, why)}"
            begin = idle_since.get(why.client)
            lasts = ""
            if begin is not None:
                lasts = f" It has held nothing at least since {since(begin, view.now)}."
            result = "gets no more offers in {} now"
            if why.agents and _LASTING_REASONS.issuperset(why.agents):
                result = "cannot get offers in {}"
            explanation.words.append(
                f"Its framework {reason.name} ({reason.framework}) "
                f"{result.format(_role(reason.role))}: {text}.{lasts}"
            )
            if why.others_are_smaller and why.reason == "nothing_free":
                explanation.words.append(f"Its framework {reason.name} {self.about_gaps()}")
        if not view.reports_used and any(
            (why.idle or starved) and why.reason == "nothing_free" for why in waits
        ):
            explanation.words.append(
                "Frameworks may hold resources in offers without an answer, which this master does "
                "not report to the service: compare offers and tasks in the master's /state."
            )

    @override
    def kept_back(self, user: str) -> str:
        own = top_level(user) if self._view.settings.user_key == "role" else ""
        quotas = self._view.quotas()
        unmet = {
            role: missing
            for role, (quota, consumed) in quotas.items()
            if _amounts(missing := quota.unmet(consumed))
        }
        sentences = list[str]()
        if own_missing := unmet.pop(own, None):
            sentences.append(
                f"The quota of {_role(own)} guarantees {_amounts(own_missing)} more than the role "
                "holds. Until it holds them, its frameworks get free resources before the order."
            )
        if unmet:
            named = [
                f"{called(role)} ({_amounts(missing)})"
                for role, missing in heapq.nsmallest(_MOST_ROLES, unmet.items())
            ]
            more = f" and {len(unmet) - len(named)} more" if len(unmet) > len(named) else ""
            sentences.append(
                "Before the order of users, free resources are kept for the unmet guarantees of "
                f"{', '.join(named)}{more}."
            )
        limited = own in quotas and (
            not quotas[own][0].capped or user.removesuffix("/.") == own  # before Mesos 1.9
        )
        if limited and (limits := quotas[own][0].shown_limits):
            consumed = quotas[own][1]
            amounts = ", ".join(
                f"{readable(name)} {max(limit - consumed[name], 0) / 1000:g}"
                for name, limit in sorted(limits.items())
            )
            sentences.append(f"The limits of {_role(own)} permit no more than {amounts} now.")
        return " ".join(sentences)

    @override
    def left_out_of_order(self) -> str:
        if not self._view.quotas():
            return ""
        return (
            "The order leaves out quotas. Roles below their guarantees get free resources before "
            "the order, and a role at its limits gets nothing in its turn."
        )

    @override
    def about_gaps(self) -> str:
        """Return the rest of a sentence about a user whose next task fits into no gap.

        Smaller tasks may fill each gap first. The text names the settings that keep room for the
        large task.
        """
        settings = self._view.settings
        if settings.hold_for != "off":
            return (
                "has a task that is larger than other users' tasks. In its turn, the service keeps "
                f'an agent free for the task (offers.hold_for = "{settings.hold_for}").'
            )
        hold = 'offers.hold_for = "one" would keep an agent free for it'
        batch = 'offers.allocation = "batch" would collect free resources before it offers them'
        if settings.allocation == "batch":
            change = hold
            when = "free resources are offered once per interval, so"
        else:
            change, when = f"{hold}, and {batch}", "free resources are offered at once, so"
        if settings.policy.per_machine:
            change = "" if settings.allocation == "batch" else batch
        waits = f"has a task that is larger than other users' tasks: {when} smaller tasks may fill "
        waits += "every gap, and its task may wait until other users want no more"
        return f"{waits}. The service's setting {change}." if change else f"{waits}."

    @override
    def wait_details(self, wait: Explanation) -> dict[str, str]:
        view, client = self._view, wait.client
        return {
            "framework": client.framework,
            "name": view.framework_name(client.framework),
            "role": client.role,
            "reason": wait.reason,
            "because": reasons_text(wait, view.now),
        }

    @override
    def about_unknown_user(self, user: str) -> Cooperative[str]:
        view, owners = self._view, set[str]()
        for client in view.clients():
            if user in {client.framework, view.framework_name(client.framework)}:
                owners.update(view.users_of(client)[:1])
            yield
        words = f"; {user} is {_framework_of(owners)}" if owners else ""
        for rejected in list(view.rejected_inputs()):
            if user in {rejected.name, view.framework_name(rejected.name)}:
                words += f"; the service rejected framework {rejected.name}: {rejected.flaw.words}"
                if len(words) > _LONGEST_HINT:
                    break
            yield
        return words


def reasons_text(why: Explanation, now: float) -> str:
    """Return a sentence with all reasons why a client gets nothing more.

    The reason that is closest to an offer comes first.

    Args:
        why: The reasons.
        now: Present time of the master's clock, in seconds.
    """
    parts = [_sentence(reason, why) for reason in REASON_ORDER if reason in why.agents]
    if why.reserved_for:
        roles = ", ".join(map(_role, sorted(why.reserved_for)))
        parts.append(f"the reservations are for {roles}")
    if why.task is not None and "too_large" in why.agents:
        needs = ";".join(f"{name}:{amount:g}" for name, amount in why.task.to_doubles().items())
        parts.append(f"it is offered no less than {needs}")
    if why.declined_agents:
        agents = counted(why.declined_agents, "agent")
        parts.append(
            f"its offer filters would keep {agents} from it even if a task's resources were free"
        )
    if why.until is not None:
        parts.append(
            f"its first offer filter ends in {duration(max(why.until - now, 0.0))} (REVIVE, or a "
            "restart of its scheduler, ends all of its filters)"
        )
    if why.task is None and "refused" in why.agents:
        parts.append(
            "it states no demand (longshare.demand), so offers may be too small for its tasks"
        )
    if why.unanswered_for is not None:
        parts.append(
            f"its offers of the last {duration(why.unanswered_for)} have reached their limit; this "
            "master does not report which of them it has accepted"
        )
    if why.reason == "inactive" and not why.idle:
        parts += [
            _SAID[why.reason],
            "its tasks keep their resources until they end, or until its failover_timeout is over",
        ]
    return "; ".join(parts) or _SAID[why.reason]


def _sentence(reason: Reason, why: Explanation) -> str:
    agents = why.agents[reason]
    one = agents == 1
    are, have, lack = ("is", "has", "lacks") if one else ("are", "have", "lack")
    sentence = _SAID[reason].format(n=counted(agents, "agent"), are=are, have=have, lack=lack)
    if reason == "quota":
        limits = ", ".join(
            f"{readable(name)} {consumed / 1000:g} of {limit / 1000:g}"
            for name, (consumed, limit) in sorted(why.reached_limits.items())
        )
        cause = f"its role has reached its limit: {limits}" if limits else ""
        return f"{sentence}: {cause or 'other roles have unmet guarantees'}"
    if reason == "no_such_resource" and why.missing_resources:
        return f"{sentence}: {', '.join(sorted(why.missing_resources))}"
    return sentence


def _framework_of(owners: set[str]) -> str:
    """Return a phrase about the users of a framework, or of several frameworks with one name."""
    named = ", ".join(map(called, heapq.nsmallest(_MOST_OWNERS, owners)))
    if len(owners) == 1:
        return f"a framework of the user {named.removeprefix('user ')}"
    more = f" and {len(owners) - _MOST_OWNERS} more" if len(owners) > _MOST_OWNERS else ""
    return f"the name of frameworks of the users {named}{more}"


def _role(role: str) -> str:
    return f"role '{role}'" if "*" in role else f"role {role}"


def _ahead(explanation: admin.Explanation, why: Explanation) -> str:
    """Return a clause that names a user that gets offers before this user, and for how long.

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
    further = explanation.users_ahead - 1
    also = f"; {counted(further, 'other user')} {'is' if further == 1 else 'are'} also ahead of it"
    return f"; {called(ahead)} is served first{how_long}{also if further > 0 else ''}"
