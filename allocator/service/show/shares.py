"""Shares of users as people see them, computed in one way for metrics, pages and commands."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from allocator.cooperative import run_to_completion
from allocator.fairness.quantities import Quantities
from allocator.fairness.standing import Standing
from allocator.service.loop.cooperative import Work
from allocator.users.adapter import SchedulerAdapter


@dataclass(frozen=True, eq=False)
class UserShare:
    """Share, commitment and entitlement of one user, as of the last event.

    All three are fractions of the cluster.
    """

    standing: Standing[str]
    parent: str
    """The user whose entitlement the user shares with its siblings; empty for a user at the top."""
    rank: int
    """Rank among the users with the same parent, from 1, by ascending priority.

    Users with equal rounded priorities are ranked as the policy serves them.
    """
    holdings: Mapping[str, "Holding"]
    """Amount and share of each resource that the user holds."""
    dominant_resource: str
    """Resource with the largest share; empty if all shares are 0."""
    offered_share: float | None
    """Part of the dominant share that is offered but not used yet; None if the master does not
    report used resources."""
    shortfall: float
    """Entitlement minus share of a user that wants offers; at least 0."""
    demands: tuple[Quantities, ...]
    """Resources that one task needs, for each of the user's frameworks whose demand is known."""

    @property
    def dominant_commitment(self) -> float:
        """The dominant commitment; while no agent is known, the largest commitment to any resource.

        Agents determine which resources count, and after an election no agent is known at first.
        """
        standing = self.standing
        if standing.shares:
            return standing.commitment
        return max(standing.commitments.values(), default=standing.inherited)

    @property
    def user(self) -> str:
        """Name of the user."""
        return self.standing.user

    @property
    def accepts_orders(self) -> bool:
        """Whether operator commands may name the user.

        A virtual leaf (`ROLE/.`) cannot be named; commands reach it through its role.
        """
        return not (self.parent and self.user == f"{self.parent}/.")


@dataclass(frozen=True)
class Holding:
    """Amount and share of one resource that a user holds.

    The resource may be one that does not count for fairness.
    """

    allocation: float
    """Amount in the resource's own unit, such as cores or MiB. `share` and `commitment` are
    fractions of the cluster."""
    share: float
    commitment: float
    offered: float | None
    """Part of the allocation that is offered but not used yet; None if the master does not report
    used resources."""


def user_shares(adapter: SchedulerAdapter) -> list[UserShare]:
    """Return the shares of all users: the top level by rank, then the levels below."""
    return run_to_completion(read_shares(adapter, adapter.users()))


def read_shares(adapter: SchedulerAdapter, users: list[str]) -> Work[list[UserShare]]:
    """Return the shares of users: the top level of the tree by rank, then the levels below.

    The function works in cooperative steps, between which events may be applied. Each share is
    as of the time at which its user was read. A user that has been removed by then is left out.

    Args:
        adapter: The adapter to read.
        users: Names of all users, or of all users at the top level.
    """
    standings = []
    for user in users:
        standing = adapter.standing(user)
        if standing is not None:
            standings.append(standing)
        yield
    return (yield from _described(adapter, standings))


def holdings(
    standing: Standing[str], capacity: Quantities, offered: Quantities | None = None
) -> dict[str, Holding]:
    """Return a user's amount and share of each resource that the user or the cluster has.

    Args:
        standing: The user's present values.
        capacity: Capacity of the cluster.
        offered: Part of the allocation that is not used yet; None if the master does not report
            used resources.
    """
    held = standing.allocation.to_doubles()
    offered_amounts = None if offered is None else offered.to_doubles()
    shares = standing.allocation.shares(capacity)
    return {
        name: Holding(
            held.get(name, 0.0),
            shares.get(name, 0.0),
            standing.commitments.get(name, 0.0),
            None if offered_amounts is None else offered_amounts.get(name, 0.0),
        )
        for name in {**shares, **held}
    }


def dominant(ratios: Mapping[str, float]) -> str:
    """Return the resource with the largest share or commitment; an empty text if all are 0.

    Args:
        ratios: Share or commitment by resource, as fractions of the cluster.
    """
    name = max(ratios, key=lambda name: ratios[name], default="")
    return name if name and ratios[name] > 0.0 else ""


def _described(adapter: SchedulerAdapter, standings: list[Standing[str]]) -> Work[list[UserShare]]:
    positions = adapter.ranks()
    levels: dict[str, list[Standing[str]]] = {}
    for standing in standings:
        parent = "" if standing.user in adapter.pool else standing.user.rpartition("/")[0]
        levels.setdefault(parent, []).append(standing)
    yield
    demands = adapter.demands()
    yield
    offered_by_user = adapter.offered()
    described = []
    for parent, siblings in levels.items():
        # Priorities are rounded, so ties are common: the sorter's order decides them.
        siblings.sort(
            key=lambda standing: (standing.priority, positions.get(standing.user, math.inf))
        )
        for rank, standing in enumerate(siblings, start=1):
            lacking = standing.entitlement - standing.share if standing.active else 0.0
            offered = (
                None
                if offered_by_user is None
                else offered_by_user.get(standing.user, Quantities())
            )
            largest = dominant(standing.shares)
            offered_shares = None if offered is None else offered.shares(adapter.pool.capacity)
            described.append(
                UserShare(
                    standing=standing,
                    parent=parent,
                    rank=rank,
                    holdings=holdings(standing, adapter.pool.capacity, offered),
                    dominant_resource=largest,
                    offered_share=None
                    if offered_shares is None
                    else offered_shares.get(largest, 0.0),
                    shortfall=max(lacking, 0.0),
                    demands=tuple(demands.get(standing.user, ())),
                )
            )
            yield
    return described
