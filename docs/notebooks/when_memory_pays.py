# %% [markdown]
# # When memory pays
#
# Memory helps users who come in bursts beside others who are always there, as long as the policy
# remembers for about as long as it takes until they come again. How long is long enough? Try
# half-lives on a workload, or have `longshare advise` do it on yours.

# %%
import numpy as np
from matplotlib.figure import Figure

from allocator.api import Task, Trace, make_trace, simulate

random = np.random.default_rng(7)


def workload(pause: float) -> Trace:
    """Return two constant users and three users with random pauses between their bursts."""
    tasks = [
        Task(f"steady-{n}", 20.0 * t, 300.0, {"cpus": 1}) for n in range(2) for t in range(225)
    ]
    for n in range(3):
        when = float(random.uniform(0.0, pause))
        while when < 4500.0:
            tasks += [Task(f"burst-{n}", when, 30.0, {"cpus": 1}) for _ in range(40)]
            when += float(random.exponential(pause))
    return make_trace(tasks)


def waits_of_bursts(trace: Trace, policy: str, **parameters: float | str) -> float:
    """Return the mean wait of users with bursts, in seconds."""
    users = simulate(trace, policy, parameters, capacity={"cpus": 16.0}).users
    return float(
        np.nanmean([w for u, w in zip(users.names, users.mean_wait_s, strict=True) if u[0] == "b"])
    )


trace = workload(pause=900.0)
half_lives = [10.0, 60.0, 300.0, 1200.0, 4800.0]
forgetful = waits_of_bursts(trace, "drf")
waits = [waits_of_bursts(trace, "sdrf", half_life=half_life) for half_life in half_lives]
print(
    f"without memory {forgetful:.0f} s; with",
    dict(zip(half_lives, np.round(waits, 1), strict=True)),
)


# %%
def drawn() -> Figure:
    """Draw the waits over the half-life."""
    figure = Figure(figsize=(7, 3), layout="constrained")
    axes = figure.subplots()
    axes.semilogx(half_lives, waits, marker="o", label="sdrf")
    axes.axhline(forgetful, linestyle="--", label="drf")
    axes.set_xlabel("half-life (s)")
    axes.set_ylabel("bursts wait (s)")
    axes.legend()
    return figure


drawn()

# %% [markdown]
# It is shortest somewhere in the middle: what is forgotten at once is no memory, and if nothing
# is forgotten a burst of long ago counts as much as one of just now. All of it pays only where
# the cluster is full: with room to spare nobody waits.

# %%
assert min(waits) < min(forgetful, waits[0], waits[-1])
