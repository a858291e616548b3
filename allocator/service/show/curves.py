"""Shares and commitments of users over time, as data for the charts of the status page.

Values from before this service began come from the accounting database by hour, later ones from
samples in memory.
"""

import asyncio
import json
import math
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Protocol

from typing_extensions import override

from allocator.service.accounting import HOUR, TooMuch
from allocator.service.accounting.accountant import Accountant
from allocator.service.loop.cooperative import Work, run_in_thread
from allocator.service.show.standing_history import Sample, StandingHistory
from allocator.users.adapter import SchedulerAdapter

if TYPE_CHECKING:
    from allocator.service.accounting.queries import Hour

MOST_ASKED = 100
"""Maximum number of users in one answer."""
LONGEST = 31 * 86400.0
"""Longest time that one answer covers, in seconds before now."""
MOST_POINTS = 300
"""Maximum number of samples from memory, and of samples from accounted hours, in one answer.

A chart has about as many pixels.
"""
MOST_QUERIES = 8
"""Maximum number of queries of accounted hours whose results are kept."""
_PART = 25 * HOUR
"""Seconds that one query covers. A longer time takes several queries, between which the accounting
thread writes usage, and answers operators. A chart of a day takes one."""
_REST = 4.0
"""Pause after a query, as a multiple of its duration. All charts together thus keep the database
busy for at most a fifth of the time."""
_PATIENCE = 10.0
"""Seconds that a chart waits for other charts' queries. It then comes without accounted hours."""
_RETRY = 60.0
"""Seconds of the scheduler's clock until a failed query is repeated."""


class UsageHistory(Protocol):
    """Interface to hourly shares and commitments of users, also from before this service began."""

    @property
    def revision(self) -> int:
        """A number that changes if hours from before this service's start may have changed."""

    async def hours(
        self, users: Collection[str], since: float, until: float
    ) -> "Sequence[Hour] | None":
        """Return shares and commitments of users in all hours that begin within an interval.

        Args:
            users: Names of the users.
            since: Start of the interval, in seconds since the epoch.
            until: End of the interval, in seconds since the epoch.

        Returns:
            The hours; None if the source does not answer.
        """


class Accounts(UsageHistory):
    """Reads users' hourly shares and commitments from the accounting database.

    Args:
        accountant: Reader of the database.
    """

    def __init__(self, accountant: Accountant) -> None:
        self._accountant = accountant

    @property
    @override
    def revision(self) -> int:
        # The first write accounts for the time since the latest write of another service.
        return min(self._accountant.statistics.writes, 1)

    @override
    async def hours(
        self, users: Collection[str], since: float, until: float
    ) -> "Sequence[Hour] | None":
        from allocator.service.accounting.queries import hourly_shares_of  # noqa: PLC0415 - takes time

        with suppress(TooMuch):  # writing usage is more important than a chart
            return await self._accountant.read(
                lambda read: hourly_shares_of(read, since, until, users)
            )
        return None


@dataclass(frozen=True, slots=True)
class _Query:
    """Result of a query of accounted hours."""

    samples: list[Sample] | None
    """Means of each hour, or of several hours; None if the source did not answer."""
    expires: float
    """Time on the scheduler's clock from which the query is repeated, in seconds."""


class Curves:
    """Builds the data of the status page's charts from accounted hours and recent samples.

    All readers of the same charts share one query of accounted hours per hour.

    Args:
        adapter: Source of the current time.
        history: Samples that this service has taken.
        chronicle: Source of hourly values, such as the accounting database; None: only samples
            are used.
    """

    def __init__(
        self,
        adapter: SchedulerAdapter,
        history: StandingHistory,
        chronicle: UsageHistory | None = None,
    ) -> None:
        self._adapter = adapter
        self._history = history
        self._chronicle = chronicle
        self._queries: dict[tuple[object, ...], _Query] = {}
        """Results of the latest queries, the earliest first: (users, hours, revision) → query."""
        self._reading = asyncio.Lock()
        """Held by the reader that queries the source of hourly values."""
        self._running: asyncio.Task[Sequence[Hour] | None] | None = None
        """The latest query. It continues if its reader has disconnected."""
        self._rest_until = 0.0
        """End of the pause after the latest query, in seconds by the loop's clock."""
        self._encoding = asyncio.Lock()
        """Lock for one answer at a time. Charts then delay neither operators nor masters."""

    async def read(self, users: Sequence[str], seconds: float) -> str:
        """Return shares and commitments of users over time as JSON, for the page's charts.

        All users have values at the same instants (`times`). An unknown value is None.

        Args:
            users: Names of the users; only the first `MOST_ASKED` are read.
            seconds: Length of the time before now that the answer covers, up to `LONGEST` seconds.
        """
        users = users[:MOST_ASKED]
        seconds = min(seconds, LONGEST)
        until = self._adapter.now
        since = max(until - seconds, 0.0)
        samples = [sample for sample in self._history.samples if sample.time >= since]
        past: list[Sample] | None = []
        if self._chronicle is not None:
            past = await self._accounted(self._chronicle, sorted(users), seconds, until)
        async with self._encoding:
            work = self._merge(users, (since, until), samples, past)
            return await asyncio.to_thread(run_in_thread, work)

    async def _accounted(
        self, chronicle: UsageHistory, users: Sequence[str], seconds: float, until: float
    ) -> list[Sample] | None:
        """Return samples from accounted hours; None if the source does not answer in time.

        Args:
            chronicle: Source of the hours.
            users: Names of the users, sorted.
            seconds: Length of the interval, in seconds.
            until: End of the interval, in seconds since the epoch.
        """
        # So requests with slightly different times share a query.
        number = math.ceil(seconds / HOUR)
        key = (*users, number, chronicle.revision)
        query = self._known(key, until)
        if query is None:
            try:
                await asyncio.wait_for(self._reading.acquire(), _PATIENCE)
            except TimeoutError:
                return None
            try:
                query = self._known(key, until)
                if query is None:
                    query = await self._query(chronicle, users, number, until)
                    self._queries[key] = query
                    for earliest in [*self._queries][:-MOST_QUERIES]:
                        del self._queries[earliest]
            finally:
                self._reading.release()
        return query.samples

    def _known(self, key: tuple[object, ...], until: float) -> _Query | None:
        """Return the result of an earlier query that is still valid; None if there is none.

        Args:
            key: Users, hours and revision of the query.
            until: End of the interval, in seconds since the epoch.
        """
        query = self._queries.pop(key, None)
        if query is None or not until < query.expires <= until + HOUR:
            return None
        self._queries[key] = query  # the latest
        return query

    async def _query(
        self, chronicle: UsageHistory, users: Sequence[str], number: int, until: float
    ) -> _Query:
        """Query accounted hours part by part, with a pause after each part.

        Args:
            chronicle: Source of the hours.
            users: Names of the users, sorted.
            number: Number of whole hours.
            until: End of the interval, in seconds since the epoch.
        """
        hours: list[Hour] = []
        start = (until // HOUR - number) * HOUR
        while start < until:
            if self._running is not None and not self._running.done():
                await asyncio.wait([self._running])
            await asyncio.sleep(self._rest_until - asyncio.get_running_loop().time())
            end = min(start + _PART, until)
            self._running = asyncio.create_task(self._read_part(chronicle, users, start, end))
            part = await asyncio.shield(self._running)
            if part is None:
                return _Query(None, until + _RETRY)
            hours += part
            start = end
        width = HOUR * max(math.ceil(number / MOST_POINTS), 1)
        samples = await asyncio.to_thread(run_in_thread, _from_hours(hours, width))
        return _Query(samples, until // HOUR * HOUR + HOUR)

    async def _read_part(
        self, chronicle: UsageHistory, users: Sequence[str], start: float, end: float
    ) -> "Sequence[Hour] | None":
        """Query a part of the accounted hours; the next query then waits for a pause."""
        now = asyncio.get_running_loop().time
        started = now()
        try:
            return await chronicle.hours(users, start, end)
        finally:
            self._rest_until = now() + _REST * (now() - started)

    def _merge(
        self,
        users: Sequence[str],
        interval: tuple[float, float],
        samples: list[Sample],
        past: list[Sample] | None,
    ) -> Work[str]:
        """Merge hours and samples into one answer, and encode it as JSON, in cooperative steps.

        Args:
            users: Names of the users.
            interval: Start and end of the covered time, in seconds since the epoch.
            samples: Samples from memory within the interval, earliest first.
            past: Samples from accounted hours; None if their source did not answer.
        """
        since, until = interval
        beginning = _beginning(samples)
        instants = _within(past or [], since, min(beginning, until)) + _thinned(samples)
        yield
        columns = {}
        for user in users:
            columns[user] = [_column(instants, user, 0), _column(instants, user, 1)]
            yield
        answer = {
            "since": since,
            "until": until,
            "seen_since": beginning if samples else None,
            "chronicle": None if self._chronicle is None else past is not None,
            "times": [round(instant.time, 3) for instant in instants],
            "users": columns,
        }
        return (yield from encoding(answer))


def encoding(data: Mapping[str, object]) -> Work[str]:
    """Encode data as JSON in cooperative steps.

    Each step encodes one entry of a list or dict at the top level.
    """
    parts = []
    for name, value in data.items():
        if isinstance(value, list | dict):
            entries = []
            for entry in value:
                text = json.dumps(entry, allow_nan=False)
                if isinstance(value, dict):
                    text = f"{text}: {json.dumps(value[entry], allow_nan=False)}"
                entries.append(text)
                yield
            text = ", ".join(entries)
            text = f"{{{text}}}" if isinstance(value, dict) else f"[{text}]"
        else:
            text = json.dumps(value, allow_nan=False)
            yield
        parts.append(f"{json.dumps(name)}: {text}")
    return f"{{{', '.join(parts)}}}"


def _beginning(samples: list[Sample]) -> float:
    """Return the time from which a chart uses samples; before it, the chart uses hourly means.

    It is the time of the first sample whose successor follows within half an hour, in seconds
    since the epoch. If there is no such sample, it is the time of the last sample. Without samples
    the result is infinite.
    """
    for sample, following in pairwise(samples):
        if following.time - sample.time < HOUR / 2:
            return sample.time
    return samples[-1].time if samples else float("inf")


def _from_hours(hours: "Sequence[Hour]", width: float) -> Work[list[Sample]]:
    """Return samples with the mean values of hours, in cooperative steps.

    A sample is in the middle of its hours.

    Args:
        hours: The hours, in any order.
        width: Length of the time that one sample represents, in seconds; a day's row stays whole.
    """
    groups: dict[float, dict[str, list[Hour]]] = {}
    for hour in hours:
        groups.setdefault(hour.start // width, {}).setdefault(hour.user, []).append(hour)
        yield
    samples = []
    for _, users in sorted(groups.items()):
        accounted = {(hour.start, hour.seconds) for rows in users.values() for hour in rows}
        middle = math.fsum(start + seconds / 2 for start, seconds in accounted) / len(accounted)
        means = {user: _mean(rows) for user, rows in users.items()}
        samples.append(Sample(middle, means, complete=False))
        yield
    return samples


def _mean(hours: "Sequence[Hour]") -> tuple[float, float]:
    """Return the mean share and commitment of a user over hours, weighted by their length."""
    seconds = sum(hour.seconds for hour in hours)
    return (
        math.fsum(hour.share * hour.seconds for hour in hours) / seconds,
        math.fsum(hour.commitment * hour.seconds for hour in hours) / seconds,
    )


def _within(past: list[Sample], since: float, until: float) -> list[Sample]:
    """Return samples between two times, and the mean of the hour that contains `since` at `since`.

    A chart of a few minutes therefore begins with this mean.
    """
    first = [sample for sample in past if abs(sample.time - since) < HOUR / 2 and since < until]
    return [
        *(Sample(since, sample.users, sample.complete) for sample in first[:1]),
        *(sample for sample in past if since < sample.time < until),
    ]


def _thinned(samples: list[Sample]) -> list[Sample]:
    """Return at most `MOST_POINTS` of the samples, evenly chosen; the latest is always kept."""
    step = -(-len(samples) // MOST_POINTS)
    return samples[::-1][:: max(step, 1)][::-1]


def _column(instants: list[Sample], user: str, index: int) -> list[float | None]:
    return [
        round(sample.users[user][index], 4)
        if user in sample.users
        else 0.0
        if sample.complete
        else None
        for sample in instants
    ]
