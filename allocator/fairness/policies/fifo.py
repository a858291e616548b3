"""First in, first out: the first user gets all the resources it wants."""

from typing import ClassVar

from typing_extensions import override

from allocator.fairness.account import Account
from allocator.fairness.policies.policy import KeyPolicy


class Fifo(KeyPolicy):
    """FIFO: the priority is the user's number in a queue, the earliest first.

    A user joins the end of the queue when it begins to want resources and holds none. Weights do
    not matter.
    """

    name: ClassVar[str] = "fifo"
    goes_by_shares: ClassVar[bool] = False
    queues: ClassVar[bool] = True

    @override
    def key(self, account: Account) -> float:
        return float(account.turn)
