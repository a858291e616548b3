"""JSON answers of the embedded master's endpoints, such as `/state` and `/metrics/snapshot`.

Keys and structure are those of Mesos 1.8; all times are the master's virtual time.
"""

from collections import Counter
from collections.abc import Iterable
from typing import Any

from allocator.contract import mesos_pb2 as mesos
from frameworks.local_mesos import MESOS_VERSION, wire
from frameworks.local_mesos import scheduler_pb2 as v1
from frameworks.local_mesos.bag import Resource, ResourceBag, text_of
from frameworks.local_mesos.master import Master
from frameworks.local_mesos.notation import downgraded
from frameworks.local_mesos.state import (
    TERMINAL,
    EmbeddedAgent,
    EmbeddedFramework,
    EmbeddedTask,
    Executor,
)

_CAPABILITIES = mesos.SlaveInfo.Capability.Type.keys()[1:]
_SCALARS = ("cpus", "gpus", "mem", "disk")
_STATES = v1.TaskState.items()
_ALIVE = ("staging", "starting", "running", "killing")
_ENDED = ("finished", "failed", "killed", "lost", "error", "dropped", "gone", "gone_by_operator")
_COUNTED = (
    "messages_register_framework",
    "messages_reregister_framework",
    "messages_launch_tasks",
    "messages_decline_offers",
    "messages_revive_offers",
    "messages_suppress_offers",
    "messages_kill_task",
    "messages_status_update",
    "messages_status_update_acknowledgement",
    "messages_reconcile_tasks",
    "messages_resource_request",
    "messages_framework_to_executor",
    "valid_status_update_acknowledgements",
    "invalid_status_update_acknowledgements",
    *(f"tasks_{state}" for state in _ENDED),
)


def version() -> dict[str, Any]:
    """Return the JSON answer to `/version`: version and build of Mesos."""
    return {
        "version": MESOS_VERSION,
        "build_user": "longshare",
        "build_date": "",
        "build_time": 0.0,
    }


def state(master: Master) -> dict[str, Any]:
    """Return the JSON answer to `/state`: agents, frameworks, tasks and offers in full."""
    host, port = master.address
    pid = f"master@{host}:{port}"
    return {
        **version(),
        "start_time": master.started,
        "elected_time": master.started,
        "id": master.id,
        "pid": pid,
        "hostname": host,
        "capabilities": [],
        "activated_slaves": sum(agent.active for agent in master.agents.values()),
        "deactivated_slaves": sum(not agent.active for agent in master.agents.values()),
        "unreachable_slaves": 0,
        "leader": pid,
        "leader_info": {"id": master.id, "pid": pid, "hostname": host, "port": port},
        "flags": {},
        "slaves": agents(master),
        "recovered_slaves": [],
        "frameworks": [_framework(framework) for framework in master.frameworks.values()],
        "completed_frameworks": [_framework(framework) for framework in master.completed.values()],
        "orphan_tasks": [],
        "unregistered_frameworks": [],
    }


def state_summary(master: Master) -> dict[str, Any]:
    """Return the JSON answer to `/state-summary`: resources and numbers of tasks, without tasks."""
    used, offered, states = _by_agent(master)
    running: dict[str, set[str]] = {agent_id: set() for agent_id in master.agents}
    for framework in master.frameworks.values():
        for task in framework.tasks.values():
            running[task.agent].add(framework.id)
    return {
        "hostname": master.address[0],
        "slaves": [
            {
                **_agent(agent, used[agent.id], offered[agent.id]),
                **_states(states[agent.id]),
                "framework_ids": sorted(running[agent.id]),
            }
            for agent in master.agents.values()
        ],
        "frameworks": [
            {
                **_framework_summary(framework),
                **_states(Counter(task.state for task in framework.tasks.values())),
                "slave_ids": sorted({task.agent for task in framework.tasks.values()}),
            }
            for framework in master.frameworks.values()
        ],
    }


def agents(master: Master) -> list[dict[str, Any]]:
    """Return the JSON answer to `/slaves`: all agents with their resources."""
    used, offered, _ = _by_agent(master)
    return [
        {
            **_agent(agent, used[agent.id], offered[agent.id]),
            **{
                f"{name}_resources_full": [wire.to_dict(downgraded(r)) for r in resources]
                for name, resources in (
                    ("used", ResourceBag(used[agent.id]).resources()),
                    ("offered", ResourceBag(offered[agent.id]).resources()),
                    ("unreserved", [r for r in agent.total if not r.reservations]),
                )
            },
        }
        for agent in master.agents.values()
    ]


def metrics(master: Master) -> dict[str, float]:
    """Return the JSON answer to `/metrics/snapshot`: metrics by name."""
    frameworks, all_agents = master.frameworks.values(), master.agents.values()
    states = Counter(task.state for framework in frameworks for task in framework.tasks.values())
    connected = sum(framework.connected for framework in frameworks)
    active = sum(agent.active for agent in all_agents)
    total = _amounts(r for agent in all_agents for r in agent.total)
    used = _amounts(
        r for framework in frameworks for _, _, resources in framework.used() for r in resources
    )
    values: dict[str, float] = {
        "uptime_secs": master.clock.now - master.started,
        "elected": 1,
        "slaves_active": active,
        "slaves_inactive": len(all_agents) - active,
        "slaves_connected": active,
        "slaves_disconnected": len(all_agents) - active,
        "frameworks_active": connected,
        "frameworks_inactive": 0,
        "frameworks_connected": connected,
        "frameworks_disconnected": len(frameworks) - connected,
        "outstanding_offers": len(master.offers),
    }
    for name in _SCALARS:
        values[f"{name}_total"] = total[name]
        values[f"{name}_used"] = used[name]
        values[f"{name}_percent"] = used[name] / total[name] if total[name] else 0.0
    for name in _ALIVE:
        values[f"tasks_{name}"] = states[v1.TaskState.Value(f"TASK_{name.upper()}")]
    values |= {name: master.counters.get(name, 0) for name in _COUNTED}
    return {f"master/{name}": value for name, value in values.items()} | {
        "longshare/offers_rejected_total": master.counters.get("offers_rejected", 0)
    }


def _by_agent(
    master: Master,
) -> tuple[dict[str, list[Resource]], dict[str, list[Resource]], dict[str, Counter[int]]]:
    """Summarise all frameworks by agent.

    Returns:
        By agent id: used resources; offered resources; and number of tasks in each state.
    """
    used: dict[str, list[Resource]] = {agent_id: [] for agent_id in master.agents}
    offered: dict[str, list[Resource]] = {agent_id: [] for agent_id in master.agents}
    states: dict[str, Counter[int]] = {agent_id: Counter() for agent_id in master.agents}
    for framework in master.frameworks.values():
        for agent_id, _, resources in framework.used():
            used[agent_id] += resources
        for task in framework.tasks.values():
            states[task.agent][task.state] += 1
    for offer in master.offers.values():
        offered[offer.agent] += offer.resources
    return used, offered, states


def _states(counted: Counter[int]) -> dict[str, int]:
    return {
        name: counted[number]
        for name, number in _STATES
        if number not in TERMINAL or counted[number]
    }


def _amounts(resources: Iterable[Resource]) -> dict[str, Any]:
    """Convert resources to JSON as Mesos's endpoints do: amounts by resource name.

    Scalars become numbers; ranges and sets become text.
    """
    amounts: dict[str, Any] = dict.fromkeys(_SCALARS, 0.0)
    non_scalars = []
    for resource in resources:
        if resource.type == mesos.Value.SCALAR:
            amounts[resource.name] = amounts.get(resource.name, 0.0) + resource.scalar.value
        else:
            non_scalars.append(resource)
    if non_scalars:
        for resource in ResourceBag(non_scalars).resources():
            amounts[resource.name] = text_of(resource).split(":", 1)[1]
    return amounts


def _agent(agent: EmbeddedAgent, used: list[Resource], offered: list[Resource]) -> dict[str, Any]:
    reserved: dict[str, list[Resource]] = {}
    for resource in agent.total:
        if resource.reservations:
            reserved.setdefault(resource.reservations[-1].role, []).append(resource)
    return {
        "id": agent.id,
        "hostname": agent.hostname,
        "port": agent.port,
        "attributes": {
            attribute.name: attribute.text.value or attribute.scalar.value
            for attribute in agent.attributes
        },
        "pid": f"slave(1)@127.0.0.1:{agent.port}",
        "registered_time": agent.registered,
        "resources": _amounts(agent.total),
        "used_resources": _amounts(used),
        "offered_resources": _amounts(offered),
        "reserved_resources": {role: _amounts(resources) for role, resources in reserved.items()},
        "unreserved_resources": _amounts(
            resource for resource in agent.total if not resource.reservations
        ),
        "active": agent.active,
        "version": MESOS_VERSION,
        "capabilities": _CAPABILITIES,
    }


def _framework_summary(framework: EmbeddedFramework) -> dict[str, Any]:
    names = mesos.FrameworkInfo.Capability.Type.values()
    return {
        "id": framework.id,
        "name": framework.info.name,
        "used_resources": _amounts(
            resource for _, _, resources in framework.used() for resource in resources
        ),
        "offered_resources": _amounts(
            resource for offer in framework.offers.values() for resource in offer.resources
        ),
        "capabilities": [
            mesos.FrameworkInfo.Capability.Type.Name(capability.type)
            for capability in framework.info.capabilities
            if capability.type in names  # capabilities newer than 1.8 are omitted
        ],
        "hostname": framework.info.hostname,
        "webui_url": framework.info.webui_url,
        "active": framework.connected,
        "connected": framework.connected,
        "recovered": False,
    }


def _framework(framework: EmbeddedFramework) -> dict[str, Any]:
    report = {
        **_framework_summary(framework),
        "user": framework.info.user,
        "failover_timeout": framework.info.failover_timeout,
        "checkpoint": framework.info.checkpoint,
        "registered_time": framework.registered,
        "unregistered_time": framework.unregistered,
        "principal": framework.info.principal,
        "resources": _amounts(
            resource for _, _, resources in framework.holdings() for resource in resources
        ),
        "role": framework.info.role,
        "roles": list(framework.info.roles),
        "tasks": [_task(task) for task in framework.tasks.values()],
        "unreachable_tasks": [],
        "completed_tasks": [_task(task) for task in framework.completed],
        "offers": [
            {"id": offer.id, "slave_id": offer.agent, "resources": _amounts(offer.resources)}
            for offer in framework.offers.values()
        ],
        "executors": [_executor(executor) for executor in framework.executors.values()],
    }
    del report["role" if framework.info.roles else "roles"]
    if framework.reregistered != framework.registered:
        report["reregistered_time"] = framework.reregistered
    return report


def _task(task: EmbeddedTask) -> dict[str, Any]:
    return {
        "id": task.id,
        "name": task.info.name,
        "framework_id": task.framework,
        "executor_id": task.executor or "",
        "slave_id": task.agent,
        "state": v1.TaskState.Name(task.state),
        "resources": _amounts(task.resources),
        "role": task.role,
        "statuses": [
            {"state": v1.TaskState.Name(status.state), "timestamp": status.timestamp}
            for status in task.statuses
        ],
    }


def _executor(executor: Executor) -> dict[str, Any]:
    return {
        "executor_id": executor.id,
        "name": executor.info.name,
        "framework_id": executor.info.framework_id.value,
        "resources": _amounts(executor.resources),
        "role": executor.role,
        "slave_id": executor.agent,
    }
