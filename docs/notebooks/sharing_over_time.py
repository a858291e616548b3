# %% [markdown]
# # Sharing over time
#
# A heavy user always has tasks; a light one comes every ten minutes with a few. Under DRF both
# are equals whenever both want something. Under Stateful DRF the heavy one owes for what it had
# beyond its half, so the light one's burst goes first.

# %%
from matplotlib.figure import Figure

from allocator.api import Simulation, Task, make_trace, simulate

heavy = [Task("heavy", 0.0, 120.0, {"cpus": 1}) for _ in range(400)]
light = [Task("light", 600.0 * n, 120.0, {"cpus": 1}) for n in range(1, 5) for _ in range(12)]
trace = make_trace(heavy + light)


def under(policy: str, **parameters: float | str) -> Simulation:
    """Simulate 16 cores under a policy, and follow the users."""
    return simulate(trace, policy, parameters, capacity={"cpus": 16.0}, over_time=True)


drf, sdrf = under("drf"), under("sdrf", half_life="20m")

# %% [markdown]
# Waits, as Arrow tables. Who waits less, and what does it cost the other?

# %%
for name, done in (("drf", drf), ("sdrf", sdrf)):
    for row in done.users_table().select(["user", "mean_wait_s"]).to_pylist():
        print(f"{name:5} {row['user']:6} waits {row['mean_wait_s']:7.1f} s on average")

# %% [markdown]
# Shares and commitments over time, as NumPy arrays: a row for each instant, a column for each
# user.


# %%
def drawn() -> Figure:
    """Draw the light user's share under both policies, and the heavy user's commitment."""
    figure = Figure(figsize=(9, 4), layout="constrained")
    share, debt = figure.subplots(2, 1, sharex=True)
    for name, done in (("drf", drf), ("sdrf", sdrf)):
        assert done.series is not None
        minutes = done.series.times / 60e6
        share.plot(minutes, done.series.shares[:, trace.users.index("light")], label=name)
        debt.plot(minutes, done.series.commitments[:, trace.users.index("heavy")], label=name)
    share.set_ylabel("light holds")
    debt.set_ylabel("heavy owes")
    debt.set_xlabel("minutes")
    share.legend()
    return figure


drawn()

# %%
by_user = trace.users.index("light")
assert sdrf.users.mean_wait_s[by_user] < drf.users.mean_wait_s[by_user]
