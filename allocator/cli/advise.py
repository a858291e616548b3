"""`longshare advise`: finds the half-life of SDRF that serves a workload best."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

import typer

from allocator.cli import options
from allocator.cli.connection import USAGE, fail
from allocator.cli.groups import group_masks, group_members
from allocator.cli.parameters import by_user, initial_commitments
from allocator.cli.simulate import capacity_of, compiled

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from allocator.simulation.advice import Advice, Simulate
    from allocator.simulation.outcome import Outcome
    from allocator.simulation.setting import Setting
    from allocator.simulation.studies.comparisons import RecordCheck
    from allocator.simulation.trace import Trace

_TRIALS = (12, 6)
_DEFAULT = "1d"
"""Half-life to set if a trace shows nothing: most users come again on the next day."""
_COLUMNS = ("half-life", "mean wait", "less by", "light", "heavy", "gain", "lose")
"""Headings of the table of half-lives."""
_FLAT = 4.0
"""Ratio of the longest to the shortest nearly best half-life, from which an optimum is called flat.

Below it, the peak is narrow.
"""


def advise(
    trace: options.TraceFile,
    *,
    load: options.Load = None,
    capacity: options.Capacity = None,
    blocking: options.BlockingRules = None,
    users: options.CountingRule = options.CountedUsers.KNOWN,
    weights: options.Weights = None,
    owes: options.Commitments = None,
    groups: options.Groups = None,
    as_json: options.AsJson = False,
) -> None:
    """Find the half-life of SDRF under which users of a trace wait least, and its uncertainty.

    The command simulates DRF, and SDRF with half-lives from a minute to the trace's length.
    The criterion is the mean of users' mean waits; see docs/how-to/choose-a-half-life.md.

    Without --blocking, the rule is the one under which jobs in order of submission reproduce the
    recorded waits. Without such a rule, the command searches with head-of-line, and again with
    skip.

    Exit codes: 0, done; 1, no half-life can change anything; 2, the trace or the setting cannot be
    used.

    Example: longshare advise month.parquet --load 0.5
    """
    from allocator import provenance
    from allocator.cli.progress import bar
    from allocator.cli.simulated import print_never_started, show_records
    from allocator.simulation import advice, fastest, store
    from allocator.simulation.setting import Setting
    from allocator.simulation.studies.comparisons import check_record, check_rules

    members = group_members(groups, _COLUMNS)
    records: dict[str, RecordCheck | None] = {}  # of DRF, by rule for tasks that do not fit

    def simulate(simulated: "Trace", setting: "Setting") -> "Outcome":
        outcome = fastest.simulate(simulated, setting, events=False)
        if setting.policy == "drf":
            records[setting.blocking] = check_record(outcome, recorded)
        return outcome

    try:
        content, seed = store.read(trace), store.seed_of(trace)
        recorded = store.recorded_waits(trace)
        setting = Setting(
            policy="drf",
            capacity=capacity_of(content, load, capacity),
            blocking=(blocking or options.Blocking.HEAD_OF_LINE).value,
            users=users.value,
            weights=by_user(weights, "--weight"),
            owes=initial_commitments(owes),
        )
        setting.check(content)
        compiled()
        fifo = check_rules(content, setting.capacity, recorded)
        fitting = None if fifo is None else fifo.reproduces
        if fitting and not blocking:
            setting = replace(setting, blocking=fitting)
        rule = blocking or fitting
        settings = [setting] if rule else [setting, replace(setting, blocking="skip")]
        with bar("simulating", len(settings) * (1 + sum(_TRIALS)), "runs") as report:
            masks = group_masks(content, members)
            result, skipping = _searched(content, settings, masks, simulate, report)
    except advice.AdviceError as error:
        fail(1, str(error))
    except (OSError, ValueError) as error:
        fail(USAGE, error)
    if as_json:
        answer = {
            "longshare": provenance(),
            "trace": str(trace),
            "seed": seed,
            "setting": asdict(setting) | {"load": load},
            **_as_json(result),
            "skip": None if skipping is None else _as_json(skipping),
            "rule_of_record": fitting,
            "record_of_fifo_per_job": None
            if fifo is None
            else {name: asdict(check) for name, check in fifo.checks.items()},
            "record": {
                rule: None if check is None else asdict(check) for rule, check in records.items()
            },
        }
        typer.echo(json.dumps(answer, indent=2))
    else:
        print_never_started(result.never_started)
        show_records(fifo, {rule: {"drf": check} for rule, check in records.items()})
        _show(result, setting.blocking)
        if skipping is not None:
            _show(skipping, "skip")
            _show_both(result, skipping)
        elif not rule:
            typer.echo("With --blocking skip, no half-life changes any user's mean wait.")


def _searched(
    trace: "Trace",
    settings: "Sequence[Setting]",
    masks: "Mapping[str, NDArray[np.bool_]]",
    simulate: "Simulate",
    report: Callable[[int], None],
) -> "tuple[Advice, Advice | None]":
    """Return the advice with one setting, and with a second setting if any.

    The second advice is also None if no half-life changes a wait with this setting.

    Args:
        trace: The workload.
        settings: One or two settings, with DRF as the policy.
        masks: Masks of the users of each group that the user named.
        simulate: The simulator to use.
        report: Callback for progress, which receives the number of simulations.

    Raises:
        AdviceError: With the first setting, no half-life changes a wait.
    """
    from allocator.simulation import advice

    completed = 0

    def on_trial() -> None:
        nonlocal completed
        completed += 1
        report(completed)

    def search(setting: "Setting") -> "Advice":
        coarse, fine = _TRIALS
        return advice.advise(
            trace, setting, simulate, coarse=coarse, fine=fine, groups=masks, on_trial=on_trial
        )

    result = search(settings[0])
    try:
        return result, search(settings[1]) if len(settings) > 1 else None
    except advice.AdviceError:
        return result, None


def _as_json(result: "Advice") -> "dict[str, Any]":
    return {"helps": result.helps, "decided": result.decided, **asdict(result)}


def _show_both(result: "Advice", skipping: "Advice") -> None:
    """Print which rule to report, and which half-lives are nearly best under both rules.

    Args:
        result: The advice under head-of-line.
        skipping: The advice under skip.
    """
    from allocator.cli.simulated import RULES
    from allocator.cli.tables import console

    out = console()
    out.print(f"\n{RULES}", highlight=False)
    low = max(result.flat_from_s, skipping.flat_from_s)
    high = min(result.flat_to_s, skipping.flat_to_s)
    if result.helps and skipping.helps:
        out.print(
            f"Under both rules, half-lives from {_setting(low)} to {_setting(high)} are nearly as "
            "good as the best."
            if low <= high
            else "No half-life is nearly as good as the best under both rules.",
            highlight=False,
        )


def _show(result: "Advice", rule: str) -> None:
    """Print a table of half-lives, and the advice.

    Args:
        result: The advice.
        rule: The rule for tasks that do not fit.
    """
    from rich.table import Table

    from allocator.cli.tables import console
    from allocator.contract.printable import printable
    from allocator.formatting import duration

    out = console()
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for heading in (*_COLUMNS, *map(printable, result.best.groups)):
        table.add_column(heading, justify="right", no_wrap=True)
    for trial in result.trials:
        mark = "bold" if trial == result.best else ""
        table.add_row(
            _setting(trial.half_life_s),
            duration(trial.mean_user_wait_s),
            f"{trial.reduction:+.1%}",
            f"{trial.light:+.1%}",
            f"{trial.heavy:+.1%}",
            str(trial.waits_less),
            str(trial.waits_longer),
            *(f"{group.reduction:+.1%}" for group in trial.groups.values()),
            style=mark,
        )
    out.print(
        f"With --blocking {rule}, the mean of users' mean waits is {duration(result.drf_wait_s)} "
        "under DRF, and under SDRF:",
        highlight=False,
    )
    out.print(table)
    best = result.best
    half_life = f'half_life = "{_setting(best.half_life_s)}"'
    heading = "Best" if result.decided else "Shortest mean wait"
    out.print(
        f"{heading}: {half_life} (δ of the SDRF paper: 1 − {1 - best.delta:.2g} per second): "
        f"users wait {change_phrase(best.reduction)} under DRF.",
        highlight=False,
    )
    out.print(
        f"Uncertainty: 90 % interval of less by: {_interval(best.low, best.high)}; of light: "
        f"{_interval(best.light_low, best.light_high)}"
        + "".join(
            f"; of {printable(name)}: {_interval(group.low, group.high)}"
            for name, group in best.groups.items()
        )
        + ".",
        highlight=False,
    )
    if result.between_bursts_s is not None:
        out.print(
            f"Two bursts of a light user begin {_setting(result.between_bursts_s)} apart under DRF "
            "(median over users); a burst lasts while a task waits or runs.",
            highlight=False,
        )
    if not result.decided:
        out.print(
            "This trace does not show whether memory helps. Keep the present policy, or convert "
            "a longer history."
            if result.helps
            else "No half-life is better than DRF here: choose the policy drf.",
            highlight=False,
        )
        _advise_for_light_users(result)
        out.print(_without_evidence(result.between_bursts_s), highlight=False)
        return
    out.print(_choice(result), highlight=False)
    _warn_of_chance(result)
    if not result.interior:
        out.print(
            "The best half-life is the shortest or longest that was simulated: this workload is "
            "too short to find the best one.",
            highlight=False,
        )


def _without_evidence(between_bursts: float | None) -> str:
    """Return a sentence that names a half-life for a trace that does not decide.

    Args:
        between_bursts: Seconds between two bursts of a light user; None: unknown.
    """
    if between_bursts is None:
        return (
            f'If you must run sdrf: no light user has two bursts, so set half_life = "{_DEFAULT}". '
            "Use is then remembered until the next day, and over-use is forgotten within a week."
        )
    return (
        f'If you must run sdrf: set half_life = "{_setting(between_bursts)}", the time between two '
        "bursts. Use is then remembered until the next one. This trace does not confirm it."
    )


def _warn_of_chance(result: "Advice") -> None:
    """Warn of chance if only half-lives close to the best one are nearly as good."""
    from allocator.cli.tables import console

    if result.interior and result.flat_to_s < _FLAT * result.flat_from_s:
        console().print(
            "Only half-lives close to the best are nearly as good, perhaps by chance in the order "
            "of starts. Before you choose one, compare it by period with a longer and a shorter "
            "half-life: longshare compare --periods.",
            highlight=False,
        )


def _interval(low: float | None, high: float | None) -> str:
    """Return an interval over users in percent, or say that there is none."""
    from allocator.simulation.studies.comparisons import LEAST_USERS

    if low is None or high is None:
        return f"unknown, with fewer than {LEAST_USERS} users"
    return f"{low:+.1%} to {high:+.1%}"


def _advise_for_light_users(result: "Advice") -> None:
    """Recommend the best half-life for light users, if it certainly helps these users."""
    from allocator.cli.tables import console

    if result.serves_light:
        console().print(
            "If light users matter most, choose the policy sdrf with this half-life: it helps "
            "these users.",
            highlight=False,
        )


def change_phrase(reduction: float) -> str:
    """Return a phrase such as "4.2% less than", for a relative reduction of the mean wait."""
    percent = f"{abs(reduction):.1%}"
    if percent == "0.0%":
        return "as long as"
    return f"{percent} {'less' if reduction > 0.0 else 'longer'} than"


def _choice(result: "Advice") -> str:
    """Return a sentence that names the half-lives to choose from."""
    nearly = result.nearly_best_s
    if len(nearly) == 1:
        return "No other simulated half-life is nearly as good."
    if nearly[0] < result.flat_from_s or nearly[-1] > result.flat_to_s:
        names = [_setting(half_life) for half_life in nearly]
        return (
            f"Nearly as good are the simulated half-lives {', '.join(names[:-1])} and {names[-1]}; "
            "choose one of these. The half-lives between them did worse, perhaps by chance."
        )
    is_flat = result.flat_to_s >= _FLAT * result.flat_from_s
    return (
        f"{'The optimum is flat: every' if is_flat else 'Every'} simulated half-life from "
        f"{_setting(result.flat_from_s)} to {_setting(result.flat_to_s)} is nearly as good as the "
        "best, so choose any half-life between these two."
    )


def _setting(half_life: float) -> str:
    """Return a half-life in seconds as a value of the setting `half_life`, such as "1.5h"."""
    for unit, size in (("d", 86400.0), ("h", 3600.0), ("m", 60.0)):
        if half_life >= size:
            return f"{half_life / size:{'.3g' if half_life < 1000 * size else '.0f'}}{unit}"
    return f"{half_life:.3g}s"
