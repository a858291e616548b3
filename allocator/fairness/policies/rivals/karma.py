"""Karma: most credits first, above a guarantee; who uses little earns what it leaves to others."""

from collections.abc import Collection
from typing import Annotated, ClassVar

from pydantic import Field
from typing_extensions import override

from allocator.fairness.account import Account
from allocator.fairness.policies.dynamic_mmf import DynamicMmf


class Karma(DynamicMmf):
    """Karma (Vuppalapati et al., OSDI 2023, Algorithm 1) in continuous time instead of quanta.

    Everybody is guaranteed alpha of its fair share f, earns what it leaves of f to others, and pays
    for what it has beyond: dC/dt = f − o. Who has most credits C is next. As f·t is common to all,
    that is the order of ∫ o dt / w, and what `dynamic-mmf` ranks by; but a new user begins with the
    others' mean. In the original what nobody borrows earns nothing, and a user without
    credits may not borrow; it is exact where there is always somebody who wants more. The original
    counts slices, and f is their present number; here both are parts of the capacity at that time.
    """

    name: ClassVar[str] = "karma"

    alpha: Annotated[float, Field(ge=0.0, le=1.0)] = 0.5
    """Part of its fair share that a user is guaranteed whatever it had before; the rest is what
    the published code calls public."""

    @override
    def welcome(self, account: Account, others: Collection[Account]) -> None:
        if others:
            mean = sum(other.cumulative / other.weight for other in others) / len(others)
            account.cumulative = mean * account.weight
