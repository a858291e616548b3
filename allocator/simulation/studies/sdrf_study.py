"""DRF and SDRF on the traces of one workload, paired by trace."""

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
"""File name of the report's table."""
_ROUNDING = 1e-3
Pair = tuple[Result, Result]
"""DRF's result and SDRF's result on one trace."""


@dataclass
class Study:
    """Results of DRF and SDRF on one workload, by load and 1 − δ, and then by the trace's hash."""

    name: str
    drf: defaultdict[float, dict[str, Result]] = field(default_factory=lambda: defaultdict(dict))
    sdrf: defaultdict[float, defaultdict[float, dict[str, Result]]] = field(
        default_factory=lambda: defaultdict(lambda: defaultdict(dict))
    )
    timed: dict[str, Result] = field(default_factory=dict)
    """Results of the reference simulator by ranking, "live-tree" or "scan"."""

    @property
    def loads(self) -> list[float]:
        """Loads at which both policies were simulated, lowest first."""
        return sorted(load for load in self.sdrf if any(self.tried(load)))

    def tried(self, load: float) -> list[float]:
        """Return the values of 1 − δ that can be compared with DRF, lowest first."""
        return sorted(
            forgotten for forgotten, runs in self.sdrf[load].items() if runs.keys() & self.drf[load]
        )

    def pairs(self, load: float, forgotten: float) -> list[Pair]:
        """Return both policies' results for each trace that has both."""
        before, after = self.drf[load], self.sdrf[load][forgotten]
        return [(before[trace], after[trace]) for trace in before if trace in after]

    def over(
        self, load: float, forgotten: float, measure: Callable[[Result, Result], float]
    ) -> Estimate:
        """Return the mean over traces of a function of both results.

        Args:
            load: The load.
            forgotten: Value of 1 − δ.
            measure: Function of DRF's result and SDRF's result.
        """
        return estimate([measure(*pair) for pair in self.pairs(load, forgotten)])

    def reductions(self, load: float, forgotten: float) -> dict[str, float]:
        """Return by trace the fraction by which the mean of users' mean waits is lower."""
        return {
            before.raw["trace"]: reduction(before.mean_wait, after.mean_wait)
            for before, after in self.pairs(load, forgotten)
        }

    def reduction(self, load: float, forgotten: float) -> Estimate:
        """Return the mean over traces of the reduction."""
        return estimate(list(self.reductions(load, forgotten).values()))

    def best(self, load: float) -> float:
        """Return the 1 − δ with the largest mean reduction of waits."""
        return max(self.tried(load), key=lambda forgotten: self.reduction(load, forgotten).mean)

    def nearest(self, load: float, forgotten: float) -> float | None:
        """Return the tested 1 − δ that equals a value except for rounding, or None."""
        near = [
            candidate
            for candidate in self.tried(load)
            if abs(candidate / forgotten - 1.0) < _ROUNDING
        ]
        return near[0] if near else None

    def trend(self, loads: tuple[float, float], forgotten: float) -> Estimate:
        """Return the difference of the reductions at two loads, paired by trace."""
        first, second = (self.reductions(load, forgotten) for load in loads)
        return _difference(first, second)

    def lead(self, load: float, forgotten: float) -> Estimate:
        """Return the difference of the reductions of one 1 − δ and of the best other value."""
        other_values = [value for value in self.tried(load) if value != forgotten]
        best_other = max(other_values, key=lambda value: self.reduction(load, value).mean)
        return _difference(self.reductions(load, forgotten), self.reductions(load, best_other))

    def events(self, load: float, forgotten: float) -> Estimate:
        """Return the number of the Live Tree's events per 1,000 tasks."""
        runs = self.counted(load)[forgotten]
        return estimate([1000.0 * run.events / run.raw["tasks"] for run in runs])

    def counted(self, load: float) -> dict[float, list[Result]]:
        """Return the results with counted events, by 1 − δ."""
        runs = {
            forgotten: [run for run in results.values() if run.raw.get("events", True)]
            for forgotten, results in sorted(self.sdrf[load].items())
        }
        return {forgotten: results for forgotten, results in runs.items() if results}


def _difference(first: Mapping[str, float], second: Mapping[str, float]) -> Estimate:
    return estimate([first[trace] - second[trace] for trace in first if trace in second])


def studies(results: Sequence[Result]) -> list[Study]:
    """Group results by workload and rules."""
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
    """Effect of SDRF on users, relative to DRF; means over traces.

    Args:
        lower_part: Fraction of all saved seconds of mean wait that the half with less usage saves.
        light_s: Mean seconds that a user of that half saves.
        heavy_s: Mean seconds that a user of the other half saves.
        heavy: Fraction by which the other half waits less.
        more: Fraction of users that complete more of their tasks.
        fewer: Fraction of users that complete fewer of their tasks.
        loss: Largest fraction of its tasks that a user loses.
    """

    lower_part: Estimate
    light_s: Estimate
    heavy_s: Estimate
    heavy: Estimate
    more: Estimate
    fewer: Estimate
    loss: Estimate


def changes(study: Study, load: float, forgotten: float) -> Changes:
    """Compare users under both policies."""

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
        heavy=gained(lambda effect: effect.of_half(lighter=False)),
        more=completing(lambda difference: float(np.mean(difference > 0.0))),
        fewer=completing(lambda difference: float(np.mean(difference < 0.0))),
        loss=completing(lambda difference: float(np.max(-difference, initial=0.0))),
    )


def table(results: Sequence[Result]) -> str:
    """Return all measures of each workload, load and 1 − δ as CSV with a header.

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
        for forgotten in reversed(study.tried(load)):
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
