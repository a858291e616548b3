"""Policies that follow the same events live and decide nothing: what each would make of them."""

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial

import structlog
from prometheus_client.metrics_core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from allocator.cluster.engine import Engine, Watcher
from allocator.contract import allocator_pb2 as contract
from allocator.fairness.policies.policy import Policy
from allocator.fairness.pool import Pool
from allocator.fairness.shadow import Shadow

_log = structlog.get_logger(__name__)


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
        except Exception as error:  # noqa: BLE001 - who only watches must not be in anybody's way
            self.failure = f"{type(error).__name__}: {error}"
            self.shadow = None
            _log.exception("shadow policy given up", shadow=self.name)
        self.seconds += time.thread_time() - begun


class Shadows:
    """Looks at an engine before each event and around each run, and tells its followers.

    Args:
        policies: By name.
    """

    def __init__(self, policies: Mapping[str, Policy]) -> None:
        self.followers = [Follower(name, policy) for name, policy in policies.items()]
        self._pool: Pool[str] | None = None

    def before_change(self, engine: Engine, _instant: float) -> None:
        """Take over what has changed up to now; the pool's time is that of the change."""
        if self.followers:
            self._follow(engine, gifts=False)

    def before_run(self, engine: Engine) -> None:
        """Take over what has changed, to tell from it what the run gives."""
        if self.followers:
            self._follow(engine, gifts=False)

    def after_run(self, engine: Engine, decisions: contract.Decisions) -> None:
        """Take over what the run has given."""
        if self.followers and decisions.offers:
            self._follow(engine, gifts=True)

    def apart(self, engine: Engine, follower: Follower) -> list[Apart]:
        """Return how users at the top stand under a shadow's policy, in its order."""
        self._follow(engine, gifts=False)
        found: list[Apart] = []
        if self._pool is engine.pool:
            follower.do(lambda: found.extend(_apart(engine.pool, follower)))
        return found

    def _follow(self, engine: Engine, *, gifts: bool) -> None:
        pool = engine.pool
        if not pool.capacity:  # there is no cluster yet, or none again
            return
        if pool is not self._pool:  # a snapshot has replaced all that was known
            pool.take_changed()
            self._pool = pool
            for follower in self.followers:
                follower.do(partial(_attach, follower, pool))
            return
        changed = pool.take_changed()
        if changed is not None and not changed:
            return
        for follower in self.followers:
            shadow = follower.shadow
            if shadow is not None:
                step = shadow.watch_gifts if gifts else shadow.follow
                follower.do(partial(step, pool, changed))


def _attach(follower: Follower, pool: Pool[str]) -> None:
    if follower.shadow is None:
        follower.shadow = Shadow(follower.policy, pool)
    else:
        follower.shadow.attach(pool)


def _apart(pool: Pool[str], follower: Follower) -> Iterator[Apart]:
    shadow = follower.shadow
    assert shadow is not None
    shadow.pool.advance(pool.now)
    gains = shadow.gains()
    turns = {user: turn for turn, user in enumerate(pool, start=1)}
    own = {user: turn for turn, user in enumerate(shadow.pool, start=1)}
    for user in [*own, *(each for each in pool.users() if each not in own)]:
        owed = shadow.pool.standing(user).commitment if shadow.policy.tau is not None else 0.0
        yield Apart(user, turns.get(user, 0), own.get(user, 0), owed, gains.get(user, 0.0))


class Watchers:
    """Several who look at allocation runs."""

    def __init__(self, *watchers: Watcher) -> None:
        self._watchers = watchers

    def before_run(self, engine: Engine) -> None:
        """Have all look at the order in which the run is going to serve."""
        for watcher in self._watchers:
            watcher.before_run(engine)

    def after_run(self, engine: Engine, decisions: contract.Decisions) -> None:
        """Have all look at what has come of it."""
        for watcher in self._watchers:
            watcher.after_run(engine, decisions)


class ShadowCollector(Collector):
    """How users at the top would stand under other policies."""

    def __init__(self, engine: Engine, shadows: Shadows) -> None:
        self._engine = engine
        self._shadows = shadows

    def collect(self) -> Iterator[Metric]:
        """Return the figures of the moment."""
        failed = GaugeMetricFamily(
            "longshare_shadow_failed", "Whether a shadow has been given up.", labels=["shadow"]
        )
        cost = CounterMetricFamily(
            "longshare_shadow_seconds", "Processor time it has cost.", labels=["shadow"]
        )
        turn = GaugeMetricFamily(
            "longshare_shadow_turn",
            "Place among those that want offers, in the order of a shadow; 0: wants none.",
            labels=["shadow", "user"],
        )
        gain = GaugeMetricFamily(
            "longshare_shadow_gain_seconds",
            "Whole cluster × seconds that a user would have had more under a shadow.",
            labels=["shadow", "user"],
        )
        for follower in self._shadows.followers:
            for each in self._shadows.apart(self._engine, follower):
                turn.add_metric([follower.name, each.user], each.shadow_turn)
                gain.add_metric([follower.name, each.user], each.gain)
            failed.add_metric([follower.name], bool(follower.failure))
            cost.add_metric([follower.name], follower.seconds)
        yield from (failed, cost, turn, gain)
