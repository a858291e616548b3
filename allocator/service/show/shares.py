"""How users stand, as it is shown: one calculation for metrics, recorder and commands."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from allocator.cluster.cooperative import run_to_completion
from allocator.cluster.engine import Engine
from allocator.fairness.quantities import Quantities
from allocator.fairness.standing import Standing
from allocator.service.loop.cooperative import Work


@dataclass(frozen=True, eq=False)
class UserShare:
    """One user at the time of the last event. Ratios are fractions of the cluster."""

    standing: Standing[str]
    parent: str
    """The role among whose sub-roles it competes; empty: it is at the top."""
    rank: int
    """Among its siblings, from 1: the lowest priority first; of equals who is served first."""
    holdings: Mapping[str, "Holding"]
    """By resource."""
    dominant_resource: str
    """Empty: nothing that counts is held."""
    offered_share: float | None
    """The part of the dominant share that is offered and not running; None: no master tells."""
    shortfall: float
    """What a user that wants offers lacks to its entitlement."""
    demands: tuple[Quantities, ...]
    """Of one task of each of its frameworks, as far as they are known."""

    @property
    def owed(self) -> float:
        """Its dominant commitment; while no agent is known, of all that it owes.

        Which resources count is known with the agents that have them: after an election, none.
        """
        own = self.standing
        if own.shares:
            return own.commitment
        return max(own.commitments.values(), default=own.inherited)

    @property
    def user(self) -> str:
        """The user's name."""
        return self.standing.user

    @property
    def can_be_ordered(self) -> bool:
        """Whether orders may name it; they concern a virtual leaf through its role."""
        return not (self.parent and self.user == f"{self.parent}/.")


@dataclass(frozen=True)
class Holding:
    """What a user has of one resource, whether that counts in fairness or not."""

    allocation: float
    """In units: cores, megabytes."""
    share: float
    commitment: float
    offered: float | None
    """The part of the allocation that is offered and not running; None: no master tells."""


def user_shares(engine: Engine) -> list[UserShare]:
    """Return how all users stand: those at the top by rank, then each level below."""
    return run_to_completion(reading(engine, engine.users()))


def reading(engine: Engine, users: list[str]) -> Work[list[UserShare]]:
    """Look at users one by one, and return how they stand: those at the top by rank, then others.

    Each stands as it did when it was looked at; who is gone by then is left out.

    Args:
        engine: May go on wherever this yields.
        users: All, or all at the top, who together hold all that is held.
    """
    standings = []
    for user in users:
        standing = engine.standing(user)
        if standing is not None:
            standings.append(standing)
        yield
    return (yield from _described(engine, standings))


def holdings(
    standing: Standing[str], capacity: Quantities, offered: Quantities | None = None
) -> dict[str, Holding]:
    """Return what a user has, by resource: of all the cluster has, and of what it has lost.

    Args:
        standing: The user's.
        capacity: Of the cluster.
        offered: The part that is not running; None: no master tells.
    """
    held = standing.allocation.to_doubles()
    idle = None if offered is None else offered.to_doubles()
    shares = standing.allocation.shares(capacity)
    return {
        name: Holding(
            held.get(name, 0.0),
            shares.get(name, 0.0),
            standing.commitments.get(name, 0.0),
            None if idle is None else idle.get(name, 0.0),
        )
        for name in {**shares, **held}
    }


def dominant(ratios: Mapping[str, float]) -> str:
    """Return the resource with the largest ratio; empty if all are 0."""
    name = max(ratios, key=lambda name: ratios[name], default="")
    return name if name and ratios[name] > 0.0 else ""


def _described(engine: Engine, standings: list[Standing[str]]) -> Work[list[UserShare]]:
    places = engine.turns()
    levels: dict[str, list[Standing[str]]] = {}
    for standing in standings:
        parent = "" if standing.user in engine.pool else standing.user.rpartition("/")[0]
        levels.setdefault(parent, []).append(standing)
    yield
    demands = engine.demands()
    yield
    told = engine.offered()
    described = []
    for parent, siblings in levels.items():
        # Priorities are rounded, and equals are common: who is served first decides these.
        siblings.sort(key=lambda s: (s.priority, places.get(s.user, math.inf)))
        for rank, standing in enumerate(siblings, start=1):
            lacking = standing.entitlement - standing.share if standing.active else 0.0
            offered = None if told is None else told.get(standing.user, Quantities())
            largest = dominant(standing.shares)
            idle = None if offered is None else offered.shares(engine.pool.capacity)
            described.append(
                UserShare(
                    standing=standing,
                    parent=parent,
                    rank=rank,
                    holdings=holdings(standing, engine.pool.capacity, offered),
                    dominant_resource=largest,
                    offered_share=None if idle is None else idle.get(largest, 0.0),
                    shortfall=max(lacking, 0.0),
                    demands=tuple(demands.get(standing.user, ())),
                )
            )
            yield
    return described
