"""Figure 1.1 of Sadok's thesis: exact rates of flows in a network, under three objectives.

The objectives are the highest sum, equal rates and max-min fairness.
"""

from collections.abc import Mapping, Sequence
from fractions import Fraction

from allocator.figures.figure import Line, Panel, PaperFigure
from allocator.theory.divisible.certificate import Program
from allocator.theory.divisible.progressive_filling import solve
from allocator.theory.incentives.mechanism import Claim, share_epoch

LINKS = {"9 Mbps": Fraction(9), "8 Mbps": Fraction(8), "4 Mbps": Fraction(4)}
WANTED = Fraction(10)
"""Demand of each flow, in Mbps."""
ROUTES = {
    "A": ("9 Mbps", "8 Mbps"),
    "B": ("4 Mbps",),
    "C": ("8 Mbps",),
    "D": ("9 Mbps",),
}


def equal(routes: Sequence[Sequence[str]]) -> list[Fraction]:
    """Return equal rates of flows in Mbps: the highest rate that all flows can have at once.

    With equal rates, Jain's fairness index is 1.

    Args:
        routes: Links that each flow uses.
    """
    rate = min(
        capacity / used
        for link, capacity in LINKS.items()
        if (used := sum(link in route for route in routes))
    )
    return [min(WANTED, rate)] * len(routes)


def max_min(routes: Sequence[Sequence[str]]) -> list[Fraction]:
    """Return the max-min fair rates of flows in Mbps.

    Args:
        routes: Links that each flow uses.
    """
    claims = [
        Claim({k: 1 / LINKS[k] for k in route}, WANTED, Fraction(1), Fraction(0), Fraction(0))
        for route in routes
    ]
    return share_epoch(claims, Fraction(1))


def efficient(routes: Sequence[Sequence[str]]) -> list[Fraction]:
    """Return the rates in Mbps with the highest sum, in exact fractions.

    Args:
        routes: Links that each flow uses.

    Raises:
        ArithmeticError: the solver's floating-point answer could not be proved in fractions.
    """
    flows = len(routes)
    unit = Fraction(1)
    rows = [{flow: unit for flow, route in enumerate(routes) if link in route} for link in LINKS]
    rows += [{flow: unit} for flow in range(flows)]
    rows.append(dict.fromkeys(range(flows), -unit) | {flows: unit})
    bounds = [*LINKS.values(), *[WANTED] * flows, Fraction(0)]
    proof = solve(Program.of(rows, bounds, flows + 1)).proof
    if proof is None:
        raise ArithmeticError("the highest sum of rates could not be proved")
    return [*proof.point[:flows]]


def jain(rates: Sequence[Fraction]) -> Fraction:
    """Return Jain's fairness index: 1 for equal rates, 1/n if a single flow has everything."""
    total = sum(rates, Fraction(0))
    return total * total / (len(rates) * sum((rate * rate for rate in rates), Fraction(0)))


def objectives(routes: Mapping[str, Sequence[str]] = ROUTES) -> PaperFigure:
    """Compute Figure 1.1 of Sadok's thesis: rates of four flows under three objectives."""
    route_list = list(routes.values())
    rates = {
        "efficiency": efficient(route_list),
        "Jain's index": equal(route_list),
        "max-min": max_min(route_list),
    }
    return PaperFigure(
        name="thesis-1.1",
        source="thesis, Figure 1.1",
        title="Three objectives for four flows on three links",
        columns=("objective", *(f"{flow}, Mbps" for flow in routes), "sum", "Jain's index"),
        rows=tuple(
            (name, *flow_rates, sum(flow_rates), jain(flow_rates))
            for name, flow_rates in rates.items()
        ),
        panels=(
            Panel(
                "Rates",
                "flow",
                "Mbps",
                tuple(
                    Line(name, tuple(routes), tuple(flow_rates))
                    for name, flow_rates in rates.items()
                ),
                kind="bars",
            ),
        ),
        ours="routes, which the text lacks: A crosses the links of 9 and 8 Mbps, D shares the "
        "first with it and C the second, B has that of 4 to itself. With five links on all routes "
        "together only these, and the same with B and C exchanged, fit all that the text says",
    )
