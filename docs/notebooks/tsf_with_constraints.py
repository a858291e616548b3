# %% [markdown]
# # Task Share Fairness with constraints
#
# Three of nine machines have a GPU. The user "picky" needs machines with a GPU; the users "liberal"
# and "other" use all machines. Which allocation is fair?

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
optima = {name: optimum(PROBLEM, name) for name in ("tsf", "cdrf")}
print("tasks    picky  liberal  other  proved")
for name, allocation in optima.items():
    tasks = {user: float(part.tasks) for user, part in allocation.users.items()}
    proved = "yes" if allocation.exact else "no"
    print(f"{name:5} {tasks['picky']:8.2f} {tasks['liberal']:8.2f} {tasks['other']:6.2f}  {proved}")

# %% [markdown]
# TSF divides a user's tasks by the tasks that it could run alone *without* its constraints, so a
# user gains nothing from a false constraint. CDRF divides by the tasks that the user could run
# alone with its constraints. So a task of "picky" weighs three times as much under CDRF.

# %%
assert optima["tsf"].users["picky"].tasks > optima["cdrf"].users["picky"].tasks
assert optima["tsf"].exact

# %% [markdown]
# Does "liberal" gain from a false claim that it needs a GPU?

# %%
users = [dict(user) for user in PROBLEM["users"]]
users[1]["machines"] = ["gpu"]
false_claim = optimum(PROBLEM | {"users": users}, "tsf")
honest, dishonest = (shared.users["liberal"].tasks for shared in (optima["tsf"], false_claim))
print(f"tasks of liberal: {float(honest):.2f} without the claim, {float(dishonest):.2f} with it")
assert dishonest <= honest

# %% [markdown]
# The simulator places whole tasks on the same machines, one after the other. With `skip`, it
# considers the next user if the first task fits on no permitted machine. Until 10 s, a fourth user
# has all machines, so all others wait when they become free.

# %%
machines = [MachineClass("plain", 6, (8.0,)), MachineClass("gpu", 3, (8.0,))]
tasks_of_all = [Task("before", 0.0, 10.0, {"cpus": 8}) for _ in range(9)]
tasks_of_all += [Task("picky", 1.0, 60.0, {"cpus": 1}, machines=["gpu"]) for _ in range(60)]
tasks_of_all += [Task("liberal", 1.0, 60.0, {"cpus": 1}) for _ in range(120)]
tasks_of_all += [Task("other", 1.0, 60.0, {"cpus": 2}) for _ in range(60)]
trace = make_trace(tasks_of_all, machines)
simulation = simulate(trace, "tsf", blocking="skip")
first = simulation.outcome.started == 10_000_000
running = {u: int((trace.user[first] == number).sum()) for number, u in enumerate(trace.users)}
print("tasks that start at 10 s:", running)
assert running == {"before": 0, "picky": 24, "liberal": 24, "other": 12}
