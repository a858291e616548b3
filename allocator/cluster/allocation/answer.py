"""The decisions about one message of the master: one `Decisions` message, or several slices.

A long allocation cycle sends its first offers while it allocates the next agents. The cycle cuts
the answer into slices, and yields each slice. The slices contain the same offers in the same order
as an undivided answer, so slices affect no decision, and an event log contains undivided answers.
"""

from collections.abc import Sequence

from allocator.contract import allocator_pb2 as contract

SLICE_BYTES = 2**20
"""Bytes of resources in a slice with several offers, at most. Longer slices would take long steps
to write."""


class Answer:
    """Collects the decisions about one message.

    Args:
        sequence: Sequence number of the last applied event.
        slice_offers: Least number of offers in a slice; 0: the answer is not cut.
    """

    largest_size = 0
    """The largest `size` of a slice, or of the decisions since the last cut."""

    def __init__(self, sequence: int, slice_offers: int = 0) -> None:
        self.slice_offers = slice_offers
        self.last = contract.Decisions(applied_sequence=sequence)
        """The decisions since the last cut."""
        self.size = 0
        """Bytes of the resources in the offers since the last cut, of agents that no quick decision
        offered."""
        self._slices: list[contract.Decisions] = []

    @property
    def parts(self) -> Sequence[contract.Decisions]:
        """All slices, and the decisions since the last cut."""
        return [*self._slices, self.last]

    def is_full(self, size: int) -> bool:
        """Return whether the answer must be cut before an offer with `size` bytes is added."""
        return self.slice_offers > 0 and self.size > 0 and self.size + size > SLICE_BYTES

    def add_size(self, size: int) -> None:
        """Count the bytes of an offer's resources."""
        self.size += size
        self.largest_size = max(self.largest_size, self.size)

    def cut(self) -> contract.Decisions:
        """Return the decisions since the last cut as a slice, to be sent now."""
        part = self.last
        part.more = True
        self._slices.append(part)
        self.size = 0
        self.last = contract.Decisions(applied_sequence=part.applied_sequence)
        return part

    def discard(self) -> None:
        """Discard all offers, after an error of the allocator.

        Offers in slices have left already. The snapshot that follows the error contains them.
        """
        first = self.parts[0]
        self.last = contract.Decisions(
            applied_sequence=first.applied_sequence, replies=first.replies
        )
        self._slices.clear()

    def whole(self) -> contract.Decisions:
        """Return all decisions as one message, as if the answer had not been cut."""
        if not self._slices:
            return self.last
        whole = contract.Decisions(applied_sequence=self.last.applied_sequence)
        by_framework: dict[str, contract.Offers] = {}
        for part in self.parts:
            whole.replies.extend(part.replies)
            whole.inverse_offers.extend(part.inverse_offers)
            for offers in part.offers:
                merged = by_framework.get(offers.framework_id)
                if merged is None:
                    merged = whole.offers.add(framework_id=offers.framework_id)
                    by_framework[offers.framework_id] = merged
                merged.offers.extend(offers.offers)
        return whole
