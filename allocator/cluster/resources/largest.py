"""The largest amount of each resource among several, as these come and go."""

from collections import Counter

from allocator.fairness.quantities import Quantities


class Largest:
    """One that comes or goes costs O(resources), and O(different amounts) where it was it."""

    def __init__(self) -> None:
        self._amounts: dict[str, Counter[int]] = {}
        self.of: dict[str, int] = {}
        """By resource, in thousandths; nothing of what nobody has."""
        self.version = 0
        """Changes when any of these does."""

    def put(self, quantities: Quantities) -> None:
        """Take one in."""
        for name, amount in quantities.items():
            if name not in self._amounts:
                self._amounts[name] = Counter()
            self._amounts[name][amount] += 1
            if amount > self.of.get(name, 0):
                self.of[name] = amount
                self.version += 1

    def discard(self, quantities: Quantities) -> None:
        """Leave one out that was taken in."""
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
