"""Finds out why clients wait, and sums up the waiting times of users by reason.

A background task examines all clients again and again, at a pace that leaves the event loop free.
Each client that waits for long is logged once.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Hashable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Literal

import structlog

from allocator.service.loop.cooperative import Work, run_in_slices
from allocator.service.loop.engine_lock import EngineLock
from allocator.service.scheduler_contact import SchedulerContact
from allocator.service.show.explanations import ExplanationFacts
from allocator.service.show.shadows import Shadows
from allocator.users.adapter import SchedulerAdapter
from allocator.users.wording import ClientWait

EVERY = 5.0
"""Minimum number of seconds between two examinations of all clients."""
PACE = 30.0
"""Pause after each step of an examination, as a multiple of the step's duration."""
LASTING = 300.0
"""Seconds of the master's clock after which a client that waits and holds nothing is logged."""
MOST_LINES = 20
"""Maximum number of log lines per examination; further clients are logged in the next one."""
_FRESH = 60.0
"""Seconds of the master's clock for which a survey of the agents is reused."""
_AT_ONCE = 50
_DECLINED = {"refused", "left_over"}

_log = structlog.get_logger(__name__)


@dataclass(slots=True)
class _Wait:
    reason: str
    since: float
    """Time at which the reason began, or at which the client last held resources if later."""
    idle_since: float
    """Time at which the client was first examined, or at which it last held resources."""
    told: bool = False

    def changed(self, reason: str, now: float) -> "_Wait":
        """Return the wait of the same client after its reason has changed."""
        return _Wait(reason, now, self.idle_since)


class Waits:
    """Keeps, for each waiting client and user, the reason why it gets no further resources.

    A background task calls `examine` regularly. The reason of a user is the reason of its client
    that is closest to an offer. Each call adds the time since the previous call to the user's
    waiting time for the reason that it finds.

    Args:
        adapter: The adapter to examine.
        statistics: Whether the scheduler is in contact.
        shadows: Shadow policies, which are told the users that would get nothing; None for none.
    """

    def __init__(
        self,
        adapter: SchedulerAdapter,
        statistics: SchedulerContact,
        shadows: Shadows | None = None,
    ) -> None:
        self._adapter = adapter
        self._order = {reason: rank for rank, reason in enumerate(adapter.wording.reasons)}
        """Rank of each reason; the reason closest to being served is first."""
        self._shadows = Shadows({}) if shadows is None else shadows
        self.statistics = statistics
        self._clients: dict[Hashable, _Wait] = {}
        self._users: dict[str, str] = {}
        self._seconds: dict[str, dict[str, float]] = {}
        self._at: float | None = None
        """Time of the previous examination by the master's clock; None if there was none under the
        present master."""
        self._began: float | None = None
        """Time of the first examination of clients by the master's clock."""
        self._alone = 0.0
        """Seconds without a leading master that have already been added to waiting times."""
        self.passed_over = frozenset[str]()
        """Users that wanted offers at the latest examination, but that no agent could serve."""

    def reason(self, user: str) -> str | None:
        """Return why a user gets no further resources; None for a user without frameworks.

        The reason is as of the latest call of `examine`.
        """
        return self._users.get(user)

    def brief_reason(self, user: str) -> str:
        """Return the result of `reason` in a few words; empty if it is None."""
        reason = self._users.get(user)
        return "" if reason is None else self._adapter.wording.reasons[reason]

    def takes_nothing(self, user: str) -> Literal["no_agent", "declines"] | None:
        """Return why offers to a user would be useless, although the user wants offers.

        Returns:
            "no_agent" if no agent could serve the user, "declines" if the user has declined all
                that it could get, or None if neither applies. Each is as of the latest call of
                `examine`.
        """
        if user in self.passed_over:
            return "no_agent"
        return "declines" if self._users.get(user) in _DECLINED else None

    def seconds(self, user: str) -> Mapping[str, float]:
        """Return a user's waiting times since the service began: reason → seconds."""
        return self._seconds.get(user, {})

    def add_record(self, facts: ExplanationFacts, user: str) -> ExplanationFacts:
        """Return facts for an explanation with the recorded waits of the user and its clients.

        Args:
            facts: The facts from a survey.
            user: The user.
        """
        now = self._adapter.now
        idle_since = {
            why.client: wait.idle_since
            for why in facts.reasons
            if why.idle
            and (wait := self._clients.get(why.client)) is not None
            and now - wait.idle_since >= EVERY
        }
        return replace(
            facts,
            waited=self.seconds(user),
            waited_from=self._began,
            idle_since=idle_since,
            seconds_without_master=self.statistics.alone,
        )

    def clients(self) -> Counter[str]:
        """Return how many clients wait for each reason: reason → number.

        A client is a framework in one role. The numbers are as of the latest call of `examine`.
        """
        return Counter(wait.reason for wait in self._clients.values())

    def examine(self) -> Work[None]:
        """Find out why each client waits, and add up the waiting times, in cooperative steps."""
        reasons: dict[Hashable, str]
        alone = self.statistics.alone
        if alone is None:
            elapsed, self._alone = self._elapsed(), 0.0
            reasons = yield from self._look()
        else:
            elapsed, self._alone, self._at = max(alone - self._alone, 0.0), alone, None
            reasons = dict.fromkeys(self._adapter.clients(), next(iter(self._order)))
        yield from self._count(reasons, elapsed)

    def _elapsed(self) -> float:
        previous, self._at = self._at, self._adapter.now
        self._began = self._at if self._began is None else self._began
        return max(self._at - previous, 0.0) if previous is not None else 0.0

    def _look(self) -> Work[dict[Hashable, str]]:
        adapter, reasons, lines = self._adapter, dict[Hashable, str](), 0
        survey, surveyed = (yield from adapter.survey()), adapter.now
        for client in adapter.clients():
            if abs(adapter.now - surveyed) > _FRESH:
                survey, surveyed = (yield from adapter.survey()), adapter.now
            why = yield from survey.explain(client)
            if why is not None:
                reasons[client] = why.reason
                lines += self._record_wait(why, quiet=lines >= MOST_LINES)
            yield
        self.passed_over = yield from survey.passed_over()
        if self._shadows.followers:
            declining = yield from survey.passed_over(declining=True)
            self._shadows.pass_over(adapter, declining)
        return reasons

    def _record_wait(self, why: ClientWait, *, quiet: bool) -> bool:
        """Record why a client waits, and log it once if the client has waited for long.

        Args:
            why: The client and its reasons.
            quiet: True to write no log line, because enough lines have been written.

        Returns:
            Whether a log line was written.
        """
        adapter, client = self._adapter, why.client
        wait = self._clients.get(client)
        if wait is None:
            wait = self._clients[client] = _Wait(why.reason, adapter.now, adapter.now)
        elif wait.reason != why.reason:
            wait = self._clients[client] = wait.changed(why.reason, adapter.now)
        if not why.idle:
            wait.since = wait.idle_since = adapter.now
            wait.told = False
        lasts = why.is_reported and adapter.now - wait.since >= LASTING
        if quiet or wait.told or not lasts:
            return False
        wait.told = True
        _log.info(adapter.wording.vocabulary.lasting_wait, **adapter.wording.wait_details(why))
        return True

    def _count(self, reasons: Mapping[Hashable, str], elapsed: float) -> Work[None]:
        """Add the elapsed time to the users' waiting times, and drop removed clients and users.

        A user's time is added to the reason of its client that is closest to an offer.

        Args:
            reasons: The reason why each client waits.
            elapsed: Seconds since the previous call of `examine`.
        """
        users: dict[str, str] = {}
        for number, (client, reason) in enumerate(reasons.items(), start=1):
            for user in self._adapter.users_of(client):
                closest = users.get(user)
                if closest is None or self._order[reason] < self._order[closest]:
                    users[user] = reason
            if number % _AT_ONCE == 0:
                yield
        now = self._adapter.now
        waits = {
            client: self._clients.get(client) or _Wait(reason, now, now)
            for client, reason in reasons.items()
        }
        self._clients = {
            client: wait if wait.reason == reasons[client] else wait.changed(reasons[client], now)
            for client, wait in waits.items()
        }
        known = set(self._adapter.users())
        self._seconds = {user: waited for user, waited in self._seconds.items() if user in known}
        for user, reason in users.items():
            seconds = self._seconds.setdefault(user, {})
            seconds[reason] = seconds.get(reason, 0.0) + elapsed
        self._users = users


@asynccontextmanager
async def examining(waits: Waits, engine_lock: EngineLock) -> AsyncIterator[None]:
    """Examine why clients wait, again and again in a background task, while the block runs.

    An error is logged, and the next examination starts over.

    Args:
        waits: The reasons to keep up to date.
        engine_lock: Lock acquired for each step.
    """

    async def tour() -> None:
        while True:
            await asyncio.sleep(EVERY)
            try:
                await run_in_slices(waits.examine(), engine_lock, rest=PACE)
            except Exception:  # noqa: BLE001 - the examinations must go on
                _log.exception(
                    "examining waiting clients has failed; the next examination starts over"
                )

    task = asyncio.create_task(tour())
    try:
        yield
    finally:
        task.cancel()
