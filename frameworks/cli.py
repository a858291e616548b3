"""The commands `longshare experiment …` and `longshare framework`."""

import json
import logging
import signal
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import TypeGuard

    from rich.console import Console
    from rich.table import Table

    from frameworks.experiment import Experiment
    from frameworks.harness.comparison import Comparison
    from frameworks.harness.runner import Progress
    from frameworks.harness.verdict import Verdict

DEFAULT_SPEED = 15.0
"""Default of --speed without --slurm. At this speed, each experiment of the papers takes 40 s on
two cores."""

experiment_app = typer.Typer(
    help="Reproduce the papers' experiments on this machine.\n\n"
    "Example: longshare experiment run sdrf-adaptive",
    no_args_is_help=True,
)


def _named(name: str) -> "Experiment":
    """Return the experiment with a given name.

    An unknown name is a usage error that lists all names.
    """
    from frameworks import experiment  # noqa: PLC0415 - keeps `--help` fast

    try:
        return experiment.load(name)
    except KeyError as error:
        raise typer.BadParameter(str(error.args[0]), param_hint="NAME") from error


def _under(
    chosen: "Experiment", policy: str | None, file: Path | None, parameters: list[str] | None
) -> "Experiment":
    """Return the experiment with the policy options of the command line applied.

    Without these options, the experiment is returned unchanged.

    Args:
        chosen: The experiment named on the command line.
        policy: Value of `--policy`, the name of a policy.
        file: Value of `--policy-file`, a file that defines a policy.
        parameters: Values of `--set`, each KEY=VALUE.
    """
    from allocator import plugins  # noqa: PLC0415 - keeps `--help` fast

    try:
        loaded = [] if file is None else plugins.load(file.absolute())
        name = policy or (loaded[0] if len(loaded) == 1 else None)
        if name is not None:
            settings = dict(_parameter(parameter) for parameter in parameters or ())
            return chosen.with_policy({"name": name, **settings})
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--policy") from error
    if file is not None:
        raise typer.BadParameter(
            f"{file} defines {', '.join(loaded)}; name one with --policy", param_hint="--policy"
        )
    if parameters:
        raise typer.BadParameter("it needs --policy", param_hint="--set")
    return chosen


def _parameter(text: str) -> tuple[str, float | str]:
    """Parse a value of `--set`: KEY=VALUE. A numeric value becomes a float.

    Raises:
        ValueError: The text has another form.
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
    """List the available experiments.

    Example: longshare experiment list
    """
    from rich.console import Console  # noqa: PLC0415 - keeps `--help` fast
    from rich.table import Column, Table  # noqa: PLC0415

    from frameworks import experiment  # noqa: PLC0415

    experiments = list(experiment.load_all())
    if as_json:
        fields = {"name", "title", "figure", "shows", "duration", "policy"}
        typer.echo(
            json.dumps([entry.model_dump(include=fields) for entry in experiments], indent=2)
        )
        return
    table = Table(Column("name", no_wrap=True), "policy", "paper", "shows")
    for entry in experiments:
        table.add_row(entry.name, str(entry.policy["name"]), entry.figure, entry.shows)
    Console().print(table)


@experiment_app.command("settings")
def show_settings(
    name: Annotated[
        str, typer.Argument(help="Name of an experiment, see `longshare experiment list`.")
    ],
) -> None:
    """Print the settings that an experiment needs from an external allocator service, as TOML.

    The output is the sections [policy] and [users] for `longshare serve --config`. Without these
    settings, `run --master` measures another policy.

    Example: longshare experiment settings sdrf-adaptive
    """
    import tomli_w  # noqa: PLC0415 - keeps `--help` fast

    from frameworks.harness.runner import allocation_settings  # noqa: PLC0415

    typer.echo(tomli_w.dumps(allocation_settings(_named(name))), nl=False)


@experiment_app.command("run")
def run_experiment(
    name: Annotated[
        str, typer.Argument(help="Name of an experiment, see `longshare experiment list`.")
    ],
    *,
    speed: Annotated[
        float | None,
        typer.Option(
            min=0.1,
            help="Seconds of the experiment for each second of real time.",
            show_default=f"{DEFAULT_SPEED:g}; with --slurm 1; on a real Mesos always 1",
        ),
    ] = None,
    seed: Annotated[
        int, typer.Option(help="Seed of task run times; an experiment with variants uses several.")
    ] = 1,
    seeds: Annotated[
        int | None,
        typer.Option(
            min=1, help="Number of runs of each variant.", show_default="that of the experiment"
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder for the results.", show_default="runs/NAME-TIME")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print summary.json.")] = False,
    master: Annotated[
        str | None,
        typer.Option(help="HOST:PORT of a running Mesos master; without it, one is started."),
    ] = None,
    mesos_home: Annotated[
        Path | None,
        typer.Option(
            help="Folder with mesos-master, mesos-agent and our module, to run in real time."
        ),
    ] = None,
    slurm: Annotated[
        bool,
        typer.Option(
            "--slurm", help="Run on a temporary Slurm of this machine, in real time, as root."
        ),
    ] = False,
    record: Annotated[
        Path | None,
        typer.Option(
            help="File for the allocator's log of events and decisions, see `longshare replay`."
        ),
    ] = None,
    policy: Annotated[
        str | None,
        typer.Option(
            help="Policy to use instead of the experiment's; its claims are then omitted.",
            show_default="that of --policy-file",
        ),
    ] = None,
    policy_file: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Python file that defines a policy, see docs/tutorials/first-policy.md.",
        ),
    ] = None,
    parameters: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Parameter of the policy; repeatable."),
    ] = None,
) -> None:
    """Run an experiment and compare the result with the paper.

    Exit codes: 0, the result agrees with the paper; 1, it does not; 2, the policy failed; 3, this
    machine was too slow for --speed.

    The command starts the allocator service, a Mesos and one pymesos framework for each user. It
    shows the users' shares of the cluster and then stops all processes. It writes summary.json,
    allocations.csv, commitments.csv, figure.png, events.log, the logs of all processes, and
    time-machine.html, which plays the run.

    With --slurm, the command starts a Slurm of Debian's packages and the service for Slurm. Each
    task is a batch job. There is no events.log, and no time-machine.html.

    Example: longshare experiment run sdrf-adaptive
    """
    from rich.console import Console  # noqa: PLC0415 - keeps `--help` fast

    from allocator.fairness.plugin_sandbox import PolicyFailedError  # noqa: PLC0415
    from frameworks.harness.comparison import compare  # noqa: PLC0415
    from frameworks.harness.processes import ChildFailed  # noqa: PLC0415
    from frameworks.harness.runner import ExperimentSettings, run  # noqa: PLC0415
    from frameworks.harness.slurm import (  # noqa: PLC0415
        UnplayableError,
        measure_on_slurm,
        require_playable,
    )
    from frameworks.local_slurm.cluster import SlurmError  # noqa: PLC0415

    chosen = _under(_named(name), policy, policy_file, parameters)
    folder = _results_folder(out, name)
    _check_scheduler(
        chosen, master=master, mesos_home=mesos_home, record=record, slurm=slurm, speed=speed
    )
    settings = ExperimentSettings(
        speed=1.0 if mesos_home or master else speed or (1.0 if slurm else DEFAULT_SPEED),
        seed=seed,
        out=folder,
        master=master,
        mesos_home=mesos_home,
        record=record,
        policy_file=policy_file,
    )
    if seeds is not None:
        chosen = chosen.model_copy(update={"seeds": seeds})
    measure = measure_on_slurm if slurm else None
    console = Console(stderr=True)
    signal.signal(signal.SIGTERM, _interrupt)
    outcome: Verdict | Comparison
    try:
        if slurm:
            require_playable(chosen, settings.speed)
        _make_folder(folder)
        if chosen.variants:
            outcome = compare(chosen, settings, lambda varied: _Display(varied, console), measure)
        else:
            with _Display(chosen, console) as watch:
                outcome = run(chosen, settings, watch, measure)
    except UnplayableError as error:
        raise typer.BadParameter(str(error), param_hint="--slurm") from error
    except KeyboardInterrupt as error:
        console.print("Stopped; all processes have ended.")
        raise typer.Exit(130) from error
    except (PolicyFailedError, ChildFailed, SlurmError, TimeoutError, OSError) as error:
        console.print(f"longshare experiment: {_in_words(error)}", style="red", markup=False)
        raise typer.Exit(_failed(error, as_json=as_json)) from error
    _report(outcome, folder, console if as_json else Console())
    if master is None and not slurm:
        _film(folder, record, seed, console if as_json else Console())
    if as_json:
        typer.echo(json.dumps(outcome.summary(), indent=2))
    if not outcome.agrees:
        raise typer.Exit(3 if _was_too_slow(outcome) else 1)


def _check_scheduler(
    chosen: "Experiment",
    *,
    master: str | None,
    mesos_home: Path | None,
    record: Path | None,
    slurm: bool,
    speed: float | None,
) -> None:
    """Check that the options of the command name one scheduler, on which the experiment can run.

    Args:
        chosen: The experiment.
        master: Value of `--master`.
        mesos_home: Value of `--mesos-home`.
        record: Value of `--record`.
        slurm: Value of `--slurm`.
        speed: Value of `--speed`.
    """
    if speed is not None and (master is not None or mesos_home is not None):
        raise typer.BadParameter(
            "it cannot be combined with --master or --mesos-home, which run in real time",
            param_hint="--speed",
        )
    if record is not None and master is not None:
        raise typer.BadParameter(
            "with --master this command starts no allocator; give --record to the running service",
            param_hint="--record",
        )
    if master is not None and not master.rpartition(":")[2].isdecimal():
        raise typer.BadParameter(f"{master!r} is not HOST:PORT", param_hint="--master")
    if mesos_home is not None and master is not None:
        raise typer.BadParameter("give --master or --mesos-home, not both", param_hint="--master")
    if slurm and any(option is not None for option in (master, mesos_home, record)):
        raise typer.BadParameter(
            "it cannot be combined with --master, --mesos-home or --record", param_hint="--slurm"
        )
    if chosen.needs_slurm and not slurm:
        raise typer.BadParameter(
            f"{chosen.name} compares with Slurm's own order; add --slurm", param_hint="NAME"
        )


def _results_folder(out: Path | None, experiment: str) -> Path:
    """Return the folder for results: the value of `--out`, or a folder named after the time."""
    folder = out or Path("runs") / f"{experiment}-{time.strftime('%Y%m%d-%H%M%S')}"
    if folder.exists() and not folder.is_dir():
        raise typer.BadParameter(f"{folder} is a file; name a folder", param_hint="--out")
    return folder


def _make_folder(folder: Path) -> None:
    """Create the folder for results; if this is impossible, end the command with exit code 2."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise typer.BadParameter(_in_words(error), param_hint="--out") from error


def _in_words(error: Exception) -> str:
    """Return the text of an error; for an `OSError`, the file, the reason and the remedy."""
    from allocator.files import reason  # noqa: PLC0415 - keeps `--help` fast

    if not isinstance(error, OSError):
        return str(error)
    return reason(error) if error.filename is None else f"{error.filename}: {reason(error)}"


def _failed(error: Exception, *, as_json: bool) -> int:
    """Return the exit code of `run_experiment` for an error.

    With `--json`, a failure of the policy is also printed as JSON.

    Args:
        error: The error that ended the experiment.
        as_json: True if the command was called with `--json`.
    """
    from allocator.fairness.plugin_sandbox import PolicyFailedError  # noqa: PLC0415

    if not isinstance(error, PolicyFailedError):
        return 1
    if as_json:
        typer.echo(json.dumps(error.summary(), indent=2))
    return 2


def framework(
    *,
    name: Annotated[str, typer.Option(help="Name of the framework.")],
    role: Annotated[str, typer.Option(help="Role of the framework.")] = "*",
    master: Annotated[str, typer.Option(help="HOST:PORT of the Mesos master.")] = "127.0.0.1:5050",
    demand: Annotated[
        str, typer.Option(help="Resources of each task: 'cpus:4;mem:8192;gpus:1'.")
    ] = "cpus:1;mem:1024",
    run_time: Annotated[
        float, typer.Option(min=0.001, help="Mean run time of a task in seconds.")
    ] = 20.0,
    jitter: Annotated[
        float,
        typer.Option(
            min=0.0, max=0.99, help="Largest deviation of run times, as a fraction of the mean."
        ),
    ] = 0.2,
    tasks: Annotated[
        int | None, typer.Option(min=1, help="Number of tasks.", show_default="no limit")
    ] = None,
    whitelist: Annotated[
        str | None,
        typer.Option(help="Hosts on which the tasks may run: 'node-[1-9],10.0.4.0/22'."),
    ] = None,
    declare: Annotated[
        bool,
        typer.Option("--declare", help="State --demand as the framework's label longshare.demand."),
    ] = False,
    seed: Annotated[int, typer.Option(help="Seed of run times.")] = 0,
    wait: Annotated[
        bool, typer.Option("--wait", help="Wait for a line on standard input before starting.")
    ] = False,
) -> None:
    """Run a test framework that launches identical `sleep` tasks on any Mesos master.

    Example: longshare framework --name demo --tasks 20 --run-time 5
    """
    from allocator.fairness.quantities import Quantities  # noqa: PLC0415 - keeps `--help` fast
    from frameworks.launcher import FrameworkWorkload, launch  # noqa: PLC0415

    try:
        quantities = Quantities.parse(demand).to_doubles()
        if not quantities:
            raise ValueError("a task must need more than 0 of some resource")  # noqa: TRY301 - reported like the other errors
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--demand") from error
    labels = {"longshare.whitelist": whitelist} if whitelist is not None else {}
    if declare:
        labels["longshare.demand"] = demand
    logging.basicConfig(format="%(message)s")
    logging.getLogger(launch.__module__).setLevel(logging.INFO)
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    if wait:
        typer.echo("waiting")
        if not sys.stdin.readline():
            return  # the parent process has ended
    signal.signal(signal.SIGINT, lambda *_: stop.set())
    try:
        workload = FrameworkWorkload(name, role, quantities, run_time, jitter, tasks, seed, labels)
        launch(workload, master, stop)
    except RuntimeError as error:
        typer.echo(f"longshare framework: {error}", err=True)
        raise typer.Exit(1) from error


def _interrupt(*_: object) -> None:
    raise KeyboardInterrupt


class _Display:
    """Shows the progress of a running experiment and the users' CPUs in the terminal."""

    def __init__(self, experiment: "Experiment", console: object) -> None:
        from rich.progress import BarColumn, Progress, TextColumn  # noqa: PLC0415

        self._experiment = experiment
        self._total = experiment.cluster.cores
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=50),
            TextColumn("{task.fields[status]}"),
            console=console,  # type: ignore[arg-type]  # a rich Console
        )
        add = self._progress.add_task
        self._addresses_shown = False
        self._time = add(experiment.name, total=experiment.duration, status="starting …")
        self._users = {
            user.name: add(f"  {user.name}", total=self._total, status="")
            for user in experiment.users
        }

    def __enter__(self) -> "Callable[[Progress], None]":
        self._progress.start()
        return self._show

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def _show(self, progress: "Progress") -> None:
        if progress.allocator is not None and not self._addresses_shown:
            self._addresses_shown = True
            self._progress.console.print(
                f"Status page: {progress.allocator.page}\n"
                f"At the prompt: longshare top --address {progress.allocator.address}",
                highlight=False,
                markup=False,
                soft_wrap=True,
            )
        number = self._experiment.phases.index(progress.phase) + 1
        status = f"{progress.elapsed:4.0f} s of {self._experiment.duration:.0f}, phase {number}"
        self._progress.update(self._time, completed=progress.elapsed, status=status)
        for name, cpus in progress.cpus.items():
            self._progress.update(self._users[name], completed=cpus, status=f"{cpus:5.1f} CPUs")


def _report(outcome: "Verdict | Comparison", folder: Path, console: "Console") -> None:
    """Print an experiment's measured values, and for each claim whether it holds.

    Args:
        outcome: Result of the experiment.
        folder: Folder of the result files, whose path is printed.
        console: Console for the output.
    """
    from frameworks.harness.verdict import Verdict  # noqa: PLC0415

    if not isinstance(outcome, Verdict):
        runs = f"mean ± deviation of {len(outcome.seeds)} runs"
        console.print(_table_by_variant(f"Completion time in seconds, {runs}", outcome.completions))
        if any(outcome.waits.values()):
            console.print(
                _table_by_variant(f"Mean wait of a task in seconds, {runs}", outcome.waits)
            )
    elif outcome.completions:
        for name, seconds in outcome.completions.items():
            console.print(f"{name} took {seconds:.1f} s.", highlight=False)
    else:
        console.print(_table_of_phases(outcome))
    for finding in outcome.claims:
        mark = "[green]✓[/green]" if finding.holds else "[red]✗[/red]"
        console.print(mark, finding.claim, highlight=False)
    if not outcome.agrees and _was_too_slow(outcome):
        console.print(
            f"This machine was too slow for --speed {outcome.speed:g}: of the CPUs that users "
            f"held, {outcome.in_offers:.0%} were in offers that frameworks had not answered yet. "
            "The result shows nothing about the policy; stop other programs, or try a lower "
            "--speed.",
            highlight=False,
            markup=False,
        )
    console.print(f"Results are in [bold]{folder}[/bold]; start with figure.png.", highlight=False)


def _was_too_slow(outcome: "Verdict | Comparison") -> "TypeGuard[Verdict]":
    from frameworks.harness.verdict import Verdict  # noqa: PLC0415

    return isinstance(outcome, Verdict) and outcome.too_slow


def _film(folder: Path, record: Path | None, seed: int, console: "Console") -> None:
    """Write the "time machine" of each recording of a run: an HTML page that plays it back.

    Print the paths of the pages.

    Args:
        folder: Folder of the run.
        record: The allocator's recording, if it is not in `folder`.
        seed: Seed of the run to use, if a variant has several runs.
        console: Console for the output.
    """
    from frameworks.harness import film  # noqa: PLC0415 - keeps `--help` fast

    recordings = list(film.recordings(folder, seed)) if record is None else [record]
    for recording in recordings:
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


def _table_by_variant(title: str, seconds: "Mapping[str, Mapping[str, list[float]]]") -> "Table":
    """Return a table of seconds in each variant, with one row per user.

    Args:
        title: Title of the table.
        seconds: By variant and by user: one value per seed.
    """
    from statistics import fmean, stdev  # noqa: PLC0415

    from rich.table import Table  # noqa: PLC0415

    table = Table("user", title=title)
    for variant in seconds:
        table.add_column(variant, justify="right")
    for user in dict.fromkeys(user for by_user in seconds.values() for user in by_user):
        cells = []
        for by_user in seconds.values():
            values = by_user.get(user, [])
            spread = stdev(values) if len(values) > 1 else 0.0
            cells.append(f"{fmean(values):.1f} ± {spread:.1f}" if values else "")
        table.add_row(user, *cells)
    return table


def _table_of_phases(verdict: "Verdict") -> "Table":
    """Return a table of measured and expected values, with one row per phase and user."""
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
