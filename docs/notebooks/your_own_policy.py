# %% [markdown]
# # Your own policy
#
# A policy is a class with a name; its fields are its validated parameters. This one ranks users
# by the length of the vector of their shares: with `power=1` shares add up, a large power is
# nearly DRF.

# %%
from typing import Annotated

from pydantic import Field

from allocator.api import (
    Account,
    KeyPolicy,
    Task,
    check_policy,
    make_trace,
    policy,
    register_policy,
    simulate,
    violation,
)


@register_policy
class Norm(KeyPolicy):
    """The user whose shares have the smallest norm is next."""

    name = "norm"

    power: Annotated[float, Field(ge=1, le=64)] = 2.0
    """Which norm."""

    def key(self, account: Account) -> float:
        """Return the priority; the least is next."""
        total: float = sum(share**self.power for share in account.shares.values())
        return float(total ** (1 / self.power)) / account.weight


policy("norm", power=4)

# %% [markdown]
# Does it do what Longshare relies on? The suite draws users and clusters, extreme ones among
# them.

# %%
check_policy(Norm(power=4), trials=10)

# %% [markdown]
# What would it do? Two users want CPUs, one wants both resources.

# %%
tasks = [
    Task(user, 0.0, 60.0, {"cpus": 4, "mem": 1}) for user in ("anna", "bert") for _ in range(30)
]
tasks += [Task("both", 0.0, 60.0, {"cpus": 2, "mem": 2}) for _ in range(60)]
trace = make_trace(tasks)
waits = {}
for name, parameters in (("drf", {}), ("norm", {"power": 1.0}), ("norm", {"power": 64.0})):
    done = simulate(trace, name, parameters, capacity={"cpus": 24.0, "mem": 24.0})
    waits[name, *parameters.values()] = dict(zip(trace.users, done.users.mean_wait_s, strict=True))
    print(
        name,
        parameters,
        {user: round(wait, 1) for user, wait in waits[name, *parameters.values()].items()},
    )

assert waits["norm", 1.0]["both"] > waits["drf",]["both"]

# %% [markdown]
# Which properties does it lack? A search finds the smallest case.

# %%
counterexample = violation("norm", "single-machine", trials=30)
assert counterexample is not None
print(counterexample.text)
