"""Runs all variants of an experiment with several seeds, and compares users' completion times."""

import json
import math
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from copy import deepcopy
from dataclasses import asdict, dataclass, replace
from statistics import fmean, stdev
from typing import Any

from frameworks.experiment import Experiment, NoLater
from frameworks.harness.figure import draw_completions
from frameworks.harness.runner import ExperimentSettings, Measure, Progress, run
from frameworks.harness.verdict import Finding

Watch = Callable[[Experiment], AbstractContextManager[Callable[[Progress], None]]]
"""Function that starts the progress display of a run.

It receives the run's experiment and returns a context, whose value is the progress callback.
"""


@dataclass(frozen=True, slots=True)
class Comparison:
    """Result of an experiment with variants: completion times, and whether claims hold."""

    experiment: str
    policy: str
    seeds: list[int]
    speed: float
    agrees: bool
    completions: dict[str, dict[str, list[float]]]
    """Seconds from a user's start to its end: by variant, by user, one value per seed."""
    waits: dict[str, dict[str, list[float]]]
    """Mean seconds from the submission of a task to its start, in the same form. Empty without
    Slurm."""
    claims: list[Finding]

    def summary(self) -> dict[str, Any]:
        """Return the content of summary.json."""
        return asdict(self)


def compare(
    experiment: Experiment,
    settings: ExperimentSettings,
    watch: Watch,
    measure: Measure | None = None,
) -> Comparison:
    """Run an experiment's variants with all seeds, each in its own folder, and write the results.

    Args:
        experiment: The experiment.
        settings: Options of the runs.
        watch: Function called with the experiment of each run. It returns a context manager, whose
            value is the progress callback of the run.
        measure: As in `run`.

    Raises:
        ChildFailed: A process ended unexpectedly.
        TimeoutError: A process did not start, or a user did not finish in time.
        OSError: The results cannot be written, or a master did not answer.
        PolicyFailedError: The policy failed, so the allocations are not the policy's.
    """
    seeds = list(range(settings.seed, settings.seed + experiment.seeds))
    completions: dict[str, dict[str, list[float]]] = {
        variant.name: {} for variant in experiment.variants
    }
    waits = deepcopy(completions)
    for seed in seeds:
        for variant in experiment.variants:
            varied = experiment.variant(variant)
            folder = settings.out / f"{variant.name.replace(' ', '-')}-{seed}"
            with watch(varied) as progress:
                verdict = run(varied, replace(settings, seed=seed, out=folder), progress, measure)
            for user, seconds in verdict.completions.items():
                completions[variant.name].setdefault(user, []).append(seconds)
            for user, seconds in verdict.waits.items():
                waits[variant.name].setdefault(user, []).append(seconds)
    claims = list(_findings(experiment, completions))
    comparison = Comparison(
        experiment=experiment.name,
        policy=str(experiment.policy["name"]),
        seeds=seeds,
        speed=settings.speed,
        agrees=all(claim.holds for claim in claims),
        completions=completions,
        waits=waits,
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


def _no_later(claim: NoLater, user: str, times: list[float], other_times: list[float]) -> Finding:
    """Check whether a user finishes no later in one variant than in another.

    Runs with the same seed are compared. They have the same task run times, so differences are due
    to the variants.

    Args:
        claim: The claim.
        user: Name of the user.
        times: Completion times in the variant that should be no later, one per seed.
        other_times: Completion times in the other variant, in the same order.
    """
    differences = [time - other_time for time, other_time in zip(times, other_times, strict=True)]
    noise = 0.0
    if claim.within_noise and len(differences) > 1:
        noise = 2 * stdev(differences) / math.sqrt(len(differences))
    allowed = f" (and {noise:.1f} s of noise)" if claim.within_noise else ""
    return Finding(
        f"{user} finishes no later in {claim.variant!r} than in {claim.than!r}{allowed}: "
        f"{fmean(times):.1f} s against {fmean(other_times):.1f} s",
        fmean(differences) <= noise,
    )
