# %% [markdown]
# # Sharing over time
#
# The heavy user always has tasks. The light user submits a few tasks every ten minutes. Under DRF,
# the past does not count. Under Stateful DRF, the heavy user has a commitment for its use beyond
# its half, so the burst of the light user is served first.

# %%
import matplotlib.pyplot as plt

from allocator.api import Simulation, Task, make_trace, simulate

heavy = [Task("heavy", 0.0, 120.0, {"cpus": 1}) for _ in range(400)]
light = [Task("light", 600.0 * n, 120.0, {"cpus": 1}) for n in range(1, 5) for _ in range(12)]
trace = make_trace(heavy + light)


def under(policy: str, **parameters: float | str) -> Simulation:
    """Simulate 16 cores under a policy, with the users' shares over time."""
    return simulate(trace, policy, parameters, capacity={"cpus": 16.0}, over_time=True)


drf, sdrf = under("drf"), under("sdrf", half_life="20m")

# %% [markdown]
# The results are Arrow tables. How much shorter are the waits of the light user, and how much
# longer are the waits of the heavy user?

# %%
print("policy  user    mean wait")
for name, simulation in (("drf", drf), ("sdrf", sdrf)):
    for row in simulation.users_table().select(["user", "mean_wait_s"]).to_pylist():
        print(f"{name:7} {row['user']:6} {row['mean_wait_s']:8.1f} s")

# %% [markdown]
# Shares and commitments over time are NumPy arrays, with a row for each instant and a column for
# each user.

# %%
_, (share, commitment) = plt.subplots(2, 1, sharex=True, figsize=(9, 4.5), layout="constrained")
for name, simulation in (("drf", drf), ("sdrf", sdrf)):
    assert simulation.series is not None
    minutes = simulation.series.times / 60e6
    light_shares = simulation.series.shares[:, trace.users.index("light")]
    heavy_commitments = simulation.series.commitments[:, trace.users.index("heavy")]
    share.step(minutes, light_shares, where="post", label=name)
    commitment.plot(minutes, heavy_commitments, label=name)
share.set_ylabel("share of light")
share.set_ylim(bottom=0)
share.legend()
commitment.set_ylabel("commitment of heavy")
commitment.set_ylim(bottom=0)
commitment.set_xlabel("minutes")
plt.show()

# %%
number = trace.users.index("light")
assert sdrf.users.mean_wait_s[number] < drf.users.mean_wait_s[number]
