"""User B comes to a cluster that user A has had for long: under DRF, and under SDRF.

What is drawn is the divisible optimum followed through time. With two users who need the same
there is a closed form as well, which tests hold it against: where A owes C when B comes, A's
commitment fades as C e^(-t/τ), B's is C (e^(-t/τ) - e^(-3t/2τ)), and so o_B = 1/2 + C/2 e^(-3t/2τ).
"""

from itertools import pairwise

from allocator.fairness.commitment import time_constant
from allocator.figures.figure import Line, Panel, PaperFigure
from allocator.theory.divisible import FluidTrajectory, FluidUser, fluid

DELTA = 1.0 - 1e-6
COMES = 1_000_000.0
"""Seconds that A has been alone."""
WORK = 250_000.0
"""What B comes with: seconds of the whole cluster."""
END = 1_800_000.0
STEP = 2_000.0
_NEEDS = (1.0, 0.5)
_RESOURCES = ("CPU", "memory")
_DAY = 86_400.0


def trajectory(tau: float | None) -> FluidTrajectory:
    """Return how A and B stand over time; None: without memory (DRF)."""
    users = [FluidUser(_NEEDS), FluidUser(_NEEDS, start=COMES, work=WORK)]
    return fluid(users, tau=tau, end=END, step=STEP)


def finished(run: FluidTrajectory) -> float:
    """Return when B has done its work, seconds."""
    return next(
        after
        for (_at, after), (held, later) in zip(
            pairwise(run.times), pairwise(run.allocations), strict=True
        )
        if held[1][0] > 0.0 and later[1][0] == 0.0
    )


def under_drf() -> PaperFigure:
    """Return Fig. 1 of the SDRF paper (4.1 of the thesis)."""
    return _figure("sdrf-1", "Stateful DRF, Fig. 1; thesis, Figure 4.1", "DRF", None)


def under_sdrf() -> PaperFigure:
    """Return Fig. 3 of the SDRF paper (4.8 of the thesis)."""
    tau = time_constant(DELTA)
    return _figure("sdrf-3", "Stateful DRF, Fig. 3; thesis, Figure 4.8", "SDRF", tau)


def _figure(name: str, source: str, policy: str, tau: float | None) -> PaperFigure:
    run = trajectory(tau)
    first = next(i for i, at in enumerate(run.times) if at >= COMES)
    done = finished(run)
    shown = sorted({0, first - 1, first, *range(first, len(run.times), 50), run.times.index(done)})
    rows = tuple(
        (run.times[i] / _DAY, *run.allocations[i][0], *run.allocations[i][1]) for i in shown
    )
    return PaperFigure(
        name=name,
        source=source,
        title=f"B comes after A has been alone for long: {policy}",
        columns=("day", *(f"{user}'s {r}" for user in "AB" for r in _RESOURCES)),
        rows=rows,
        panels=tuple(_panel(run, resource) for resource in range(len(_RESOURCES))),
        ours="how long A is alone (10⁶ s), how much B brings (a quarter of that for the whole "
        "cluster), and that these two are all users there are: the text has no times",
        facts={
            "B gets of the CPU at first": run.allocations[first][1][0],
            "B is done after, days": (done - COMES) / _DAY,
            "A has had of the CPU when all is over, days": _total(run, 0) / _DAY,
        },
    )


def _panel(run: FluidTrajectory, resource: int) -> Panel:
    days = tuple(at / _DAY for at in run.times)
    lines = tuple(
        Line(f"user {name}", days, tuple(held[user][resource] for held in run.allocations))
        for user, name in enumerate("AB")
    )
    return Panel(_RESOURCES[resource], "days", "share", lines, kind="steps")


def _total(run: FluidTrajectory, user: int) -> float:
    ends = [*run.times[1:], END]
    return sum(
        held[user][0] * (end - at)
        for at, end, held in zip(run.times, ends, run.allocations, strict=True)
    )
