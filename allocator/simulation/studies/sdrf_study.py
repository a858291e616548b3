"""DRF and SDRF on the traces of one workload, paired trace by trace."""

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
"""What a report's table is called as a file."""
_ROUNDING = 1e-3
Pair = tuple[Result, Result]
"""DRF's and SDRF's of one trace."""


@dataclass
class Study:
    """DRF and SDRF on one workload, by load and 1 − δ; results are by their traces' hashes."""

    name: str
    drf: defaultdict[float, dict[str, Result]] = field(default_factory=lambda: defaultdict(dict))
    sdrf: defaultdict[float, defaultdict[float, dict[str, Result]]] = field(
        default_factory=lambda: defaultdict(lambda: defaultdict(dict))
    )
    timed: dict[str, Result] = field(default_factory=dict)
    """By ranking: "live-tree" and "scan", from the reference."""

    @property
    def loads(self) -> list[float]:
        """Return where both were simulated."""
        return sorted(load for load in self.sdrf if any(self.tried(load)))

    def tried(self, load: float) -> list[float]:
        """Return the values of 1 − δ that can be held against DRF, least first."""
        return sorted(f for f, runs in self.sdrf[load].items() if runs.keys() & self.drf[load])

    def pairs(self, load: float, forgotten: float) -> list[Pair]:
        """Return both policies' results of each trace that has both."""
        before, after = self.drf[load], self.sdrf[load][forgotten]
        return [(before[trace], after[trace]) for trace in before if trace in after]

    def over(
        self, load: float, forgotten: float, of: Callable[[Result, Result], float]
    ) -> Estimate:
        """Return the mean over traces of what a pair shows."""
        return estimate([of(*pair) for pair in self.pairs(load, forgotten)])

    def reductions(self, load: float, forgotten: float) -> dict[str, float]:
        """Return by trace by which part the mean of users' mean waits is less."""
        return {
            before.raw["trace"]: reduction(before.mean_wait, after.mean_wait)
            for before, after in self.pairs(load, forgotten)
        }

    def reduction(self, load: float, forgotten: float) -> Estimate:
        """Return that part's mean over traces."""
        return estimate(list(self.reductions(load, forgotten).values()))

    def best(self, load: float) -> float:
        """Return the 1 − δ that lowers waits most in the mean."""
        return max(self.tried(load), key=lambda f: self.reduction(load, f).mean)

    def nearest(self, load: float, forgotten: float) -> float | None:
        """Return the 1 − δ that was tried and is the one meant but for rounding, if any."""
        near = [f for f in self.tried(load) if abs(f / forgotten - 1.0) < _ROUNDING]
        return near[0] if near else None

    def trend(self, loads: tuple[float, float], forgotten: float) -> Estimate:
        """Return by how much more is saved at one load than at another, on the same traces."""
        first, second = (self.reductions(load, forgotten) for load in loads)
        return _difference(first, second)

    def lead(self, load: float, forgotten: float) -> Estimate:
        """Return by how much more one value of 1 − δ saves than the best of the others."""
        others = [f for f in self.tried(load) if f != forgotten]
        rival = max(others, key=lambda f: self.reduction(load, f).mean)
        return _difference(self.reductions(load, forgotten), self.reductions(load, rival))

    def events(self, load: float, forgotten: float) -> Estimate:
        """Return the Live Tree's events in 1,000 tasks."""
        runs = self.counted(load)[forgotten]
        return estimate([1000.0 * run.events / run.raw["tasks"] for run in runs])

    def counted(self, load: float) -> dict[float, list[Result]]:
        """Return the results in which events were counted, by 1 − δ."""
        runs = {
            forgotten: [run for run in of.values() if run.raw.get("events", True)]
            for forgotten, of in sorted(self.sdrf[load].items())
        }
        return {forgotten: of for forgotten, of in runs.items() if of}


def _difference(first: Mapping[str, float], second: Mapping[str, float]) -> Estimate:
    return estimate([first[trace] - second[trace] for trace in first if trace in second])


def studies(results: Sequence[Result]) -> list[Study]:
    """Sort results by workload and rules."""
    found: dict[tuple[str, ...], Study] = {}
    for result in results:
        if result.load is None or result.policy not in {"drf", "sdrf"}:
            continue
        name, blocking, users, per, load = result.group
        study = found.setdefault((name, blocking, users, per), Study(name))
        trace = result.raw["trace"]
        if result.raw["engine"] == "reference" and "ranking" in result.parameters:
            study.timed[str(result.parameters["ranking"])] = result
        elif result.policy == "drf":
            study.drf[load][trace] = result
        elif result.parameters.keys() <= {"delta", "half_life"}:
            study.sdrf[load][result.forgotten][trace] = result
    return list(found.values())


@dataclass(frozen=True)
class Changes:
    """What SDRF changes for users, means over traces.

    Args:
        lower_part: Of all saved seconds of mean wait, what the half with less usage saves.
        light_s: Seconds that a user of that half saves in the mean.
        heavy_s: Of the other half.
        heavy: By which part the other half waits less.
        more: The part of users that complete more of their tasks.
        fewer: The part that complete fewer.
        loss: The most that a user loses, of its tasks.
    """

    lower_part: Estimate
    light_s: Estimate
    heavy_s: Estimate
    heavy: Estimate
    more: Estimate
    fewer: Estimate
    loss: Estimate


def changes(study: Study, load: float, forgotten: float) -> Changes:
    """Compare users under both."""

    def gained(of: Callable[[PolicyGain], float]) -> Estimate:
        return study.over(load, forgotten, lambda b, a: of(gain(b, a)))

    def completing(of: Callable[[Floats], float]) -> Estimate:
        return study.over(load, forgotten, lambda b, a: of(a.users.completion - b.users.completion))

    return Changes(
        lower_part=gained(lambda g: g.lower_part),
        light_s=gained(lambda g: float(np.nanmean(g.saved[g.users.lighter_half()]))),
        heavy_s=gained(lambda g: float(np.nanmean(g.saved[~g.users.lighter_half()]))),
        heavy=gained(lambda g: g.of_half(lighter=False)),
        more=completing(lambda d: float(np.mean(d > 0.0))),
        fewer=completing(lambda d: float(np.mean(d < 0.0))),
        loss=completing(lambda d: float(np.max(-d, initial=0.0))),
    )


def table(results: Sequence[Result]) -> str:
    """Return all that is known of each workload, load and 1 − δ as CSV with a header.

    Every measure is three columns: its mean over traces and the ends of its 90 % interval.
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
            told = {
                "workload": study.name,
                "tasks": str(pairs[0][0].raw["tasks"]),
                "traces": str(len(pairs)),
                "load": f"{load:g}",
                "forgotten": f"{forgotten:.3g}",
                "drf_wait_s": f"{np.mean([before.mean_wait for before, _ in pairs]):.6g}",
            }
            nothing = Estimate(math.nan, math.nan, math.nan, 0)
            counted = forgotten in study.counted(load)
            measured = {
                "less": study.reduction(load, forgotten),
                **vars(changes(study, load, forgotten)),
                "events_per_1000": study.events(load, forgotten) if counted else nothing,
            }
            for name, value in measured.items():
                for end, number in (("", value.mean), ("_low", value.low), ("_high", value.high)):
                    told[name + end] = "" if math.isnan(number) else f"{number:.4g}"
            yield told
