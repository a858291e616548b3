"""Report sections on the TSF paper (§VI-B): are the findings of its figures reproduced?"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from statistics import fmean

import numpy as np

from allocator.simulation.studies import tsf_figures
from allocator.simulation.studies.comparisons import SIZES, by_size, speedup
from allocator.simulation.studies.measures import Floats
from allocator.simulation.studies.results import Result
from allocator.simulation.studies.section import Finding, Section, Table, duration

Runs = Mapping[str, Mapping[str, Result]]
"""Results by policy (named as in the TSF paper), then by trace hash."""

_BASELINE = "TSF"
_NAMES = {"tsf": _BASELINE, "fifo": "FIFO", "drf": "DRF", "cdrf": "CDRF"}
_RESOURCES = {"cpus": "CPU", "cpu": "CPU", "mem": "Mem", "memory": "Mem"}
_FAIR = ("DRF", "CDRF", "CPU", "Mem")
"""Policies with which Fig. 10 and 11b compare TSF."""
_SALIENT = 1.0
"""Smallest delay in seconds that counts as noticeable."""
_LEAST_TENTH, _MOST_TENTH = 0.05, 0.2
"""Smallest and largest mean speed-up that count as the paper's "about 10 %"."""


def sections(results: Sequence[Result]) -> Iterator[Section]:
    """Yield report sections for each workload with results under TSF and another policy.

    Only simulations on a trace's own machines count, because a single pool has no placement
    constraints.
    """
    studies: defaultdict[tuple[str, ...], defaultdict[str, dict[str, Result]]] = defaultdict(
        lambda: defaultdict(dict)
    )
    for result in results:
        if result.load is None and result.raw["keep"] == "tasks":
            study = studies[result.raw["name"], result.raw["blocking"], result.raw["per"]]
            study[_name(result)][result.raw["trace"]] = result
    compared = [(key, study) for key, study in studies.items() if len(study) > 1]
    for number, ((name, *_), study) in enumerate(compared, 1):
        if _BASELINE in study:
            traces = set.intersection(*(set(results) for results in study.values()))
            if traces:
                runs = {
                    policy: {trace: study[policy][trace] for trace in sorted(traces)}
                    for policy in _order(study)
                }
                yield from _figures(name, runs, "" if number == 1 else f"-{number}")


def _name(result: Result) -> str:
    if result.policy == "cmmf":
        resource = str(result.parameters.get("resource", "cpus"))
        return _RESOURCES.get(resource, resource)
    return _NAMES.get(result.policy, result.label)


def _order(policies: Mapping[str, object]) -> list[str]:
    first = [_BASELINE, "FIFO", *_FAIR]
    return [name for name in first if name in policies] + sorted(set(policies) - set(first))


def _figures(name: str, runs: Runs, suffix: str) -> Iterator[Section]:
    def pooled(measure: Callable[[Result], Floats]) -> dict[str, Floats]:
        return {
            policy: np.concatenate([measure(result) for result in results.values()])
            for policy, results in runs.items()
        }

    baseline = runs[_BASELINE]
    rivals = {policy: results for policy, results in runs.items() if policy in _FAIR}
    speedups = {
        policy: _bins(
            [
                (result.jobs.size, speedup(result.jobs, baseline[trace].jobs))
                for trace, result in results.items()
            ]
        )
        for policy, results in rivals.items()
    }
    saved = {
        policy: np.concatenate(
            [result.waits - baseline[trace].waits for trace, result in results.items()]
        )
        for policy, results in rivals.items()
    }
    delays, completions = pooled(lambda r: r.jobs.delay), pooled(lambda r: r.jobs.completion)
    waits = pooled(lambda r: r.waits)
    yield _workload(name, list(baseline.values()), suffix)
    yield Section(
        f"tsf-fig-9{suffix}",
        f"TSF Fig. 9: queueing delay and completion time of jobs ({name})",
        figure=tsf_figures.jobs(delays, completions),
        tables=(
            ("Queueing delay of jobs", _quantiles(delays)),
            ("Completion time of jobs", _quantiles(completions)),
        ),
        claims=(*_fifo_starves(delays, completions), _fair_ones_are_alike(completions)),
    )
    yield Section(
        f"tsf-fig-10{suffix}",
        f"TSF Fig. 10: how much earlier jobs end under TSF ({name})",
        (
            (
                "Time that each job saves under TSF, as a fraction of its time under the other "
                "policy; mean and standard deviation over all jobs of a size."
            ),
        ),
        tsf_figures.speedups(speedups, _BASELINE),
        (("Mean ± standard deviation", _speedups(speedups)),),
        _speedup_claims(speedups),
    )
    yield Section(
        f"tsf-fig-11{suffix}",
        f"TSF Fig. 11: queueing delay of tasks ({name})",
        figure=tsf_figures.tasks(waits, saved, _BASELINE),
        tables=(
            ("Queueing delay of tasks", _quantiles(waits)),
            ("Tasks under TSF", _sooner_and_later(saved)),
        ),
        claims=_task_claims(waits, saved),
    )


def _bins(
    jobs: Sequence[tuple[np.ndarray[tuple[int], np.dtype[np.int64]], Floats]],
) -> dict[str, Floats]:
    sizes = np.concatenate([size for size, _ in jobs])
    return by_size(sizes, np.concatenate([values for _, values in jobs]))


def _workload(name: str, results: Sequence[Result], suffix: str) -> Section:
    machines = np.concatenate([result.jobs.machines for result in results])
    sizes = np.concatenate([result.jobs.size for result in results])
    anywhere, median = float((machines == machines.max()).mean()), float(np.median(machines))
    mice, single = float((sizes <= 10).mean()), float((sizes == 1).mean())
    tasks = sizes.sum() / len(results)
    return Section(
        f"tsf-fig-8{suffix}",
        f"TSF Fig. 8: the workload ({name})",
        (
            (
                f"{len(results)} traces; on average {tasks:,.0f} tasks in "
                f"{len(sizes) / len(results):,.0f} jobs, the biggest of {sizes.max():,} tasks, on "
                f"{machines.max():,} machines at most."
            ),
        ),
        tsf_figures.workload(machines, sizes),
        claims=(
            Finding(
                "Less than 20 % of jobs can run on all 1000 machines, and half on no more than "
                "about 200; more than 60 % have a single task, 86 % at most ten.",
                f"{anywhere:.0%} can run on all, half on at most {median:,.0f} of "
                f"{machines.max():,} machines; {single:.0%} have one task, {mice:.0%} at most ten.",
                anywhere < 0.2
                and 0.1 <= median / machines.max() <= 0.3
                and single > 0.6
                and 0.8 <= mice <= 0.92,
                "The workload has other numbers than the paper's.",
            ),
        ),
    )


def _fifo_starves(delays: Mapping[str, Floats], completions: Mapping[str, Floats]) -> list[Finding]:
    fair = [policy for policy in (_BASELINE, *_FAIR) if policy in delays]
    if "FIFO" not in delays:
        return []
    mean = {policy: _mean(delays[policy]) for policy in ("FIFO", *fair)}
    delayed = float((~(delays[_BASELINE] <= _SALIENT)).mean())
    sooner = float(np.nanmean(completions[_BASELINE] < completions["FIFO"]))
    return [
        Finding(
            "Jobs queue by far the longest under FIFO; under fair sharing about 40 % still have "
            "a delay that can be seen.",
            f"Mean delay {duration(mean['FIFO'])} under FIFO, "
            + ", ".join(f"{duration(mean[policy])} under {policy}" for policy in fair)
            + f"; under TSF {delayed:.0%} wait for more than {_SALIENT:g} s.",
            all(mean["FIFO"] > 2.0 * mean[policy] for policy in fair) and 0.2 <= delayed <= 0.6,
            "The number of delayed jobs depends on the load of the cluster, that is on the sum of "
            "run times, which the paper does not publish.",
        ),
        Finding(
            "Fair sharing ends 80 % of jobs sooner than FIFO, up to six times as fast.",
            f"{sooner:.0%} of jobs end sooner under TSF; at the 80th percentile "
            f"{_ratio(completions, 80):.2g} times, at the median {_ratio(completions, 50):.2g} "
            "times as fast.",
            sooner > 0.6,
            "Jobs that arrive while the cluster has room end at the same time under every policy.",
        ),
    ]


def _ratio(completions: Mapping[str, Floats], percentile: float) -> float:
    fifo, tsf = (
        float(np.nanpercentile(completions[policy], percentile)) for policy in ("FIFO", _BASELINE)
    )
    return fifo / tsf if tsf > 0 else 1.0


def _fair_ones_are_alike(completions: Mapping[str, Floats]) -> Finding:
    medians = {
        policy: float(np.nanmedian(completions[policy]))
        for policy in (_BASELINE, *_FAIR)
        if policy in completions
    }
    spread = max(medians.values()) / max(min(medians.values()), 1e-9) - 1.0
    return Finding(
        "The distribution of completion times hardly differs between fair policies, as most jobs "
        "are mice.",
        "Median completion times: "
        + ", ".join(f"{duration(value)} under {policy}" for policy, value in medians.items())
        + ".",
        spread < 0.1,
        "A policy that neglects jobs with few allowed machines also delays small jobs among them.",
    )


def _speedups(speedups: Mapping[str, Mapping[str, Floats]]) -> Table:
    return Table(
        ("than under", *(name for name, _, _ in SIZES)),
        [
            (
                policy,
                *(
                    f"{bins[name].mean():+.1%} ± {bins[name].std():.1%} (n = {len(bins[name]):,})"
                    if len(bins[name])
                    else "none"
                    for name, _, _ in SIZES
                ),
            )
            for policy, bins in speedups.items()
        ],
    )


def _speedup_claims(speedups: Mapping[str, Mapping[str, Floats]]) -> tuple[Finding, ...]:
    means = {
        name: {policy: _mean(bins[name]) for policy, bins in speedups.items() if len(bins[name])}
        for name, _, _ in SIZES
    }
    spreads = {
        name: _mean(np.array([bins[name].std() for bins in speedups.values() if len(bins[name])]))
        for name, _, _ in SIZES
    }
    middle = [*means["medium"].values(), *means["big"].values()]
    by_size = [_mean(np.array([*means[name].values()])) for name, _, _ in SIZES if means[name]]
    return (
        Finding(
            "For medium and big jobs the speed-up over every alternative is almost certain, and "
            "about 10 % on average.",
            "; ".join(
                f"{name}: "
                + ", ".join(f"{value:+.1%} over {policy}" for policy, value in means[name].items())
                for name in ("medium", "big")
            )
            + ".",
            bool(middle) and min(middle) > 0.0 and _LEAST_TENTH <= fmean(middle) <= _MOST_TENTH,
            "The speed-ups depend on the difference between entitlement and allocation of jobs "
            "with few allowed machines. This depends on the correlation of constraints, sizes and "
            "run times, which the paper does not publish and the generator draws independently.",
        ),
        Finding(
            "Small jobs gain little; the bigger, the more.",
            "Mean over all alternatives: "
            + ", ".join(
                f"{mean:+.1%} for {name}"
                for mean, name in zip(by_size, filter(means.get, means), strict=True)
            )
            + ".",
            len(by_size) > 1 and all(smaller < bigger for smaller, bigger in pairwise(by_size)),
            "A small job has a short completion time, so the same saved seconds are a larger "
            "percentage.",
        ),
        Finding(
            "Huge jobs are sped up by some alternatives and slowed down by others, with the "
            "widest spread.",
            "Mean standard deviations: "
            + ", ".join(f"{spreads[name]:.1%} for {name}" for name in spreads if means[name])
            + ".",
            bool(means["huge"]) and spreads["huge"] >= max(spreads["medium"], spreads["big"]),
            "There are few huge jobs in a trace, so their spread takes many seeds to show.",
        ),
    )


def _task_claims(waits: Mapping[str, Floats], saved: Mapping[str, Floats]) -> tuple[Finding, ...]:
    mean = {policy: _mean(values) for policy, values in waits.items()}
    fair = {policy: mean[policy] for policy in (_BASELINE, *_FAIR) if policy in mean}
    later = {policy: float((values > 0).mean()) for policy, values in saved.items()}
    balance = {policy: _mean(values) for policy, values in saved.items()}
    claims = [
        Finding(
            "TSF has the shortest queueing delays of tasks of all fair policies; FIFO has the "
            "longest of all.",
            "Mean delays: "
            + ", ".join(f"{duration(value)} under {policy}" for policy, value in mean.items())
            + ".",
            min(fair, key=lambda policy: fair[policy]) == _BASELINE
            and mean.get("FIFO", np.inf) >= max(fair.values()),
            "In a full cluster, a policy mainly decides which users wait. The total wait changes "
            "only through resources that placement leaves unused, and through the order of short "
            "and long tasks.",
        )
    ]
    if saved:
        worst = max(balance, key=lambda policy: balance[policy])
        claims.append(
            Finding(
                "CDRF does worst against TSF; DRF and CPU are close to each other.",
                "TSF saves on average per task: "
                + ", ".join(
                    f"{value:+.3g} s against {policy} ({later[policy]:.0%} of tasks start sooner)"
                    for policy, value in balance.items()
                )
                + ".",
                worst == "CDRF"
                and 2.0 * abs(balance.get("DRF", 0.0) - balance.get("CPU", 0.0)) < balance[worst],
                "CDRF's neglect of constrained jobs is visible only if these jobs have many tasks. "
                "In a trace with as much demand for memory as for CPUs, Mem does worse instead.",
            )
        )
    return tuple(claims)


def _sooner_and_later(saved: Mapping[str, Floats]) -> Table:
    return Table(
        ("than under", "sooner", "at once in both or equal", "later", "mean saved"),
        [
            (
                policy,
                f"{(values > 0).mean():.1%}",
                f"{(values == 0).mean():.1%}",
                f"{(values < 0).mean():.1%}",
                f"{_mean(values):+.4g} s",
            )
            for policy, values in saved.items()
        ],
    )


def _quantiles(values_by_policy: Mapping[str, Floats]) -> Table:
    percentiles = (25, 50, 75, 90, 99)
    return Table(
        ("policy", "mean", *(f"{p} %" for p in percentiles), "never"),
        [
            (
                policy,
                duration(_mean(values)),
                *(duration(value) for value in np.nanpercentile(values, percentiles).tolist()),
                f"{np.isnan(values).mean():.1%}",
            )
            for policy, values in values_by_policy.items()
            if np.isfinite(values).any()
        ],
    )


def _mean(values: Floats) -> float:
    finite = values[np.isfinite(values)]
    return float(finite.mean()) if len(finite) else 0.0
