"""`longshare slurm …`: checks a Slurm, and shows and sets the order of its pending jobs."""

import json
import time
from collections import Counter
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from allocator.cli import options, parameters
from allocator.cli.connection import UNREACHABLE, USAGE, fail
from allocator.cli.serve import run_service
from allocator.cli.span import duration

if TYPE_CHECKING:
    from rich.table import Table

    from allocator.cli.serve import ServiceParts
    from allocator.service.slurm.config import SlurmConfig
    from allocator.slurm.bridge import Bridge, Cycle

slurm_app = typer.Typer(
    help="Share a Slurm cluster: check it, show the order of pending jobs, and set it.\n\n"
    "Example: longshare slurm order",
    no_args_is_help=True,
)


class CountedFor(StrEnum):
    """Values of `--users`: the owner of a job's resources."""

    USER = "user"
    ACCOUNT = "account"
    TREE = "tree"


_Config = Annotated[
    Path | None,
    typer.Option(
        "--config",
        "-c",
        help="The service's TOML file: its policy, users, and slurm.conf. Excludes the options for "
        "them.",
    ),
]
_Policy = Annotated[
    str | None,
    typer.Option(help="Policy, see policies.md in docs/reference.", show_default="sdrf"),
]
_Parameters = Annotated[
    list[str] | None,
    typer.Option("--set", help="Parameter of the policy: KEY=VALUE.", show_default="half_life=7d"),
]
_Users = Annotated[
    CountedFor | None,
    typer.Option(
        help="A job's resources count for its user, its account, or in the tree of accounts.",
        show_default="user",
    ),
]
_History = Annotated[
    str,
    typer.Option(help="Time before now whose jobs count, as far as the accounting remembers."),
]

DEFAULT_HISTORY = "28d"


@slurm_app.command("check")
def check(*, config: _Config = None, users: _Users = None, as_json: options.AsJson = False) -> None:
    """List the settings of this Slurm that prevent the order.

    Exit code 1: there is a problem, so Slurm would not follow the order.

    Example: longshare slurm check
    """
    from allocator.slurm.checks import check_associations, check_configuration, keeps_accounting
    from allocator.slurm.client import CommandError, may_set_factors

    settings = _settings(config, users=users)
    client = settings.client()
    key = settings.users.key
    try:
        configuration = client.configuration()
        accounting = keeps_accounting(configuration)
        findings = check_configuration(
            configuration,
            client.partitions(),
            user_key=key,
            rights=may_set_factors(client, configuration),
            queued=client.queued_records() if accounting else 0,
        )
        if accounting and key != "user":
            findings += check_associations(client.associations())
    except CommandError as error:
        fail(UNREACHABLE, error)
    if as_json:
        typer.echo(json.dumps([finding._asdict() for finding in findings], indent=2))
    else:
        for finding in findings:
            typer.echo(f"{finding.kind}: {finding.setting}")
            typer.echo(f"    {finding.consequence} {finding.advice}")
        if all(finding.kind == "note" for finding in findings):
            typer.echo("This Slurm will follow the order.")
    if any(finding.kind == "problem" for finding in findings):
        raise typer.Exit(1)


@slurm_app.command("order")
def order(
    *,
    config: _Config = None,
    policy: _Policy = None,
    chosen: _Parameters = None,
    users: _Users = None,
    history: _History = DEFAULT_HISTORY,
    jobs: Annotated[int, typer.Option(min=0, help="Number of jobs to show.")] = 20,
    as_json: options.AsJson = False,
) -> None:
    """Show the users and the first pending jobs in order, without any change.

    Commitments count from the history that the accounting remembers.

    Example: longshare slurm order --set half_life=7d --jobs 50
    """
    bridge = _bridge(_settings(config, policy, chosen, users), history)
    cycle = _poll(bridge)
    if as_json:
        typer.echo(json.dumps(_as_object(bridge, cycle, jobs), indent=2))
        return
    from allocator.cli import tables

    console = tables.console()
    console.print(_users_table(bridge, cycle))
    console.print(_jobs_table(cycle, jobs))
    for reason, count in cycle.order.passed_over.most_common():
        console.print(f"{count} pending records are passed over, because of {reason}.")
    _tell_findings(bridge)


@slurm_app.command("serve")
def serve(
    config: Annotated[
        Path,
        typer.Option("--config", "-c", help="TOML file, see docs/how-to/run-with-slurm.md."),
    ],
    *,
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run",
            help="Set no site factors, even if the configuration has slurm.dry_run = false.",
        ),
    ] = False,
    insecure: Annotated[
        bool,
        typer.Option(
            "--insecure",
            help="Listen on other addresses of this machine, although any peer could give orders.",
        ),
    ] = False,
    check: Annotated[
        bool, typer.Option("--check", help="Only say whether the configuration is valid.")
    ] = False,
) -> None:
    """Follow a Slurm, and let it start jobs in the order of the policy.

    Without slurm.dry_run = false in the configuration, nothing is changed in Slurm. Stops cleanly
    on SIGTERM and Ctrl-C; Slurm then continues with the latest order. Exit code 2: the
    configuration cannot be used. Exit code 1: the store cannot be used yet.

    Example: longshare slurm serve --config longshare.toml --dry-run
    """

    def parts() -> "ServiceParts[SlurmConfig]":
        from allocator.service.slurm import server
        from allocator.service.slurm.config import load

        return load, lambda settings, latency: server.serve(settings, latency, dry_run=dry_run)

    run_service("longshare slurm serve", config, parts, insecure=insecure, check=check)


@slurm_app.command("reset")
def reset(
    *,
    config: _Config = None,
    uncertain_too: Annotated[
        bool,
        typer.Option(
            "--all",
            help="Also set factors to 0 that Slurm does not tell, such as of held jobs.",
        ),
    ] = False,
) -> None:
    """Remove all site factors that Longshare has set. Slurm's own priorities then apply again.

    Example: longshare slurm reset
    """
    from allocator.slurm.bridge import take_back_factors
    from allocator.slurm.client import CommandError
    from allocator.slurm.rows import ShapeError

    client = _settings(config).client()
    try:
        removed, uncertain = take_back_factors(client, uncertain_too=uncertain_too)
    except (CommandError, ShapeError) as error:
        fail(UNREACHABLE, error)
    typer.echo(f"{removed} site factors are taken back.")
    if uncertain:
        typer.echo(
            f"Slurm does not tell the site factors of {len(uncertain)} other jobs, such as "
            f"{uncertain[0]}. `longshare slurm reset --all` sets them to 0.",
            err=True,
        )


def _settings(
    config: Path | None,
    policy: str | None = None,
    chosen: list[str] | None = None,
    users: CountedFor | None = None,
) -> "SlurmConfig":
    """Return the settings of a file, or of options. If they are invalid, end the command."""
    from allocator.fairness.policies import create
    from allocator.service.config import ConfigError
    from allocator.service.slurm.config import SlurmConfig, load
    from allocator.slurm.task_shares import reason_against

    if config is not None:
        if policy or chosen or users:
            fail(USAGE, "give --config, or --policy, --set and --users, not both")
        try:
            return load(config)
        except ConfigError as error:
            # `fail` prints one line; this error has several.
            typer.echo(f"longshare: {error}", err=True)
            raise typer.Exit(USAGE) from error
    given: dict[str, object] = dict(parameters.parse(chosen))
    name = policy or "sdrf"
    if name == "sdrf" and not given:
        given = {"half_life": "7d"}
    try:
        reason = reason_against(create(name, given))
    except ValueError as error:
        fail(USAGE, error)
    if reason:
        fail(USAGE, reason)
    return SlurmConfig.model_validate(
        {"policy": {"name": name, **given}, "users": {"key": (users or CountedFor.USER).value}}
    )


def _bridge(settings: "SlurmConfig", history: str) -> "Bridge":
    """Return a bridge to the Slurm of the settings, without a first reading and any change."""
    from allocator.slurm.bridge import Bridge

    try:
        seconds = duration(history)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--history") from error
    begin = float(int(time.time() - seconds))
    return Bridge(settings.client(), settings.bridge_settings(dry_run=True), begin)


def _poll(bridge: "Bridge") -> "Cycle":
    from allocator.slurm.client import CommandError
    from allocator.slurm.rows import ShapeError

    try:
        return bridge.poll()
    except (CommandError, ShapeError) as error:
        fail(UNREACHABLE, error)


def _as_object(bridge: "Bridge", cycle: "Cycle", jobs: int) -> dict[str, object]:
    factors = dict(cycle.updates)
    standings = {path: cycle.tree.standing(path) for path in cycle.tree.users()}
    return {
        "time": cycle.now,
        "users": [
            {
                "user": "/".join(path),
                "share": standing.share,
                "commitment": standing.commitment,
                "priority": standing.priority,
                "weight": standing.weight,
                "allocation": standing.allocation.to_doubles(),
            }
            for path, standing in standings.items()
        ],
        "jobs": [
            {
                "job": placed.target,
                "user": "/".join(placed.user),
                "reason": placed.job.reason,
                "factor": factors.get(placed.target),
            }
            for placed in cycle.order.placed[:jobs]
        ],
        "passed_over": dict(cycle.order.passed_over),
        "late": bridge.state.findings.late.total,
        "assumed": bridge.state.findings.corrections.total,
        "unseen": bridge.state.findings.unseen,
    }


def _users_table(bridge: "Bridge", cycle: "Cycle") -> "Table":
    from rich.table import Table

    table = Table("user", title="Users, first served first", title_justify="left")
    for column in ("share", "commitment", "priority", "weight", "pending"):
        table.add_column(column, justify="right")
    pending = Counter(user for _, user in bridge.state.pending)
    standings = [(cycle.tree.standing(path), path) for path in cycle.tree.users()]
    for standing, path in sorted(standings, key=lambda entry: (entry[0].priority, entry[1])):
        table.add_row(
            "/".join(path),
            f"{standing.share:.1%}",
            f"{standing.commitment:.1%}",
            f"{standing.priority:.4f}",
            f"{standing.weight:g}",
            str(pending[path]),
        )
    return table


def _jobs_table(cycle: "Cycle", jobs: int) -> "Table":
    from rich.table import Table

    table = Table("place", "job", "user", "partition", "resources", "Slurm's reason")
    table.title, table.title_justify = "Pending jobs, first started first", "left"
    for place, placed in enumerate(cycle.order.placed[:jobs], 1):
        table.add_row(
            str(place),
            placed.target,
            "/".join(placed.user),
            ",".join(placed.job.partitions),
            str(placed.job.quantities),
            placed.job.reason,
        )
    return table


def _tell_findings(bridge: "Bridge") -> None:
    findings = bridge.state.findings
    for begin, end in findings.unseen:
        times = (time.strftime("%Y-%m-%d %H:%M", time.localtime(at)) for at in (begin, end))
        typer.echo(f"longshare: no record of jobs from {' to '.join(times)}", err=True)
    if findings.corrections:
        first = findings.corrections[0]
        typer.echo(
            f"longshare: of {findings.corrections.total} jobs not everything is known, such as "
            f"{first.reason} of job {first.job}",
            err=True,
        )
