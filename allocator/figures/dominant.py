"""Figure 2.6 of Sadok's thesis: DRF for two users with different dominant resources."""

from fractions import Fraction

from allocator.figures.figure import Line, Panel, PaperFigure
from allocator.theory.divisible.optimum import create, optimum
from allocator.theory.divisible.problem import Machine, Problem, ProblemUser

_CAPACITY = {"cpu": Fraction(9), "mem": Fraction(180)}
_DEMANDS = {
    "A": {"cpu": Fraction(4), "mem": Fraction(160)},
    "B": {"cpu": Fraction(9), "mem": Fraction(30)},
}


def dominant_shares() -> PaperFigure:
    """Compute Figure 2.6 of Sadok's thesis: cores and gigabytes of two users under DRF."""
    problem = Problem(
        machines=(Machine(name="all", resources=_CAPACITY),),
        users=tuple(ProblemUser(name=name, demand=demand) for name, demand in _DEMANDS.items()),
    )
    tasks = {
        name: Fraction(part.tasks)
        for name, part in optimum(problem, create("drf", {})).users.items()
    }
    held = {
        name: {resource: tasks[name] * amount for resource, amount in demand.items()}
        for name, demand in _DEMANDS.items()
    }
    shares = {
        resource: tuple(held[name][resource] / _CAPACITY[resource] for name in held)
        for resource in _CAPACITY
    }
    return PaperFigure(
        name="thesis-2.6",
        source="thesis, Figure 2.6",
        title="DRF for two users with different dominant resources",
        columns=("user", "demands cores", "demands GB", "has cores", "has GB", "dominant share"),
        rows=tuple(
            (
                name,
                *_DEMANDS[name].values(),
                *held[name].values(),
                max(share[index] for share in shares.values()),
            )
            for index, name in enumerate(held)
        ),
        panels=(
            Panel(
                "DRF",
                "user",
                "part of all there is",
                tuple(Line(resource, tuple(held), part) for resource, part in shares.items()),
                kind="bars",
            ),
        ),
        ours="the cluster's size, 9 cores and 180 GB: only this size gives the thesis's parts "
        "under DRF",
    )
