"""`longshare simulate`: simulates a policy on a trace."""

import json
import time
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from allocator.cli import options
from allocator.cli.connection import HTML, fail_study, keep, keep_folder
from allocator.cli.parameters import (
    by_user,
    initial_commitments,
    load_policy_files,
    number_or_text,
    parse,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from allocator.simulation.outcome import Outcome
    from allocator.simulation.series import Series
    from allocator.simulation.setting import Setting
    from allocator.simulation.summary import UserSummary
    from allocator.simulation.trace import Trace

_LIKELY_WRONG_UNIT = 100.0
"""Capacity divided by mean use, above which a memory with a unit was probably given in another unit
than the trace's."""
_FOLLOWED = 40_000
"""Largest number of users whose shares are written for hundreds of instants."""


def simulate(
    trace: options.TraceFile,
    *,
    policy: options.Policy,
    parameters: options.Parameters = None,
    policy_files: options.PolicyFiles = None,
    load: options.Load = None,
    capacity: options.Capacity = None,
    blocking: options.BlockingRule = options.Blocking.HEAD_OF_LINE,
    users: options.CountingRule = options.CountedUsers.KNOWN,
    per: options.Per = options.SharingUnit.USER,
    weights: options.Weights = None,
    owes: options.Commitments = None,
    sampled: options.SamplingInterval = None,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            help="Folder for tasks, users, users over time, a summary and a figure.",
        ),
    ] = None,
    reference: Annotated[
        bool,
        typer.Option(
            "--reference",
            help="Use the plain simulator, which also counts and times the ordering of users.",
        ),
    ] = False,
    events: Annotated[
        bool,
        typer.Option(
            "--events/--no-events",
            help="Count the events of a Live Tree; without this, SDRF takes half the time.",
        ),
    ] = True,
    html: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Write the time machine: a page that plays the run. Uses the plain simulator.",
        ),
    ] = None,
    as_json: options.AsJson = False,
) -> None:
    """Simulate a policy on the tasks of a trace; see docs/how-to/simulate.md.

    Exit codes: 0, done; 2, the trace, the policy or the setting cannot be used.

    Example: longshare simulate month.parquet --policy sdrf --set half_life=1d --load 0.5
    """
    from allocator import provenance
    from allocator.cli.progress import bar
    from allocator.simulation import store
    from allocator.simulation.series import Series
    from allocator.simulation.setting import Setting
    from allocator.simulation.summary import summary, users_of

    load_policy_files(policy_files)
    keep("--html", html, (trace, *(policy_files or ())), HTML)
    keep_folder("--out", out)
    try:
        content = store.read(trace)
        setting = Setting(
            policy=policy,
            parameters=parse(parameters),
            capacity=capacity_of(content, load, capacity),
            blocking=blocking.value,
            users=users.value,
            per=per.value,
            weights=by_user(weights, "--weight"),
            owes=initial_commitments(owes),
            sampled=number_or_text(sampled),
        )
        setting.check(content)
        if setting.owes and setting.new_policy().tau is None:
            typer.echo(f"longshare: --owes has no effect: {policy} keeps no commitments", err=True)
        if out is not None:
            from allocator.simulation.studies import over_time  # noqa: F401 - or fail now, without matplotlib
        plain = reference or html is not None
        fast, simulator = simulator_for(setting, reference=plain, events=events)
        compiling = compiled() if fast else 0.0
        series = Series(content) if out is not None and _followed(content, setting) else None
        started = time.perf_counter()
        with bar("simulating", len(content), "tasks") as report:
            if html is None:
                outcome = simulator(content, setting, report, series=series)
            else:
                outcome = _filmed(content, setting, trace.name, html, report, series=series)
        seconds = time.perf_counter() - started
        summaries = users_of(outcome)
        answer = {
            "longshare": provenance(),
            "trace": str(trace),
            "seed": store.seed_of(trace),
            "setting": asdict(setting) | {"load": load},
            "simulator": "fast" if fast else "reference",
            "seconds": seconds,
            "compiling_s": compiling,
            **summary(outcome, summaries, setting),
        }
        if out is not None:
            written = _write(outcome, summaries, answer, out, series)
    except (OSError, ValueError) as error:
        fail_study(error, as_json=as_json)
    if as_json:
        typer.echo(json.dumps(answer, indent=2))
    else:
        from allocator.cli.simulated import show

        show(answer, outcome, summaries, setting)
        if out is not None:
            typer.echo(f"written to {out}: {', '.join(written)}")
        if html is not None:
            typer.echo(f"Time machine: {html} ({html.stat().st_size:,} bytes)")


def _followed(trace: "Trace", setting: "Setting") -> bool:
    """Return whether this simulation can record users' shares over time.

    If it cannot, the option --out does not write the file of shares over time.
    """
    return (
        setting.per == "user"
        and setting.sampled is None
        and len(trace) > 0
        and len(trace.users) <= _FOLLOWED
    )


def compiled() -> float:
    """Compile the fast simulator if this machine has not done so yet, and show a message meanwhile.

    Without Numba, say on standard error that the reference simulator takes over. Without a safe
    folder for the compiled code, say that each command compiles the simulator.

    Returns:
        Seconds that compilation took; 0 if the simulator was compiled before, or without Numba.
    """
    from allocator.cli.progress import working
    from allocator.simulation import fast  # loads a compiler

    if fast.MISSING is not None:
        _say_numba_is_missing(fast.MISSING)
        return 0.0
    started = time.perf_counter()
    with working("loading the simulator; only its first use compiles it"):
        has_compiled = fast.compile_kernels()
    if fast.cache_folder() is None:
        typer.echo(
            "longshare: each command compiles the simulator, because other users could change "
            "compiled code in the cache folder. To keep the code: chmod go-w ~/.cache (or "
            "XDG_CACHE_HOME), and the folders above",
            err=True,
        )
    return time.perf_counter() - started if has_compiled else 0.0


def _say_numba_is_missing(reason: str) -> None:
    typer.echo(
        f"longshare: the fast simulator needs Numba, which cannot be imported: {reason}. "
        "The reference simulator takes over, with the same results. "
        "To install Numba: pip install 'longshare[fast]'",
        err=True,
    )


def _write(
    outcome: "Outcome",
    users: "UserSummary",
    answer: dict[str, Any],
    out: Path,
    series: "Series | None",
) -> list[str]:
    """Write all result files to the folder of the option --out, and return the files' names.

    Args:
        outcome: The simulated tasks.
        users: Results of the users.
        answer: The data that `--json` would print.
        out: Folder for the files.
        series: Shares over time; None: not computed.
    """
    from allocator.simulation import results

    written = ["tasks.parquet", "users.csv", "summary.json"]
    if series is not None:
        from allocator.simulation.studies.drawing import save
        from allocator.simulation.studies.over_time import figure_of

        title = f"{Path(answer['trace']).stem} under {answer['setting']['policy']}"
        save([("users", figure_of(outcome, users, series, title))], out)
        written[2:2] = ["series.parquet", "users.png"]
    results.write(outcome, users, answer, out, series)
    return written


def _filmed(
    trace: "Trace",
    setting: "Setting",
    source: str,
    html: Path,
    report: "Callable[[int], None]",
    *,
    series: "Series | None",
) -> "Outcome":
    """Simulate, and write a film of the simulation as an HTML page.

    Args:
        trace: The tasks.
        setting: The setting of the simulation.
        source: Name of the trace, which the film shows.
        html: Path of the page.
        report: Callback for progress.
        series: Receives shares over time; None: not wanted.
    """
    from allocator.film.page import write
    from allocator.simulation.film import film

    outcome, page = film(trace, setting, source, report, series)
    write(html, page)
    return outcome


def capacity_of(
    trace: "Trace", load: float | None, capacity: str | None
) -> tuple[float, ...] | None:
    """Return the capacity of the simulated pool, from the options --load and --capacity.

    Args:
        trace: The trace to simulate.
        load: Capacity divided by the mean use of the trace, or None.
        capacity: Capacity as text, such as `cpus=4,mem=8G`, or None. Memory with a unit is
            converted to MiB.

    Returns:
        The amounts in the order of the trace's resources. None if neither option is given; the
        simulation then uses the trace's machines.

    Raises:
        ValueError: both are given, neither is given for a trace without machines, or the capacity
            is invalid.
    """
    from allocator.simulation.formats.csv import is_memory
    from allocator.simulation.setting import capacity_at, pool_of

    if load is not None:
        if capacity is not None:
            raise ValueError("give --load or --capacity, not both")
        return capacity_at(trace, load)
    if capacity is None:
        if not trace.machines:
            wanted = ",".join(f"{name}=N" for name in trace.resources)
            raise ValueError(f"the trace has no machines; give --capacity {wanted}, or --load L")
        return None
    amounts = _amounts(capacity)
    names = [name for name, _amount in amounts]
    if sorted(names) != sorted(trace.resources):
        raise ValueError(_mismatch(trace.resources, dict(amounts)))
    pool = pool_of(trace, dict(amounts))
    for name, size, used in zip(trace.resources, pool, trace.mean_use(), strict=True):
        if is_memory(name) and 0.0 < _LIKELY_WRONG_UNIT * used < size:
            typer.echo(
                f"longshare: --capacity {name}={size:g} is {size / used:,.0f} times the "
                f"trace's mean use of {name}, {used:.3g}. Amounts with a unit are converted to "
                "MiB; if the trace has plain GB, give the number of GB without a unit.",
                err=True,
            )
    return pool


def _mismatch(resources: tuple[str, ...], amounts: dict[str, float]) -> str:
    """Return what is wrong with the names of a capacity, and how to correct it.

    Args:
        resources: The trace's resources.
        amounts: The given amounts by name.
    """
    from allocator.complaints import did_you_mean

    unknown = [name for name in amounts if name not in resources]
    missing = [name for name in resources if name not in amounts]
    wanted = ",".join(
        f"{name}={amounts[name]:.10g}" if name in amounts else f"{name}=N" for name in resources
    )
    problems = [
        f"the trace has no resource {name}{did_you_mean(name, missing).rstrip('?')}"
        for name in unknown
    ]
    suggestions = tuple(problems)
    unsuggested = [
        name for name in missing if not any(problem.endswith(f" {name}") for problem in suggestions)
    ]
    if unsuggested:
        noun = "resource" if len(unsuggested) == 1 else "resources"
        problems.append(f"the trace also has the {noun} {', '.join(unsuggested)}")
    text = f"--capacity: {'; '.join(problems) or 'a resource is named twice'}. "
    text += f"Give each resource of the trace once: --capacity {wanted}"
    if missing and amounts and not unknown:
        text += (
            ". If your cluster has no such resource, and the trace is from a CSV, convert the CSV "
            f"with --resources {','.join(name for name in resources if name in amounts)}"
        )
    return text


def _amounts(capacity: str) -> list[tuple[str, float]]:
    """Return names and amounts of a text such as `cpus=4,mem=8G`."""
    from allocator.simulation.formats.csv import is_memory
    from allocator.simulation.formats.text import as_mebibytes

    amounts: list[tuple[str, float]] = []
    for entry in capacity.split(","):
        name, equals, amount = entry.partition("=")
        name, amount = name.strip(), amount.strip()
        try:
            amounts.append((name, float(as_mebibytes(amount) if is_memory(name) else amount)))
        except ValueError:
            equals = ""
        if not equals:
            raise ValueError(f"--capacity: {entry!r} is not NAME=AMOUNT, such as cpus=4")
    return amounts


def simulator_for(
    setting: "Setting", *, reference: bool, events: bool
) -> "tuple[bool, Callable[..., Outcome]]":
    """Choose the fast, compiled simulator if it supports the setting, else the one in plain Python.

    Args:
        setting: The setting of the simulation.
        reference: Whether the simulator in plain Python is requested.
        events: Whether the fast simulator counts events of a Live Tree, which are possible swaps
            of neighbours in the order of users.

    Returns:
        Whether the fast simulator is chosen, and the function that simulates a trace.
    """
    if not reference:
        from allocator.simulation import fast  # loads a compiler

        if fast.MISSING is not None:
            _say_numba_is_missing(fast.MISSING)
        if fast.supports(setting):
            return True, partial(fast.simulate, events=events)
    from allocator.simulation import reference as plain

    return False, plain.simulate
