# %% [markdown]
# # Task Share Fairness with constraints
#
# Nine machines, three of them with a GPU. A picky user needs a GPU's machine, a liberal one runs
# anywhere. What is fair?

# %%
from allocator.api import MachineClass, Task, make_trace, optimum, simulate

PROBLEM: dict[str, list[dict[str, object]]] = {
    "machines": [
        {"name": "plain", "resources": {"cpus": 8}, "count": 6},
        {"name": "gpu", "resources": {"cpus": 8}, "count": 3},
    ],
    "users": [
        {"name": "picky", "demand": {"cpus": 1}, "machines": ["gpu"]},
        {"name": "liberal", "demand": {"cpus": 1}},
        {"name": "other", "demand": {"cpus": 2}},
    ],
}
shared = {name: optimum(PROBLEM, name) for name in ("tsf", "cdrf")}
for name, allocation in shared.items():
    print(
        name,
        {user: float(part.tasks) for user, part in allocation.users.items()},
        "proved:",
        allocation.exact,
    )

# %% [markdown]
# TSF measures a user by what it could run alone *without* its constraints, so nobody gains by
# claiming some. CDRF measures by what it may use: there a task of the picky user weighs three
# times as much.

# %%
assert shared["tsf"].users["picky"].tasks > shared["cdrf"].users["picky"].tasks
assert shared["tsf"].exact

# %% [markdown]
# If the liberal user claims that it, too, needs GPUs:

# %%
users = [dict(user) for user in PROBLEM["users"]]
users[1]["machines"] = ["gpu"]
lied = optimum(PROBLEM | {"users": users}, "tsf")
print(
    "liberal runs",
    float(lied.users["liberal"].tasks),
    "instead of",
    float(shared["tsf"].users["liberal"].tasks),
)
assert lied.users["liberal"].tasks <= shared["tsf"].users["liberal"].tasks

# %% [markdown]
# Online, with whole tasks that are placed once: the simulator with the same machines. `skip`
# looks at the next user when the task of the first fits nowhere that it may run. Until 10 s
# somebody else has all machines, so that everybody waits when they become free.

# %%
machines = [MachineClass("plain", 6, (8.0,)), MachineClass("gpu", 3, (8.0,))]
tasks = [Task("before", 0.0, 10.0, {"cpus": 8}) for _ in range(9)]
tasks += [Task("picky", 1.0, 60.0, {"cpus": 1}, machines=["gpu"]) for _ in range(60)]
tasks += [Task("liberal", 1.0, 60.0, {"cpus": 1}) for _ in range(120)]
tasks += [Task("other", 1.0, 60.0, {"cpus": 2}) for _ in range(60)]
trace = make_trace(tasks, machines)
done = simulate(trace, "tsf", blocking="skip")
first = done.outcome.started == 10_000_000
running = {u: int((trace.user[first] == number).sum()) for number, u in enumerate(trace.users)}
print("tasks that run then:", running)
assert running == {"before": 0, "picky": 24, "liberal": 24, "other": 12}
