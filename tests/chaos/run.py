"""Chaos on a real cluster: every ten seconds something happens, and checkers look on.

python -m tests.chaos.run [--minutes M] [--seed N] [--agents N] [--run-time S] [--keep FOLDER]

LONGSHARE_MESOS_HOME names a folder with a real Mesos and our module
(docs/lab/real-mesos.md).
"""

import argparse
import asyncio
import json
import os
import signal
import statistics
import sys
import tempfile
import time
import traceback
from collections import Counter, defaultdict
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

import grpc

from allocator.contract import admin_pb2 as admin
from allocator.contract.admin_pb2_grpc import AdminStub
from frameworks.harness.processes import Child
from tests.chaos.frameworks import ALL, HABITS, Framework
from tests.chaos.recorded import Life, follow
from tests.chaos.script import POLICIES, Happening, drawn
from tests.chaos.watcher import LOOK, Watcher
from tests.mesos.cluster import PAPERS_FORM, Cluster, mesos_version, nothing_running

RESOURCES = "cpus:2;mem:256;disk:64;ports:[1-9]"
FLAGS = (
    "--registry=replicated_log",
    "--quorum=1",
    "--agent_ping_timeout=2secs",
    "--max_agent_ping_timeouts=5",
    "--agent_reregister_timeout=10mins",
)
"""Flags of the master: agents reconnect quickly, and the master waits for them."""
AGENT_FLAGS = ("--executor_reregistration_timeout=15secs", "--registration_backoff_factor=100ms")
PATIENCE = 300.0
"""Seconds for all agents to register, on a machine of two cores."""
DRAINING = 60.0
"""Seconds to wait for an agent to be drained. The agent may stay draining if its tasks ended while
it was being killed. Agent and master resolve that themselves, and meanwhile no framework is offered
anything of the agent.
"""
ELECTED = "you lead now"
"""The reason for a snapshot request to a master that was known before its election."""
HEALING = 30.0
"""Seconds after the last happening, in which all goes on."""


class Chaos:
    """A cluster, its frameworks and watchers, and the faults to inject."""

    def __init__(self, cluster: Cluster, folder: Path, arguments: argparse.Namespace) -> None:
        self.watcher = Watcher()
        self.lives: list[Life] = []
        self.wrong: list[str] = []
        self.times: defaultdict[str, list[float]] = defaultdict(list)
        """Seconds from each event to the next offer, by kind of event."""
        self.refused: Counter[str] = Counter()
        """Calls of operators that failed, by kind of event."""
        self._cluster = cluster
        self._folder = folder
        self._arguments = arguments
        self._agents: list[Child] = []
        self._weights: dict[str, float] = {}
        self._offered = asyncio.Event()
        self._served = False
        """Whether the service answered the latest query."""
        self.script = drawn(arguments.seed, 60.0 * arguments.minutes, arguments.agents, HABITS)
        self.frameworks: list[Framework] = []

    def begin(self) -> None:
        """Start all."""
        self._start_service(POLICIES[0])
        self._cluster.start_master(*FLAGS)
        self._agents = [self._agent(number) for number in range(self._arguments.agents)]
        deadline = time.monotonic() + PATIENCE
        while self._cluster.metrics()["master/slaves_active"] < len(self._agents):
            assert time.monotonic() < deadline, "agents do not come up"
            time.sleep(1.0)
        for number, kind in enumerate(ALL):
            random = Random(1000 * self._arguments.seed + number)
            address, run_time = self._cluster.address, self._arguments.run_time
            self.frameworks.append(kind(address, random, run_time, self._hear))

    async def conduct(self) -> None:
        """Let everything happen, then heal."""
        begun = time.monotonic()
        working = [asyncio.create_task(framework.live()) for framework in self.frameworks]
        looking = asyncio.create_task(self._look_on())
        try:
            for happening in self.script:
                await asyncio.sleep(begun + happening.at - time.monotonic())
                await self._bring_about(happening)
            await asyncio.sleep(HEALING)
            for framework in self.frameworks:
                framework.over = True
            await asyncio.wait_for(asyncio.gather(*working), PATIENCE)
        finally:
            for task in (looking, *working):
                task.cancel()
            for ended in await asyncio.gather(looking, *working, return_exceptions=True):
                if isinstance(ended, Exception):
                    raise ended

    def end(self) -> None:
        """Stop the service, so that its record is complete."""
        self._cluster.service.stop()
        self._read_log()
        self.wrong += self.watcher.wrong
        for framework in self.frameworks:
            self.wrong += framework.wrong

    # Faults and changes.

    async def _bring_about(self, happening: Happening) -> None:
        handlers = {
            "service killed": self._service_killed,
            "service frozen": self._service_frozen,
            "policy changed": self._policy_changed,
            "agent killed": self._agent_killed,
            "agent drained": self._agent_drained,
            "agent flaps": self._agent_flaps,
            "master killed": self._master_killed,
            "quota changed": self._quota_changed,
            "weight changed": self._weight_changed,
        }
        print(f"{happening.at:6.0f} s  {happening.kind}", flush=True)
        begun = time.monotonic()
        await handlers[happening.kind](happening)
        self._offered.clear()
        async with asyncio.timeout(PATIENCE):
            await self._offered.wait()
        self.times[happening.kind].append(time.monotonic() - begun)

    async def _service_killed(self, happening: Happening) -> None:
        self._cluster.kill_service()
        self._read_log()
        await asyncio.sleep(happening.lasts)
        await asyncio.to_thread(self._start_service, happening.policy)

    async def _service_frozen(self, happening: Happening) -> None:
        process = self._cluster.service.process
        process.send_signal(signal.SIGSTOP)
        await asyncio.sleep(happening.lasts)
        process.send_signal(signal.SIGCONT)

    async def _policy_changed(self, happening: Happening) -> None:
        await asyncio.to_thread(self._cluster.service.stop)
        self._read_log()
        await asyncio.to_thread(self._start_service, happening.policy)

    async def _agent_killed(self, happening: Happening) -> None:
        self._agents[happening.agent].kill()
        await asyncio.sleep(happening.lasts)
        self._agents[happening.agent] = self._agent(happening.agent)

    async def _agent_flaps(self, happening: Happening) -> None:
        for _ in range(3):
            await self._agent_killed(happening)

    async def _agent_drained(self, happening: Happening) -> None:
        if mesos_version() < (1, 9):
            machine = {"hostname": f"agent-{happening.agent}", "ip": "127.0.0.1"}
            start = {"nanoseconds": time.time_ns() + 60 * 10**9}
            for windows in ([{"machine_ids": [machine], "unavailability": {"start": start}}], []):
                schedule = {"schedule": {"windows": windows}}
                kind = "UPDATE_MAINTENANCE_SCHEDULE"
                await self._operate(happening, kind, update_maintenance_schedule=schedule)
                await asyncio.sleep(happening.lasts)
            return
        agent = await self._agent_id(happening.agent)
        drain = {"agent_id": agent, "max_grace_period": {"nanoseconds": 10**9}}
        await self._operate(happening, "DRAIN_AGENT", drain_agent=drain)
        deadline = time.monotonic() + DRAINING
        back = {"agent_id": agent}
        while await self._operate(happening, "REACTIVATE_AGENT", reactivate_agent=back) != 200:
            if time.monotonic() >= deadline:
                self.refused[f"{happening.kind}: for good, it is one agent less from now on"] += 1
                return
            await asyncio.sleep(1.0)

    async def _master_killed(self, _happening: Happening) -> None:
        self._served = False
        self._cluster.kill_master()
        await asyncio.to_thread(self._cluster.start_master)

    async def _quota_changed(self, happening: Happening) -> None:
        role, cores = happening.role, float(happening.amount)
        guaranteed = self.watcher.guarantees
        if mesos_version() >= (1, 9):
            config: dict[str, Any] = {"role": role}
            if cores:
                config["guarantees"] = {"cpus": {"value": cores}}
                config["limits"] = {"cpus": {"value": 2 * cores}}
            call = {"force": True, "quota_configs": [config]}
            done = await self._operate(happening, "UPDATE_QUOTA", update_quota=call)
        elif role not in guaranteed:
            cores = max(cores, 1.0)  # a removal of absent quota crashes Mesos 1.8
            scalar = {"name": "cpus", "type": "SCALAR", "scalar": {"value": cores}}
            request = {"force": True, "role": role, "guarantee": [scalar]}
            done = await self._operate(happening, "SET_QUOTA", set_quota={"quota_request": request})
        else:
            cores = 0.0
            done = await self._operate(happening, "REMOVE_QUOTA", remove_quota={"role": role})
        if done == 200:
            guaranteed.pop(role, None)
            guaranteed.update({role: cores} if cores else {})

    async def _weight_changed(self, happening: Happening) -> None:
        infos = [{"role": happening.role, "weight": 1.0 + happening.amount}]
        await self._operate(happening, "UPDATE_WEIGHTS", update_weights={"weight_infos": infos})

    # Observers.

    def _hear(self, habit: str) -> None:
        self._offered.set()
        self.watcher.offered(habit)

    async def _look_on(self) -> None:
        before = time.monotonic()
        while True:
            await asyncio.sleep(LOOK)
            with suppress(OSError, ValueError):
                metrics = await asyncio.to_thread(self._cluster.metrics)
                state = await asyncio.to_thread(self._cluster.state)
                served = metrics.get("longshare/synchronised") == 1
                now = time.monotonic()
                passed = now - before if served and self._served else 0.0
                before, self._served = now, served
                self.watcher.look(state, self.frameworks, passed)
            if self.watcher.looks % 5 == 0:
                await asyncio.to_thread(self._ask_shares)

    def _ask_shares(self) -> None:
        life = self.lives[-1]
        with (
            grpc.insecure_channel(self._cluster.service.address) as channel,
            suppress(grpc.RpcError),
        ):
            reply = AdminStub(channel).Shares(admin.SharesRequest(), timeout=5.0)
            if reply.cluster.connected and life is self.lives[-1]:
                life.shares.append(reply)

    def _read_log(self) -> None:
        """Check the service's log for messages that must never appear."""
        for line in self._cluster.service.log.read_text().splitlines():
            entry = json.loads(line)
            disagrees = entry["event"] == "asking for a snapshot" and entry["reason"] != ELECTED
            if disagrees or entry["level"] not in {"info", "warning", "debug"}:
                self.wrong.append(f"{self.lives[-1].record.name}: the service says {line}")

    # Parts.

    def _start_service(self, policy: str) -> None:
        record = self._folder / f"events-{len(self.lives)}.log"
        settings = f"[policy]\n{policy}\n{PAPERS_FORM}"
        self._cluster.start_service(settings, f"--record={record}")
        self.lives.append(Life(len(self.lives), record))

    def _agent(self, number: int) -> Child:
        name = f"agent-{number}"
        return self._cluster.mesos.agent(self._cluster.address, name, RESOURCES, *AGENT_FLAGS)

    async def _agent_id(self, number: int) -> dict[str, str]:
        async with asyncio.timeout(PATIENCE):  # a newly elected master may not know the agent yet
            while True:
                state = await asyncio.to_thread(self._cluster.state)
                for agent in state["slaves"]:
                    if agent["hostname"] == f"agent-{number}":
                        return {"value": agent["id"]}
                await asyncio.sleep(1.0)

    async def _operate(self, happening: Happening, kind: str, **content: object) -> int:
        status, text = await self._cluster.operate(kind, **content)
        if status != 200:
            self.refused[f"{happening.kind}: {status} {text[:60]}"] += 1
        return status


def table(chaos: Chaos) -> str:
    """Return tables of faults, frameworks and findings."""
    lines = [f"{'what happened':16} {'times':>5}  seconds to an offer after it: median, most"]
    for kind, seconds in sorted(chaos.times.items()):
        middle, most = statistics.median(seconds), max(seconds)
        lines.append(f"{kind:16} {len(seconds):5}  {middle:6.2f} {most:6.2f}")
    lines.append(
        f"\n{'framework':12} {'offers':>6} {'tasks':>6} {'finished':>8} {'other ends':>10} "
        f"{'declined':>8} {'longest without an offer':>24}"
    )
    for client in chaos.frameworks:
        counts, longest = client.counts, chaos.watcher.longest.get(client.habit, 0.0)
        ends = sum(number for end, number in counts.items() if end.startswith("TASK_"))
        lines.append(
            f"{client.habit:12} {counts['offers']:6} {counts['tasks']:6} "
            f"{counts['TASK_FINISHED']:8} {ends - counts['TASK_FINISHED']:10} "
            f"{counts['declined']:8} {longest:22.1f} s"
        )
    followed = follow(chaos.lives)
    lines.append(
        f"\n{chaos.watcher.looks} looks at the master, {chaos.watcher.most_running} tasks at once; "
        f"{len(chaos.lives)} lives of the service, {followed.entries} entries decided again with "
        f"{followed.offers} offers, {followed.compared} answers to operators held against a twin"
    )
    lines += [f"an operator was refused {n} times: {answer}" for answer, n in chaos.refused.items()]
    chaos.wrong += followed.wrong
    lines += [f"WRONG: {complaint}" for complaint in chaos.wrong] or ["nothing wrong"]
    return "\n".join(lines)


def main(given: Sequence[str] | None = None) -> int:
    """Run the program; the exit status is 1 after a violation."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=60.0, help="for how long")
    parser.add_argument("--seed", type=int, default=1, help="decides what happens")
    parser.add_argument("--agents", type=int, default=40, help="how many")
    parser.add_argument("--run-time", type=float, default=20.0, help="seconds of a task")
    parser.add_argument("--keep", type=Path, help="a new folder for records and logs")
    arguments = parser.parse_args(given)
    if "LONGSHARE_MESOS_HOME" not in os.environ:
        parser.error(
            "LONGSHARE_MESOS_HOME must name a folder with a real Mesos (docs/lab/real-mesos.md)"
        )
    with tempfile.TemporaryDirectory(prefix="longshare-chaos-") as temporary:
        folder = arguments.keep or Path(temporary)
        folder.mkdir(exist_ok=True)
        with nothing_running(folder.resolve()) as cluster:
            chaos = Chaos(cluster, folder.resolve(), arguments)
            chaos.begin()
            print(
                f"{arguments.agents} agents of Mesos {'.'.join(map(str, mesos_version()))}",
                flush=True,
            )
            try:
                asyncio.run(chaos.conduct())
            except Exception:  # noqa: BLE001 - what was seen until then is told all the same
                chaos.wrong.append(f"it ended before its time: {traceback.format_exc()}")
            chaos.end()
            print(table(chaos))
    return int(bool(chaos.wrong))


if __name__ == "__main__":
    sys.exit(main())
