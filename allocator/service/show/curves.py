"""Shares and commitments of users over time, as data for the charts of the status page.

Values from before this service began come from the accounting database by hour, later ones from
samples in memory.
"""

import asyncio
import json
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from itertools import pairwise
from typing import TYPE_CHECKING, Protocol

from typing_extensions import override

from allocator.service.accounting import TooMuch
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
"""Maximum number of samples from memory in one answer. A chart has about as many pixels."""
_HOUR = 3600.0


class UsageHistory(Protocol):
    """Interface to hourly shares and commitments of users, also from before this service began."""

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


class Curves:
    """Builds the data of the status page's charts from accounted hours and recent samples.

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
        self._reading = asyncio.Lock()
        """Lock for one reader at a time. Charts then delay neither operators nor masters."""

    async def read(self, users: Sequence[str], seconds: float) -> str:
        """Return shares and commitments of users over time as JSON, for the page's charts.

        All users have values at the same instants (`times`). An unknown value is None.

        Args:
            users: Names of the users; only the first `MOST_ASKED` are read.
            seconds: Length of the time before now that the answer covers, up to `LONGEST` seconds.
        """
        users = users[:MOST_ASKED]
        until = self._adapter.now
        since = max(until - min(seconds, LONGEST), 0.0)
        samples = [sample for sample in self._history.samples if sample.time >= since]
        hours: Sequence[Hour] | None = ()
        async with self._reading:
            if self._chronicle is not None:
                hours = await self._chronicle.hours(users, since, until)
            work = self._merge(users, (since, until), samples, hours)
            return await asyncio.to_thread(run_in_thread, work)

    def _merge(
        self,
        users: Sequence[str],
        interval: tuple[float, float],
        samples: list[Sample],
        hours: "Sequence[Hour] | None",
    ) -> Work[str]:
        """Merge hours and samples into one answer, and encode it as JSON, in cooperative steps.

        Args:
            users: Names of the users.
            interval: Start and end of the covered time, in seconds since the epoch.
            samples: Samples from memory within the interval, earliest first.
            hours: Hours from the accounting database; None if there is none or it did not answer.
        """
        since, until = interval
        instants = _from_hours(hours or (), _beginning(samples)) + _thinned(samples)
        yield
        columns = {}
        for user in users:
            columns[user] = [_column(instants, user, 0), _column(instants, user, 1)]
            yield
        answer = {
            "since": since,
            "until": until,
            "seen_since": samples[0].time if samples else None,
            "chronicle": None if self._chronicle is None else hours is not None,
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
        if following.time - sample.time < _HOUR / 2:
            return sample.time
    return samples[-1].time if samples else float("inf")


def _from_hours(hours: "Sequence[Hour]", until: float) -> list[Sample]:
    """Return a sample for the middle of each hour, up to a time, with the hour's mean values.

    Args:
        hours: The hours, in any order.
        until: Time from which no samples are returned, in seconds since the epoch.
    """
    middles: dict[float, dict[str, tuple[float, float]]] = {}
    for hour in hours:
        middle = hour.start + hour.seconds / 2
        if middle < until:
            middles.setdefault(middle, {})[hour.user] = hour.share, hour.commitment
    return [Sample(middle, users, complete=False) for middle, users in sorted(middles.items())]


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
