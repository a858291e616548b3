"""One user: a node of the tree, its own clients, and what is known of their tasks."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from allocator.cluster.frameworks.framework import Client
from allocator.cluster.resources.largest import Largest
from allocator.fairness.framework_sorter import FrameworkSorter
from allocator.fairness.machines import MayUse
from allocator.fairness.pool import Pool
from allocator.fairness.quantities import Quantities


@dataclass(frozen=True, slots=True)
class UserTask:
    """What is known of the tasks of a client."""

    demand: Quantities | None = None
    """What one needs; None: nobody knows."""
    may_use: MayUse | None = None
    """On which agents, by id, they may run; None: on all."""


@dataclass(slots=True, eq=False)
class User:
    """One node of the tree: its own clients, and its sub-users if it has any."""

    name: str
    parent: "User | None"
    clients: FrameworkSorter[Client]
    """Its own clients, in DRF order."""
    below: Pool[str] | None = None
    """Its sub-users and its virtual leaf, in the order of the policy; None: it has none."""
    children: dict[str, "User"] = field(default_factory=dict)
    tasks: dict[Client, "UserTask"] = field(default_factory=dict)
    """Of those of its own clients of which something is known."""
    own: Largest = field(default_factory=Largest)
    """Of what its tasks need."""
    all: Largest = field(default_factory=Largest)
    """Likewise, with those of all below it."""
    line: tuple[str, ...] = ()
    """Its name, and those of all above it; the root has none."""

    def __post_init__(self) -> None:
        if self.parent is not None:
            self.line = (self.name, *self.parent.line)

    @property
    def shown(self) -> tuple[str, ...]:
        """All names under which what it itself holds is shown, its own first."""
        if self.below is None:
            return self.line
        return (self.name, self.leaf, *self.line[1:])

    @property
    def leaf(self) -> str:
        """Name of its virtual leaf."""
        return f"{self.name}/."

    @property
    def names(self) -> Iterator[str]:
        """Its name, that of its virtual leaf, and those of all above it."""
        yield self.leaf
        user = self
        while user.parent is not None:
            yield user.name
            user = user.parent

    @property
    def siblings(self) -> Pool[str]:
        """The pool in which it competes."""
        assert self.parent is not None
        assert self.parent.below is not None
        return self.parent.below

    def places(self) -> "Iterator[tuple[Pool[str], str]]":
        """Go through where what its own clients hold counts: pools, and as whose in each."""
        if self.below is not None:
            yield self.below, self.leaf
        user = self
        while user.parent is not None:
            yield user.siblings, user.name
            user = user.parent

    @property
    def wants(self) -> bool:
        """Whether somebody in its subtree is to get offers."""
        return self.clients.active > 0 or (self.below is not None and self.below.active > 0)

    def member(self, client: Client) -> str | None:
        """Return as whose a client's holdings count in the pool below it; None: in nobody's."""
        if client in self.clients:
            return self.leaf
        for name, child in self.children.items():
            if child.member(client) is not None:
                return name
        return None
