"""Conversion of a user's share to the message that operators receive."""

from allocator.contract import admin_pb2 as admin
from allocator.service.show.shares import UserShare
from allocator.users.adapter import SchedulerAdapter


def message(row: UserShare, adapter: SchedulerAdapter) -> admin.UserShare:
    """Return a user's share as a message for operators.

    Args:
        row: The share of the user.
        adapter: The adapter, which knows the source of the user's weight and the end of its boost
            (temporary weight).
    """
    standing, weights = row.standing, adapter.weights
    share = admin.UserShare(
        user=row.user,
        parent=row.parent,
        rank=row.rank,
        weight=standing.weight,
        entitlement=standing.entitlement,
        allocation={name: holding.allocation for name, holding in row.holdings.items()},
        shares={name: holding.share for name, holding in row.holdings.items()},
        counted=list(standing.shares),
        dominant_resource=row.dominant_resource,
        dominant_share=standing.share,
        commitments=standing.commitments,
        dominant_commitment=row.dominant_commitment,
        priority=standing.priority,
        active=standing.active,
        shortfall=row.shortfall,
        task_share=standing.task_share,
        offered={
            name: holding.offered
            for name, holding in row.holdings.items()
            if holding.offered is not None
        },
        offered_share=row.offered_share,
        weight_by=weights.by(row.user),
        demands=[admin.Demand(amounts=demand.to_doubles()) for demand in row.demands],
    )
    boost = weights.boost(row.user)
    if boost is not None:
        share.boost_ends_after = max(boost.until - adapter.now, 0.0)
        share.weight_after_boost = weights.after_boost(row.user)
    return share
