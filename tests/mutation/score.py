"""The results of tried faults."""

from dataclasses import dataclass


@dataclass
class Score:
    """Number of faults that a test found, that are explained, and that are open."""

    found: int = 0
    explained: int = 0
    open: int = 0

    def of_all(self, places: int) -> str:
        """Return a summary with the part found or explained of all places, at 95 % confidence."""
        from scipy.stats import binomtest  # noqa: PLC0415 - whoever collects tests need not import it

        settled = self.found + self.explained
        tried = settled + self.open
        low, high = binomtest(settled, tried).proportion_ci(method="wilson")
        return (
            f"{self.found} found, {self.explained} explained, {self.open} open, of {tried}: "
            f"{settled / tried:.1%} found or explained ({low:.1%} to {high:.1%} of all {places})"
        )
