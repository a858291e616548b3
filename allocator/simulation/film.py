"""Records a simulation as a film: an HTML page that plays back users and machines over time."""

import math
from collections import Counter
from collections.abc import Iterator, Mapping

from allocator import __version__
from allocator.film.camera import AgentNow, Camera, UserNow, interval
from allocator.film.pack import About, pack
from allocator.film.page import page
from allocator.formatting import counted
from allocator.simulation.order import Exact
from allocator.simulation.outcome import Outcome
from allocator.simulation.reference import Progress, ReferenceSimulation
from allocator.simulation.series import Series
from allocator.simulation.setting import Setting
from allocator.simulation.trace import MICROSECONDS, Trace

_NO_COMMITMENTS = (
    "Commitments are not shown, because the original policy keeps accounts in its own units."
)


def film(
    trace: Trace,
    setting: Setting,
    source: str,
    progress: Progress | None = None,
    series: Series | None = None,
) -> tuple[Outcome, bytes]:
    """Simulate a trace and record a film. Return the outcome and the film's HTML page.

    The reference simulator runs, as the fast simulator cannot be observed. A frame costs O(users +
    running tasks + machines).

    Args:
        trace: The submitted tasks.
        setting: The policy and the options of the simulation.
        source: Text that tells viewers which workload the film shows.
        progress: Called with the number of processed tasks.
        series: Receives the users' shares and commitments at regular instants.

    Raises:
        SettingError: The setting does not fit the trace.
    """
    simulation = ReferenceSimulation(trace, setting, series)
    filming = _Filming(simulation, trace, setting)
    outcome = simulation.run(progress, filming.record_if_due)
    return outcome, filming.page(source)


class _Filming:
    def __init__(self, simulation: ReferenceSimulation, trace: Trace, setting: Setting) -> None:
        self._simulation = simulation
        self._pool = simulation.pool
        self._policy = setting.policy
        self._trace = trace
        self._per_job = setting.per == "job"
        machines = setting.machines(trace)
        self._capacity = self._amounts(machines.sum(axis=0).tolist())
        self._machines = dict(zip(_names(trace, setting), machines.tolist(), strict=True))
        seconds = 0.0
        if len(trace):
            last = int((trace.submitted + trace.runtime).max())
            seconds = (last - int(trace.submitted[0])) / MICROSECONDS
        self._camera = Camera(interval(seconds, len(trace.users) + len(machines)))

    def record_if_due(self) -> None:
        now = self._simulation.now / MICROSECONDS
        if self._camera.due(now):
            self._take(now)

    def page(self, source: str) -> bytes:
        self._take(self._simulation.now / MICROSECONDS)
        exact = isinstance(self._pool, Exact)
        tau = self._pool.policy.tau if isinstance(self._pool, Exact) else None
        about = About(
            source=source,
            policy=self._policy if exact else f"{self._policy}, sampled",
            half_life=None if tau is None else tau * math.log(2.0),
            version=__version__,
            every=self._camera.every,
            clock="elapsed",
            notes=("This run was simulated.", *(() if exact else (_NO_COMMITMENTS,))),
        )
        return page(pack(self._camera.reel, about))

    def _take(self, now: float) -> None:
        users, machines = self._held()
        self._camera.take(now, self._users(users), self._agents(machines))

    def _held(self) -> tuple[dict[int, Counter[str]], list[dict[str, Counter[str]]]]:
        """Return the amounts that running tasks hold now, for the next frame of the film.

        Returns:
            Two collections of amounts by resource, in thousandths of the trace's units. First: by
            user number. Second: for each machine, by user name.
        """
        users: dict[int, Counter[str]] = {}
        machines: list[dict[str, Counter[str]]] = [{} for _ in self._machines]
        for user, task, machine in self._simulation.running():
            demand = self._amounts(self._trace.demand[task].tolist())
            users.setdefault(user, Counter()).update(demand)
            machines[machine].setdefault(self._name(user), Counter()).update(demand)
        return users, machines

    def _users(self, held: Mapping[int, Mapping[str, int]]) -> Iterator[UserNow]:
        simulation = self._simulation
        turns = {user: turn for turn, user in enumerate(self._pool, start=1)}
        for user, share, commitment, entitlement in self._standings(held):
            turn = turns.get(user, 0)
            yield UserNow(
                self._name(user),
                "",
                share,
                commitment,
                entitlement,
                turn,
                _waiting_text(turn, len(simulation.waiting[user]) if turn else 0),
                held.get(user, {}),
            )

    def _standings(
        self, held: Mapping[int, Mapping[str, int]]
    ) -> Iterator[tuple[int, float, float, float]]:
        """Yield each user's share, commitment and entitlement for a frame of the film.

        Yields:
            (user number, dominant share, dominant commitment, entitlement); the last three are
            fractions of the capacity.

        Args:
            held: For each user, the amount held of each resource, in thousandths of a unit.
        """
        if isinstance(self._pool, Exact):
            for standing in self._pool.standings():
                yield standing.user, standing.share, standing.commitment, standing.entitlement
            return
        weights = self._pool.weights
        total_weight = math.fsum(weights.values())
        for user, weight in weights.items():
            amounts = held.get(user, {}).items()
            share = max((amount / self._capacity[name] for name, amount in amounts), default=0.0)
            yield user, share, 0.0, weight / total_weight

    def _agents(self, held: list[dict[str, Counter[str]]]) -> Iterator[AgentNow]:
        for (name, total), holders in zip(self._machines.items(), held, strict=True):
            yield AgentNow(name, "", self._amounts(total), holders)

    def _amounts(self, amounts: list[float]) -> dict[str, int]:
        named = zip(self._trace.resources, amounts, strict=True)
        return {name: round(1000 * amount) for name, amount in named if amount}

    def _name(self, user: int) -> str:
        return f"job {user}" if self._per_job else self._trace.users[user]


def _names(trace: Trace, setting: Setting) -> list[str]:
    if setting.capacity is not None:
        return ["the pool"]
    return [f"{kind.name}-{number}" for kind in trace.machines for number in range(kind.count)]


def _waiting_text(turn: int, tasks: int) -> str:
    """Return the text that tells a viewer why a user's tasks wait; "" if the user has none waiting.

    A frame shows the cluster after all tasks that can start have started. Waiting tasks therefore
    wait for resources or for users that come earlier in the order.

    Args:
        turn: The user's position in the policy's order, from 1; 0 for a user without waiting tasks.
        tasks: Number of the user's waiting tasks.
    """
    if not turn:
        return ""
    waiting = f"{counted(tasks, 'task')} of its {'waits' if tasks == 1 else 'wait'}"
    if turn == 1:
        return f"{waiting}; the next task does not fit now"
    return f"{waiting} for the user's turn"
