"""`longshare serve`: runs the allocator service."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeAlias, TypeVar

import typer

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from allocator.service.config import Config, SharedConfig
    from allocator.service.loop.loop_latency import LoopLatency

    C = TypeVar("C", bound=SharedConfig)
    ServiceParts: TypeAlias = tuple[
        Callable[[Path], C], Callable[[C, LoopLatency], Coroutine[None, None, None]]
    ]

WITHOUT_EVENT_ENGINE = "-event_engine_listener,-event_engine_for_all_other_endpoints"
"""Value of `GRPC_EXPERIMENTS` with which the thread that waits for connections also reads them.

gRPC's event engine wakes two or three other threads for each message, which takes about a third of
the CPU time of an echo. A later gRPC without these experiments ignores the value.
"""


def serve(
    config: Annotated[
        Path,
        typer.Option(
            "--config",
            "-c",
            help="TOML file with the settings; see docs/reference/configuration.md.",
        ),
    ],
    *,
    record: Annotated[
        Path | None,
        typer.Option(
            help="Log every event and decision to this file, for 'longshare replay'; an existing "
            "file is kept as FILE.1, FILE.2, ..."
        ),
    ] = None,
    insecure: Annotated[
        bool,
        typer.Option(
            "--insecure",
            help="Let other machines connect without TLS, although they could then give orders.",
        ),
    ] = False,
    check: Annotated[
        bool, typer.Option("--check", help="Check the configuration and its files, and end.")
    ] = False,
) -> None:
    """Run the allocator service, which decides the offers of a Mesos master.

    The service stops cleanly on SIGTERM and Ctrl-C. Exit code 2: the configuration cannot be used.
    Exit code 1: the store or an address cannot be used yet.

    Example: longshare serve --config longshare.toml --record events.log
    """

    def parts() -> "ServiceParts[Config]":
        from allocator.service import server
        from allocator.service.config import load

        return load, lambda settings, latency: server.serve(settings, latency, record)

    run_service("longshare serve", config, parts, insecure=insecure, check=check, record=record)


def run_service(
    command: str,
    config: Path,
    parts: "Callable[[], ServiceParts[C]]",
    *,
    insecure: bool,
    check: bool,
    record: Path | None = None,
) -> None:
    """Check a service's configuration, and run the service until it ends.

    Args:
        command: The command, for messages.
        config: Path of the configuration file.
        parts: Imports and returns the function that loads the configuration, and the service.
        insecure: Whether other machines may connect without TLS.
        check: Whether to end after the check.
        record: Path of the event log; None for no log.
    """
    # Set before gRPC is imported: gRPC logs a line for each peer, without any limit.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    os.environ.setdefault("GRPC_EXPERIMENTS", WITHOUT_EVENT_ENGINE)
    from allocator.service import logs
    from allocator.service.accounting import place
    from allocator.service.config import AddressTaken, ConfigError
    from allocator.service.loop import loop_latency
    from allocator.service.store import StoreError, StoreUnavailable, sqlite

    load, serve = parts()
    try:
        settings = load(config)
        if not insecure:
            settings.listen.require_protection()
        settings.require_files(config, record)
        if check:
            settings.check_files(config, record)
            if settings.store.kind == "sqlite":
                sqlite.require_usable(settings.store.path, settings.scheduler)
            place.database_location(settings)
            typer.echo(f"{config}: valid")
            for note in (
                place.missing_reason(settings),
                *settings.listen.seizable(settings.scheduler),
            ):
                if note is not None:
                    typer.echo(f"{command}: {note}", err=True)
            return
        logs.configure(settings.log)
        loop_latency.run(lambda latency: serve(settings, latency))
    except ConfigError as error:
        typer.echo(f"{command}: {error}", err=True)
        # systemd restarts the service unless its configuration is wrong.
        raise typer.Exit(1 if isinstance(error, AddressTaken) else 2) from error
    except StoreUnavailable as error:
        typer.echo(f"{command}: store: {error}", err=True)
        raise typer.Exit(1) from error
    except StoreError as error:
        typer.echo(f"{command}: store: {error}", err=True)
        raise typer.Exit(2) from error
