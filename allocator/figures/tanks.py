"""Water-filling diagrams of max-min fairness (MMF) and Stateful MMF.

Under Stateful MMF, each user's commitment counts as if it were a share that the user already has.
"""

from collections.abc import Sequence
from fractions import Fraction

from allocator.figures.figure import Line, Panel, PaperFigure
from allocator.theory.incentives.mechanism import Claim, share_epoch

DEMANDS = (Fraction(1, 2), Fraction(1, 5), Fraction(3, 20), Fraction(7, 20))
COMMITMENTS = (Fraction(1, 5), Fraction(9, 25), Fraction(1, 10), Fraction(0))
_NO_COMMITMENTS = (Fraction(0),) * 4


def filled(demands: Sequence[Fraction], commitments: Sequence[Fraction]) -> list[Fraction]:
    """Return each user's exact share of one resource under Stateful MMF (SDRF paper, Eq. 8).

    Shares are filled like connected water tanks: each user's water stands on its commitment.

    Args:
        demands: Each user's demand, as a fraction of the resource.
        commitments: Each user's commitment; all 0 for max-min fairness.
    """
    claims = [
        Claim({"cpu": Fraction(1)}, demand, Fraction(1), commitment, Fraction(0))
        for demand, commitment in zip(demands, commitments, strict=True)
    ]
    return share_epoch(claims, Fraction(1))


def water_filling() -> PaperFigure:
    """Compute Fig. 2 of the SDRF paper (4.2 of Sadok's thesis): MMF next to Stateful MMF."""
    users = ("1", "2", "3", "4")
    plain, stateful = filled(DEMANDS, _NO_COMMITMENTS), filled(DEMANDS, COMMITMENTS)
    return PaperFigure(
        name="sdrf-2",
        source="Stateful DRF, Fig. 2; thesis, Figure 4.2",
        title="Water-filling: MMF, and SMMF on top of commitments",
        columns=("user", "demands", "has under MMF", "owes", "has under SMMF"),
        rows=tuple(zip(users, DEMANDS, plain, COMMITMENTS, stateful, strict=True)),
        panels=(
            _tanks("MMF", users, _NO_COMMITMENTS, plain, DEMANDS),
            _tanks("SMMF", users, COMMITMENTS, stateful, DEMANDS),
        ),
        ours="demands and commitments: the paper shows tanks without numbers",
        facts={
            "level of MMF": plain[0],
            "level of SMMF": stateful[0] + COMMITMENTS[0],
        },
    )


def max_min() -> PaperFigure:
    """Compute Figure 2.5 of Sadok's thesis: max-min fair shares of four users."""
    users = ("A", "B", "C", "D")
    shares = filled(DEMANDS, _NO_COMMITMENTS)
    return PaperFigure(
        name="thesis-2.5",
        source="thesis, Figure 2.5",
        title="Max-min fairness among four users",
        columns=("user", "demands", "equal part", "has"),
        rows=tuple(
            (user, demand, Fraction(1, 4), share)
            for user, demand, share in zip(users, DEMANDS, shares, strict=True)
        ),
        panels=(_tanks("MMF", users, _NO_COMMITMENTS, shares, DEMANDS),),
        ours="demands: the thesis says only that B and C need less than their part, A and D more",
        facts={"beyond an equal part, A": shares[0] - Fraction(1, 4)},
    )


def _tanks(
    title: str,
    users: tuple[str, ...],
    commitments: Sequence[Fraction],
    shares: Sequence[Fraction],
    demands: Sequence[Fraction],
) -> Panel:
    unmet = tuple(demand - share for demand, share in zip(demands, shares, strict=True))
    layers = [Line("has", users, tuple(shares)), Line("demands beyond", users, unmet)]
    if any(commitments):
        layers.insert(0, Line("owes", users, tuple(commitments)))
    return Panel(title, "user", "part of the resource", tuple(layers), kind="stacked")
