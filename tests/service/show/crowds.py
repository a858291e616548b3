"""A service with a thousand users that hold different amounts and have commitments."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from allocator.contract import allocator_pb2 as contract
from tests.cluster.master_side import SECOND, agent_call, framework_info, resources
from tests.service.served import Service, Stream, service

USERS = 1000
SETTINGS = (
    '[policy]\nname = "sdrf"\nhalf_life = "1h"\n[users]\ncounts_for = inf\n'
    '[[shadow]]\nname = "drf"\n'
)


def name(number: int) -> str:
    return f"user-{number:04}"


@contextmanager
def crowded_service(folder: Path, metrics: str = "127.0.0.1:0") -> Iterator[tuple[Service, Stream]]:
    """Run a service where each user has a framework.

    Every tenth user holds resources, and every hundredth user wants offers.
    """
    agents = [
        agent_call(
            f"s{number}",
            "cpus:8;mem:8192",
            {f"f{number}": resources(f"cpus:{number % 7 + 1};mem:1024", name(number))},
        )
        for number in range(0, USERS, 10)
    ]
    frameworks = [
        contract.AddFramework(
            framework_id=f"f{number}",
            info=framework_info(f"f{number}", name(number)),
            active=True,
            suppressed_roles=[name(number)] if number % 100 else [],
        )
        for number in range(USERS)
    ]
    with service(folder, SETTINGS, metrics=metrics) as running:
        stream = Stream(running.address)
        stream.open(agents=agents, frameworks=frameworks)
        for _ in range(5):
            stream.now_ns += 60 * SECOND
            stream.tell(tick=contract.Tick())
        yield running, stream
        stream.close()
