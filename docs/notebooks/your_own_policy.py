# %% [markdown]
# # Your own policy
#
# A policy is a class with a name; its fields are its validated parameters. The policy below ranks
# users by the norm of their shares. With `power=1` it adds the shares; with a large power it is
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
    """Least norm of the shares first."""

    name = "norm"

    power: Annotated[float, Field(ge=1, le=64)] = 2.0
    """Exponent of the norm."""

    def key(self, account: Account) -> float:
        """Return the priority; the least is next."""
        total: float = sum(share**self.power for share in account.shares.values())
        return float(total ** (1 / self.power)) / account.weight


policy("norm", power=4)

# %% [markdown]
# The suite checks the properties that Longshare relies on, with random and extreme users and
# clusters.

# %%
check_policy(Norm(power=4), trials=10)
print("all checks passed")

# %% [markdown]
# How do waits change? The tasks of "anna" and "bert" need mainly CPUs. The tasks of "both" need as
# much memory as CPUs.

# %%
tasks = [
    Task(user, 0.0, 60.0, {"cpus": 4, "mem": 1}) for user in ("anna", "bert") for _ in range(30)
]
tasks += [Task("both", 0.0, 60.0, {"cpus": 2, "mem": 2}) for _ in range(60)]
trace = make_trace(tasks)
waits = {}
print("mean wait (s)   " + "".join(f"{user:>8}" for user in trace.users))
for name, parameters in (("drf", {}), ("norm", {"power": 1.0}), ("norm", {"power": 64.0})):
    simulation = simulate(trace, name, parameters, capacity={"cpus": 24.0, "mem": 24.0})
    title = " ".join([name, *(f"{key}={value:g}" for key, value in parameters.items())])
    waits[title] = dict(zip(trace.users, simulation.users.mean_wait_s, strict=True))
    print(f"{title:16}" + "".join(f"{wait:8.1f}" for wait in waits[title].values()))

assert waits["norm power=1"]["both"] > waits["drf"]["both"]

# %% [markdown]
# Which properties does the policy lack? A search finds a smallest counterexample.

# %%
counterexample = violation("norm", "single-machine", trials=30)
assert counterexample is not None
print(counterexample.text)
