"""Each program of the package `bench` runs to its end at its smallest size."""

import os
from pathlib import Path

import pytest

from tests.forks import longshare

ROOT = Path(__file__).parents[2]
PROGRAMS = sorted(path.stem for path in (ROOT / "bench").glob("*.py"))
SMALL_CLUSTER = ("--agents=4", "--frameworks=2", "--rounds=2")
SMALLEST = {
    "compiled": ("--answer", "--events=100"),
    "counts": ("--help",),  # test_counts.py runs it
    "decline_offers": SMALL_CLUSTER,
    "filling": ("--cases=0", "--agents=4", "--repeat=1"),
    "guards": SMALL_CLUSTER,
    "holding": ("--tasks=40", "--seeds=1", "--loads=0.8"),
    "latency": ("--sizes=4x2", "--seconds=1", "--warm-up=0", "--rate=50"),
    "live_tree": ("--users=2", "--seconds=0"),
    "memory": ("--cases=1",),
    "onlookers": (*SMALL_CLUSTER, "--messages=2", "--events=100"),
    "optimum": ("--users=2", "--classes=4", "--machines=8"),
    "policies": ("--users=2", "--seconds=0"),
    "properties": ("--trials=1", "drf"),
    "ratios": ("--agents=4", "--events=100", "--rounds=1", "--seconds=0"),
    "real_mesos": (),  # skips itself without LONGSHARE_MESOS_HOME
    "service": (*SMALL_CLUSTER, "--events=100"),
    "simulation": ("--tasks=1000", "--users=2", "--tasks-of-users=1000"),
    "slurm": ("--pending=100", "--running=100", "--polls=2"),
    "slurm_commands": ("--tasks=2", "--repeats=1"),
    "stock": (),  # skips itself without --home
}
"""Arguments of each program for its smallest size."""


def run(program: str, *arguments: str) -> str:
    environment = {name: value for name, value in os.environ.items() if name != _MESOS}
    done = longshare("-m", f"bench.{program}", *arguments, given="\n", env=environment)
    assert done.returncode == 0, done.stderr
    return done.stdout


_MESOS = "LONGSHARE_MESOS_HOME"


@pytest.mark.slow
@pytest.mark.parametrize("program", PROGRAMS)
def test_each_program_runs_at_its_smallest_size(program: str) -> None:
    assert program in SMALLEST, "add the arguments of the program's smallest size"
    assert run(program, *SMALLEST[program])


@pytest.mark.slow
def test_guards_are_also_measured_in_whole_services() -> None:
    assert "event" in run("guards", "--service", *SMALL_CLUSTER, "--turns=1")
