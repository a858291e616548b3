"""Karma: most credits first, above a guarantee; users earn credits by using little."""

from typing import Annotated, ClassVar

from pydantic import Field

from allocator.fairness.policies.dynamic_mmf import DynamicMmf


class Karma(DynamicMmf):
    """Karma (Vuppalapati et al., OSDI 2023, Algorithm 1) in continuous time instead of quanta.

    Each user is guaranteed alpha of its fair share f. The user earns credits for the unused part of
    f, and pays credits for resources beyond f: dC/dt = f − o. The user with the most credits C is
    first. f·t is common to all users, so the order is that of ∫ o dt / w, by which `dynamic-mmf`
    ranks. Unlike under `dynamic-mmf`, a new user begins with the mean of the other users. In the
    original, each user counts equally in this mean. Here users count by their recent use, so that
    names without use give new users no credits (`Pool.newcomers_use`).

    In the original, donated resources that no user borrows earn no credits, and a user without
    credits may not borrow. The ranking is exact while some user always wants more. The original
    counts slices, and f is their present number; here both are fractions of the present capacity.
    """

    name: ClassVar[str] = "karma"
    begins_at_mean: ClassVar[bool] = True

    alpha: Annotated[float, Field(ge=0.0, le=1.0)] = 0.5
    """Guaranteed fraction of a user's fair share, whatever the user has used before. The published
    code calls the rest of the share public."""
