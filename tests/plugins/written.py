"""Files with policies, as users write them."""

from pathlib import Path

NORM = '''"""Least length of the vector of shares first."""

from typing import Annotated

from allocator.api import Account, KeyPolicy
from pydantic import Field


class Norm(KeyPolicy):
    """Of users, the one whose shares have the least norm is next."""

    name = "norm"

    power: Annotated[float, Field(ge=1, le=64)] = 2.0
    """Which norm: 1 adds shares up, a large one is the dominant share."""

    def key(self, account: Account) -> float:
        total = sum(share**self.power for share in account.shares.values())
        return total ** (1 / self.power) / account.weight
'''

LINE = '''"""Who has used most waits longest, forgiven at a constant rate."""

from allocator.api import Account, LinePolicy


class Toll(LinePolicy):
    """The priority is what was used, less what an entitlement would have used, over the weight."""

    name = "toll"

    def rate_of_use(self, account: Account) -> float:
        return account.share

    def line(self, account: Account) -> tuple[float, float]:
        return account.cumulative / account.weight, account.rate_of_use / account.weight
'''


def file(folder: Path, source: str, name: str = "mine.py") -> Path:
    path = folder / name
    path.write_text(source)
    return path


def key(body: str, name: str = "mine", more: str = "") -> str:
    """Return a file with a policy, given the Python expression of its key."""
    return (
        "from allocator.api import Account, KeyPolicy\n"
        f"class Mine(KeyPolicy):\n    name = {name!r}\n{more}"
        f"    def key(self, account: Account) -> float:\n        {body}\n"
    )
