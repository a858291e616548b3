"""Figures of a user B that arrives in a cluster used by A alone, under DRF and under SDRF.

The figures show the divisible optimum over time. For two users with equal demands there is a closed
form, with which tests compare the result. Let C be A's commitment when B arrives. A's commitment
then decays as C e^(-t/τ), and B's is C (e^(-t/τ) - e^(-3t/2τ)). So o_B = 1/2 + C/2 e^(-3t/2τ).
"""

from itertools import pairwise

from allocator.fairness.commitment import time_constant
from allocator.figures.figure import Line, Panel, PaperFigure
from allocator.theory.divisible import FluidTrajectory, FluidUser, fluid

DELTA = 1.0 - 1e-6
COMES = 1_000_000.0
"""Seconds for which A is alone."""
WORK = 250_000.0
"""Work of B on arrival: seconds of the whole cluster."""
END = 1_800_000.0
STEP = 2_000.0
_NEEDS = (1.0, 0.5)
_RESOURCES = ("CPU", "memory")
_DAY = 86_400.0


def trajectory(tau: float | None) -> FluidTrajectory:
    """Compute the allocations and commitments of users A and B over time, with divisible tasks.

    Args:
        tau: Time constant of SDRF in seconds. None: DRF.
    """
    users = [FluidUser(_NEEDS), FluidUser(_NEEDS, start=COMES, work=WORK)]
    return fluid(users, tau=tau, end=END, step=STEP)


def finished(course: FluidTrajectory) -> float:
    """Return the time in seconds at which user B has done all its work."""
    return next(
        end
        for (_begin, end), (held, later) in zip(
            pairwise(course.times), pairwise(course.allocations), strict=True
        )
        if held[1][0] > 0.0 and later[1][0] == 0.0
    )


def under_drf() -> PaperFigure:
    """Compute Fig. 1 of the SDRF paper (4.1 of Sadok's thesis): the arrival of B under DRF."""
    return _figure("sdrf-1", "Stateful DRF, Fig. 1; thesis, Figure 4.1", "DRF", None)


def under_sdrf() -> PaperFigure:
    """Compute Fig. 3 of the SDRF paper (4.8 of Sadok's thesis): the arrival of B under SDRF."""
    tau = time_constant(DELTA)
    return _figure("sdrf-3", "Stateful DRF, Fig. 3; thesis, Figure 4.8", "SDRF", tau)


def _figure(name: str, source: str, policy: str, tau: float | None) -> PaperFigure:
    course = trajectory(tau)
    first = next(index for index, time in enumerate(course.times) if time >= COMES)
    end_of_b = finished(course)
    indices = sorted(
        {0, first - 1, first, *range(first, len(course.times), 50), course.times.index(end_of_b)}
    )
    rows = tuple(
        (course.times[index] / _DAY, *course.allocations[index][0], *course.allocations[index][1])
        for index in indices
    )
    return PaperFigure(
        name=name,
        source=source,
        title=f"B comes after A has been alone for long: {policy}",
        columns=("day", *(f"{user}'s {resource}" for user in "AB" for resource in _RESOURCES)),
        rows=rows,
        panels=tuple(_panel(course, resource) for resource in range(len(_RESOURCES))),
        ours="the time that A is alone (10⁶ s), the size of B's work (a quarter of that time on "
        "the whole cluster), and the number of users, two",
        facts={
            "B's first part of the CPU": course.allocations[first][1][0],
            "days until B has finished": (end_of_b - COMES) / _DAY,
            "days of the whole CPU that A has had at the end": _total(course, 0) / _DAY,
        },
    )


def _panel(course: FluidTrajectory, resource: int) -> Panel:
    days = tuple(time / _DAY for time in course.times)
    lines = tuple(
        Line(f"user {name}", days, tuple(held[user][resource] for held in course.allocations))
        for user, name in enumerate("AB")
    )
    return Panel(_RESOURCES[resource], "days", "share of the resource", lines, kind="steps")


def _total(course: FluidTrajectory, user: int) -> float:
    ends = [*course.times[1:], END]
    return sum(
        held[user][0] * (end - start)
        for start, end, held in zip(course.times, ends, course.allocations, strict=True)
    )
