"""Collects the results of DRF and SDRF on one workload, and compares them trace by trace."""

import csv
import io
import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from allocator.simulation.studies.comparisons import PolicyGain, gain, reduction
from allocator.simulation.studies.estimates import Estimate, estimate
from allocator.simulation.studies.measures import Floats
from allocator.simulation.studies.results import Result

CSV = "sdrf.csv"
"""Name of the file with the report's table."""
_ROUNDING = 1e-3
Pair = tuple[Result, Result]
"""Results of DRF and of SDRF on the same trace."""


@dataclass
class Study:
    """Results of DRF and SDRF on one workload: by load, then (SDRF) by 1 − δ, then by trace hash.

    δ is the fraction of a commitment that remains after a second.
    """

    name: str
    drf: defaultdict[float, dict[str, Result]] = field(default_factory=lambda: defaultdict(dict))
    sdrf: defaultdict[float, defaultdict[float, dict[str, Result]]] = field(
        default_factory=lambda: defaultdict(lambda: defaultdict(dict))
    )
    timed: dict[str, Result] = field(default_factory=dict)
    """Results of the reference simulator with measured times, by ranking: "live-tree" or "scan"."""

    @property
    def loads(self) -> list[float]:
        """Loads for which both policies have results, lowest first."""
        return sorted(load for load in self.sdrf if any(self.forgotten_values(load)))

    def forgotten_values(self, load: float) -> list[float]:
        """Return the simulated values of 1 − δ, lowest first.

        Only values count for which at least one trace has results of both SDRF and DRF.

        Args:
            load: Capacity divided by the mean use.
        """
        return sorted(
            forgotten for forgotten, runs in self.sdrf[load].items() if runs.keys() & self.drf[load]
        )

    def pairs(self, load: float, forgotten: float) -> list[Pair]:
        """Return the results of both policies for each trace that has both.

        Args:
            load: Capacity divided by the mean use.
            forgotten: Value of 1 − δ, the fraction of a commitment that decays in a second.
        """
        before, after = self.drf[load], self.sdrf[load][forgotten]
        return [(before[trace], after[trace]) for trace in before if trace in after]

    def over(
        self, load: float, forgotten: float, measure: Callable[[Result, Result], float]
    ) -> Estimate:
        """Return the mean over traces of a number computed from DRF's and SDRF's results.

        Args:
            load: Capacity divided by the mean use.
            forgotten: Value of 1 − δ, the fraction of a commitment that decays in a second.
            measure: Computes the number from the results of one trace: DRF's, then SDRF's.
        """
        return estimate([measure(*pair) for pair in self.pairs(load, forgotten)])

    def reductions(self, load: float, forgotten: float) -> dict[str, float]:
        """Return, for each trace, how much shorter the mean wait is under SDRF than under DRF.

        Keys are trace hashes; values are fractions of DRF's mean wait.

        Args:
            load: Capacity divided by the mean use.
            forgotten: Value of 1 − δ, the fraction of a commitment that decays in a second.
        """
        return {
            before.raw["trace"]: reduction(before.mean_wait, after.mean_wait)
            for before, after in self.pairs(load, forgotten)
        }

    def reduction(self, load: float, forgotten: float) -> Estimate:
        """Return how much shorter waits are under SDRF than under DRF, as a mean over traces.

        Args:
            load: Capacity divided by the mean use.
            forgotten: Value of 1 − δ, the fraction of a commitment that decays in a second.
        """
        return estimate(list(self.reductions(load, forgotten).values()))

    def best(self, load: float) -> float:
        """Return the value of 1 − δ at which SDRF shortens waits most, as a mean over traces.

        Args:
            load: Capacity divided by the mean use.
        """
        return max(
            self.forgotten_values(load), key=lambda forgotten: self.reduction(load, forgotten).mean
        )

    def nearest(self, load: float, forgotten: float) -> float | None:
        """Return the simulated value of 1 − δ that equals `forgotten` up to rounding, or None."""
        near = [
            candidate
            for candidate in self.forgotten_values(load)
            if abs(candidate / forgotten - 1.0) < _ROUNDING
        ]
        return near[0] if near else None

    def trend(self, loads: tuple[float, float], forgotten: float) -> Estimate:
        """Return how much larger the reduction of waits is at one load than at another.

        Args:
            loads: The two loads; the second one's reduction is subtracted from the first one's.
            forgotten: Value of 1 − δ, the fraction of a commitment that decays in a second.
        """
        first, second = (self.reductions(load, forgotten) for load in loads)
        return _difference(first, second)

    def lead(self, load: float, forgotten: float) -> Estimate:
        """Return by how much one value of 1 − δ reduces waits more than the best other value does.

        The result is negative if the other value reduces waits more.

        Args:
            load: Capacity divided by the mean use.
            forgotten: Value of 1 − δ, the fraction of a commitment that decays in a second.
        """
        other_values = [value for value in self.forgotten_values(load) if value != forgotten]
        best_other = max(other_values, key=lambda value: self.reduction(load, value).mean)
        return _difference(self.reductions(load, forgotten), self.reductions(load, best_other))

    def events(self, load: float, forgotten: float) -> Estimate:
        """Return the number of Live Tree events (possible swaps of neighbours) per 1,000 tasks.

        Args:
            load: Capacity divided by the mean use.
            forgotten: Value of 1 − δ, the fraction of a commitment that decays in a second.
        """
        runs = self.counted(load)[forgotten]
        return estimate([1000.0 * run.events / run.raw["tasks"] for run in runs])

    def counted(self, load: float) -> dict[float, list[Result]]:
        """Return SDRF's results at a load that include Live Tree events, by value of 1 − δ."""
        runs = {
            forgotten: [run for run in results.values() if run.raw.get("events", True)]
            for forgotten, results in sorted(self.sdrf[load].items())
        }
        return {forgotten: results for forgotten, results in runs.items() if results}


def _difference(first: Mapping[str, float], second: Mapping[str, float]) -> Estimate:
    return estimate([first[trace] - second[trace] for trace in first if trace in second])


def studies(results: Sequence[Result]) -> list[Study]:
    """Group results into studies: one for each workload and set of simulation rules."""
    groups: dict[tuple[str, ...], Study] = {}
    for result in results:
        if result.load is None or result.policy not in {"drf", "sdrf"}:
            continue
        name, blocking, users, per, load = result.group
        study = groups.setdefault((name, blocking, users, per), Study(name))
        trace = result.raw["trace"]
        if result.raw["engine"] == "reference" and "ranking" in result.parameters:
            study.timed[str(result.parameters["ranking"])] = result
        elif result.policy == "drf":
            study.drf[load][trace] = result
        elif result.parameters.keys() <= {"delta", "half_life"}:
            study.sdrf[load][result.forgotten][trace] = result
    return list(groups.values())


@dataclass(frozen=True)
class Changes:
    """Effect of SDRF on users, compared with DRF. Each field is a mean over traces.

    Args:
        lower_part: Fraction of all saved seconds that goes to the half of users with the lowest
            usage.
        light_s: Mean seconds of wait that a user of this half saves.
        heavy_s: Mean seconds of wait that a user of the other half saves.
        heavy: Fraction by which the other half waits less.
        more: Fraction of users that complete more of their tasks.
        fewer: Fraction of users that complete fewer of their tasks.
        loss: Largest decrease of a user's completion ratio.
    """

    lower_part: Estimate
    light_s: Estimate
    heavy_s: Estimate
    heavy: Estimate
    more: Estimate
    fewer: Estimate
    loss: Estimate


def changes(study: Study, load: float, forgotten: float) -> Changes:
    """Return how SDRF changes users' waits and completions compared with DRF.

    Args:
        study: The results of both policies.
        load: Capacity divided by the mean use.
        forgotten: Value of 1 − δ of SDRF: the fraction of a commitment that decays in a second.
    """

    def gained(measure: Callable[[PolicyGain], float]) -> Estimate:
        return study.over(load, forgotten, lambda before, after: measure(gain(before, after)))

    def completing(measure: Callable[[Floats], float]) -> Estimate:
        return study.over(
            load,
            forgotten,
            lambda before, after: measure(after.users.completion - before.users.completion),
        )

    return Changes(
        lower_part=gained(lambda effect: effect.lower_part),
        light_s=gained(lambda effect: float(np.nanmean(effect.saved[effect.users.lighter_half()]))),
        heavy_s=gained(
            lambda effect: float(np.nanmean(effect.saved[~effect.users.lighter_half()]))
        ),
        heavy=gained(lambda effect: effect.reduction_of_half(lighter=False)),
        more=completing(lambda difference: float(np.mean(difference > 0.0))),
        fewer=completing(lambda difference: float(np.mean(difference < 0.0))),
        loss=completing(lambda difference: float(np.max(-difference, initial=0.0))),
    )


def table(results: Sequence[Result]) -> str:
    """Return all measures for each workload, load and 1 − δ as CSV with a header.

    Every measure has three columns: its mean over traces and the ends of its 90 % interval.
    """
    text = io.StringIO()
    writer: csv.DictWriter[str] | None = None
    for study in studies(results):
        for row in _rows(study):
            if writer is None:
                writer = csv.DictWriter(text, list(row), lineterminator="\n")
                writer.writeheader()
            writer.writerow(row)
    return text.getvalue()


def _rows(study: Study) -> Iterator[dict[str, str]]:
    for load in study.loads:
        for forgotten in reversed(study.forgotten_values(load)):
            pairs = study.pairs(load, forgotten)
            row = {
                "workload": study.name,
                "tasks": str(pairs[0][0].raw["tasks"]),
                "traces": str(len(pairs)),
                "load": f"{load:g}",
                "forgotten": f"{forgotten:.3g}",
                "drf_wait_s": f"{np.mean([before.mean_wait for before, _ in pairs]):.6g}",
            }
            missing = Estimate(math.nan, math.nan, math.nan, 0)
            counted = forgotten in study.counted(load)
            measured = {
                "less": study.reduction(load, forgotten),
                **vars(changes(study, load, forgotten)),
                "events_per_1000": study.events(load, forgotten) if counted else missing,
            }
            for name, value in measured.items():
                for end, number in (("", value.mean), ("_low", value.low), ("_high", value.high)):
                    row[name + end] = "" if math.isnan(number) else f"{number:.4g}"
            yield row
