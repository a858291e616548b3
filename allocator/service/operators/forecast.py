"""Forecasts for operators: how the ranking of users will change if no allocation changes.

A *passing* is an instant at which one user overtakes another user in the policy's ranking.
"""

import asyncio
import math
import threading
from collections import Counter
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeAlias

import grpc

from allocator.complaints import alternatives
from allocator.contract import admin_pb2 as admin
from allocator.fairness.bounds import LARGEST_WEIGHT, LEAST_WEIGHT
from allocator.fairness.forecast import (
    Cost,
    Passing,
    above_after,
    below_after,
    cost,
    passings,
    turn_below,
)
from allocator.fairness.pool import Pool
from allocator.fairness.quantities import Quantities
from allocator.formatting import called, counted, duration, passing_clause
from allocator.service.loop.cooperative import Work, run_in_thread
from allocator.service.loop.engine_lock import EngineLock
from allocator.users.adapter import SchedulerAdapter
from allocator.users.wording import Vocabulary

MOST_PASSINGS = 100
"""Maximum number of passings in one reply; later passings are left out."""
MOST_TASKS = 1_000_000
MOST_WAITING = 8
"""Maximum number of forecasts that are computed or wait at the same time."""
PEER_WAITING = MOST_WAITING // 2
"""The same for the forecasts of one peer. Other peers can use the remaining places."""
LONGEST = 366 * 86400.0
"""Maximum horizon of a forecast and maximum length of a burst, in seconds."""
_CONSTANTS = 4.0
"""Default horizon, in time constants of the decay. By then little of a commitment remains."""
_LEAST = 86400.0
_NAMED = 8
"""Maximum number of passed-over users that one sentence names."""

Context: TypeAlias = grpc.aio.ServicerContext[Any, Any]


class InvalidQuestionError(ValueError):
    """The forecast request cannot be answered; the message gives the reason."""


class UnknownUserError(InvalidQuestionError):
    """The forecast request names an unknown user."""


class TooManyForecastsError(Exception):
    """The queue of forecasts is full, so the service refuses the request."""


class Forecasts:
    """Answers forecast requests, one at a time.

    The event loop's thread only copies the necessary state. A worker thread computes the answers,
    in short bursts, so all requests together take a bounded part of the processor's time.

    Args:
        adapter: The adapter to read.
        engine_lock: Lock that is acquired before the engine is read.
    """

    def __init__(self, adapter: SchedulerAdapter, engine_lock: EngineLock) -> None:
        self._adapter = adapter
        self._engine_lock = engine_lock
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="forecast")
        self._turn = asyncio.Lock()
        self._waiting = Counter[str]()
        """Peer → number of its requests that are being answered or wait."""

    async def answer(self, request: admin.ForecastRequest, peer: str = "") -> admin.ForecastReply:
        """Answer a forecast request. If the caller is cancelled, the computation ends soon.

        Args:
            request: The request.
            peer: Name of the peer that asks.

        Raises:
            InvalidQuestionError: the question cannot be answered.
            TooManyForecastsError: `MOST_WAITING` requests are being answered or wait, or
                `PEER_WAITING` requests of this peer.
        """
        waiting = self._waiting.total()
        if waiting >= MOST_WAITING:
            raise TooManyForecastsError(
                f"{waiting} forecasts are being computed already; ask again later"
            )
        if self._waiting[peer] >= PEER_WAITING:
            raise TooManyForecastsError(
                f"{self._waiting[peer]} forecasts of this peer are being computed already; "
                "ask again later"
            )
        self._waiting[peer] += 1
        try:
            async with self._turn:
                question = await self._copy_state(request)
                return await self._compute(question.answer())
        finally:
            self._waiting[peer] -= 1
            if not self._waiting[peer]:
                del self._waiting[peer]

    async def _copy_state(self, request: admin.ForecastRequest) -> "_Question":
        """Return a request together with copies of the state that its answer depends on."""
        adapter, engine_lock, user = self._adapter, self._engine_lock, request.user
        async with engine_lock:
            demand = _demand(request, adapter)
            burst = _amounts(request.burst)
            _check(request, burst, adapter.pool.capacity)
        survey = await engine_lock.answer(_survey_machines(adapter, user, demand))
        async with engine_lock:
            levels = [(level.pool.twin(), level.member) for level in adapter.path(user)]
            if not levels and (not request.tasks or "/" in user):
                raise UnknownUserError(
                    f"user {user} was forgotten while the service computed this forecast"
                )
            if not levels:
                levels = [(adapter.pool.twin(), user)]
            return _Question(request, levels, demand, burst, survey)

    async def _compute(self, work: Work[admin.ForecastReply]) -> admin.ForecastReply:
        """Run work in the thread of forecasts; end it early if the caller is cancelled."""
        stop = threading.Event()
        running = asyncio.get_running_loop().run_in_executor(
            self._thread, run_in_thread, work, stop
        )
        try:
            return await running
        finally:
            stop.set()


@dataclass(frozen=True, slots=True)
class _MachineSurvey:
    """Facts about the machines that a forecast needs, such as how many more tasks would fit."""

    vocabulary: Vocabulary
    """Words of the scheduler."""
    passed_over: frozenset[str]
    """Users at all levels of the tree that are active, but that no machine could serve."""
    room: int = 0
    """Number of the requested tasks that fit into the free resources now."""
    most: int = 0
    """Number of the requested tasks that would fit on the machines if nothing else ran."""
    gaps: str = ""
    """Sentence that says that no machine has enough free resources for one task; empty if a task
    fits."""
    kept_back: str = ""
    """Sentences about free resources that are kept for users before the order; often empty."""
    left_out: str = ""
    """Sentences about rules of the scheduler that the order leaves out; empty for none."""


def _survey_machines(
    adapter: SchedulerAdapter, user: str, demand: Quantities | None
) -> Work[_MachineSurvey]:
    """Find users that no machine could serve, and how many tasks of a user have room.

    Costs O(machines + users · groups of equal machines).

    Args:
        adapter: The adapter to read.
        user: The user for which the forecast is requested.
        demand: Resources of one task; None if the request is not about tasks.
    """
    vocabulary = adapter.wording.vocabulary
    survey = yield from adapter.survey()
    passed_over = yield from survey.passed_over()
    kept_back = adapter.wording.kept_back(user)
    left_out = adapter.wording.left_out_of_order()
    if demand is None:
        return _MachineSurvey(vocabulary, passed_over, kept_back=kept_back, left_out=left_out)
    room, largest = yield from survey.task_capacity(
        adapter.clients(user.removesuffix("/.")), demand
    )
    waits = largest and not room and survey.others_are_smaller(demand)
    gaps = adapter.wording.about_gaps() if waits else ""
    return _MachineSurvey(vocabulary, passed_over, room, largest, gaps, kept_back, left_out)


def _demand(request: admin.ForecastRequest, adapter: SchedulerAdapter) -> Quantities | None:
    """Return the resources of one task in a request; None if the request is not about tasks.

    A request that does not state them gets the demand of the user's known tasks.

    Raises:
        InvalidQuestionError: the user is unknown, or no task demand is known.
    """
    user = request.user
    if adapter.standing(user) is None and (not request.tasks or "/" in user):
        raise UnknownUserError(
            f"no such user: {user}; to forecast for a new top-level user, give --tasks"
        )
    if not request.tasks:
        return None
    known = adapter.demands().get(user.removesuffix("/."), [])
    demand = _amounts(request.demand) if request.demand else next(iter(known), None)
    if not demand:
        raise InvalidQuestionError(
            f"user {user} has not declared what one of its tasks needs; give it with --demand"
        )
    return demand


def _amounts(amounts: Mapping[str, float]) -> Quantities:
    try:
        return Quantities.from_doubles(amounts)
    except ValueError as error:
        raise InvalidQuestionError(str(error)) from error


class _Question:
    """Computes the answer to one forecast request.

    It works on copies of the adapter's pools, so that a worker thread can compute the answer.
    """

    def __init__(
        self,
        request: admin.ForecastRequest,
        levels: list[tuple[Pool[str], str]],
        demand: Quantities | None,
        burst: Quantities,
        survey: _MachineSurvey,
    ) -> None:
        self._request = request
        self._levels = levels
        self._pool = levels[-1][0]
        self._user = request.user
        self._demand = demand
        self._burst = burst
        self._survey = survey
        self._vocabulary = survey.vocabulary
        self._newcomer = request.user not in self._pool
        self._horizon = _horizon(request.horizon, self._pool.policy.tau)
        if request.HasField("weight") and not self._newcomer:
            raise InvalidQuestionError(
                f"user {request.user} has a weight already; leave out --weight, which is for a new "
                "user"
            )

    def answer(self) -> Work[admin.ForecastReply]:
        """Return the answer, in numbers and in sentences; run in a worker thread."""
        request, pool, user = self._request, self._pool, self._user
        vocabulary = self._vocabulary
        if self._newcomer:
            pool.add(user, weight=request.weight if request.HasField("weight") else 1.0)
        was_active = pool.standing(user).active
        yield
        passed_over = yield from self._pass_over()
        reply = admin.ForecastReply(
            assumptions=self._assumptions(passed_over), passed_over=passed_over[:MOST_PASSINGS]
        )
        until = pool.now + self._horizon
        for passing in (yield from self._upcoming(until)):
            reply.passings.append(_passing(passing, pool.now))
        if request.HasField("below"):
            after = below_after(pool.standing(user), pool.policy.tau, request.below)
            if after is not None:
                reply.below_after = after
        if self._demand is not None:
            next_turn = yield from turn_below(self._levels, self._demand, request.tasks, until)
            ever = self._survey.most > 0
            reply.wait.CopyFrom(
                admin.Wait(
                    tasks=request.tasks,
                    ahead=next_turn.ahead,
                    at_once=next_turn.at_once if ever else 0,
                    first_after=next_turn.first_after if ever else None,
                    room=self._survey.room,
                    most=self._survey.most,
                )
            )
        if request.burst:
            seconds = request.burst_seconds
            costs = list[Cost[str]]()
            for level in self._levels:
                costs.append((yield from cost(*level, self._burst, seconds, until + seconds)))
            own_cost = costs[-1]
            reply.cost.CopyFrom(
                admin.Cost(
                    commitment_after=own_cost.after,
                    commitment_without=own_cost.without,
                    recovered_after=own_cost.recovered,
                    overtaken_by=[
                        admin.Overtaking(user=overtaking_user, until=back)
                        for level_cost in costs
                        for overtaking_user, back in level_cost.overtaken
                    ],
                )
            )
        if user in self._survey.passed_over:
            reply.words.append(
                f"{called(user)} {vocabulary.wants}, but {vocabulary.passed_over}; longshare "
                "explain gives the reason. This forecast assumes that at least one "
                f"{vocabulary.machine} could serve it."
            )
        reply.words.extend(self._words(reply, wants=was_active))
        with_burst = pool.standing(user).allocation + self._burst
        if self._burst and not pool.capacity.contains(with_burst):
            reply.words.append(
                f"With this burst it would hold {with_burst}, but the cluster has {pool.capacity}. "
                "Forecast a smaller burst."
            )
        gaps = f"{called(user)} {self._survey.gaps}" if self._survey.gaps else ""
        reply.words.extend(filter(None, (self._survey.kept_back, gaps)))
        return reply

    def _upcoming(self, until: float) -> Work[list[Passing[str]]]:
        """Return the first passings at all levels of the tree, soonest first."""
        upcoming = list[Passing[str]]()
        for level in self._levels:
            upcoming += yield from passings(*level, until)
        return sorted(upcoming, key=lambda passing: passing.when)[:MOST_PASSINGS]

    def _words(self, reply: admin.ForecastReply, *, wants: bool) -> list[str]:
        request, vocabulary = self._request, self._vocabulary
        user, within = called(request.user), duration(self._horizon)
        assumption = f"this forecast assumes that it {vocabulary.assumed}"
        words = [] if wants else [f"{user} {vocabulary.wants_nothing} now; {assumption}."]
        for passing in reply.passings:
            clause = passing_clause(passing.passing, passing.passed, request.user, "overtakes")
            words.append(f"In {duration(passing.after)} {clause}.")
        if not reply.passings:
            words.append(f"{user} overtakes no user, and no user overtakes it, within {within}.")
        if request.HasField("below"):
            level = f"{request.below:.1%}"
            if reply.HasField("below_after") and reply.below_after > 0.0:
                words.append(f"In {duration(reply.below_after)} its commitment falls to {level}.")
            elif reply.HasField("below_after"):
                words.append(f"Its commitment is not above {level} now.")
                standing = self._pool.standing(self._user)
                rise = above_after(standing, self._pool.policy.tau, request.below)
                if rise is not None:
                    words.append(f"In {duration(rise)} its commitment rises above {level}.")
            else:
                words.append(
                    f"While its allocation does not change, its commitment stays above {level}."
                )
        if reply.HasField("wait"):
            words.extend(self._words_of_wait(reply, within, wants=wants))
        if reply.HasField("cost"):
            words.extend(_words_of_cost(request, reply.cost, within))
        return words

    def _words_of_wait(self, reply: admin.ForecastReply, within: str, *, wants: bool) -> list[str]:
        wait = reply.wait
        users = counted(wait.ahead, "user") if wait.ahead else "No user"
        words = [f"{users} {'are' if wait.ahead > 1 else 'is'} ahead of it now."]
        if not wait.most:
            machine = self._vocabulary.machine
            words.append(f"No {machine} could hold such a task, even if no other task ran there.")
            return words
        words.append(_words_of_turns(wait.at_once, wait.tasks))
        if wait.at_once < wait.tasks:
            task = "the task" if wait.tasks == 1 else "the last task"
            if not wait.HasField("first_after"):
                stays = _named(self._never_overtaken(reply))
                stays = f", because {stays} ahead of it" if stays else ""
                words.append(f"Its turn for {task} does not come within {within}{stays}.")
            elif wait.first_after > 0.0:
                words.append(f"Its turn for {task} comes in {duration(wait.first_after)}.")
            else:
                words.append(f"It is first in order for {task}, too.")
        if wait.room or not wants:
            words.append(
                f"The resources that are free now could hold {counted(wait.room, 'such task')}."
            )
        else:
            words.append(
                "The resources that are free now could hold no such task; 'longshare explain "
                f"{self._user}' names the users that hold them."
            )
        return words

    def _never_overtaken(self, reply: admin.ForecastReply) -> list[str]:
        """Return the users ahead of the user that it does not overtake within the horizon.

        The result is empty if later passings may have been left out.

        Args:
            reply: The reply, with the passings.
        """
        if len(reply.passings) == MOST_PASSINGS:
            return []
        ahead = list[str]()
        for pool, member in self._levels:
            order = list(pool)
            overtaken = {p.passed for p in reply.passings if p.passing == member}
            ahead += [user for user in order[: order.index(member)] if user not in overtaken]
        return ahead

    def _pass_over(self) -> Work[list[str]]:
        """Leave users that no machine could serve out of the forecast, and return their names.

        The user for which the forecast is requested and its parents are never left out.
        """
        passed_over = []
        for pool, member in self._levels:
            pool.set_active(member, True)
            unserved = [sibling for sibling in pool if sibling in self._survey.passed_over]
            for sibling in unserved:
                yield
                if sibling != member:
                    pool.set_active(sibling, False)
                    passed_over.append(sibling)
        return passed_over

    def _assumptions(self, passed_over: list[str]) -> list[str]:
        pool, machine = self._pool, self._vocabulary.machine
        nothing_moves = f"No {machine} or user comes or goes."
        assumptions = [
            f"No other user's allocation, weight or demand changes. {nothing_moves}",
            f"Turns follow the order of users. {self._vocabulary.delays} may delay a turn.",
        ]
        if self._survey.left_out:
            assumptions.append(self._survey.left_out)
        if not math.isinf(pool.counts_for):
            assumptions.append(
                "Entitlements stay as they are now. They change with the mean use of users, by "
                "which users count (users.counts_for)."
            )
        if self._demand is not None:
            assumptions.append(
                "The service does not know when resources become free. The forecast tells which "
                "user is next at each time."
            )
            assumptions.append(
                "Freed resources are enough for a task of each user ahead. Otherwise the next user "
                "whose task fits gets them."
            )
        if passed_over:
            names = ", ".join(map(called, passed_over[:_NAMED]))
            remainder = (
                f" and {len(passed_over) - _NAMED} more" if len(passed_over) > _NAMED else ""
            )
            assumptions.append(
                f"No {machine} could serve {names}{remainder}. The forecast passes these users "
                "over."
            )
        if pool.policy.tau is None:
            assumptions.append(
                f"The policy {pool.policy.name} keeps no commitments for past over-use."
            )
        return assumptions


def _check(request: admin.ForecastRequest, burst: Quantities, capacity: Quantities) -> None:
    """Check the parts of a request that do not depend on its user.

    Args:
        request: The request.
        burst: The quantities of the request's burst.
        capacity: The total resources of the cluster.

    Raises:
        InvalidQuestionError: the request is not valid.
    """
    if request.tasks > MOST_TASKS:
        raise InvalidQuestionError(
            f"{request.tasks} tasks are too many; ask for at most {MOST_TASKS:,}"
        )
    weight = request.weight if request.HasField("weight") else 1.0
    if not LEAST_WEIGHT <= weight <= LARGEST_WEIGHT:
        raise InvalidQuestionError(
            f"weight {weight:g} is not a number from {LEAST_WEIGHT:g} to {LARGEST_WEIGHT:g}"
        )
    if request.HasField("below") and not request.below > 0.0:
        raise InvalidQuestionError("a commitment never falls to 0; give --below a level above 0")
    for kind, amounts in (("task", _amounts(request.demand)), ("burst", burst)):
        absent = sorted(name for name in amounts if name not in capacity)
        if absent and capacity:
            raise InvalidQuestionError(
                f"a {kind} of {amounts}: the cluster has no {absent[0]}"
                f"{alternatives(absent[0], capacity)}"
            )
        if amounts and not capacity.contains(amounts):
            raise InvalidQuestionError(
                f"a {kind} of {amounts} is larger than the whole cluster, which has {capacity}"
            )
    if request.burst and not 0.0 < request.burst_seconds <= LONGEST:
        raise InvalidQuestionError(
            f"a burst of {request.burst_seconds:g} s is too short or too long; give --for a "
            f"duration of at most {LONGEST / 86400:.0f} days"
        )


def _horizon(seconds: float, tau: float | None) -> float:
    if not 0.0 <= seconds <= LONGEST:
        raise InvalidQuestionError(
            f"a horizon of {seconds:g} s is out of range; give 0 to {LONGEST / 86400:.0f} days"
        )
    return seconds or min(max(_CONSTANTS * (tau or 0.0), _LEAST), LONGEST)


def _passing(passing: Passing[str], now: float) -> admin.Passing:
    after = max(passing.when - now, 0.0)
    return admin.Passing(after=after, passing=passing.passing, passed=passing.passed)


def _named(users: list[str]) -> str:
    """Return the first of some users with the verb "stay", or "" without users."""
    if not users:
        return ""
    names = ", ".join(map(called, users[:_NAMED]))
    hidden = f" and {len(users) - _NAMED} more" if len(users) > _NAMED else ""
    return f"{names}{hidden} {'stays' if len(users) == 1 else 'stay'}"


def _words_of_turns(before_others: int, tasks: int) -> str:
    """Return a sentence about the tasks for which the user is next before another user is."""
    if not before_others:
        return f"Another user has a turn before {'the first of ' * (tasks > 1)}its {_tasks(tasks)}."
    share = "its task" if tasks == 1 else f"{before_others} of its {_tasks(tasks)}"
    return f"It has its turn for {share} before any other user has a turn."


def _tasks(number: int) -> str:
    return "task" if number == 1 else f"{number} tasks"


def _words_of_cost(request: admin.ForecastRequest, cost: admin.Cost, within: str) -> list[str]:
    commitment, burst = f"{cost.commitment_after:.1%}", duration(request.burst_seconds)
    without = f"{cost.commitment_without:.1%}"
    words = [f"After {burst} of the burst its commitment is {commitment}, instead of {without}."]
    for overtaking in cost.overtaken_by:
        back = (
            f"for {duration(overtaking.until)}"
            if overtaking.HasField("until")
            else f"for more than {within}"
        )
        words.append(
            f"Because of the burst, {called(overtaking.user)} is ahead of it then, {back}."
        )
    if not cost.HasField("recovered_after") or math.isinf(cost.recovered_after):
        words.append("The additional commitment does not decay.")
    elif cost.recovered_after > 0.0:
        after = duration(cost.recovered_after)
        words.append(
            f"The additional commitment falls below 1% of the cluster {after} after the burst."
        )
    return words
