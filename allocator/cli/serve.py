"""`longshare serve`: runs the allocator service."""

import os
from pathlib import Path
from typing import Annotated

import typer


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
        bool, typer.Option("--check", help="Check the configuration, and end.")
    ] = False,
) -> None:
    """Run the allocator service, which decides the offers of a Mesos master.

    The service stops cleanly on SIGTERM and Ctrl-C. Exit code 2: the configuration cannot be used.
    Exit code 1: the store does not answer now, but may later.

    Example: longshare serve --config longshare.toml --record events.log
    """
    # Set before gRPC is imported: gRPC logs a line for each peer, without any limit.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    from allocator.service import logs, server
    from allocator.service.accounting import place
    from allocator.service.config import ConfigError, load
    from allocator.service.loop import loop_latency
    from allocator.service.store import StoreUnavailable

    try:
        settings = load(config)
        if not insecure:
            settings.listen.require_protection()
        settings.require_files(config, record)
        if check:
            place.database_location(settings)
            typer.echo(f"{config}: valid")
            if reason := place.missing_reason(settings):
                typer.echo(f"longshare serve: {reason}", err=True)
            return
        logs.configure(settings.log)
        loop_latency.run(lambda latency: server.serve(settings, latency, record))
    except ConfigError as error:
        typer.echo(f"longshare serve: {error}", err=True)
        raise typer.Exit(2) from error
    except StoreUnavailable as error:
        typer.echo(f"longshare serve: store: {error}", err=True)
        raise typer.Exit(1) from error
