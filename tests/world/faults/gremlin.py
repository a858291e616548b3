"""Injects faults, as often as the plan demands, until stopped."""

import asyncio
from random import Random
from typing import TYPE_CHECKING

from tests.world.plan import POLICIES
from tests.world.service import Host

if TYPE_CHECKING:
    from tests.world.world import World

STEP = 1.0
"""Seconds between two draws of faults."""
RECOVERY = 30.0
"""Seconds after a fault in which lack of service is excused."""


class Gremlin:
    """Draws faults and injects them.

    Args:
        world: The world of the faults.
        chance: The random source.
    """

    def __init__(self, world: "World", chance: Random) -> None:
        self._world = world
        self._chance = chance
        self._until = 0.0
        self._resting = False
        self._under_way: set[asyncio.Task[None]] = set()
        self.together = 0
        """Instants at which several faults began."""
        self.kills = 0
        """Services killed."""
        self.honest_disk = True
        """Whether the disk has kept all acknowledged writes, and has had space."""

    @property
    def troubles(self) -> bool:
        """Whether a recent fault excuses lack of service."""
        return self._world.loop.instant < self._until

    async def run(self) -> None:
        """Inject faults until stopped."""
        often = [(name, rate) for name, rate in self._world.plan.faults.items() if rate]
        while not self._resting:
            await asyncio.sleep(STEP)
            if self._rests():
                return
            happen = [name for name, rate in often if self._chance.random() < rate * STEP / 60.0]
            while happen and self._chance.random() < self._world.plan.together:
                happen.append(self._chance.choice(often)[0])
            self.together += len(happen) > 1
            for name in happen:
                happening = asyncio.create_task(self.do(name))
                self._under_way.add(happening)
                happening.add_done_callback(self._under_way.discard)

    def _rests(self) -> bool:
        return self._resting

    def rest(self) -> None:
        """Stop faults, and undo the permanent ones."""
        self._resting = True
        world = self._world
        for host in world.hosts:
            host.disk.full, host.disk.slow, host.disk.lies = False, 0.0, False
        if world.ensemble is not None:
            world.ensemble.gone = world.ensemble.silent = world.ensemble.lags = False
        for machine in world.site.machines.values():
            machine.reachable = True
            if world.elected is not None:
                world.elected.register(machine)
                world.elected.set_reachable(machine.name, reachable=True)
        for scheduler in world.schedulers:
            scheduler.connected = not scheduler.gone
        for host in world.hosts:
            host.start_again()
        self._trouble()

    async def do(self, name: str) -> None:
        """Inject a fault."""
        self._world.note("fault:", name)
        self._trouble()
        await _FAULTS[name](self)

    def _trouble(self) -> None:
        self._until = self._world.loop.instant + RECOVERY

    async def _kill_service(self) -> None:
        host = self._host()
        self.kills += host.up
        host.kill(torn=self._chance.random() < 0.3)
        await self._start_again(host)

    async def _stop_service(self) -> None:
        host = self._host()
        await host.stop()
        await self._start_again(host)

    async def _start_again(self, host: Host) -> None:
        await asyncio.sleep(self._chance.choice([0.1, 2.0, 10.0]))
        host.start_again()
        self._trouble()

    def _host(self) -> Host:
        """Choose a host; of several hosts, preferably the host of the service in use."""
        hosts = self._world.hosts
        if len(hosts) == 1 or self._chance.random() < 0.6:
            return self._world.host
        return self._chance.choice(hosts)

    async def _lose_host(self) -> None:
        """A machine dies, with its service and its masters."""
        world, host = self._world, self._host()
        self.kills += host.up
        host.kill()
        for master in [master for master in world.masters if world.beside(master) is host]:
            world.restart_master(master)
        if world.elected is None:
            await self._elect()
        await self._start_again(host)

    async def _break_stream(self) -> None:
        master = self._chance.choice(self._world.masters)
        if master.link.stream is not None:
            master.link.stream.reset()

    async def _vanish_stream(self) -> None:
        master = self._chance.choice(self._world.masters)
        if master.link.stream is not None:
            master.link.stream.vanish()
        self._until += 30.0

    async def _fail_over(self) -> None:
        world, former = self._world, self._world.elected
        if former is not None:
            world.restart_master(former)
        await self._elect()

    async def _elect(self) -> None:
        world = self._world
        await asyncio.sleep(self._chance.uniform(0.5, 15.0))
        if world.elected is not None:
            return  # by another election meanwhile
        world.elect(self._chance.choice([master for master in world.masters if not master.deposed]))
        self._trouble()

    async def _depose_master(self) -> None:
        """Another master is elected, and the former leader continues unawares for a while."""
        world, former = self._world, self._world.elected
        rivals = [master for master in world.masters if master is not former and not master.deposed]
        if former is None or not rivals:
            return
        world.elect(self._chance.choice(rivals))
        await asyncio.sleep(self._chance.uniform(0.2, 15.0))
        if former in world.masters:
            world.restart_master(former)
        self._trouble()

    async def _jump_clock(self) -> None:
        world = self._world
        clocks = [
            *(host.clock for host in world.hosts),
            *(master.clock for master in world.masters),
        ]
        self._chance.choice(clocks).jump(self._chance.choice([-300.0, -2.0, 0.5, 10.0, 300.0]))

    async def _lose_agent(self) -> None:
        world = self._world
        if len(world.site.machines) > 1:
            world.remove_machine(self._chance.choice(list(world.site.machines)))
        await asyncio.sleep(self._chance.uniform(0.0, 10.0))
        world.add_machine()

    async def _disconnect_agent(self) -> None:
        world = self._world
        machine = self._chance.choice(list(world.site.machines.values()))
        machine.reachable = not machine.reachable
        if world.elected is not None:
            if machine.reachable:
                world.elected.register(machine)
            world.elected.set_reachable(machine.name, reachable=machine.reachable)

    async def _fill_disk(self) -> None:
        self._spoil("full", True)

    async def _lying_disk(self) -> None:
        self._spoil("lies", True)

    async def _slow_disk(self) -> None:
        self._spoil("slow", self._chance.choice([0.5, 3.0]))

    def _spoil(self, attribute: str, how: object, thing: object = None) -> None:
        """Make the disk, or another thing, fail in some way for a while."""
        world, thing = self._world, thing or self._host().disk
        setattr(thing, attribute, how)
        self.honest_disk = self.honest_disk and all(host.keeps for host in world.hosts)
        world.loop.call_later(
            self._chance.uniform(5.0, 40.0), setattr, thing, attribute, type(how)()
        )

    async def _lose_zookeeper(self) -> None:
        if self._world.ensemble is not None:
            self._spoil("gone", True, self._world.ensemble)

    async def _silent_zookeeper(self) -> None:
        if self._world.ensemble is not None:
            self._spoil("silent", True, self._world.ensemble)

    async def _lagging_zookeeper(self) -> None:
        if self._world.ensemble is not None:
            self._spoil("lags", True, self._world.ensemble)

    async def _expire_sessions(self) -> None:
        if self._world.ensemble is not None:
            self._world.ensemble.expired += 1

    async def _upgrade_service(self) -> None:
        host = self._host()
        await host.stop()
        host.settings["policy"] = self._chance.choice(POLICIES)
        await self._start_again(host)


_FAULTS = {
    "kill service": Gremlin._kill_service,
    "stop service": Gremlin._stop_service,
    "break stream": Gremlin._break_stream,
    "vanish stream": Gremlin._vanish_stream,
    "fail over": Gremlin._fail_over,
    "jump clock": Gremlin._jump_clock,
    "lose agent": Gremlin._lose_agent,
    "disconnect agent": Gremlin._disconnect_agent,
    "fill disk": Gremlin._fill_disk,
    "slow disk": Gremlin._slow_disk,
    "lying disk": Gremlin._lying_disk,
    "lose zookeeper": Gremlin._lose_zookeeper,
    "silent zookeeper": Gremlin._silent_zookeeper,
    "lagging zookeeper": Gremlin._lagging_zookeeper,
    "expire sessions": Gremlin._expire_sessions,
    "upgrade service": Gremlin._upgrade_service,
    "depose master": Gremlin._depose_master,
    "lose host": Gremlin._lose_host,
}
