"""Shadow policies: policies that follow the live events without making decisions.

They show operators how users would fare under another policy. Each shadow has a copy of the
top-level pool. A journal records every change to the live pool; replaying the journal applies the
changes to the copies.
"""

import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import TypeAlias

import structlog

from allocator.fairness.plugin_sandbox import require_success
from allocator.fairness.policies.policy import Policy
from allocator.fairness.pool import JournalEntry, Pool
from allocator.fairness.shadow import Shadow
from allocator.service.loop.cooperative import Work
from allocator.users.adapter import SchedulerAdapter

_log = structlog.get_logger(__name__)

MOST_WAITING = 20_000
"""Number of journal entries above which each event also replays entries, because background work
falls behind."""
_AT_ONCE = 8
"""Number of journal entries, or allocation cycles, that one step of background work replays."""
_MANY = 64
"""Number of replayed journal entries after which a step ends, even with fewer than `_AT_ONCE`
cycles."""
FASTER = 3
"""Number of journal entries or cycles replayed before each event while the journal is too long.

One event adds fewer entries than this number, so the journal shrinks.
"""

_BEGIN: JournalEntry = (0.0, Pool.advance, ())
_END: JournalEntry = (0.0, Pool.advance, ())
"""Journal entries that mark the start and the end of an allocation cycle; compared by identity."""
_Replay: TypeAlias = tuple[Callable[[Shadow[str], list[JournalEntry]], None], list[JournalEntry]]
_OVER = object()
"""Default for `next` that tells that a generator is exhausted."""


@dataclass(frozen=True, slots=True)
class ShadowComparison:
    """How one user would fare under a shadow policy: position, commitment, and estimated gain."""

    user: str
    turn: int
    """Position in the live order among the users that want offers, from 1; 0 if the user wants no
    offers."""
    shadow_turn: int
    """Position in the shadow policy's order among the users that want offers, from 1; 0 if the user
    wants no offers."""
    commitment: float
    """Dominant commitment that the shadow policy would charge for the actual allocation, as a
    fraction of the cluster."""
    gain: float
    """Additional usage that the user would have had under the shadow policy, in whole cluster ×
    seconds.

    The value is an estimate that looks one allocation ahead. A negative value is a loss.
    """
    passed_over: bool = False
    """Whether the user wants offers, but no agent could serve it or it declines all. Both positions
    are then 0."""


@dataclass(slots=True)
class ShadowState:
    """One shadow policy: its copy of the top-level pool, its processor time, and its error.

    A shadow policy that has raised an error is not run again.
    """

    name: str
    policy: Policy
    shadow: Shadow[str] | None = None
    failure: str = ""
    """Error that stopped the shadow; empty while it runs."""
    seconds: float = 0.0
    """Processor time that the shadow has used so far, in seconds."""

    def run_step(self, step: Callable[[], object]) -> None:
        """Run a function for this shadow; an exception stops this shadow only, and is logged.

        The function's processor time is added to `seconds`.

        Args:
            step: The function, which changes or reads this shadow.
        """
        if self.failure:
            return
        started = time.thread_time()
        try:
            step()
            require_success(self.policy)
        except Exception as error:  # noqa: BLE001 - a shadow must not disturb the service
            self.failure = f"{type(error).__name__}: {error}"
            self.shadow = None
            _log.exception("shadow policy stopped after an error", shadow=self.name)
        self.seconds += time.thread_time() - started

    def run_steps(self, work: Work[None]) -> Work[None]:
        """Run a generator for this shadow; yield to the event loop every `_AT_ONCE` steps.

        An exception stops this shadow only, as in `run_step`.
        """
        finished = False

        def step() -> None:
            nonlocal finished
            for _ in range(_AT_ONCE):
                finished = finished or next(work, _OVER) is _OVER

        while not (finished or self.failure):
            self.run_step(step)
            yield


class Shadows:
    """Keeps a journal of all changes to the top-level pool, and replays it for each shadow policy.

    Recording a change costs little compared with applying it. Usually the journal may be replayed
    later, because the results do not depend on the time of the replay. A policy that counts tasks
    depends on the present agents. With such a policy, the journal is replayed at once.

    Args:
        policies: Shadow policies by name.
    """

    def __init__(self, policies: Mapping[str, Policy]) -> None:
        self.followers = [ShadowState(name, policy) for name, policy in policies.items()]
        self._at_once = any(policy.counts_tasks for policy in policies.values())
        self._pool: Pool[str] | None = None
        self._journal: deque[JournalEntry] = deque()
        self._new_users = set[str]()
        """Users that have begun to want offers, but were not yet checked for agents that could
        serve them."""
        self._passed_over = frozenset[str]()

    @property
    def waiting(self) -> int:
        """Number of journal entries that are not replayed yet."""
        return len(self._journal)

    def before_change(self, adapter: SchedulerAdapter, _instant: float) -> None:
        """Replay the journal if it is long; called by the adapter before each change of its state.

        If a snapshot has replaced the adapter's top-level pool, the shadows switch to the new pool.

        Args:
            adapter: The adapter, before the change.
        """
        if adapter.followed_pool is not self._pool:
            self._attach_to(adapter.followed_pool)
        elif self._at_once:
            self._replay_all()
        elif len(self._journal) > MOST_WAITING:
            self._follow(FASTER)

    def pass_over(self, adapter: SchedulerAdapter, users: frozenset[str]) -> None:
        """Record in the journal which users the shadow policies skip from now on.

        Without such users, a shadow policy would compute offers that nobody could use.

        Args:
            adapter: The adapter, whose top-level users are considered.
            users: All users that want offers and cannot use any: no agent could serve them, or
                they decline every agent.
        """
        users = frozenset(filter(adapter.followed_pool.__contains__, users))
        if adapter.followed_pool is self._pool and users != self._passed_over:
            self._passed_over = users
            self._journal.append((adapter.followed_pool.now, Shadow.pass_over, (users,)))

    def before_run(self, adapter: SchedulerAdapter) -> None:
        """Mark the start of an allocation cycle in the journal; called by the adapter."""
        if adapter.followed_pool is not self._pool:
            self._attach_to(adapter.followed_pool)
        if self.followers:
            self._pass_over_unserved_users(adapter)
        self._journal.append(_BEGIN)

    def after_run(self, _adapter: SchedulerAdapter, _decisions: object) -> None:
        """Mark the end of an allocation cycle in the journal; called by the adapter."""
        self._journal.append(_END)
        if self._at_once:
            self._replay_all()

    def replay(self) -> Work[None]:
        """Replay the entries that the journal has now, in cooperative steps."""
        remaining = len(self._journal)
        while remaining > 0 and (replayed := self._follow(_AT_ONCE)):
            remaining -= replayed
            yield

    def compare(
        self, adapter: SchedulerAdapter, follower: ShadowState
    ) -> Work[list[ShadowComparison]]:
        """Compare all top-level users under the live policy and under a shadow policy.

        Events may be applied wherever this function yields.

        Args:
            adapter: The adapter to read.
            follower: The shadow policy.

        Returns:
            One comparison per user, in the shadow policy's order; empty if the shadow was stopped.
        """
        self.before_change(adapter, adapter.now)
        self.pass_over(adapter, (yield from adapter.unservable_users(declining=True)))
        yield from self.replay()
        differences: list[ShadowComparison] = []
        if adapter.followed_pool is self._pool:
            yield from follower.run_steps(
                _apart(adapter.followed_pool, follower, self._passed_over, differences)
            )
        return differences

    def _pass_over_unserved_users(self, adapter: SchedulerAdapter) -> None:
        """Let the shadows skip users that no agent could serve.

        Only users that have begun to want offers since the last check are examined.

        Args:
            adapter: The adapter, which knows the agents.
        """
        for entry in reversed(self._journal):
            if entry is _END:
                break
            self._note_new_user(entry)
        new_users, self._new_users = self._new_users - self._passed_over, set()
        unserved = {user for user in new_users if not adapter.could_be_served(user)}
        if unserved:
            self.pass_over(adapter, self._passed_over | unserved)

    def _note_new_user(self, entry: JournalEntry) -> None:
        _, change, arguments = entry
        if change is Pool.set_active and arguments[1]:
            self._new_users.add(arguments[0])

    def _attach_to(self, pool: Pool[str]) -> None:
        """Give each shadow a copy of the adapter's new pool, and record that pool's changes.

        A snapshot has created the new pool. The journal of the former pool is replayed first.

        Args:
            pool: The adapter's new top-level pool.
        """
        self._replay_all()
        if pool.capacity:  # without capacity there is no cluster yet
            self._pool, self._journal = pool, pool.keep_journal()
            self._new_users, self._passed_over = set(pool), frozenset()
            for follower in self.followers:
                follower.run_step(partial(_attach, follower, pool))

    def _replay_all(self) -> None:
        while self._follow(_AT_ONCE):
            pass
        if self._journal:  # a failed cycle; this is not called during a cycle
            self._send_to_shadows(
                [(Shadow.follow, [entry for entry in self._journal if entry is not _BEGIN])]
            )
            self._journal.clear()

    def _follow(self, limit: int) -> int:
        """Replay the oldest journal entries for all shadows, and remove them from the journal.

        All entries of an allocation cycle are replayed together, once the cycle has ended. The
        function returns after `limit` replays, or after at least `_MANY` entries.

        Args:
            limit: Maximum number of replays. A whole allocation cycle counts as one replay, and so
                does an entry outside of cycles.

        Returns:
            The number of removed entries; 0 if nothing can be replayed now.
        """
        waited, replays = len(self._journal), list[_Replay]()
        while len(replays) < limit and waited - len(self._journal) < _MANY:
            following = self._next()
            if following is None:
                break
            replays.append(following)
        self._send_to_shadows(replays)
        return waited - len(self._journal)

    def _next(self) -> _Replay | None:
        """Remove the next entry, or all entries of the next allocation cycle, from the journal.

        Returns:
            The method of `Shadow` that replays the entries, and the entries; None if the journal is
                empty or its next cycle has not ended.
        """
        journal = self._journal
        if not journal:
            return None
        if journal[0] is not _BEGIN:
            self._note_new_user(journal[0])
            return Shadow.follow, [journal.popleft()]
        run: list[JournalEntry] = []
        for entry in islice(journal, 1, None):
            if entry is _BEGIN or entry is _END:
                break
            run.append(entry)
        else:
            return None
        for _ in range(len(run) + 1):
            journal.popleft()
        if entry is _END:
            journal.popleft()
            return Shadow.follow_cycle, run
        return Shadow.follow, run  # the cycle has failed

    def _send_to_shadows(self, replays: list[_Replay]) -> None:
        for follower in self.followers if replays else ():
            if follower.shadow is not None:
                follower.run_step(partial(_follow, follower.shadow, replays))


def _follow(shadow: Shadow[str], replays: list[_Replay]) -> None:
    for replay, entries in replays:
        if entries:
            replay(shadow, entries)


def _attach(follower: ShadowState, pool: Pool[str]) -> None:
    if follower.shadow is None:
        follower.shadow = Shadow(follower.policy, pool)
    else:
        follower.shadow.attach(pool)


def _apart(
    pool: Pool[str],
    follower: ShadowState,
    passed_over: frozenset[str],
    differences: list[ShadowComparison],
) -> Work[None]:
    shadow = follower.shadow
    assert shadow is not None
    shadow.pool.advance(pool.now)
    gains = yield from shadow.gains_in_steps()
    wanting = (user for user in pool if user not in passed_over)
    turns = {user: turn for turn, user in enumerate(wanting, start=1)}
    shadow_turns = {user: turn for turn, user in enumerate(shadow.pool, start=1)}
    remembers = shadow.policy.tau is not None
    for user in [*shadow_turns, *(user for user in pool.users() if user not in shadow_turns)]:
        yield
        if user in shadow.pool:
            commitment = shadow.pool.standing(user).commitment if remembers else 0.0
            turn, shadow_turn = turns.get(user, 0), shadow_turns.get(user, 0)
            passed = user in passed_over
            differences.append(
                ShadowComparison(user, turn, shadow_turn, commitment, gains.get(user, 0.0), passed)
            )
