# %% [markdown]
# # When memory pays
#
# Memory helps users with bursts when other users always have tasks. The policy must remember for
# about the time between two bursts. Here, a workload is simulated with several half-lives. For
# your own workload, `longshare advise` does so.

# %%
import matplotlib.pyplot as plt
import numpy as np

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


def wait_of_bursts(trace: Trace, policy: str, **parameters: float | str) -> float:
    """Return the mean wait of users with bursts, in seconds."""
    users = simulate(trace, policy, parameters, capacity={"cpus": 16.0}).users
    return float(
        np.nanmean([w for u, w in zip(users.names, users.mean_wait_s, strict=True) if u[0] == "b"])
    )


trace = workload(pause=900.0)
half_lives = {"10 s": 10.0, "1 min": 60.0, "5 min": 300.0, "20 min": 1200.0, "80 min": 4800.0}
without_memory = wait_of_bursts(trace, "drf")
waits = [wait_of_bursts(trace, "sdrf", half_life=seconds) for seconds in half_lives.values()]

print("half-life   mean wait of bursts")
for name, wait in zip(["no memory", *half_lives], [without_memory, *waits], strict=True):
    print(f"{name:9}   {wait:6.1f} s")

# %%
_, axes = plt.subplots(figsize=(7, 3), layout="constrained")
axes.semilogx(list(half_lives.values()), waits, marker="o", label="sdrf")
axes.axhline(without_memory, linestyle="--", label="drf")
axes.set_xticks(list(half_lives.values()), half_lives)
axes.minorticks_off()
axes.set_xlabel("half-life")
axes.set_ylabel("mean wait of bursts (s)")
axes.set_ylim(bottom=0)
axes.legend()
plt.show()

# %% [markdown]
# The wait is shortest in the middle. A policy that forgets at once has no memory. If the policy
# forgets nothing, an old burst counts as much as a recent burst. Memory has an effect only while
# the cluster is full: otherwise, no task waits.

# %%
assert min(waits) < min(without_memory, waits[0], waits[-1])
