"""What users owe as time goes by, where no pool keeps it: what was remembered, and who is away."""

from collections.abc import Iterator, Mapping

from allocator.cluster.memory import Course, Remembered
from allocator.cluster.users.levels import Levels
from allocator.fairness.bounds import LARGEST_COMMITMENT
from allocator.fairness.commitment import decayed

FADED = 1e-3
"""A dominant commitment below this does not keep a user known."""


class Away:
    """Virtual leaves that are not there (yet), and what they owe."""

    def __init__(self, levels: Levels) -> None:
        self._levels = levels
        self._since: dict[str, tuple[float, Remembered]] = {}

    def __iter__(self) -> Iterator[str]:
        return iter(self._since)

    def __contains__(self, name: object) -> bool:
        return name in self._since

    def put(self, name: str, owed: Mapping[str, float], others: float) -> None:
        """Note what one owes now."""
        self._since[name] = self._levels.now, Remembered(owed, others=others)

    def discard(self, name: str) -> None:
        """Forget one, as it is there now."""
        self._since.pop(name, None)

    def owes(self, name: str) -> tuple[dict[str, float], float]:
        """Return what one owes now, by resource and of all others."""
        since, remembered = self._since.get(name, (self._levels.now, Remembered()))
        return settled(remembered, {}, self._levels.now - since, self._levels.tau)

    def course(self, name: str) -> Course:
        """Return how it goes on with one."""
        since, remembered = self._since[name]
        return Course(since, self._levels.tau, remembered)

    def forget_faded(self) -> bool:
        """Forget those that owe nothing any more; return whether there were some."""
        faded = [name for name in self if not matters(*self.owes(name))]
        for name in faded:
            del self._since[name]
        return bool(faded)


def matters(owed: Mapping[str, float], others: float = 0.0) -> bool:
    """Whether who owes that much is to stay known."""
    return max(owed.values(), default=others) >= FADED


def settled(
    remembered: Remembered, overuse: Mapping[str, float], elapsed: float, tau: float | None
) -> tuple[dict[str, float], float]:
    """Return what is owed after some time, by resource and of all others.

    Args:
        remembered: What was owed then.
        overuse: What is held in excess now; what was so then, too, was so in between.
        elapsed: Seconds since then.
        tau: Time constant in seconds; None: debts do not fade.
    """
    if tau is None:
        return _bounded(remembered.commitments), min(remembered.others, LARGEST_COMMITMENT)
    owed = {
        name: decayed(
            commitment,
            min(remembered.overuse.get(name, 0.0), overuse.get(name, 0.0)),
            elapsed,
            tau,
        )
        for name, commitment in remembered.commitments.items()
    }
    others = decayed(remembered.others, 0.0, elapsed, tau)
    return _bounded(owed), min(others, LARGEST_COMMITMENT)


def _bounded(owed: Mapping[str, float]) -> dict[str, float]:
    return {name: min(commitment, LARGEST_COMMITMENT) for name, commitment in owed.items()}
