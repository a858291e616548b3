"""Weights, commitments, machines and constraints in files next to a comma-separated trace."""

from pathlib import Path

import numpy as np
import pytest

from allocator.simulation import reference, store
from allocator.simulation.formats import csv
from allocator.simulation.setting import Setting, SettingError
from allocator.simulation.trace import MachineClass, TraceError
from tests.simulation.traces import same

TASKS = """submitted_s,runtime_s,user,cpus,mem,machines
0,9,ann,1,1,
0,9,bob,1,2,disk=ssd
1,9,bob,1,2,disk=ssd & rack=1|big
1,9,cid,1,2,big|small
1,9,cid,1,2,hude
"""
MACHINES = """machine,count,mem,cpus,disk,rack
big,2,8,4,hdd,
small,,2,1,ssd,1
other,1,2,1,ssd,2
"""
USERS = "user,weight,owes,owes_mem\nbob,2.5,0.25,0.5\nidle,,1,\n"


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path, Path]:
    for name, text in (("tasks", TASKS), ("users", USERS), ("machines", MACHINES)):
        (tmp_path / name).write_text(text)
    return tmp_path / "tasks", tmp_path / "users", tmp_path / "machines"


def test_attributes_of_users_and_machines_are_in_the_trace_and_survive_storage(
    files: tuple[Path, Path, Path],
) -> None:
    tasks, users, machines = files
    conversion = csv.convert(tasks, users, machines)
    trace = conversion.trace
    assert trace.machines == (
        MachineClass("big", 2, (4.0, 8.0), {"disk": "hdd"}),
        MachineClass("small", 1, (1.0, 2.0), {"disk": "ssd", "rack": "1"}),
        MachineClass("other", 1, (1.0, 2.0), {"disk": "ssd", "rack": "2"}),
    )
    assert [trace.constraints[c] if c >= 0 else None for c in trace.constraint] == [
        None,
        (1, 2),
        (0, 1),
        (0, 1),
    ]
    assert trace.users == ("ann", "bob", "cid", "idle")
    assert trace.weights == (1.0, 2.5, 1.0, 1.0)
    assert trace.commitments == ((0.0, 0.0), (0.25, 0.5), (0.0, 0.0), (1.0, 1.0))
    [(reason, where)] = [(reason, line) for reason, _file, line in conversion.left_out]
    assert (reason, where) == ("names machines or an attribute that do not exist", 6)
    store.write(trace, tasks.with_name("t"))
    assert same(store.read(tasks.with_name("t")), trace)


@pytest.mark.parametrize(
    ("name", "text", "complaint"),
    [
        ("users", "user,weigth\nann,2\n", "a column 'weigth'"),
        ("users", "user,weight\nann,2\nann,3\n", "users:3: user 'ann' appears twice"),
        ("users", "user,weight\nann,-1\n", "users:2: weight '-1' is not a finite number"),
        ("users", "user,weight\nann,0\n", "'ann': the weight 0.0 is not a number from 1e-06"),
        ("users", "user,weight\nann\n", "users:2: 1 fields, not 2"),
        ("machines", "machine,cpus\nbig,4\n", "has no column mem"),
        ("machines", "machine,count,cpus,mem\nbig,1.5,4,8\n", "count 1.5 is not a whole number"),
        ("machines", "machine,cpus,mem\nbig,x,8\n", "machines:2: cpus 'x' is not a finite number"),
        (
            "machines",
            "machine,cpus,mem,CPU\nbig,4,8,4\n",
            "the resource cpus and a column CPU; rename",
        ),
    ],
)
def test_a_line_that_cannot_be_used_is_named(
    files: tuple[Path, Path, Path], name: str, text: str, complaint: str
) -> None:
    tasks, users, machines = files
    tasks.with_name(name).write_text(text)
    with pytest.raises(TraceError, match=complaint):
        csv.convert(tasks, users, machines)


def test_a_slip_in_the_value_of_a_constraint_is_named(files: tuple[Path, Path, Path]) -> None:
    tasks, users, machines = files
    tasks.write_text(TASKS.replace("disk=ssd &", "disk=sdd &").replace("|big\n", "\n"))
    reasons = {line: reason for reason, _file, line in csv.convert(tasks, users, machines).left_out}
    assert reasons == {
        4: "no machine meets its constraints",
        6: "names machines or an attribute that do not exist",
    }


def test_probable_mistakes_in_the_file_of_users_are_named(files: tuple[Path, Path, Path]) -> None:
    tasks, users, machines = files
    users.write_text("user,weight,owes\nANN,2,\nann,1,50\n")
    assert [*csv.convert(tasks, users, machines).assumed] == [
        ("no task is of this user, which counts with its weight", users.name, 2),
        ("owes is more than 1, which is all of a resource", users.name, 3),
    ]


def test_constraints_want_machines(files: tuple[Path, Path, Path]) -> None:
    with pytest.raises(TraceError, match="--machines"):
        csv.convert(files[0])


def test_weights_and_commitments_decide_the_order(tmp_path: Path) -> None:
    tasks = tmp_path / "tasks"
    tasks.write_text("submitted_s,runtime_s,user,cpus\n" + "0,5,ann,1\n" * 4 + "0,5,bob,1\n" * 4)
    trace = csv.convert(tasks).trace

    def first_two(**options: dict[str, float]) -> list[str]:
        setting = Setting("sdrf", {"half_life": 3600.0}, (2.0,), **options)  # type: ignore[arg-type]
        started = reference.simulate(trace, setting).started
        # At the first instant, ann's tasks are first.
        first = np.argsort(started, kind="stable")[2:4]
        return [trace.users[trace.user[task]] for task in first]

    assert sorted(first_two()) == ["ann", "bob"]
    assert first_two(owes={"bob": 3.0}) == ["ann", "ann"]
    assert first_two(owes={"ann": 3.0}) == ["bob", "bob"]
    assert first_two(weights={"bob": 1000.0}) == ["bob", "bob"]
    with pytest.raises(SettingError, match="user 'eve': the trace has no such user"):
        first_two(weights={"eve": 2.0})
    with pytest.raises(SettingError, match="'bob': the weight 0 is not"):
        first_two(weights={"bob": 0.0})
