"""`longshare compare`: simulates several policies on one trace."""

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from allocator.cli import options
from allocator.cli.connection import FIGURES, fail_study, keep
from allocator.cli.groups import group_masks, group_members
from allocator.cli.parameters import by_user, initial_commitments, load_policy_files, parse
from allocator.cli.simulate import capacity_of, compiled
from allocator.files import whole

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from rich.table import Table

    from allocator.simulation.setting import Setting
    from allocator.simulation.studies.compared import (
        ComparisonRow,
        GroupComparison,
        PeriodComparison,
    )
    from allocator.simulation.studies.comparisons import RecordCheck, RuleCheck
    from allocator.simulation.studies.measures import Floats, UserMeasures
    from allocator.simulation.trace import Trace

_BLOCKED = 0.8
"""Used fraction of the fullest resource, while tasks wait, below which large tasks block."""
_PERIODS = 6
"""Least number of periods that says much about other periods."""
_ALL, _LIGHT = "all", "light"
"""Names of the groups of users that each comparison has."""
_TINY = 0.01
"""Part of the longest period's wait below which a period's wait has no percentage."""
_HALF_LIVES = 3.0
"""Least length of a period in half-lives; after three, an eighth of a commitment remains."""


@dataclass(frozen=True)
class _Results:
    """Results of all policies under one rule for tasks that do not fit; mappings by policy.

    Args:
        rows: A row for each policy; the first row is of the baseline.
        groups: Comparisons by name of the group and by policy: of all users, of the light half, and
            of the groups that the user named.
        users: Users' results.
        sums: Users' waits by period; empty without --periods.
        used: Utilization of each resource.
        used_while_waiting: The same, while tasks wait.
        records: Simulated and recorded waits; None if the trace has no record.
        never_started: Number of tasks that fit on no machine.
    """

    rows: "list[ComparisonRow]"
    groups: "dict[str, dict[str, GroupComparison]]"
    users: "dict[str, UserMeasures]"
    sums: "dict[str, tuple[Floats, Floats]]"
    used: "dict[str, Mapping[str, float | None]]"
    used_while_waiting: "dict[str, Mapping[str, float | None]]"
    records: "dict[str, RecordCheck | None]"
    never_started: int

    @property
    def by_period(self) -> "dict[str, PeriodComparison]":
        """Comparisons of all users by period; empty without --periods."""
        compared = self.groups[_ALL].items()
        return {policy: group.periods for policy, group in compared if group.periods is not None}

    def verdict(self, policy: str, group: str = _ALL) -> str | None:
        """Return the verdict on a policy for a group of users; None for the baseline."""
        row = next(row for row in self.rows if row.policy == policy)
        if row is self.rows[0]:
            return None
        named = group not in {_ALL, _LIGHT}
        return "equal" if row.is_equal else self.groups[group][policy].verdict(named=named)


def compare(
    trace: options.TraceFile,
    *,
    policies: Annotated[
        str,
        typer.Option(
            metavar="A,B,...",
            help="Policies to compare; the first is the baseline. Parameters follow after colons: "
            "drf,sdrf:half_life=1d,tsf.",
        ),
    ],
    policy_files: options.PolicyFiles = None,
    load: options.Load = None,
    capacity: options.Capacity = None,
    blocking: options.BlockingRules = None,
    users: options.CountingRule = options.CountedUsers.KNOWN,
    per: options.Per = options.SharingUnit.USER,
    weights: options.Weights = None,
    owes: options.Commitments = None,
    groups: options.Groups = None,
    periods: Annotated[
        int | None,
        typer.Option(
            min=2,
            max=1000,
            metavar="N",
            help="Also compare the waits in N equal periods of the trace: 12, for the months of a "
            "year.",
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(metavar="PNG", help="The figure.", show_default="compare.png")
    ] = None,
    by_user_file: Annotated[
        Path | None,
        typer.Option(
            "--by-user",
            metavar="CSV",
            help="Also write each user's waits and, with --periods, 90 % intervals.",
        ),
    ] = None,
    as_json: options.AsJson = False,
) -> None:
    """Simulate a trace under several policies, and show how waits change.

    The column less by is the reduction of the mean wait. If its 90 % interval contains 0, this
    trace does not decide whether users wait less. The interval is from 1,000 draws of the users, of
    which it needs five. With --periods, a second interval shows whether the periods agree.

    The column used is the utilization of the fullest resource, until the last task finishes.

    The columns are explained in docs/how-to/choose-a-policy.md.

    Without --blocking, the rule is the one under which jobs in order of submission reproduce the
    recorded waits. Without such a rule, the table of intervals has head-of-line and skip.

    Exit codes: 0, done; 2, the trace, a policy or the setting cannot be used.

    Example: longshare compare month.parquet --policies drf,sdrf:half_life=1d --load 0.5
    """
    from allocator import provenance
    from allocator.cli.progress import bar
    from allocator.cli.simulated import print_never_started
    from allocator.simulation import store
    from allocator.simulation.setting import Setting
    from allocator.simulation.studies.compared import USER_COLUMNS
    from allocator.simulation.studies.comparisons import check_rules

    load_policy_files(policy_files)
    file = _figure_file(out, (trace, *(policy_files or ())))
    members = group_members(groups, (_ALL, _LIGHT))
    header = ",".join(USER_COLUMNS[:4]).encode()
    inputs = (trace, *(policy_files or ()))
    keep("--by-user", by_user_file, inputs, (header,), outputs=[file], makes_folder=True)
    try:
        content, seed = store.read(trace), store.seed_of(trace)
        recorded = store.recorded_waits(trace)
        masks = group_masks(content, members)
        pool = capacity_of(content, load, capacity)
        named = _named(policies)
        settings, commitments = {}, initial_commitments(owes)
        for name in named:
            policy, *parameters = name.split(":")
            settings[name] = Setting(
                policy=policy,
                parameters=parse(parameters),
                capacity=pool,
                blocking=(blocking or options.Blocking.HEAD_OF_LINE).value,
                users=users.value,
                per=per.value,
                weights=by_user(weights, "--weight"),
                owes=commitments,
            )
            settings[name].check(content)
        compiled()
        fifo = check_rules(content, pool, recorded)
        fitting = None if fifo is None else fifo.reproduces
        if fitting and not blocking:
            settings = {
                name: replace(setting, blocking=fitting) for name, setting in settings.items()
            }
        rule = blocking or fitting
        rules = 1 if rule else 2
        with bar("simulating", rules * len(settings), "runs") as report:
            result = _simulated(content, settings, masks, periods, recorded, report=report)
            skipping = (
                None
                if rule
                else _simulated(
                    content,
                    {name: replace(setting, blocking="skip") for name, setting in settings.items()},
                    masks,
                    periods,
                    recorded,
                    report=lambda number: report(len(settings) + number),
                )
            )
        _write(result, trace.stem, file, by_user_file)
    except (OSError, ValueError) as error:
        fail_study(error, as_json=as_json)
    if as_json:
        answer = {
            "longshare": provenance(),
            "trace": str(trace),
            "seed": seed,
            "figure": str(file),
            "never_started": result.never_started,
            "rule_of_record": fitting,
            "record_of_fifo_per_job": None
            if fifo is None
            else {name: asdict(check) for name, check in fifo.checks.items()},
            "policies": [
                _policy_as_json(result, row.policy)
                | {"setting": asdict(settings[row.policy]) | {"load": load}}
                | ({"skip": _policy_as_json(skipping, row.policy)} if skipping else {})
                for row in result.rows
            ],
        }
        typer.echo(json.dumps(answer, indent=2))
    else:
        _show(content, result, skipping, settings, fifo)
        if settings[result.rows[0].policy].blocking == options.Blocking.HEAD_OF_LINE.value:
            _warn_of_blocking(result.used_while_waiting, compared_with_skip=skipping is not None)
        print_never_started(result.never_started)
        typer.echo("\n".join(str(path) for path in (file, by_user_file) if path is not None))


def _figure_file(out: Path | None, inputs: tuple[Path, ...]) -> Path:
    """Return the file of the option --out, with the end .png if its name has no end.

    Args:
        out: The option's value.
        inputs: Files that the command reads.

    Raises:
        typer.BadParameter: The name's end is no format of a figure, or the figure would replace an
            input or another file.
        typer.Exit: The figure cannot be written.
    """
    file = out or Path("compare.png")
    file = file if file.suffix or file.is_dir() else file.with_suffix(".png")
    keep("--out", file, inputs, tuple(FIGURES.values()), makes_folder=True)
    if file.suffix.lower() not in FIGURES:
        raise typer.BadParameter(
            f"{file} has no format of a figure; give its name one of the ends {', '.join(FIGURES)}",
            param_hint="--out",
        )
    return file


def _simulated(
    trace: "Trace",
    settings: "Mapping[str, Setting]",
    masks: "Mapping[str, NDArray[np.bool_]]",
    periods: int | None,
    recorded: "Floats | None",
    *,
    report: Callable[[int], None],
) -> _Results:
    """Simulate a trace under each policy, and compare the policies with the first one.

    Args:
        trace: The trace.
        settings: Settings by policy.
        masks: Masks of the users of each group that the user named.
        periods: Number of periods; None: none.
        recorded: Each task's recorded wait in seconds; None: there is no record.
        report: Callback for progress, which receives the number of simulated policies.

    Raises:
        ValueError: No task fits.
    """
    import numpy as np

    from allocator.simulation import fastest
    from allocator.simulation.studies import compared, measures
    from allocator.simulation.studies.comparisons import check_record
    from allocator.simulation.summary import utilization, utilization_while_waiting

    users, sums, records = {}, {}, {}
    used: dict[str, Mapping[str, float | None]] = {}
    used_while_waiting: dict[str, Mapping[str, float | None]] = {}
    never_started = 0
    for number, (name, setting) in enumerate(settings.items(), 1):
        outcome = fastest.simulate(trace, setting, events=False)
        outcome.require_starts()
        never_started = outcome.never_started
        users[name] = measures.of_users(outcome)
        used[name] = utilization(outcome, setting)
        used_while_waiting[name] = utilization_while_waiting(outcome, setting)
        records[name] = check_record(outcome, recorded)
        if periods is not None and len(trace):
            sums[name] = compared.user_sums_by_period(outcome, periods)
        report(number)
    light = next(iter(users.values())).lighter_half()
    masks = {_ALL: np.ones_like(light), _LIGHT: light, **masks}
    return _Results(
        compared.rows(users),
        {name: compared.group(trace, users, sums, mask) for name, mask in masks.items()},
        users,
        sums,
        used,
        used_while_waiting,
        records,
        never_started,
    )


def _policy_as_json(result: _Results, policy: str) -> "dict[str, Any]":
    row = next(row for row in result.rows if row.policy == policy)
    record = result.records[policy]
    return (
        asdict(row)
        | {"verdict": result.verdict(policy)}
        | _periods_as_json(result.by_period.get(policy), result.groups[_LIGHT][policy].periods)
        | {
            "groups": {
                name: _group_as_json(compared[policy]) | {"verdict": result.verdict(policy, name)}
                for name, compared in result.groups.items()
                if name not in {_ALL, _LIGHT}
            },
            "record": None if record is None else asdict(record),
            "utilization": result.used[policy],
            "utilization_while_waiting": result.used_while_waiting[policy],
        }
    )


def _group_as_json(group: "GroupComparison") -> "dict[str, Any]":
    numbers = {
        "mean_user_wait_s": group.mean_user_wait_s,
        "reduction": group.reduction,
        "reduction_low": group.low,
        "reduction_high": group.high,
    }
    if group.periods is not None:
        overall = group.periods.overall
        numbers |= {
            "periods_reduction": overall.mean,
            "periods_low": overall.low,
            "periods_high": overall.high,
        }
    return {"users": group.users} | {name: _finite(number) for name, number in numbers.items()}


def _write(result: _Results, title: str, figure_file: Path, by_user_file: Path | None) -> None:
    """Draw the figure, and write the CSV of users if its file is given.

    Args:
        result: The results to draw and write.
        title: Name of the trace.
        figure_file: The figure.
        by_user_file: The CSV.
    """
    from allocator.simulation.studies import compared

    figure = compared.figure_of(result.users, f"{title}: {len(result.users)} policies")
    figure_file.parent.mkdir(parents=True, exist_ok=True)
    with whole(figure_file) as part:
        figure.savefig(part, dpi=150, format=figure_file.suffix[1:])
    if by_user_file is not None:
        by_user_file.parent.mkdir(parents=True, exist_ok=True)
        compared.write_users(result.users, result.sums, by_user_file)


def _periods_as_json(
    comparison: "PeriodComparison | None", light: "PeriodComparison | None"
) -> "dict[str, Any]":
    """Return the JSON fields about a policy's periods; empty without --periods."""
    if comparison is None or light is None:
        return {}
    overall = comparison.overall
    periods = zip(pairwise(comparison.ends), comparison.waits, comparison.reductions, strict=True)
    return {
        "periods": [
            {
                "from_s": begin,
                "to_s": end,
                "mean_user_wait_s": _finite(wait),
                "reduction": _finite(reduction),
            }
            for (begin, end), wait, reduction in periods
        ],
        "periods_reduction": _finite(overall.mean),
        "periods_low": _finite(overall.low),
        "periods_high": _finite(overall.high),
        "periods_light": _finite(light.overall.mean),
        "periods_light_low": _finite(light.overall.low),
        "periods_light_high": _finite(light.overall.high),
    }


def _finite(number: float) -> float | None:
    return float(number) if math.isfinite(number) else None


def _named(policies: str) -> list[str]:
    names = [name.strip() for name in policies.split(",")]
    if len(set(names)) < len(names) or len(names) < 2:
        raise ValueError(f"--policies {policies}: name two or more policies, each once")
    return names


def _fullest(fractions: "Mapping[str, float | None]") -> tuple[str, float]:
    """Return the resource with the largest used fraction, and this fraction."""
    return max(
        ((name, used) for name, used in fractions.items() if used is not None),
        key=lambda entry: entry[1],
        default=("", 0.0),
    )


def _warn_of_blocking(
    used_while_waiting: "Mapping[str, Mapping[str, float | None]]", *, compared_with_skip: bool
) -> None:
    """Say under which policy tasks wait while much is free, because the first task does not fit.

    Args:
        used_while_waiting: Utilization of each resource while tasks wait, by policy.
        compared_with_skip: Whether the output has the results with `--blocking skip`.
    """
    from allocator.contract.printable import printable

    fullest = {name: _fullest(fractions) for name, fractions in used_while_waiting.items()}
    policy = min(fullest, key=lambda name: fullest[name][1] if fullest[name][0] else 1.0)
    resource, used = fullest[policy]
    if resource and used < _BLOCKED:
        typer.echo(
            f"Large tasks block the pool: while tasks wait under {printable(policy)}, only "
            f"{used:.0%} of {printable(resource)}, the fullest resource, is used."
            f"{'' if compared_with_skip else ' Also compare with --blocking skip.'}",
            err=True,
        )


def _interval(low: float | None, high: float | None, without: str = "") -> str:
    """Return the second line of a cell: an interval in percent.

    Args:
        low: Lower end as a fraction; None: there is no interval.
        high: Upper end.
        without: The text if there is no interval.
    """
    return without if low is None or high is None else f"\n[{100 * low:.1f}, {100 * high:.1f}]"


def _show_periods(result: _Results, settings: "Mapping[str, Setting]") -> None:
    """Print the reduction of the mean wait in each period, of all users and of named groups.

    Args:
        result: The results, which have periods.
        settings: Settings by policy.
    """
    _show_periods_of(result.by_period)
    _warn_of_short_periods(result.by_period, settings)
    for name, compared in result.groups.items():
        periods = {policy: group.periods for policy, group in compared.items()}
        if name not in {_ALL, _LIGHT} and next(iter(compared.values())).users:
            _show_periods_of({policy: each for policy, each in periods.items() if each}, name)


def _show_periods_of(by_period: "Mapping[str, PeriodComparison]", group: str = "") -> None:
    """Print a table with the reduction of a group's mean wait in each period.

    Args:
        by_period: Comparisons with the first policy, by policy.
        group: Name of the group; empty: all users.
    """
    from rich.table import Table

    from allocator.cli.tables import console
    from allocator.contract.printable import printable
    from allocator.formatting import duration

    baseline, *alternatives = by_period.values()
    first, second = baseline.ends[:2]
    heading = (
        f"The column less by, of tasks submitted in {len(baseline.waits)} periods of "
        f"{duration(second - first)} each, from the first submission on:"
    )
    if group:
        heading = f"The same for the users {printable(group)}:"
    console().print(f"\n{heading}", highlight=False)
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    names = list(map(printable, by_period))
    for heading in ("from", f"mean wait,\n{names[0]}", *names[1:]):
        table.add_column(heading, justify="right", overflow="fold")
    tiny = _TINY * max(filter(math.isfinite, baseline.waits), default=0.0)
    for number, wait in enumerate(baseline.waits):
        reductions = (comparison.reductions[number] for comparison in alternatives)
        table.add_row(
            duration(baseline.ends[number] - first),
            duration(wait) if math.isfinite(wait) else "no tasks",
            *(
                f"{reduction:+.1%}" if wait >= tiny and math.isfinite(reduction) else "-"
                for reduction in reductions
            ),
        )
    console().print(table)


def _warn_of_short_periods(
    by_period: "Mapping[str, PeriodComparison]", settings: "Mapping[str, Setting]"
) -> None:
    """Name the policies whose waits or half-lives are too long for the periods.

    Args:
        by_period: Comparisons with the first policy, by policy.
        settings: Settings by policy.
    """
    from allocator.cli.tables import console
    from allocator.contract.printable import printable

    causes: dict[str, dict[str, float]] = {}
    for policy, comparison in by_period.items():
        ends = comparison.ends
        wait = max(filter(math.isfinite, comparison.waits), default=0.0)
        time_constant = getattr(settings[policy].new_policy(), "tau", None) or 0.0
        memory = _HALF_LIVES * math.log(2.0) * time_constant
        memory = memory if math.isfinite(memory) else 0.0
        if max(wait, memory) > ends[1] - ends[0]:
            cause = (
                f"a period is shorter than {_HALF_LIVES:.0f} half-lives"
                if memory >= wait
                else "some waits are longer than a period"
            )
            causes.setdefault(cause, {})[policy] = (ends[-1] - ends[0]) // max(wait, memory)
    for cause, policies in causes.items():
        whole = int(min(policies.values()))
        remedy = "convert a longer history"
        if whole >= 2:
            remedy = f"take at most {whole}" + ("" if whole >= _PERIODS else f", or {remedy}")
        console().print(
            f"{printable(', '.join(policies))}: {cause}, so the periods depend on each other, and "
            f"their interval is too narrow: {remedy}.",
            highlight=False,
        )


def _show_certainty(by_rule: Mapping[str, _Results]) -> None:
    """Print a table of all intervals with verdicts, and what to do.

    Args:
        by_rule: Results by rule for tasks that do not fit.
    """
    from allocator.cli.simulated import RULES
    from allocator.cli.tables import console
    from allocator.simulation.studies.comparisons import LEAST_USERS

    result = next(iter(by_rule.values()))
    out = console()
    out.print("\nHow sure is this? With 90 % intervals:", highlight=False)
    out.print(_table_of_intervals(by_rule))
    legend = (
        "less, longer: no interval of the row contains 0. equal: no user's mean wait differs by "
        "more than a second. A named group needs no other users if other periods are known."
    )
    lines = [legend]
    if result.by_period:
        lines.append(
            "The first less by compares users' mean waits over the whole trace. The second adds up "
            "the means of the periods, in which a user counts once for each period with tasks. "
            "Report the first; if the second has another sign, say undecided."
        )
    verdicts = {
        results.verdict(row.policy, name)
        for results in by_rule.values()
        for row in result.rows[1:]
        for name in results.groups
    }
    if "undecided" in verdicts:
        lines.append("If undecided, keep your policy, or compare a longer history.")
    groups = [compared[result.rows[0].policy] for compared in result.groups.values()]
    if any(0 < group.users < LEAST_USERS for group in groups):
        lines.append(f"unknown: an interval over other users needs at least {LEAST_USERS} users.")
    if not result.by_period:
        lines.append("An interval covers other users, but no other months: add --periods N.")
    if len(by_rule) > 1:
        lines.append(RULES)
    out.print("\n".join(lines), highlight=False)


def _table_of_intervals(by_rule: Mapping[str, _Results]) -> "Table":
    """Return a table with a row for each policy, rule, and group of users.

    Args:
        by_rule: Results by rule for tasks that do not fit.
    """
    from rich.table import Table

    from allocator.contract.printable import printable

    first = next(iter(by_rule.values()))
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    table.add_column("policy", overflow="fold")
    table.add_column("--blocking")
    table.add_column("users", overflow="fold")
    for heading in ("less by\n[other users]", *(["[other periods]"] if first.by_period else [])):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("verdict", no_wrap=True)
    for row in first.rows[1:]:
        for rule, results in by_rule.items():
            for name, compared in results.groups.items():
                group = compared[row.policy]
                if not group.users:
                    continue
                estimates = [(group.reduction, group.low, group.high)]
                if group.periods is not None:
                    overall = group.periods.overall
                    estimates.append((overall.mean, overall.low, overall.high))
                table.add_row(
                    printable(row.policy),
                    rule,
                    printable(name),
                    *(
                        f"{mean:+.1%}" + _interval(_finite(low), _finite(high), "\n[unknown]")
                        if math.isfinite(mean)
                        else "-"
                        for mean, low, high in estimates
                    ),
                    results.verdict(row.policy, name),
                )
    return table


def _show(
    trace: "Trace",
    result: _Results,
    skipping: _Results | None,
    settings: "Mapping[str, Setting]",
    fifo: "RuleCheck | None",
) -> None:
    """Print the check of the record, the comparison, the periods, and how sure the figures are.

    Args:
        trace: The simulated trace.
        result: Results under the rule that the user chose, or under head-of-line.
        skipping: Results under skip if the user chose no rule.
        settings: Settings by policy.
        fifo: The check of jobs in order of submission; None: the trace has no record.
    """
    from rich.table import Table

    from allocator.cli.simulated import machines_of, show_records
    from allocator.cli.tables import console
    from allocator.contract.printable import printable
    from allocator.formatting import duration

    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold")
    table.add_column("policy", overflow="fold")
    for heading in (
        "mean\nwait",
        "less by,\n[90 %]",
        "light,\n[90 %]",
        "heavy",
        "gain",
        "lose",
        "completed",
        "used",
    ):
        table.add_column(heading, justify="right", no_wrap=True)
    for position, row in enumerate(result.rows):
        changes = (
            ("", "", "", "", "")
            if position == 0
            else (
                f"{row.reduction:+.1%}{_interval(row.reduction_low, row.reduction_high)}",
                f"{row.light:+.1%}{_interval(row.light_low, row.light_high)}",
                f"{row.heavy:+.1%}",
                str(row.gain),
                str(row.lose),
            )
        )
        table.add_row(
            printable(row.policy),
            duration(row.mean_user_wait_s),
            *changes,
            f"{row.mean_user_completion_ratio:.1%}",
            f"{_fullest(result.used[row.policy])[1]:.1%}",
        )
    setting = settings[result.rows[0].policy]
    by_rule: dict[str, _Results] = {setting.blocking: result}
    if skipping is not None:
        by_rule["skip"] = skipping
    show_records(fifo, {rule: results.records for rule, results in by_rule.items()})
    console().print(
        f"On {machines_of(trace, setting)}, with --blocking {setting.blocking}:", highlight=False
    )
    console().print(table)
    if result.by_period:
        _show_periods(result, settings)
    _show_certainty(by_rule)
