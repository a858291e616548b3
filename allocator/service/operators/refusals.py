"""Keeps refused orders for the audit: a few of each peer in full, and a count of the rest."""

import asyncio
import uuid
from collections import Counter
from dataclasses import replace

from allocator.service.accounting import OTHERS
from allocator.service.accounting.accountant import Accountant
from allocator.service.accounting.write_batch import Ordered

WINDOW = 60.0
"""Seconds after which refused orders are kept in full again."""
EACH = 10
"""Refused orders of one peer that are kept in full in a window."""
ALL = 50
"""Refused orders of all peers that are kept in full in a window; also peers counted by name."""


class Refusals:
    """Thins refused orders, so that no flood of them costs the database or hides other orders.

    Args:
        bookkeeper: Keeps them; None: the log alone does.
    """

    def __init__(self, bookkeeper: Accountant | None) -> None:
        self._bookkeeper = bookkeeper
        self._kept = Counter[str]()
        """Refused orders that were kept in full in this window, by peer."""
        self._further: dict[str, tuple[int, Ordered]] = {}
        """By peer, the number of orders that were only counted, and the latest of them."""

    def note(self, order: Ordered) -> None:
        """Keep a refused order, or count it."""
        if self._bookkeeper is None:
            return
        if not self._kept:
            asyncio.get_running_loop().call_later(WINDOW, self._begin_window)
        if self._kept[order.who] < EACH and self._kept.total() < ALL:
            self._kept[order.who] += 1
            self._bookkeeper.note(order)
            return
        known = order.who in self._further or len(self._further) < ALL
        peer = order.who if known else OTHERS
        count, _ = self._further.get(peer, (0, order))
        self._further[peer] = count + 1, order

    def tell(self) -> None:
        """Hand the counts of refused orders to the bookkeeper, as one entry for each peer."""
        further, self._further = self._further, {}
        for peer, (count, latest) in further.items():
            assert self._bookkeeper is not None
            words = f"{count:,} more refused in {WINDOW:g} s, the latest because: {latest.refusal}"
            entry = replace(latest, id=uuid.uuid4().hex, who=peer, before="{}", refusal=words)
            self._bookkeeper.note(entry)

    def _begin_window(self) -> None:
        self.tell()
        self._kept.clear()
