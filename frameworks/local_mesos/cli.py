"""`longshare local-mesos`: an embedded Mesos on this machine."""

from typing import Annotated

import typer

MOST_AGENTS = 100_000
"""Largest number of agents of one embedded Mesos; each takes kilobytes, and time to start."""


def local_mesos(
    *,
    allocator: Annotated[
        str,
        typer.Option(
            help="Where 'longshare serve' listens: HOST:PORT or unix:///PATH. With TLS, "
            "LONGSHARE_CA, LONGSHARE_CERTIFICATE and LONGSHARE_KEY name files."
        ),
    ] = "127.0.0.1:5060",
    agents: Annotated[
        list[int] | None,
        typer.Option(
            min=0,
            max=MOST_AGENTS,
            help="Number of virtual agents. Repeat it together with --resources for unlike ones.",
            show_default="4",
        ),
    ] = None,
    resources: Annotated[
        list[str] | None,
        typer.Option(
            help="Of each agent, as mesos-agent takes them: 'cpus:4;mem(ROLE):64', "
            "or a JSON array of resources.",
            show_default="cpus:4;mem:6144",
        ),
    ] = None,
    attributes: Annotated[
        list[str] | None,
        typer.Option(
            help="Of each agent: 'rack:1;disk:ssd'; as often as --agents, or not at all.",
            show_default="none",
        ),
    ] = None,
    hostname_prefix: Annotated[
        str, typer.Option(help="Of the agents' hostnames; a number follows.")
    ] = "agent-",
    speed: Annotated[
        float, typer.Option(min=0.01, help="Seconds of Mesos's time in one of yours.")
    ] = 1.0,
    host: Annotated[str, typer.Option(help="IPv4 address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port; 0: any.")] = 5050,
    allocation_interval: Annotated[
        float, typer.Option(min=0.01, help="Mesos's seconds between batch allocations.")
    ] = 1.0,
    offer_timeout: Annotated[
        float,
        typer.Option(
            min=0.0,
            help="Mesos's seconds after which an offer without an answer is rescinded, as by a "
            "master's --offer_timeout; 0: never.",
        ),
    ] = 30.0,
    task_seconds: Annotated[
        float,
        typer.Option(
            min=0.0, help="Run time of tasks whose command is not 'sleep N', in Mesos's seconds."
        ),
    ] = 10.0,
    seed: Annotated[
        int | None, typer.Option(help="Of ids; without one they differ each time.")
    ] = None,
) -> None:
    """Run a small Mesos master with virtual agents, for any scheduler of the v1 HTTP API.

    Nothing is executed: a task whose command is 'sleep 20' runs 20 seconds of Mesos's time,
    which can go by faster than yours. Offers are decided by 'longshare serve', over the same
    contract that a real master's module speaks; start the two in any order.

    Point a scheduler at the address that is printed, or look at /state, /slaves and
    /metrics/snapshot there. Stops on SIGTERM and Ctrl-C.
    """
    import asyncio  # noqa: PLC0415 - keeps `--help` fast

    from frameworks.local_mesos.notation import (  # noqa: PLC0415 - keeps `--help` fast
        parse_attributes,
        parse_flag,
    )
    from frameworks.local_mesos.server import AgentSpec, MasterSettings, run  # noqa: PLC0415

    numbers, kinds = agents or [4], resources or ["cpus:4;mem:6144"]
    traits = attributes or [""] * len(numbers)
    if not len(numbers) == len(kinds) == len(traits):
        raise typer.BadParameter(
            f"there are {len(numbers)} numbers of agents, {len(kinds)} kinds of resources and "
            f"{len(traits)} of attributes",
            param_hint="--agents",
        )
    if sum(numbers) > MOST_AGENTS:
        raise typer.BadParameter(
            f"{sum(numbers)} agents altogether are more than the {MOST_AGENTS} that an embedded "
            "Mesos can have",
            param_hint="--agents",
        )
    try:
        groups = [
            AgentSpec(number, parse_flag(kind), parse_attributes(trait))
            for number, kind, trait in zip(numbers, kinds, traits, strict=True)
        ]
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--resources, --attributes") from error
    settings = MasterSettings(
        agents=groups,
        allocator=allocator,
        speed=speed,
        host=host,
        port=port,
        hostname_prefix=hostname_prefix,
        interval=allocation_interval,
        offer_timeout=offer_timeout,
        task_seconds=task_seconds,
        seed=seed,
    )
    try:
        asyncio.run(run(settings, lambda address: typer.echo(f"Mesos master on {address}")))
    except OSError as error:
        typer.echo(f"longshare local-mesos: cannot listen on {host}:{port}: {error}", err=True)
        raise typer.Exit(1) from error
