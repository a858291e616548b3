"""A scheduler in the style of pymesos's documentation, independent of Longshare."""

import sys
import threading
import uuid
from typing import Any

from addict import Dict
from pymesos import MesosSchedulerDriver, Scheduler, encode_data

TASK_CPU = 1
TASK_MEM = 32
FINISHED_BEFORE_LEAVING = 4


class MinimalScheduler(Scheduler):  # type: ignore[misc]  # pymesos is not typed
    def __init__(self, executor: Any) -> None:  # noqa: ANN401 - an addict
        self.executor = executor
        self.finished: set[str] = set()
        self.enough = threading.Event()

    def resourceOffers(self, driver: Any, offers: Any) -> None:  # noqa: ANN401, N802
        for offer in offers:
            cpus = self.amount(offer.resources, "cpus")
            mem = self.amount(offer.resources, "mem")
            if cpus < TASK_CPU + 0.1 or mem < TASK_MEM + 32:
                continue  # many simple schedulers keep such offers, too
            task = Dict()
            task.task_id.value = str(uuid.uuid4())
            task.agent_id.value = offer.agent_id.value
            task.name = f"task {task.task_id.value}"
            task.executor = self.executor
            task.data = encode_data(b"Hello from the test!")
            task.resources = [
                {"name": "cpus", "type": "SCALAR", "scalar": {"value": TASK_CPU}},
                {"name": "mem", "type": "SCALAR", "scalar": {"value": TASK_MEM}},
            ]
            driver.launchTasks(offer.id, [task], {"refuse_seconds": 5})

    def amount(self, resources: Any, name: str) -> float:  # noqa: ANN401
        return float(sum(r.scalar.value for r in resources if r.name == name))

    def statusUpdate(self, driver: Any, update: Any) -> None:  # noqa: ANN401, ARG002, N802
        print(update.task_id.value, update.state, flush=True)  # noqa: T201
        if update.state == "TASK_FINISHED":
            self.finished.add(update.task_id.value)  # the update may be repeated
        if len(self.finished) >= FINISHED_BEFORE_LEAVING:
            self.enough.set()


def main(master: str) -> None:
    executor = Dict()
    executor.executor_id.value = "MinimalExecutor"
    executor.name = executor.executor_id.value
    executor.command.value = "python executor.py"
    executor.resources = [
        {"name": "mem", "type": "SCALAR", "scalar": {"value": 32}},
        {"name": "cpus", "type": "SCALAR", "scalar": {"value": 0.1}},
    ]
    framework = Dict()
    framework.user = "nobody"
    framework.name = "MinimalFramework"
    framework.hostname = "localhost"
    scheduler = MinimalScheduler(executor)
    driver = MesosSchedulerDriver(scheduler, framework, master, use_addict=True)
    thread = threading.Thread(target=driver.run, args=())
    thread.start()
    enough = scheduler.enough.wait(40)
    driver.stop()
    thread.join()
    sys.exit(0 if enough else 1)


if __name__ == "__main__":
    main(sys.argv[1])
