"""Random clusters with random users, extreme values included, on which policies are tested."""

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from allocator.fairness.bounds import LARGEST_WEIGHT, LEAST_WEIGHT
from allocator.fairness.machines import Machines
from allocator.fairness.policies import Policy
from allocator.fairness.pool import Pool
from allocator.fairness.quantities import Quantities

_RESOURCES = ("cpus", "mem", "gpus")
_WEIGHTS = (1.0, 1.0, 2.0, 0.5, LEAST_WEIGHT, LARGEST_WEIGHT)
_SIZES = (1, 1, 10, 10, 10**6)


@dataclass(frozen=True, slots=True)
class Holder:
    """A user of a random cluster, with its state at the start of a test.

    `holds` is its allocation, `demand` the resources of one task (None: unknown), and `owes` its
    initial commitment as a fraction of the cluster.
    """

    weight: float
    holds: Quantities
    demand: Quantities | None
    owes: float


@dataclass(frozen=True, slots=True)
class World:
    """A random cluster: its machines and its users. A user's name is its index in `users`."""

    machines: Sequence[Quantities]
    users: Sequence[Holder]

    @property
    def capacity(self) -> Quantities:
        """Total resources of all machines."""
        return sum(self.machines, start=Quantities())

    def pool(self, policy: Policy) -> Pool[int]:
        """Return a new pool of the users, ranked by a policy; all users want offers."""
        machines: Machines[int] = Machines()
        for number, machine in enumerate(self.machines):
            machines.put(str(number), machine)
        pool: Pool[int] = Pool(policy, capacity=self.capacity, machines=machines)
        for number, user in enumerate(self.users):
            pool.add(number, weight=user.weight, commitment=user.owes)
            pool.set_demand(number, user.demand)
            pool.set_active(number, True)
            pool.allocate(number, user.holds)
        return pool

    def told(self) -> str:
        """Return a description of the cluster and its users, for the report of a violation."""
        users = "; ".join(
            f"user {number} holds {user.holds or 'nothing'}, weight {user.weight:g}, "
            f"demand {'unknown' if user.demand is None else user.demand}, "
            f"commitment {user.owes:g}"
            for number, user in enumerate(self.users)
        )
        return f"in a cluster of {self.capacity or 'nothing'}: {users}"


def draw(random: Random) -> World:
    """Draw a random cluster with random users.

    Some clusters have a single user, or no resources, or users that hold more than the capacity.
    """
    size = random.choice(_SIZES)
    names = _RESOURCES[: random.randint(1, 3)]
    machines = [_amounts(random, names, 100 * size) for _ in range(random.randint(0, 3))]
    users = [_holder(random, names, size) for _ in range(random.choice((1, 2, 3, 5)))]
    return World(machines, users)


def _holder(random: Random, names: Sequence[str], size: int) -> Holder:
    return Holder(
        weight=random.choice(_WEIGHTS),
        holds=_amounts(random, names, 50 * size) if random.random() < 0.8 else Quantities(),
        demand=_amounts(random, names, 5 * size) or None if random.random() < 0.8 else None,
        owes=random.choice((0.0, 0.0, 0.25, 1.0)),
    )


def _amounts(random: Random, names: Sequence[str], limit: int) -> Quantities:
    return Quantities({name: 1000 * random.randint(0, limit) for name in names})
