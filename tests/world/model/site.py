"""Machines and their running tasks: the truth, whatever masters and services believe."""

from dataclasses import dataclass, field
from itertools import count

from allocator.contract import mesos_pb2 as mesos
from tests.world.model.amounts import Amounts, minus, total


@dataclass
class Task:
    """A running task."""

    id: str
    framework: str
    role: str
    amounts: Amounts


@dataclass
class Machine:
    """One agent."""

    name: str
    amounts: Amounts
    attributes: dict[str, str] = field(default_factory=dict)
    tasks: dict[str, Task] = field(default_factory=dict)
    garbled: bool = False
    """Whether its host name is not UTF-8."""
    reachable: bool = True
    """Whether the machine can reach masters."""

    @property
    def free(self) -> Amounts:
        """Resources in no task."""
        return minus(self.amounts, total(task.amounts for task in self.tasks.values()))

    def info(self) -> bytes:
        """Return the serialised agent info."""
        info = mesos.SlaveInfo(hostname=f"{self.name}.example", id=mesos.SlaveID(value=self.name))
        for name, text in self.attributes.items():
            attribute = info.attributes.add(name=name, type=mesos.Value.TEXT)
            attribute.text.value = text
        data = info.SerializeToString(deterministic=True)
        return data.replace(b".example", b"\xff\xfexample") if self.garbled else data


class Site:
    """All machines."""

    def __init__(self) -> None:
        self.machines: dict[str, Machine] = {}
        self.quotas: dict[str, tuple[Amounts, Amounts]] = {}
        """The masters' registry: role → its quota guarantee and limit."""
        self._serial = count(1)

    def run(self, machine: str, framework: str, role: str, amounts: Amounts) -> Task:
        """Begin a task."""
        task = Task(f"t{next(self._serial)}", framework, role, amounts)
        self.machines[machine].tasks[task.id] = task
        return task

    def end(self, machine: str, task: Task) -> bool:
        """End a task; return whether the task existed."""
        return self.machines[machine].tasks.pop(task.id, None) is not None
