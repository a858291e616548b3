"""`longshare experiment …` and `longshare framework`."""

import json
import signal
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeGuard

    from rich.console import Console
    from rich.table import Table

    from frameworks.experiment import Experiment
    from frameworks.harness.comparison import Comparison
    from frameworks.harness.runner import Progress
    from frameworks.harness.verdict import Verdict

DEFAULT_SPEED = 15.0
"""The papers' experiments then take 40 s each, and two cores keep up."""

experiment_app = typer.Typer(
    help="Reproduce the papers' experiments on this machine.", no_args_is_help=True
)


def _named(name: str) -> "Experiment":
    """Find an experiment, or tell its caller which there are."""
    from frameworks import experiment  # noqa: PLC0415 - keeps `--help` fast

    try:
        return experiment.load(name)
    except KeyError as error:
        raise typer.BadParameter(str(error.args[0]), param_hint="NAME") from error


def _under(
    chosen: "Experiment", policy: str | None, file: Path | None, parameters: list[str] | None
) -> "Experiment":
    """Return an experiment with the policy that is asked for, if one is."""
    from allocator import plugins  # noqa: PLC0415 - keeps `--help` fast

    try:
        brought = [] if file is None else plugins.load(file.absolute())
        name = policy or (brought[0] if len(brought) == 1 else None)
        if name is not None:
            given = dict(_parameter(parameter) for parameter in parameters or ())
            return chosen.under({"name": name, **given})
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--policy") from error
    if file is not None:
        raise typer.BadParameter(
            f"{file} defines {', '.join(brought)}; say which", param_hint="--policy"
        )
    if parameters:
        raise typer.BadParameter("it goes with --policy", param_hint="--set")
    return chosen


def _parameter(text: str) -> tuple[str, float | str]:
    """Read KEY=VALUE.

    Raises:
        ValueError: it is not that.
    """
    key, equals, value = text.partition("=")
    if not equals:
        raise ValueError(f"{text!r} is not KEY=VALUE")
    try:
        return key, float(value)
    except ValueError:
        return key, value


@experiment_app.command("list")
def list_experiments(
    *, as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False
) -> None:
    """Show which experiments there are."""
    from rich.console import Console  # noqa: PLC0415 - keeps `--help` fast
    from rich.table import Column, Table  # noqa: PLC0415

    from frameworks import experiment  # noqa: PLC0415

    found = list(experiment.load_all())
    if as_json:
        fields = {"name", "title", "figure", "shows", "duration", "policy"}
        typer.echo(json.dumps([e.model_dump(include=fields) for e in found], indent=2))
        return
    table = Table(Column("name", no_wrap=True), "policy", "paper", "shows")
    for e in found:
        table.add_row(e.name, str(e.policy["name"]), e.figure, e.shows)
    Console().print(table)


@experiment_app.command("settings")
def show_settings(
    name: Annotated[str, typer.Argument(help="One that `longshare experiment list` shows.")],
) -> None:
    """Print what an experiment asks of an allocator service that runs elsewhere, as TOML.

    These are the sections [policy] and [users] of `longshare serve --config`; without them, `run
    --master` measures another policy.
    """
    import tomli_w  # noqa: PLC0415 - keeps `--help` fast

    from frameworks.harness.runner import allocation_settings  # noqa: PLC0415

    typer.echo(tomli_w.dumps(allocation_settings(_named(name))), nl=False)


@experiment_app.command("run")
def run_experiment(
    name: Annotated[str, typer.Argument(help="One that `longshare experiment list` shows.")],
    *,
    speed: Annotated[
        float,
        typer.Option(min=0.1, help="Seconds of the embedded Mesos's time in one of yours."),
    ] = DEFAULT_SPEED,
    seed: Annotated[
        int, typer.Option(help="Of task run times; an experiment with variants takes several.")
    ] = 1,
    seeds: Annotated[
        int | None,
        typer.Option(min=1, help="How often to run each variant.", show_default="as it says"),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder for the results.", show_default="runs/NAME-TIME")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print summary.json.")] = False,
    master: Annotated[
        str | None,
        typer.Option(help="HOST:PORT of a Mesos master that is there, instead of starting one."),
    ] = None,
    mesos_home: Annotated[
        Path | None,
        typer.Option(
            help="Folder with mesos-master, mesos-agent and our module: start these, in real time."
        ),
    ] = None,
    record: Annotated[
        Path | None,
        typer.Option(help="Have the allocator log all it does to this file, see `replay`."),
    ] = None,
    policy: Annotated[
        str | None,
        typer.Option(
            help="Another policy than the experiment's; its claims are then left out.",
            show_default="that of --policy-file",
        ),
    ] = None,
    policy_file: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Python that defines a policy, docs/own-policy.md."),
    ] = None,
    parameters: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="A parameter of it; repeatable."),
    ] = None,
) -> None:
    """Run an experiment and hold it against the paper.

    Exit codes: 0, it comes out as the paper says; 1, it does not; 2, the policy failed; 3, this
    machine was too slow for --speed to tell.

    Starts the allocator service, a Mesos and one pymesos framework for each user,
    shows how they share the cluster, stops them all, and writes summary.json, allocations.csv,
    commitments.csv, figure.png, time-machine.html (a page that plays the run), events.log and the
    parts' logs.
    """
    from rich.console import Console  # noqa: PLC0415 - keeps `--help` fast

    from allocator.fairness.plugin_sandbox import PolicyFailedError  # noqa: PLC0415
    from frameworks.harness.comparison import compare  # noqa: PLC0415
    from frameworks.harness.processes import ChildFailed  # noqa: PLC0415
    from frameworks.harness.runner import ExperimentSettings, run  # noqa: PLC0415

    chosen = _under(_named(name), policy, policy_file, parameters)
    folder = out or Path("runs") / f"{name}-{time.strftime('%Y%m%d-%H%M%S')}"
    if record is not None and master is not None:
        raise typer.BadParameter(
            "the allocator of a master that is there is not ours to start; give --record to it",
            param_hint="--record",
        )
    if mesos_home is not None and master is not None:
        raise typer.BadParameter(
            "either a master is there or one is started", param_hint="--master"
        )
    settings = ExperimentSettings(
        speed=1.0 if mesos_home or master else speed,
        seed=seed,
        out=folder,
        master=master,
        mesos_home=mesos_home,
        record=record,
        policy_file=policy_file,
    )
    if seeds is not None:
        chosen = chosen.model_copy(update={"seeds": seeds})
    console = Console(stderr=True)
    signal.signal(signal.SIGTERM, _interrupt)
    outcome: Verdict | Comparison
    try:
        if chosen.variants:
            outcome = compare(chosen, settings, lambda varied: _Display(varied, console))
        else:
            with _Display(chosen, console) as watch:
                outcome = run(chosen, settings, watch)
    except KeyboardInterrupt as error:
        console.print("Stopped; nothing is left running.")
        raise typer.Exit(130) from error
    except (PolicyFailedError, ChildFailed, TimeoutError, OSError) as error:
        console.print(f"longshare experiment: {error}", style="red", markup=False)
        raise typer.Exit(_failed(error, as_json=as_json)) from error
    _report(outcome, folder, console if as_json else Console())
    if master is None:
        _film(folder, record, seed, console if as_json else Console())
    if as_json:
        typer.echo(json.dumps(outcome.summary(), indent=2))
    if not outcome.agrees:
        raise typer.Exit(3 if _was_too_slow(outcome) else 1)


def _failed(error: Exception, *, as_json: bool) -> int:
    """Return the exit code of an experiment without a result; print a failed policy as JSON."""
    from allocator.fairness.plugin_sandbox import PolicyFailedError  # noqa: PLC0415

    if not isinstance(error, PolicyFailedError):
        return 1
    if as_json:
        typer.echo(json.dumps(error.summary(), indent=2))
    return 2


def framework(
    *,
    name: Annotated[str, typer.Option(help="Name of the framework.")],
    role: Annotated[str, typer.Option(help="Role it subscribes to.")] = "*",
    master: Annotated[str, typer.Option(help="HOST:PORT of the Mesos master.")] = "127.0.0.1:5050",
    demand: Annotated[str, typer.Option(help="Of each task.")] = "cpus:1;mem:1024",
    run_time: Annotated[float, typer.Option(min=0.001, help="Mean, in seconds.")] = 20.0,
    jitter: Annotated[
        float, typer.Option(min=0.0, max=0.99, help="Run times vary by this fraction.")
    ] = 0.2,
    tasks: Annotated[
        int | None, typer.Option(min=1, help="How many.", show_default="without end")
    ] = None,
    whitelist: Annotated[
        str | None,
        typer.Option(help="Hosts on which alone its tasks may run: 'node-[1-9],10.0.4.0/22'."),
    ] = None,
    declare: Annotated[
        bool, typer.Option("--declare", help="Tell the allocator what a task needs.")
    ] = False,
    seed: Annotated[int, typer.Option(help="Of run times.")] = 0,
    wait: Annotated[
        bool, typer.Option("--wait", help="Start when a line comes on standard input.")
    ] = False,
) -> None:
    """Run a test framework that launches `sleep` tasks of one kind on any Mesos master."""
    from allocator.fairness.quantities import Quantities  # noqa: PLC0415 - keeps `--help` fast
    from frameworks.launcher import FrameworkWorkload, launch  # noqa: PLC0415

    try:
        each = Quantities.parse(demand).to_doubles()
        if not each:
            raise ValueError("no task needs nothing")  # noqa: TRY301 - told as the others are
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--demand") from error
    labels = {"longshare.whitelist": whitelist} if whitelist is not None else {}
    if declare:
        labels["longshare.demand"] = demand
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    if wait:
        typer.echo("waiting")
        if not sys.stdin.readline():
            return  # whoever was to say when is gone
    try:
        workload = FrameworkWorkload(name, role, each, run_time, jitter, tasks, seed, labels)
        launch(workload, master, stop)
    except RuntimeError as error:
        typer.echo(f"longshare framework: {error}", err=True)
        raise typer.Exit(1) from error


def _interrupt(*_: object) -> None:
    raise KeyboardInterrupt


class _Display:
    """Shows an experiment's progress for as long as it runs."""

    def __init__(self, experiment: "Experiment", console: object) -> None:
        from rich.progress import BarColumn, Progress, TextColumn  # noqa: PLC0415

        self._experiment = experiment
        self._total = experiment.cluster.cores
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=50),
            TextColumn("{task.fields[said]}"),
            console=console,  # type: ignore[arg-type]  # a rich Console
        )
        add = self._progress.add_task
        self._told = False
        self._time = add(experiment.name, total=experiment.duration, said="starting …")
        self._users = {
            user.name: add(f"  {user.name}", total=self._total, said="")
            for user in experiment.users
        }

    def __enter__(self) -> "Callable[[Progress], None]":
        self._progress.start()
        return self._show

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def _show(self, now: "Progress") -> None:
        if now.allocator is not None and not self._told:
            self._told = True
            self._progress.console.print(
                f"Status page: {now.allocator.page}\n"
                f"At the prompt: longshare top --address {now.allocator.address}",
                highlight=False,
                markup=False,
                soft_wrap=True,
            )
        number = self._experiment.phases.index(now.phase) + 1
        said = f"{now.elapsed:4.0f} s of {self._experiment.duration:.0f}, phase {number}"
        self._progress.update(self._time, completed=now.elapsed, said=said)
        for name, cpus in now.cpus.items():
            self._progress.update(self._users[name], completed=cpus, said=f"{cpus:5.1f} CPUs")


def _report(outcome: "Verdict | Comparison", folder: Path, console: "Console") -> None:
    """Print what was measured, and what became of the claims."""
    from frameworks.harness.verdict import Verdict  # noqa: PLC0415

    if not isinstance(outcome, Verdict):
        console.print(_table_of_completions(outcome))
    elif outcome.completions:
        for name, took in outcome.completions.items():
            console.print(f"{name} took {took:.1f} s.", highlight=False)
    else:
        console.print(_table_of_phases(outcome))
    for finding in outcome.claims:
        mark = "[green]✓[/green]" if finding.holds else "[red]✗[/red]"
        console.print(mark, finding.claim, highlight=False)
    if not outcome.agrees and _was_too_slow(outcome):
        console.print(
            f"This machine was too slow for --speed {outcome.speed:g}: of the CPUs that users "
            f"held, {outcome.in_offers:.0%} were in offers that frameworks had not answered yet. "
            "That says nothing about the policy; try a lower speed, or nothing else beside it.",
            highlight=False,
            markup=False,
        )
    console.print(f"Results are in [bold]{folder}[/bold]; start with figure.png.", highlight=False)


def _was_too_slow(outcome: "Verdict | Comparison") -> "TypeGuard[Verdict]":
    from frameworks.harness.verdict import Verdict  # noqa: PLC0415

    return isinstance(outcome, Verdict) and outcome.too_slow


def _film(folder: Path, record: Path | None, seed: int, console: "Console") -> None:
    """Make time machines of what was recorded, and name them."""
    from frameworks.harness import film  # noqa: PLC0415 - keeps `--help` fast

    kept = list(film.recordings(folder, seed)) if record is None else [record]
    for recording in kept:
        page = (folder if record is not None else recording.parent) / film.FILM
        try:
            with console.status("Making the time machine …"):
                film.make(recording, page)
        except film.NoFilm as error:
            console.print(f"No time machine of {recording}: {error}", markup=False, highlight=False)
        else:
            console.print(
                f"Time machine: {page} (open it in a browser)",
                markup=False,
                highlight=False,
                soft_wrap=True,
            )


def _table_of_completions(comparison: "Comparison") -> "Table":
    """Return when users have finished in each variant."""
    from statistics import fmean, stdev  # noqa: PLC0415

    from rich.table import Table  # noqa: PLC0415

    runs = len(comparison.seeds)
    table = Table("user", title=f"Completion time in seconds, mean ± deviation of {runs} runs")
    for variant in comparison.completions:
        table.add_column(variant, justify="right")
    users = dict.fromkeys(user for took in comparison.completions.values() for user in took)
    for user in users:
        cells = []
        for took in comparison.completions.values():
            times = took.get(user, [])
            spread = stdev(times) if len(times) > 1 else 0.0
            cells.append(f"{fmean(times):.1f} ± {spread:.1f}" if times else "")
        table.add_row(user, *cells)
    return table


def _table_of_phases(verdict: "Verdict") -> "Table":
    """Return measured beside expected."""
    from rich.table import Table  # noqa: PLC0415

    table = Table("phase", "user", title="CPUs held, mean over the last 60 s of each phase")
    for column in ("measured", "expected", "peak", "commitment"):
        table.add_column(column, justify="right")
    for phase in verdict.phases:
        for name, user in phase.users.items():
            if user.expected_cpus or user.cpus:
                table.add_row(
                    f"{phase.start:.0f}-{phase.end:.0f} s",
                    name,
                    f"{user.cpus:.1f}",
                    f"{user.expected_cpus:.1f}",
                    f"{user.peak_cpus:.0f}",
                    f"{user.commitment:.3f}",
                )
        table.add_section()
    return table
