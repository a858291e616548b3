"""Audit log of refused orders: a few of each peer in full, the rest as a count."""

import asyncio
import uuid
from collections import Counter
from dataclasses import replace

from allocator.service.accounting import OTHERS
from allocator.service.accounting.accountant import Accountant
from allocator.service.accounting.write_batch import Ordered

WINDOW = 60.0
"""Length of a window in seconds; in each window a few refused orders are kept in full."""
EACH = 10
"""Refused orders of one peer that are kept in full in a window."""
ALL = 50
"""Refused orders of all peers that are kept in full in a window.

At most as many peers are counted by name.
"""


class Refusals:
    """Limits the log of refused orders, so that a flood of refusals cannot fill the database.

    Args:
        accountant: Keeps the log; None: refused orders are only written to the service's log.
    """

    def __init__(self, accountant: Accountant | None) -> None:
        self._accountant = accountant
        self._kept = Counter[str]()
        """Refused orders that were kept in full in this window, by peer."""
        self._further: dict[str, tuple[int, Ordered]] = {}
        """By peer, the number of orders that were only counted, and the latest such order."""

    def note(self, order: Ordered) -> None:
        """Log a refused order, or count it."""
        if self._accountant is None:
            return
        if not self._kept:
            asyncio.get_running_loop().call_later(WINDOW, self._begin_window)
        if self._kept[order.who] < EACH and self._kept.total() < ALL:
            self._kept[order.who] += 1
            self._accountant.note(order)
            return
        known = order.who in self._further or len(self._further) < ALL
        peer = order.who if known else OTHERS
        count, _ = self._further.get(peer, (0, order))
        self._further[peer] = count + 1, order

    def tell(self) -> None:
        """Pass the counts of refused orders to the accountant, as one entry for each peer."""
        further, self._further = self._further, {}
        for peer, (count, latest) in further.items():
            assert self._accountant is not None
            words = f"{count:,} more refused in {WINDOW:g} s, the latest because: {latest.refusal}"
            entry = replace(latest, id=uuid.uuid4().hex, who=peer, before="{}", refusal=words)
            self._accountant.note(entry)

    def _begin_window(self) -> None:
        self.tell()
        self._kept.clear()
