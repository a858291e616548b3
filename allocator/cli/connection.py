"""Connects commands to a running allocator service; errors become messages and exit codes."""

import difflib
import errno
import json
import os
import re
import stat
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import typer

if TYPE_CHECKING:
    import grpc

    from allocator.contract import admin_pb2 as admin
    from allocator.contract import operator_pb2 as operator

REFUSED = 1
USAGE = 2
UNREACHABLE = 3
EXIT_CODES = (
    "Exit codes: 0, done; 1, the service refused, or you did not confirm; 2, wrong usage or "
    "configuration; 3, no service answers. For a service with TLS, environment variables name "
    "files: LONGSHARE_CA, and for mTLS LONGSHARE_CERTIFICATE and LONGSHARE_KEY."
)
_VARIABLE = "LONGSHARE_ADDRESS"
_LARGEST_ANSWER = 256 * 2**20
"""Bytes of an answer; the service's own limit."""


Answer = TypeVar("Answer")


def open_channel(address: str) -> "grpc.Channel":
    """Return a gRPC channel to the service at an address.

    The channel is encrypted with TLS if environment variables name certificate files. If a file
    cannot be used, the command ends with an error.
    """
    import grpc

    from allocator.contract.channel import Identity

    options = [
        ("grpc.max_receive_message_length", _LARGEST_ANSWER),
        ("grpc.enable_http_proxy", 0),  # web proxies do not apply to the allocator
    ]
    try:
        credentials = Identity.of_environment().credentials()
    except (OSError, ValueError) as error:
        fail(USAGE, f"TLS: {in_words(error)}")
    if credentials is None:
        return grpc.insecure_channel(address, options)
    return grpc.secure_channel(address, credentials, options)


class Connection:
    """Client of the allocator service, for commands.

    If a request fails, the command ends with a message of one line and an exit code.

    Args:
        address: Address of the service; None: the address in the configuration file.
        config: The service's configuration file; None: the address in the environment variable
            LONGSHARE_ADDRESS, else the default address.
        timeout: Seconds to wait for each answer.
    """

    def __init__(self, address: str | None, config: Path | None, timeout: float) -> None:
        from allocator.contract.admin_pb2_grpc import AdminStub
        from allocator.service.addresses import DEFAULT

        if address:
            self._address = _target(address, "--address")
        elif config:
            self._address = _configured(config)
        else:
            self._address = _target(os.environ.get(_VARIABLE) or DEFAULT, _VARIABLE)
        self._timeout = timeout
        self._stub = AdminStub(open_channel(self._address))

    def shares(self) -> "admin.SharesReply":
        """Request the shares of all users."""
        from allocator.contract import admin_pb2 as admin

        return self._ask(self._stub.Shares, admin.SharesRequest(), ())

    def shadows(self) -> "admin.ShadowsReply":
        """Request the users' ranks under the shadow policies, and their gains and losses."""
        from allocator.contract import admin_pb2 as admin

        return self._ask(self._stub.Shadows, admin.ShadowsRequest(), ())

    def explain(self, user: str) -> "admin.Explanation":
        """Request the explanation of a user's rank, and the reason if it gets no offers."""
        from allocator.contract import admin_pb2 as admin

        return self._ask(self._stub.Explain, admin.ExplainRequest(user=user), [user])

    def forecast(self, request: "admin.ForecastRequest") -> "admin.ForecastReply":
        """Request a forecast of a user's rank and commitments."""
        return self._ask(self._stub.Forecast, request, [request.user])

    def usage(
        self, since: float, until: float, by: str, users: Sequence[str]
    ) -> "admin.UsageReply":
        """Request the usage of users in a time interval.

        Args:
            since: Start of the interval, in seconds since the epoch.
            until: End of the interval, in seconds since the epoch.
            by: Subject of a row: "user", "role", or "day" for each user and day.
            users: Users or roles; empty: all of them.
        """
        from allocator.contract import admin_pb2 as admin

        request = admin.UsageRequest(since=since, until=until, by=by, users=users)
        return self._ask(self._stub.Usage, request, ())

    def audit(self, since: float, until: float) -> "admin.AuditReply":
        """Request the recorded operator commands between two times in seconds since the epoch."""
        from allocator.contract import admin_pb2 as admin

        return self._ask(self._stub.Audit, admin.AuditRequest(since=since, until=until), ())

    def order(self, order: "operator.Order", users: Sequence[str]) -> "admin.OrderReply":
        """Send an operator command, such as a new weight.

        Args:
            order: The operator command.
            users: The users that the command names, for the error message if one is unknown.
        """
        return self._ask(self._stub.Order, order, users)

    def _ask(self, call: Callable[..., Answer], request: object, users: Sequence[str]) -> Answer:
        import grpc

        try:
            return call(request, timeout=self._timeout)
        except grpc.RpcError as error:
            self._give_up(error, users)

    def _give_up(self, error: Any, users: Sequence[str]) -> NoReturn:  # noqa: ANN401 - the error is a grpc.Call, too
        import grpc

        code, details = error.code(), error.details()
        match code:
            case grpc.StatusCode.NOT_FOUND:
                fail(REFUSED, f"{details}{self._suggestion(users)}")
            case grpc.StatusCode.INVALID_ARGUMENT | grpc.StatusCode.FAILED_PRECONDITION:
                fail(REFUSED, details)
            case grpc.StatusCode.UNAVAILABLE | grpc.StatusCode.DEADLINE_EXCEEDED:
                if refusal := _socket_refusal(self._address):
                    fail(UNREACHABLE, refusal)
                fail(
                    UNREACHABLE,
                    f"no allocator service answers at {self._address}; start one with 'longshare "
                    "serve --config FILE', wait until it is ready, or give its address with "
                    "--address. With TLS, set LONGSHARE_CA, and "
                    "give an address that the service's certificate names",
                )
            case grpc.StatusCode.UNIMPLEMENTED:
                fail(
                    UNREACHABLE,
                    f"the program at {self._address} does not serve this command ({details}); give "
                    "the address at which a longshare service of this version serves operators",
                )
            case grpc.StatusCode.PERMISSION_DENIED:
                fail(
                    UNREACHABLE,
                    f"{self._address} denied permission: {details}; use a certificate that this "
                    "right names, or add the name there",
                )
            case _:
                fail(UNREACHABLE, f"{self._address} answered {code.name}: {details}")

    def _suggestion(self, unknown: Sequence[str]) -> str:
        known = [row.user for row in self.shares().users]
        similar = {
            match
            for user in unknown
            if user not in known
            for match in difflib.get_close_matches(user, known)
        }
        if similar:
            return f"; did you mean {' or '.join(sorted(similar))}?"
        return "; 'longshare shares' shows all users"


def fail(code: int, reason: str | Exception) -> NoReturn:
    """Print a reason on standard error, and end the command with an exit code.

    Indented lines of an error's text stay lines of their own. Other line breaks are escaped.

    Raises:
        typer.Exit: always.
    """
    from allocator.contract.printable import printable

    lines = in_words(reason).split("\n  ") if isinstance(reason, Exception) else [reason]
    typer.echo(
        "\n  ".join(["longshare: " + printable(lines[0]), *map(printable, lines[1:])]), err=True
    )
    raise typer.Exit(code)


HTML = (b"<!doctype html",)
"""First bytes of the pages that commands write."""
FIGURES = {
    ".png": b"\x89PNG",
    ".jpg": b"\xff\xd8\xff",
    ".jpeg": b"\xff\xd8\xff",
    ".svg": b"<?xml",
    ".pdf": b"%PDF",
    ".ps": b"%!PS",
    ".eps": b"%!PS",
}
"""Formats of figures: first bytes of a file, by the end of its name."""
TOML = (b"# ",)
"""First bytes of the problem files and games that commands write."""


def keep(
    option: str,
    output: Path | None,
    inputs: Iterable[Path | None],
    starts: tuple[bytes, ...],
    *,
    outputs: Iterable[Path | None] = (),
    makes_folder: bool = False,
) -> None:
    """Refuse an output file that cannot be written, or would replace an input or another file.

    So a command replaces its own former output, but no other file. A long command learns before
    its work that the result could not be written.

    Args:
        option: The option of the output file.
        output: The output file; None if the command writes none.
        inputs: Files that the command reads; None for a file that is not given.
        starts: First bytes of the output; a former output begins with one of these.
        outputs: Other files that the command writes; None for a file that is not given.
        makes_folder: Whether the command creates missing folders above the file.

    Raises:
        typer.BadParameter: The output would replace an input or another file.
        typer.Exit: The output cannot be written.
    """
    if output is None:
        return
    for role, paths in (("an input", inputs), ("another output", outputs)):
        if any(path is not None and _is_same(output, path) for path in paths):
            raise typer.BadParameter(
                f"{output} is {role} of this command; name another file", param_hint=option
            )
    if output.is_dir():
        fail(USAGE, IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(output)))
    if not output.exists():
        _require_creatable(output, makes_folder=makes_folder)
    if output.is_file() and os.access(output, os.R_OK):
        with output.open("rb") as file:
            content = file.read(max(map(len, starts)))
        if content and not content.startswith(starts):
            raise typer.BadParameter(
                f"{output} exists and has other content, so it is kept; name another file",
                param_hint=option,
            )


def _is_same(output: Path, other: Path) -> bool:
    if output.exists() and other.exists():
        return output.samefile(other)
    return output.resolve() == other.resolve()


def keep_folder(option: str, folder: Path | None) -> None:
    """Refuse an output folder that is a file, or in which no file can be created.

    Args:
        option: The option of the folder.
        folder: The folder, which the command creates if it is missing; None: it writes none.

    Raises:
        typer.BadParameter: The path is a file.
        typer.Exit: No file can be created in the folder.
    """
    if folder is None:
        return
    if folder.exists() and not folder.is_dir():
        raise typer.BadParameter(f"{folder} is a file; name a folder", param_hint=option)
    _require_creatable(folder / "file", makes_folder=True)


def _require_creatable(path: Path, *, makes_folder: bool) -> None:
    """End the command with a message if a file cannot be created at a path."""
    from allocator.files import require_creatable

    try:
        require_creatable(path, makes_folder=makes_folder)
    except OSError as error:
        fail(USAGE, error)


def fail_study(error: Exception, *, as_json: bool) -> NoReturn:
    """Print the error that stopped a simulation or search, and end the command.

    Args:
        error: The error.
        as_json: Whether the command prints JSON. If an external policy failed, a JSON object that
            describes the failure is then printed on standard output, too.

    Raises:
        typer.Exit: always.
    """
    from allocator.fairness.plugin_sandbox import PolicyFailedError

    if as_json and isinstance(error, PolicyFailedError):
        typer.echo(json.dumps(error.summary(), indent=2))
    fail(USAGE, error)


def in_words(error: Exception) -> str:
    """Return the text to print for an error; for an `OSError`, the file, reason and remedy."""
    if not isinstance(error, OSError) or error.errno is None:
        return str(error)
    from allocator.files import reason

    quoted = re.search(r"'([^']+)'", str(error))  # if a library does not set `filename`
    name = error.filename or (quoted and quoted[1])
    if error.filename is None:
        error = OSError(error.errno, os.strerror(error.errno), name)
    return f"{name}: {reason(error)}" if name else reason(error)


def _socket_refusal(address: str) -> str | None:
    """Return why this user may not open a service's Unix socket, and the remedy; None if it may.

    The result is also None for other addresses, and if the socket does not exist.
    """
    import socket

    from allocator.files import user_name

    if not address.startswith("unix://"):
        return None
    path = Path(address.removeprefix("unix://"))
    try:
        with socket.socket(socket.AF_UNIX) as probe:
            probe.settimeout(1.0)
            probe.connect(str(path))
    except PermissionError:
        refusing = _refusing_path(path)
    except OSError:
        return None
    else:
        return None
    status = refusing.stat()
    owner = user_name(status.st_uid)
    return (
        f"the permissions of {refusing} (mode {stat.S_IMODE(status.st_mode):04o}, user {owner}) "
        f"do not let the user {user_name(os.geteuid())} connect to the service at {address}; run "
        f"the command as {owner} or root"
    )


def _refusing_path(path: Path) -> Path:
    """Return the first folder above a path that this user may not enter, or else the path."""
    folders = reversed(path.parents)
    return next(
        (folder for folder in folders if not os.access(folder, os.X_OK, effective_ids=True)), path
    )


def _target(address: str, source: str) -> str:
    """Return an address as a gRPC target. If it is invalid, end the command with an error.

    Args:
        address: The address.
        source: The option or environment variable with the address, for the error.
    """
    from allocator.service.addresses import target

    try:
        return target(address)
    except ValueError as error:
        fail(USAGE, f"{source}: {error}, nor unix:///PATH")


def _configured(config: Path) -> str:
    from allocator.service.config import ConfigError, load_listen

    try:
        listen = load_listen(config)
    except ConfigError as error:
        # `fail` prints one line; this error has several.
        typer.echo(f"longshare: {error}", err=True)
        raise typer.Exit(USAGE) from error
    return listen.operators or listen.address
