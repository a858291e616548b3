"""Policies that follow the same events live and decide nothing: what each would make of them."""

import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import TypeAlias

import structlog
from prometheus_client.metrics_core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from allocator.cluster.engine import Engine
from allocator.contract import allocator_pb2 as contract
from allocator.fairness.plugin_sandbox import require_success
from allocator.fairness.policies.policy import Policy
from allocator.fairness.pool import Deed, Pool
from allocator.fairness.shadow import Shadow
from allocator.service.loop.cooperative import Work

_log = structlog.get_logger(__name__)

MOST_WAITING = 20_000
"""Deeds; of a loop that is busy for so long, events pay for following themselves."""
_AT_ONCE = 8
"""Deeds and runs that are followed in one step, if there is nothing else."""
_MANY = 64
"""Deeds after which a step is long enough."""
FASTER = 3
"""Deeds or runs that are followed before each event then, which is more than come of one."""

_BEGIN: Deed = (0.0, Pool.advance, ())
_END: Deed = (0.0, Pool.advance, ())
"""A run's; compared by identity."""
_Told: TypeAlias = tuple[Callable[[Shadow[str], list[Deed]], None], list[Deed]]
_OVER = object()
"""Of work that is done."""


@dataclass(frozen=True, slots=True)
class Apart:
    """How a user would stand under a shadow's policy."""

    user: str
    turn: int
    """Among those that want offers, from 1, as is decided; 0: it wants none."""
    shadow_turn: int
    """Likewise, as the shadow's policy has it."""
    commitment: float
    """What it would owe, for what it holds and held in fact; a fraction of the cluster."""
    gain: float
    """What it would have had more until now, as far as a look one step ahead can tell: the whole
    cluster × seconds. Negative: less."""
    passed_over: bool = False
    """Whether it wants offers, and no agent could serve it or it refuses each; both turns are 0."""


@dataclass(slots=True)
class Follower:
    """One shadow, and how it goes."""

    name: str
    policy: Policy
    shadow: Shadow[str] | None = None
    failure: str = ""
    """Why it has been given up; empty: it has not."""
    seconds: float = 0.0
    """Processor time that it has cost."""

    def do(self, step: Callable[[], object]) -> None:
        """Do something that costs this shadow alone if it fails."""
        if self.failure:
            return
        begun = time.thread_time()
        try:
            step()
            require_success(self.policy)
        except Exception as error:  # noqa: BLE001 - who only watches must not be in anybody's way
            self.failure = f"{type(error).__name__}: {error}"
            self.shadow = None
            _log.exception("shadow policy given up", shadow=self.name)
        self.seconds += time.thread_time() - begun

    def doing(self, work: Work[None]) -> Work[None]:
        """Do something likewise, several steps at once."""
        over = False

        def step() -> None:
            nonlocal over
            for _ in range(_AT_ONCE):
                over = over or next(work, _OVER) is _OVER

        while not (over or self.failure):
            self.do(step)
            yield


class Shadows:
    """Has written down what is done to the pool of users at the top; followers follow it later.

    That costs little beside an event. What followers make of it, order and gains, is the same
    whenever they follow. They do so at once only for policies that count tasks, on the machines
    that there are now.

    Args:
        policies: By name.
    """

    def __init__(self, policies: Mapping[str, Policy]) -> None:
        self.followers = [Follower(name, policy) for name, policy in policies.items()]
        self._at_once = any(policy.counts_tasks for policy in policies.values())
        self._pool: Pool[str] | None = None
        self._journal: deque[Deed] = deque()
        self._fresh = set[str]()
        """Users that have begun to want offers, of which it is not known who could serve them."""
        self._passed_over = frozenset[str]()

    @property
    def waiting(self) -> int:
        """How many deeds have not been followed yet."""
        return len(self._journal)

    def before_change(self, engine: Engine, _instant: float) -> None:
        """See to it that all is written down, in the pool that there is now."""
        if engine.pool is not self._pool:
            self._go_on_in(engine.pool)
        elif self._at_once:
            self._follow_all()
        elif len(self._journal) > MOST_WAITING:
            self._follow(FASTER)

    def pass_over(self, engine: Engine, users: frozenset[str]) -> None:
        """Have written down that users get nothing from now on, and nobody else.

        Args:
            engine: The engine that knows the users.
            users: Users that want offers while no agent could serve them, or that refuse each.
        """
        users = frozenset(filter(engine.pool.__contains__, users))
        if engine.pool is self._pool and users != self._passed_over:
            self._passed_over = users
            self._journal.append((engine.pool.now, Shadow.pass_over, (users,)))

    def before_run(self, engine: Engine) -> None:
        """Have written down that what comes is done by a run."""
        if engine.pool is not self._pool:
            self._go_on_in(engine.pool)
        if self.followers:
            self._look_at_fresh(engine)
        self._journal.append(_BEGIN)

    def after_run(self, _engine: Engine, _decisions: contract.Decisions) -> None:
        """Have written down that the run is over."""
        self._journal.append(_END)
        if self._at_once:
            self._follow_all()

    def following(self) -> Work[None]:
        """Follow bit by bit what waits now."""
        most = len(self._journal)
        while most > 0 and (done := self._follow(_AT_ONCE)):
            most -= done
            yield

    def comparing(self, engine: Engine, follower: Follower) -> Work[list[Apart]]:
        """Return how users at the top stand under a shadow's policy, in its order.

        Something may be applied wherever this yields.
        """
        self.before_change(engine, engine.now)
        self.pass_over(engine, (yield from engine.passed_over(declining=True)))
        yield from self.following()
        found: list[Apart] = []
        if engine.pool is self._pool:
            yield from follower.doing(_apart(engine.pool, follower, self._passed_over, found))
        return found

    def _look_at_fresh(self, engine: Engine) -> None:
        """Have those passed over at once that have begun to want offers, and can have none."""
        for deed in reversed(self._journal):
            if deed is _END:
                break
            self._note_fresh(deed)
        fresh, self._fresh = self._fresh - self._passed_over, set()
        unserved = {user for user in fresh if not engine.could_be_served(user)}
        if unserved:
            self.pass_over(engine, self._passed_over | unserved)

    def _note_fresh(self, deed: Deed) -> None:
        _, do, arguments = deed
        if do is Pool.set_active and arguments[1]:
            self._fresh.add(arguments[0])

    def _go_on_in(self, pool: Pool[str]) -> None:
        """Follow a pool that a snapshot has made, in which all that was known is replaced."""
        self._follow_all()
        if pool.capacity:  # otherwise there is no cluster yet
            self._pool, self._journal = pool, pool.keep_journal()
            self._fresh, self._passed_over = set(pool), frozenset()
            for follower in self.followers:
                follower.do(partial(_attach, follower, pool))

    def _follow_all(self) -> None:
        while self._follow(_AT_ONCE):
            pass
        if self._journal:  # a run that has failed; nobody looks while one is under way
            self._tell([(Shadow.follow, [deed for deed in self._journal if deed is not _BEGIN])])
            self._journal.clear()

    def _follow(self, most: int) -> int:
        """Follow so many deeds and runs, but `_MANY` deeds or a run at most; return how many deeds.

        A run that is under way is not followed yet.
        """
        waited, told = len(self._journal), list[_Told]()
        while len(told) < most and waited - len(self._journal) < _MANY:
            following = self._next()
            if following is None:
                break
            told.append(following)
        self._tell(told)
        return waited - len(self._journal)

    def _next(self) -> _Told | None:
        """Take a deed, or all of a run, with how to follow it; None: there is nothing to follow."""
        journal = self._journal
        if not journal:
            return None
        if journal[0] is not _BEGIN:
            self._note_fresh(journal[0])
            return Shadow.follow, [journal.popleft()]
        run: list[Deed] = []
        for deed in islice(journal, 1, None):
            if deed is _BEGIN or deed is _END:
                break
            run.append(deed)
        else:
            return None
        for _ in range(len(run) + 1):
            journal.popleft()
        if deed is _END:
            journal.popleft()
            return Shadow.follow_run, run
        return Shadow.follow, run  # it has failed

    def _tell(self, told: list[_Told]) -> None:
        for follower in self.followers if told else ():
            if follower.shadow is not None:
                follower.do(partial(_follow, follower.shadow, told))


def _follow(shadow: Shadow[str], told: list[_Told]) -> None:
    for how, deeds in told:
        if deeds:
            how(shadow, deeds)


def _attach(follower: Follower, pool: Pool[str]) -> None:
    if follower.shadow is None:
        follower.shadow = Shadow(follower.policy, pool)
    else:
        follower.shadow.attach(pool)


def _apart(
    pool: Pool[str], follower: Follower, passed_over: frozenset[str], differences: list[Apart]
) -> Work[None]:
    shadow = follower.shadow
    assert shadow is not None
    shadow.pool.advance(pool.now)
    gains = yield from shadow.gaining()
    wanting = (user for user in pool if user not in passed_over)
    turns = {user: turn for turn, user in enumerate(wanting, start=1)}
    own = {user: turn for turn, user in enumerate(shadow.pool, start=1)}
    remembers = shadow.policy.tau is not None
    for user in [*own, *(user for user in pool.users() if user not in own)]:
        yield
        if user in shadow.pool:
            owed = shadow.pool.standing(user).commitment if remembers else 0.0
            turn, shadow_turn = turns.get(user, 0), own.get(user, 0)
            passed = user in passed_over
            differences.append(Apart(user, turn, shadow_turn, owed, gains.get(user, 0.0), passed))


class ShadowCollector(Collector):
    """How shadows go; how users would stand under them is in `user_metrics`."""

    def __init__(self, shadows: Shadows) -> None:
        self._shadows = shadows

    def collect(self) -> Iterator[Metric]:
        """Return the figures of the moment."""
        failed = GaugeMetricFamily(
            "longshare_shadow_failed", "Whether a shadow has been given up.", labels=["shadow"]
        )
        cost = CounterMetricFamily(
            "longshare_shadow_seconds", "Processor time it has cost.", labels=["shadow"]
        )
        for follower in self._shadows.followers:
            failed.add_metric([follower.name], bool(follower.failure))
            cost.add_metric([follower.name], follower.seconds)
        yield from (failed, cost)
