"""What the embedded master says of itself at `/state`, `/metrics/snapshot` and the like.

Keys and shapes are Mesos 1.8's; `master/uptime_secs` is in the master's own (virtual) time.
"""

from collections import Counter
from collections.abc import Iterable
from typing import Any

from allocator.contract import mesos_pb2 as mesos
from frameworks.local_mesos import scheduler_pb2 as v1
from frameworks.local_mesos.bag import Bag, Resource
from frameworks.local_mesos.master import MESOS_VERSION, Master
from frameworks.local_mesos.state import TERMINAL, Agent, Framework, Task

_SCALARS = ("cpus", "mem", "disk", "gpus")


def version() -> dict[str, Any]:
    """Answer `/version`."""
    return {
        "version": MESOS_VERSION,
        "build_user": "longshare",
        "build_date": "",
        "build_time": 0.0,
    }


def state(master: Master) -> dict[str, Any]:
    """Answer `/state`."""
    return {
        "version": MESOS_VERSION,
        "id": master.id,
        "hostname": "localhost",
        "start_time": master.started,
        "elected_time": master.started,
        "activated_slaves": sum(agent.active for agent in master.agents.values()),
        "deactivated_slaves": sum(not agent.active for agent in master.agents.values()),
        "slaves": agents(master),
        "frameworks": [_framework(framework) for framework in master.frameworks.values()],
        "completed_frameworks": [_framework(framework) for framework in master.completed.values()],
        "orphan_tasks": [],
        "unregistered_frameworks": [],
    }


def state_summary(master: Master) -> dict[str, Any]:
    """Answer `/state-summary`: who holds how much, without the tasks one by one."""
    return {
        "hostname": "localhost",
        "slaves": [
            {"id": agent.id, "hostname": agent.hostname, "resources": _amounts(agent.total)}
            for agent in master.agents.values()
        ],
        "frameworks": [
            {
                "id": framework.id,
                "name": framework.info.name,
                "active": framework.connected,
                "connected": framework.connected,
                "used_resources": _amounts(_used([framework])),
                "offered_resources": _amounts(
                    r for offer in framework.offers.values() for r in offer.resources
                ),
                **Counter(v1.TaskState.Name(task.state) for task in framework.tasks.values()),
            }
            for framework in master.frameworks.values()
        ],
    }


def agents(master: Master) -> list[dict[str, Any]]:
    """Answer `/slaves`."""
    return [_agent(master, agent) for agent in master.agents.values()]


def metrics(master: Master) -> dict[str, float]:
    """Answer `/metrics/snapshot`."""
    tasks = [task for f in master.frameworks.values() for task in f.tasks.values()]
    states = dict.fromkeys(("staging", "starting", "running", "killing"), 0)
    for task in tasks:
        if task.state not in TERMINAL:
            states[_state_name(task)] += 1
    total = _amounts(r for agent in master.agents.values() for r in agent.total)
    used = _amounts(_used(master.frameworks.values()))
    shown: dict[str, float] = {
        "master/uptime_secs": master.clock.now - master.started,
        "master/elected": 1,
        "master/slaves_active": sum(agent.active for agent in master.agents.values()),
        "master/slaves_connected": sum(agent.active for agent in master.agents.values()),
        "master/slaves_disconnected": sum(not agent.active for agent in master.agents.values()),
        "master/frameworks_active": sum(f.connected for f in master.frameworks.values()),
        "master/frameworks_connected": sum(f.connected for f in master.frameworks.values()),
        "master/frameworks_disconnected": sum(not f.connected for f in master.frameworks.values()),
        "master/outstanding_offers": len(master.offers),
    }
    for name in _SCALARS:
        all_of_it, taken = total[name], used[name]
        shown[f"master/{name}_total"] = all_of_it
        shown[f"master/{name}_used"] = taken
        shown[f"master/{name}_percent"] = taken / all_of_it if all_of_it else 0.0
    shown |= {f"master/tasks_{name}": number for name, number in states.items()}
    for ended in ("finished", "failed", "killed", "lost", "error", "dropped", "gone"):
        shown[f"master/tasks_{ended}"] = master.counters[f"tasks_{ended}"]
    for name, number in master.counters.items():
        if name.startswith("messages_"):
            shown[f"master/{name}"] = number
    shown["longshare/offers_rejected_total"] = master.counters["offers_rejected"]
    return shown


def _used(frameworks: Iterable[Framework]) -> Iterable[Resource]:
    for framework in frameworks:
        for task in framework.tasks.values():
            if task.held:
                yield from task.resources
        for executor in framework.executors.values():
            yield from executor.resources


def _amounts(resources: Iterable[Resource]) -> dict[str, Any]:
    """Write resources as Mesos's HTTP endpoints do."""
    amounts: dict[str, Any] = dict.fromkeys(_SCALARS, 0.0)
    others = []
    for resource in resources:
        if resource.type == mesos.Value.SCALAR:
            amounts[resource.name] = amounts.get(resource.name, 0.0) + resource.scalar.value
        else:
            others.append(resource)
    for resource in Bag(others).resources():
        intervals = (f"{i.begin}-{i.end}" for i in resource.ranges.range)
        amounts[resource.name] = f"[{', '.join(intervals)}]"
    return amounts


def _agent(master: Master, agent: Agent) -> dict[str, Any]:
    held = [
        (place, resources)
        for framework in master.frameworks.values()
        for place, _, resources in _used_by_place(framework)
    ]
    offered = (r for o in master.offers.values() if o.agent == agent.id for r in o.resources)
    return {
        "id": agent.id,
        "hostname": agent.hostname,
        "port": agent.port,
        "pid": f"slave(1)@127.0.0.1:{agent.port}",
        "active": agent.active,
        "version": MESOS_VERSION,
        "attributes": {a.name: a.text.value or a.scalar.value for a in agent.attributes},
        "resources": _amounts(agent.total),
        "used_resources": _amounts(r for place, rs in held if place == agent.id for r in rs),
        "offered_resources": _amounts(offered),
    }


def _used_by_place(framework: Framework) -> Iterable[tuple[str, str, list[Resource]]]:
    for task in framework.tasks.values():
        if task.held:
            yield task.agent, task.role, task.resources
    for executor in framework.executors.values():
        yield executor.agent, executor.role, executor.resources


def _framework(framework: Framework) -> dict[str, Any]:
    running = [task for task in framework.tasks.values() if task.state not in TERMINAL]
    ended = [task for task in framework.tasks.values() if task.state in TERMINAL]
    used = _amounts(_used([framework]))
    offered = _amounts(r for offer in framework.offers.values() for r in offer.resources)
    return {
        "id": framework.id,
        "name": framework.info.name,
        "user": framework.info.user,
        "principal": framework.info.principal,
        "role": framework.info.role,
        "roles": sorted(framework.roles),
        "active": framework.connected,
        "connected": framework.connected,
        "failover_timeout": framework.info.failover_timeout,
        "registered_time": framework.registered,
        "capabilities": [
            _capability(capability.type) for capability in framework.info.capabilities
        ],
        "used_resources": used,
        "offered_resources": offered,
        "resources": _amounts(r for _, _, rs in framework.holdings() for r in rs),
        "tasks": [_task(task) for task in running],
        "completed_tasks": [_task(task) for task in (*framework.completed, *ended)],
        "executors": [
            {"executor_id": executor.id, "slave_id": executor.agent}
            for executor in framework.executors.values()
        ],
    }


def _capability(value: int) -> str:
    """Return a framework capability's name, or its number if it is newer than this list."""
    kinds = mesos.FrameworkInfo.Capability.Type
    return dict(zip(kinds.values(), kinds.keys(), strict=True)).get(value, str(value))  # type: ignore[call-overload, no-any-return]


def _task(task: Task) -> dict[str, Any]:
    return {
        "id": task.id,
        "name": task.info.name,
        "framework_id": task.framework,
        "slave_id": task.agent,
        "executor_id": task.executor or "",
        "state": v1.TaskState.Name(task.state),
        "role": task.role,
        "resources": _amounts(task.resources),
    }


def _state_name(task: Task) -> str:
    return v1.TaskState.Name(task.state).removeprefix("TASK_").lower()
