"""The command `longshare local-mesos`: an embedded Mesos on this machine."""

import errno
from typing import Annotated

import typer

MAX_AGENTS = 100_000
"""Largest number of agents. Each agent takes some kilobytes of memory, and time at the start."""


def local_mesos(
    *,
    allocator: Annotated[
        str,
        typer.Option(
            help="Address of 'longshare serve': HOST:PORT or unix:///PATH. For TLS, set "
            "LONGSHARE_CA, LONGSHARE_CERTIFICATE and LONGSHARE_KEY to names of files."
        ),
    ] = "127.0.0.1:5060",
    agents: Annotated[
        list[int] | None,
        typer.Option(
            min=0,
            max=MAX_AGENTS,
            help="Number of virtual agents. Repeat with --resources for several kinds of agents.",
            show_default="4",
        ),
    ] = None,
    resources: Annotated[
        list[str] | None,
        typer.Option(
            help="Resources of each agent, in the format of mesos-agent: 'cpus:4;mem(ROLE):64', "
            "or a JSON array of resources.",
            show_default="cpus:4;mem:6144",
        ),
    ] = None,
    attributes: Annotated[
        list[str] | None,
        typer.Option(
            help="Attributes of each agent: 'rack:1;disk:ssd'; as often as --agents, or omitted. "
            "Give '' for agents without attributes.",
            show_default="none",
        ),
    ] = None,
    hostname_prefix: Annotated[
        list[str] | None,
        typer.Option(
            help="Prefix of the agents' host names; a number follows. As often as --agents, or "
            "once for all agents.",
            show_default="agent-",
        ),
    ] = None,
    speed: Annotated[
        float, typer.Option(min=0.01, help="Seconds of Mesos's time for each second of real time.")
    ] = 1.0,
    host: Annotated[str, typer.Option(help="IPv4 address to listen on.")] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="Port to listen on; 0 selects a free port.")
    ] = 5050,
    allocation_interval: Annotated[
        float, typer.Option(min=0.01, help="Seconds of Mesos's time between batch allocations.")
    ] = 1.0,
    offer_timeout: Annotated[
        float,
        typer.Option(
            min=0.0,
            help="Seconds of Mesos's time after which an unanswered offer is rescinded, as by a "
            "master's --offer_timeout; 0 disables the timeout.",
        ),
    ] = 30.0,
    task_seconds: Annotated[
        float,
        typer.Option(
            min=0.0,
            help="Run time of tasks whose command is not 'sleep N', in seconds of Mesos's time.",
        ),
    ] = 10.0,
    seed: Annotated[
        int | None, typer.Option(help="Seed of ids; without a seed, ids are random.")
    ] = None,
) -> None:
    """Run a small Mesos master with virtual agents, for any scheduler of the v1 HTTP API.

    Nothing is executed: a task 'sleep 20' runs for 20 seconds of Mesos's time (see --speed). The
    service 'longshare serve' decides the offers, over the same contract that the module in a real
    master uses. Start the two programs in any order.

    Connect a scheduler to the printed address, or read /state, /slaves and /metrics/snapshot there.
    Operators can set quotas (/quota) and end frameworks (/teardown), no more. The metrics lack
    allocator/mesos/..., and the module's event_queue_dispatches, queue_bytes, overflows_total and
    round_trip_ms. The command stops on SIGTERM and Ctrl-C.

    Example: longshare local-mesos --agents 4 --resources 'cpus:4;mem:6144'
    --agents 2 --resources 'cpus:4;mem:6144;gpus:2'
    """
    import asyncio  # noqa: PLC0415 - keeps `--help` fast

    from allocator.formatting import bind_error  # noqa: PLC0415 - keeps `--help` fast
    from frameworks.local_mesos.notation import (  # noqa: PLC0415 - keeps `--help` fast
        parse_attributes,
        parse_flag,
    )
    from frameworks.local_mesos.server import AgentSpec, MasterSettings, run  # noqa: PLC0415

    counts, kinds = agents or [4], resources or ["cpus:4;mem:6144"]
    traits = attributes or [""] * len(counts)
    prefixes = hostname_prefix or ["agent-"]
    if len(prefixes) == 1:
        prefixes *= len(counts)
    if not len(counts) == len(kinds) == len(traits) == len(prefixes):
        raise typer.BadParameter(
            f"got {len(counts)} --agents, {len(kinds)} --resources, {len(traits)} --attributes "
            f"and {len(prefixes)} --hostname-prefix; give each option equally often, and "
            "--attributes '' for agents without attributes",
            param_hint="--agents",
        )
    if not all(map(str.strip, kinds)):
        raise typer.BadParameter(
            "an agent without resources can run no task; write amounts, such as cpus:4;mem:6144",
            param_hint="--resources",
        )
    if sum(counts) > MAX_AGENTS:
        raise typer.BadParameter(
            f"{sum(counts)} agents in total exceed the maximum of {MAX_AGENTS} for an "
            "embedded Mesos",
            param_hint="--agents",
        )
    try:
        groups = [
            AgentSpec(count, parse_flag(kind), parse_attributes(trait), prefix)
            for count, kind, trait, prefix in zip(counts, kinds, traits, prefixes, strict=True)
        ]
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--resources, --attributes") from error
    settings = MasterSettings(
        agents=groups,
        allocator=allocator,
        speed=speed,
        host=host,
        port=port,
        interval=allocation_interval,
        offer_timeout=offer_timeout,
        task_seconds=task_seconds,
        seed=seed,
    )
    try:
        asyncio.run(run(settings, lambda address: typer.echo(f"Mesos master on {address}")))
    except OSError as error:
        remedy = (
            "stop the other program, or choose another --port, and --master for frameworks"
            if error.errno == errno.EADDRINUSE
            else "correct --host or --port"
        )
        typer.echo(
            f"longshare local-mesos: cannot listen on {host}:{port}: {bind_error(error)}; {remedy}",
            err=True,
        )
        raise typer.Exit(1) from error
