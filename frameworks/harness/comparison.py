"""Runs the variants of an experiment, each with several seeds, and compares when users finish."""

import json
import math
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, replace
from statistics import fmean, stdev
from typing import Any

from frameworks.experiment import Experiment, NoLater
from frameworks.harness.figure import draw_completions
from frameworks.harness.runner import ExperimentSettings, Progress, run
from frameworks.harness.verdict import Finding

Watch = Callable[[Experiment], AbstractContextManager[Callable[[Progress], None]]]
"""Given each run's experiment, provides who looks on."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """What came of an experiment with variants."""

    experiment: str
    policy: str
    seeds: list[int]
    speed: float
    agrees: bool
    completions: dict[str, dict[str, list[float]]]
    """variant → user → seconds from its start to its end, one for each seed."""
    claims: list[Finding]

    def summary(self) -> dict[str, Any]:
        """Return it as JSON's types."""
        return asdict(self)


def compare(experiment: Experiment, settings: ExperimentSettings, watch: Watch) -> Comparison:
    """Run all variants and write what came of them; each run has a folder of its own.

    Raises:
        ChildFailed: a part ended before its time.
        TimeoutError: a part did not come up, or a user did not finish in time.
        OSError: the results cannot be written, or a master did not answer.
        PolicyFailedError: the policy failed, so the allocations are not the policy's.
    """
    seeds = list(range(settings.seed, settings.seed + experiment.seeds))
    completions: dict[str, dict[str, list[float]]] = {v.name: {} for v in experiment.variants}
    for seed in seeds:
        for variant in experiment.variants:
            varied = experiment.variant(variant)
            folder = settings.out / f"{variant.name.replace(' ', '-')}-{seed}"
            with watch(varied) as look:
                verdict = run(varied, replace(settings, seed=seed, out=folder), look)
            for user, took in verdict.completions.items():
                completions[variant.name].setdefault(user, []).append(took)
    claims = list(_findings(experiment, completions))
    comparison = Comparison(
        experiment=experiment.name,
        policy=str(experiment.policy["name"]),
        seeds=seeds,
        speed=settings.speed,
        agrees=all(claim.holds for claim in claims),
        completions=completions,
        claims=claims,
    )
    draw_completions(experiment.title, completions, settings.out)
    summary = json.dumps(comparison.summary(), indent=2)
    (settings.out / "summary.json").write_text(summary + "\n", encoding="utf-8")
    return comparison


def _findings(
    experiment: Experiment, completions: dict[str, dict[str, list[float]]]
) -> Iterator[Finding]:
    for claim in experiment.claims:
        if isinstance(claim, NoLater):
            for user in claim.users:
                yield _no_later(
                    claim, user, completions[claim.variant][user], completions[claim.than][user]
                )


def _no_later(claim: NoLater, user: str, took: list[float], than: list[float]) -> Finding:
    """Compare two means; the runs of a seed have the same run times, so differences are paired."""
    differences = [a - b for a, b in zip(took, than, strict=True)]
    noise = 0.0
    if claim.within_noise and len(differences) > 1:
        noise = 2 * stdev(differences) / math.sqrt(len(differences))
    allowed = f" (and {noise:.1f} s of noise)" if claim.within_noise else ""
    return Finding(
        f"{user} finishes no later in {claim.variant!r} than in {claim.than!r}{allowed}: "
        f"{fmean(took):.1f} s against {fmean(than):.1f} s",
        fmean(differences) <= noise,
    )
