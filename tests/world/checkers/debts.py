"""Users' commitments equal those of an exact twin, and offers follow the resulting order."""

import math
import re
from collections.abc import Iterable
from fractions import Fraction

from typing_extensions import override

from allocator.contract import admin_pb2 as admin
from allocator.contract import allocator_pb2 as contract
from allocator.contract import log_pb2 as log
from allocator.contract import mesos_pb2 as mesos
from tests.world.checkers.checker import Checker, Violated
from tests.world.checkers.twin import Twin, acceptable
from tests.world.model.amounts import Amounts, read
from tests.world.service import Incarnation

TOLERANCE = 1e-7
"""The tolerance of commitments, which are around 1, and of priorities times weight, which are sums
of commitments and shares. A clock that counts seconds since 1970 in doubles is exact to a quarter
of a microsecond, and the shortest half-life in the world is half a minute.
"""
_SECOND = 1_000_000_000


class Debts(Checker):
    """Keeps a twin of each engine and applies the engine's inputs to the twin."""

    def __init__(self) -> None:
        self.compared = 0
        """Number of compared commitments."""
        self.ordered = 0
        """Number of offers whose order has been checked."""
        self._twins: dict[Incarnation, Twin] = {}
        self._refused: dict[Twin, dict[tuple[str, str, str], int]] = {}
        """For each twin: (framework, role, agent) → end of the filter, late rather than early"""
        self._ticked: dict[Twin, int] = {}
        """Time of each engine's latest tick; filters end at ticks, and a clock may jump in between.
        """

    @override
    def logged(self, life: Incarnation, entry: log.LogEntry) -> None:
        if entry.HasField("header"):
            remaining = [twin for twin in self._twins if twin.host is not life.host]
            self._twins = {twin: self._twins[twin] for twin in remaining}
            twin = self._twins[life] = Twin(entry.header)
            self._refused = {twin: self._refused.get(twin, {}) for twin in self._twins.values()}
            self._ticked = {twin: self._ticked.get(twin, 0) for twin in self._twins.values()}
            return
        twin = self._twins[life]
        match entry.WhichOneof("entry"):
            case "restore":
                if not entry.restore.outcome.refusal:
                    twin.restore(entry.restore)
                    self._served(twin, entry.restore.outcome)
            case "apply":
                self._applied(twin, entry.apply)
            case "unheard":
                for event in entry.unheard.events.events:
                    self._note_filters(twin, event)
            case "order":
                if not entry.order.outcome.refusal:
                    twin.order(entry.order.order)

    def twin(self, life: Incarnation) -> Twin:
        """Return the twin of a service's engine."""
        return self._twins[life]

    @override
    def shown(self, life: Incarnation, reply: admin.SharesReply) -> None:
        twin = self._twins.get(life)
        if twin is None or twin.unsure:
            return
        if {row.user for row in reply.users} != set(twin.users):
            raise Violated(f"users are {[r.user for r in reply.users]}, not {list(twin.users)}")
        before, ahead = Fraction(0), []
        for row in sorted(reply.users, key=lambda row: row.rank):
            shares = twin.shares(row.user)
            _same(f"weight of {row.user}", row.weight, twin.weight(row.user))
            for name, share in shares.items():
                _same(f"share of {row.user} in {name}", row.shares.get(name, 0.0), share)
                owed = twin.users[row.user].commitments.get(name, Fraction(0))
                _same(f"debt of {row.user} in {name}", row.commitments.get(name, 0.0), owed)
                self.compared += bool(owed)
            priority = twin.priority(row.user)
            weight = twin.weight(row.user)
            _same(f"priority of {row.user}", row.priority, priority, weight)
            ahead.append(row.user)
            if priority < before - _apart(twin, *ahead[-2:]):
                raise Violated(f"{row.user} comes after others, though its priority is lower")
            before = priority

    def _applied(self, twin: Twin, entry: log.LogApply) -> None:
        refused = re.match(r"event (\d+)", entry.outcome.refusal)
        last = math.inf if refused is None else int(refused[1])
        if entry.outcome.refusal and refused is None:
            return
        for event in entry.events.events:
            if event.sequence < last:
                twin.event(event)
                if event.HasField("tick"):
                    self._ticked[twin] = twin.now
            self._note_filters(twin, event)  # a snapshot contains the filters of later events
        if refused is not None:
            return
        self._served(twin, entry.outcome)

    def _served(self, twin: Twin, outcome: log.Outcome) -> None:
        decisions = contract.Decisions.FromString(outcome.decisions)
        whoever_is_first = not (twin.unsure or twin.quotas or twin.bounded)
        if decisions.offers and whoever_is_first:
            self._in_order(twin, decisions)
        twin.decide(decisions)

    def _in_order(self, twin: Twin, decisions: contract.Decisions) -> None:
        """Check that a user without an offer in a cycle was not first on an agent of that cycle."""
        priorities = {user: twin.priority(user) for user in twin.users}
        served = {offer.role for offers in decisions.offers for offer in offers.offers}
        waiting = [user for user in twin.users if user not in served]
        for offers in decisions.offers:
            for offer in offers.offers:
                amounts, _ = read(offer.resources)
                if not _worth_while([amounts]):
                    continue
                self.ordered += 1
                for user in waiting:
                    least = priorities[offer.role] - _apart(twin, user, offer.role)
                    if priorities[user] < least and (
                        client := self._who_would_have_taken(twin, user, offer.agent_id)
                    ):
                        raise Violated(
                            f"{offers.framework_id} was offered {amounts} of {offer.agent_id} for "
                            f"{offer.role} ({float(priorities[offer.role])}) before {client} for "
                            f"{user} ({float(priorities[user])})"
                        )

    def _who_would_have_taken(self, twin: Twin, user: str, agent: str) -> str | None:
        for name, known in twin.frameworks.items():
            refused = self._refused[twin].get((name, user, agent), 0)
            if (
                user in known.roles
                and known.active
                and user not in known.suppressed
                and refused < self._ticked.get(twin, 0) - 2 * _SECOND
                and _takes_anything(name, known.said.info)
            ):
                return name
        return None

    def _note_filters(self, twin: Twin, event: contract.Event) -> None:
        if event.HasField("recover_resources") and event.recover_resources.HasField("filters"):
            call = event.recover_resources
            seconds = mesos.Filters.FromString(call.filters).refuse_seconds
            seconds = min(seconds, 1e9) if seconds >= 0 else 5.0
            now = max(twin.now, event.time_ns)
            until = now + round(seconds * _SECOND) + 2 * twin.interval  # ends with a tick
            refused = self._refused[twin]
            for role in read(call.resources)[1]:
                place = (call.framework_id, role, call.agent_id)
                refused[place] = max(until, refused.get(place, 0))


def _same(subject: str, stated: float, twin: Fraction, weight: Fraction = Fraction(1)) -> None:
    most = Fraction(TOLERANCE) * max(Fraction(1), weight * abs(twin))
    if weight * abs(Fraction(stated) - twin) > most:
        raise Violated(f"{subject} is {stated}, where {float(twin)} is right")


def _apart(twin: Twin, *users: str) -> Fraction:
    """Return by how much priorities of users must differ for their order to be certain."""
    return Fraction(TOLERANCE) / min(map(twin.weight, users))


def _worth_while(many: Iterable[Amounts]) -> bool:
    """Return whether the amounts reach the master's minimum."""
    return all(amounts.get("cpus", 0) >= 10 or amounts.get("mem", 0) >= 32_000 for amounts in many)


def _takes_anything(name: str, info: bytes) -> bool:
    """Return whether a framework states no restriction that would exclude it from offers."""
    if not acceptable(name, info):
        return False
    framework_info = mesos.FrameworkInfo.FromString(info)
    return not framework_info.labels.labels and not framework_info.offer_filters
