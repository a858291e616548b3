"""Audit log of refused operator commands: each peer's first ones in full, then only counts."""

import asyncio
import uuid
from collections import Counter
from dataclasses import replace

from allocator.service.accounting import OTHERS
from allocator.service.accounting.accountant import Accountant
from allocator.service.accounting.write_batch import OrderRecord

WINDOW = 60.0
"""Length of a time window, in seconds. Each window keeps a limited number of refused commands in
full."""
EACH = 10
"""Maximum number of one peer's refused commands that are kept in full per window."""
ALL = 50
"""Maximum number of all peers' refused commands that are kept in full per window.

Also the maximum number of peers with a count of their own; refusals of further peers are counted
together.
"""


class Refusals:
    """Logs refused operator commands, limited so that a flood cannot fill the database.

    Args:
        accountant: Keeps the audit log; None: refused commands are only written to the service's
            log.
    """

    def __init__(self, accountant: Accountant | None) -> None:
        self._accountant = accountant
        self._kept = Counter[str]()
        """Number of refused commands that were kept in full in this window, by peer."""
        self._further: dict[str, tuple[int, OrderRecord]] = {}
        """By peer, the number of refused commands that were only counted, and the latest of them.
        """

    def note(self, order: OrderRecord) -> None:
        """Log a refused command in full; beyond a limit, only count it.

        There is a limit for each peer and one for all peers. Both apply to periods of `WINDOW`
        seconds.
        """
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

    def counts(self) -> list[OrderRecord]:
        """Return how many commands of the present window were only counted, in a record per peer.

        The audit log gets these records at the end of the window. An audit shows them earlier.
        """
        return [
            replace(
                latest,
                id=uuid.uuid4().hex,
                who=peer,
                before="{}",
                refusal=f"{count:,} more refused in {WINDOW:g} s, the latest because: "
                f"{latest.refusal}",
            )
            for peer, (count, latest) in self._further.items()
        ]

    def _begin_window(self) -> None:
        for record in self.counts():
            assert self._accountant is not None
            self._accountant.note(record)
        self._further.clear()
        self._kept.clear()
