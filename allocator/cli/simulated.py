"""Prints the result of `longshare simulate`: a summary, and a line for each user."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.console import Console
from rich.table import Table

from allocator.cli.tables import NAME, console
from allocator.contract.printable import printable
from allocator.formatting import counted
from allocator.simulation.summary import quantiles_of

if TYPE_CHECKING:
    from allocator.simulation.outcome import Outcome
    from allocator.simulation.setting import Setting
    from allocator.simulation.studies.comparisons import RecordCheck, RuleCheck
    from allocator.simulation.summary import UserSummary
    from allocator.simulation.trace import Trace

RULES = (
    "Report the rule of your cluster, even if verdicts differ. Under skip, as in Mesos, small "
    "tasks start while a large one waits. Under head-of-line, as in the SDRF paper, a large task "
    "blocks small ones. For a backfill scheduler, such as Slurm's, repeat this with --blocking "
    "hold."
)
"""Says which of two rules for tasks that do not fit to report."""
_SHOWN = 12
"""Users in the table: the users with the largest usage."""
_USER = "user"
_HEADINGS = ("usage", "tasks", "completed", "wait, s", "p50", "p90", "slowdown")
_LEAST_WORTH = ("p50", "slowdown", "tasks", "p90", "completed")
"""Columns that are dropped on a narrow terminal, in this order; numbers are never cut."""
_UNBOUNDED = 10_000


def show(
    answer: dict[str, Any], outcome: "Outcome", users: "UserSummary", setting: "Setting"
) -> None:
    """Print the result of a simulation.

    Args:
        answer: The data that `--json` would print.
        outcome: The simulated tasks.
        users: Results of the users.
        setting: The setting of the simulation.
    """
    out = console()
    out.print(
        f"{setting.policy} on {machines_of(outcome.trace, setting)}: "
        f"{answer['tasks']:,} tasks of {answer['users']:,} users "
        f"in {answer['seconds']:.3g} s ({answer['simulator']} simulator)"
    )
    if answer["compiling_s"]:
        out.print(f"and {answer['compiling_s']:.3g} s to compile the simulator, once")
    print_never_started(answer["never_started"])
    out.print(
        f"completed by the end of the trace: {_percent(answer['completion_ratio'])}; "
        "mean of users' ratios: " + _percent(answer["mean_user_completion_ratio"])
    )
    out.print(
        f"mean of users' mean waits: {_number(answer['mean_user_wait_s'])} s; "
        f"slowdowns: {_number(answer['mean_user_slowdown'])}"
    )
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    table.add_column("")
    rows = {
        "wait of a task, s": answer["wait_s"],
        "slowdown of a task": answer["slowdown"],
        "completion of a job, s": answer["job_completion_s"],
    }
    headings: dict[str, float] = next((row for row in rows.values() if row), {})
    for heading in headings:
        table.add_column(heading, justify="right", no_wrap=True)
    for name, row in rows.items():
        table.add_row(name, *(_number(value) for value in (row or {}).values()))
    if headings:
        out.print(table)
    out.print(_table_of_users(outcome, users, out))
    if len(users.names) > _SHOWN:
        out.print(f"and {len(users.names) - _SHOWN:,} users of less usage, see users.csv of --out")
    for name, used in answer["utilization"].items():
        out.print(f"use of {printable(name)} until the last finish: {_percent(used)}")


def machines_of(trace: "Trace", setting: "Setting") -> str:
    """Return a text that names the simulated machines, or the pool with its capacity."""
    if setting.capacity is None:
        return f"{sum(kind.count for kind in trace.machines):,} machines"
    return "one pool of " + ", ".join(
        f"{amount:.6g} {printable(name)}"
        for name, amount in zip(trace.resources, setting.capacity, strict=True)
    )


def print_never_started(tasks: int) -> None:
    """Print how many tasks never started, if any, and in which figures these tasks count."""
    if tasks:
        console().print(
            f"{counted(tasks, 'task')} fit on no machine and never started, under any policy. Waits"
            " leave them out; --load, usage and completed count them. If they ran in your cluster,"
            " correct the capacity or the units"
        )


def show_records(
    fifo: "RuleCheck | None", by_rule: "Mapping[str, Mapping[str, RecordCheck | None]]"
) -> None:
    """Print the rule that reproduces recorded waits, and how far simulated waits are from these.

    Policies are checked only if jobs in order of submission do not reproduce the record. Print
    nothing if there is no record.

    Args:
        fifo: Checks of jobs in order of submission; None: there is no record.
        by_rule: Checks of policies by rule for tasks that do not fit, and by policy.
    """
    from allocator.formatting import duration

    if fifo is None:
        return
    of_fifo = [(rule, "fifo, per job", check) for rule, check in fifo.checks.items()]
    checks = of_fifo + [
        (rule, policy, check)
        for rule, of_policies in by_rule.items()
        for policy, check in of_policies.items()
        if check is not None and fifo.reproduces is None
    ]
    first = checks[0][2]
    out = console()
    fitting = fifo.reproduces
    out.print(
        f"Which rule? With {fitting}, jobs in order of submission reproduce the record: report it."
        if fitting is not None
        else "Which rule? Jobs in order of submission reproduce the record under none. Report the "
        "rule of your cluster: skip for Mesos, hold for Slurm with backfill.",
        highlight=False,
    )
    out.print(
        f"In the record of the first {first.tasks:,} tasks, the mean of users' mean waits is "
        f"{duration(first.recorded_wait_s)}. Simulated:",
        highlight=False,
    )
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    table.add_column("policy", overflow="fold")
    table.add_column("--blocking")
    for heading in ("mean wait", "part of the record [90 %]", "users within a factor of 2"):
        table.add_column(heading, justify="right")
    for rule, policy, check in checks:
        interval = "" if check.low is None else f" [{check.low:.0%}, {check.high:.0%}]"
        table.add_row(
            printable(policy),
            rule,
            duration(check.simulated_wait_s),
            "-" if check.ratio is None else f"{check.ratio:.0%}{interval}",
            f"{check.near} of {check.users}",
        )
    out.print(table)
    out.print(
        ""
        if fitting is not None
        else "Is the model right? Look only at rows of the policy that your cluster ran. If these "
        "are far from 100 %, the model lacks something, such as limits or another capacity. Until "
        "this is corrected, the differences between policies are doubtful, too.\n",
        highlight=False,
    )


def _table_of_users(outcome: "Outcome", users: "UserSummary", out: Console) -> Table:
    """Return a table with a line for each user.

    On a narrow terminal, columns are left out and names are cut.
    """
    waits = quantiles_of(outcome.wait, outcome.trace.user, len(users.names))
    rows = []
    for user in np.argsort(-users.usage, kind="stable")[:_SHOWN].tolist():
        figures = (users.mean_wait_s[user], *waits[user, :2], users.mean_slowdown[user])
        cells = (
            f"{users.usage[user]:.1%}",
            f"{users.tasks[user]:,}",
            _percent(users.completion_ratio[user] if users.tasks[user] else None),
            *("-" if np.isnan(figure) else f"{figure:,.4g}" for figure in figures),
        )
        rows.append((printable(users.names[user]), dict(zip(_HEADINGS, cells, strict=True))))
    longest = max([len(_USER), *(len(name) for name, _ in rows)])
    headings = list(_HEADINGS)
    for column in _LEAST_WORTH:
        excess = _beyond(_table_with(rows, headings), out)
        if excess <= max(0, longest - NAME):
            break
        headings.remove(column)
    table = _table_with(rows, headings)
    table.columns[0].max_width = longest - max(0, _beyond(table, out))
    return table


def _table_with(rows: Sequence[tuple[str, dict[str, str]]], headings: Sequence[str]) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    table.add_column(_USER, overflow="ellipsis", no_wrap=True, min_width=len(_USER))
    for heading in headings:
        table.add_column(heading, justify="right", no_wrap=True)
    for name, cells in rows:
        table.add_row(name, *(cells[heading] for heading in headings))
    return table


def _beyond(table: Table, out: Console) -> int:
    """Return the table's width minus the console's, in characters; above 0: too wide."""
    return Console(width=_UNBOUNDED).measure(table).maximum - out.width


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:,.6g}"


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{value:.1%}"
