"""Tracks the maximum of each resource, such as the largest agent, as elements come and go."""

from collections import Counter

from allocator.fairness.quantities import Quantities


class Largest:
    """The maximum of each resource in a collection of quantities that changes.

    Adding or removing an element costs O(resources). Removing a maximum also costs O(different
    amounts) of the resource.
    """

    def __init__(self) -> None:
        self._amounts: dict[str, Counter[int]] = {}
        self.of: dict[str, int] = {}
        """resource → maximum in thousandths; without resources that no element has"""
        self.version = 0
        """Changes when a maximum changes."""

    def put(self, quantities: Quantities) -> None:
        """Add an element to the collection, and update the maximums."""
        for name, amount in quantities.items():
            if name not in self._amounts:
                self._amounts[name] = Counter()
            self._amounts[name][amount] += 1
            if amount > self.of.get(name, 0):
                self.of[name] = amount
                self.version += 1

    def discard(self, quantities: Quantities) -> None:
        """Remove an element that has been added before, and update the maximums."""
        for name, amount in quantities.items():
            amounts = self._amounts[name]
            amounts[amount] -= 1
            if amounts[amount]:
                continue
            del amounts[amount]
            if amount < self.of[name]:
                continue
            self.version += 1
            if amounts:
                self.of[name] = max(amounts)
            else:
                del self.of[name], self._amounts[name]
