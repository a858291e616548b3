"""Store shared by several machines: one node (znode) in the Mesos cluster's ZooKeeper."""

import json
import logging
import math
import uuid
import zlib
from collections.abc import Iterator
from contextlib import contextmanager

import structlog
from kazoo.client import KazooClient
from kazoo.exceptions import (
    AuthFailedError,
    BadVersionError,
    ConnectionClosedError,
    KazooException,
    NoAuthError,
    NodeExistsError,
    NoNodeError,
)
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.security import make_digest_acl

from allocator.service.loop.cooperative import run_in_thread
from allocator.service.scheduler_commands import Scheduler
from allocator.service.store import (
    StoreDamaged,
    StoreError,
    StoreTaken,
    StoreUnavailable,
    codec,
    rows,
)
from allocator.service.store.schedulers import require_scheduler
from allocator.users.memory import Memory, MemoryChanges

LARGEST = 1_000_000
"""Maximum size of a node in bytes; a server with default settings accepts little more."""
PATIENCE = 20.0
"""Seconds to wait for a connection to a ZooKeeper server at the start."""
_TIMEOUT = 5.0
"""Time limit for one request, in seconds."""
_SESSION = 10.0
"""Timeout of the ZooKeeper session, in seconds."""
_MAGIC = b"LSHR2\n"
"""First bytes of a node in the present format."""
_FORMER = b"LSHR1\n"
"""First bytes of a node that a former release wrote, which can still be read.

Such a node contains the memory as `codec` encodes it.
"""
LARGEST_CONTENT = 2**26
"""Maximum size of a node's decompressed content, in bytes. Compressed zeros could expand to a
gigabyte."""
_WRITER_LENGTH = 16
"""Length of the identifier of the service that wrote the node, in bytes."""

_log = structlog.get_logger(__name__)
_client_logger = logging.getLogger(f"{__name__}.client")
_client_logger.disabled = True  # StoreWriter logs failures of the server, once each time


class ZookeeperStore:
    """Store in a ZooKeeper node that one service at a time writes.

    ZooKeeper does not lock the node, but counts its versions. A service that was not the last
    writer gets StoreTaken, and cannot overwrite the node unless it takes over.

    Args:
        hosts: HOST:PORT of the ZooKeeper servers, separated by commas.
        znode: Path of the node; the first save creates it and its parents.
        credentials: USER:PASSWORD for digest authentication, which protects the node; None for an
            open node.
        patience: Seconds to wait for a connection to a server.
        scheduler: The scheduler of this service, which the node states; None for a node that
            states none, and belongs to any scheduler.
        set_aside: Whether to copy damaged content that Longshare wrote to another node, and to
            start without it.

    Raises:
        StoreUnavailable: no server was found.
        StoreError: the node's content is foreign or damaged, belongs to another scheduler, or
            access is denied.
    """

    shared = True

    def __init__(  # noqa: PLR0913 - the settings of the store
        self,
        hosts: str,
        znode: str,
        credentials: str | None = None,
        patience: float = PATIENCE,
        *,
        scheduler: Scheduler | None = None,
        set_aside: bool = False,
    ) -> None:
        self._znode = znode
        self._name = f"znode {znode} at {hosts}"
        self._writer = uuid.uuid4().bytes
        self._scheduler = scheduler
        self._rows = rows.StoreRows(scheduler)
        self.left_out = 0
        user, _, password = (credentials or "").partition(":")
        self._client = KazooClient(
            hosts=hosts,
            timeout=_SESSION,
            logger=_client_logger,
            auth_data=[("digest", credentials)] if credentials else None,
            default_acl=[make_digest_acl(user, password, all=True)] if credentials else None,
        )
        try:
            with self._explained_errors():
                self._client.start(timeout=patience)
                data, self._version = self._fetch()
                try:
                    self._loaded = decode_node(data, scheduler)
                except StoreDamaged as error:
                    if not set_aside:
                        raise
                    self._loaded = None
                    self._copy_damaged(data, error)
        except BaseException:
            self.close()
            raise

    def load(self) -> Memory | None:
        """Return the commitments and operator settings that the node held at the opening.

        The result is None if there was no node, or no content.
        """
        return self._loaded

    def recall(self) -> Memory | None:
        """Return commitments and operator settings that another service has written meanwhile.

        The result is None if no other service has written. This service may replace the returned
        content from then on.
        """
        with self._explained_errors():
            known = self._version
            data, version = self._fetch()
            if version == known:
                return None
            self._version = version
            if data.startswith(_MAGIC + self._writer):
                return None  # this service wrote it, but the answer to the save was lost
            return decode_node(data, self._scheduler)

    def take_over(self) -> None:
        """Allow the next save to replace content that another service has written to the node."""
        with self._explained_errors():
            _, self._version = self._fetch()

    def save(self, changes: MemoryChanges) -> None:
        """Write the whole node; when the method returns, a majority of servers has it on disk.

        Only rows that have changed are encoded again. If the node would be larger than `LARGEST`,
        the users with the least commitments are left out, and `left_out` is their number.
        """
        run_in_thread(self._rows.take(changes))
        data, left_out = encode_fitting_node(self._rows, self._writer)
        with self._explained_errors():
            if len(data) > LARGEST:
                raise StoreError(
                    f"the rows of users with weights of operators have {len(data)} bytes, more "
                    f"than the {LARGEST} that ZooKeeper accepts; unset weights (`longshare weight "
                    "unset USER`), or use SQLite"
                )
            if not self._client.connected:
                raise StoreUnavailable("not connected")
            try:
                self._write(data)
            except (BadVersionError, NodeExistsError):
                # Perhaps this service wrote it, and the answer to that save was lost.
                self._catch_up()
                self._write(data)
            self._rows.mark_written()
            self.left_out = left_out

    def close(self) -> None:
        """End the session with ZooKeeper."""
        self._client.stop()
        self._client.close()

    def _write(self, data: bytes) -> None:
        """Create the node, or replace its content unless another service has written it meanwhile.

        Args:
            data: The node's new content.
        """
        if self._version is None:
            parent = self._znode.rpartition("/")[0] or "/"
            self._client.ensure_path_async(parent).get(timeout=_TIMEOUT)
            self._client.create_async(self._znode, data).get(timeout=_TIMEOUT)
            self._version = 0
        else:
            stat = self._client.set_async(self._znode, data, self._version)
            self._version = stat.get(timeout=_TIMEOUT).version

    def _copy_damaged(self, data: bytes, error: StoreDamaged) -> None:
        """Copy damaged content to a new ZooKeeper node, and log that the commitments are lost.

        Args:
            data: The damaged content.
            error: The damage, for the log.
        """
        created = self._client.create_async(f"{self._znode}.damaged-", data, sequence=True)
        _log.error(
            "commitments are lost: the content of a damaged node has been set aside",
            znode=created.get(timeout=_TIMEOUT),
            reason=str(error),
        )

    def _catch_up(self) -> None:
        """After a version conflict, adopt the ZooKeeper node's version if this service wrote it.

        A conflict arises if an earlier write succeeded, but its answer was lost. The node may also
        have been deleted; the next write then creates it.

        Raises:
            StoreTaken: another service has written the node.
        """
        data, version = self._fetch()
        if version is not None and not data.startswith(_MAGIC + self._writer):
            raise StoreTaken(
                "another service has written the node; stop one of the two services; if you stop "
                "the other service, restart this one"
            )
        self._version = version

    def _fetch(self) -> tuple[bytes, int | None]:
        """Return the node's content and version; without a node, empty content and None.

        The server that is connected first synchronises with ZooKeeper's leader, because its data
        may be seconds old. A service that began with outdated commitments would allocate wrongly,
        and all its writes would fail.
        """
        self._client.sync_async("/").get(timeout=_TIMEOUT)
        try:
            data, stat = self._client.get_async(self._znode).get(timeout=_TIMEOUT)
        except NoNodeError:
            return b"", None
        return data, stat.version

    @contextmanager
    def _explained_errors(self) -> Iterator[None]:
        """Convert errors of ZooKeeper to StoreErrors that name the node."""
        try:
            yield
        except StoreError as error:
            raise type(error)(f"{self._name}: {error}") from error
        except NoNodeError as error:
            self._version = None  # the node was deleted; the next attempt creates it
            raise StoreUnavailable(f"{self._name}: the node was deleted") from error
        except (NoAuthError, AuthFailedError) as error:
            raise StoreError(f"{self._name}: access denied; check store.credentials") from error
        except (KazooTimeoutError, ConnectionClosedError) as error:
            raise StoreUnavailable(f"{self._name}: no answer ({error})") from error
        except KazooException as error:
            raise StoreUnavailable(f"{self._name}: {type(error).__name__} {error}") from error


def encode_fitting_node(stored_rows: rows.StoreRows, writer: bytes) -> tuple[bytes, int]:
    """Return the content of a ZooKeeper node of at most `LARGEST` bytes, if possible.

    Users without commitments have no row, because anybody may invent roles by the thousand. If the
    content is still too large, the users with the least commitments have no row either.

    Args:
        stored_rows: The head and the rows to write.
        writer: Identifier of the service that writes.

    Returns:
        The content, and how many users with commitments have no row in it.
    """
    needless = stored_rows.needless
    data, left_out = encode_node(stored_rows, writer, needless), 0
    if len(data) > LARGEST:
        candidates = run_in_thread(stored_rows.least_first())
        while len(data) > LARGEST and left_out < len(candidates):
            surplus = 1 - LARGEST / len(data)
            left_out += math.ceil(surplus * (len(candidates) - left_out))
            omitted = needless.union(candidates[:left_out])
            data = encode_node(stored_rows, writer, omitted)
    return data, left_out


def encode_node(
    stored_rows: rows.StoreRows, writer: bytes, left_out: frozenset[str] = frozenset()
) -> bytes:
    """Return the compressed content of a ZooKeeper node: identifier of the service, head and rows.

    The head contains the version, time and checksum. Each row contains one user's commitments.

    Args:
        stored_rows: The head and the rows to write.
        writer: Identifier of the service that writes.
        left_out: Users without a row in the node.
    """
    lines = [stored_rows.head(left_out)]
    lines += [json.dumps(user).encode() + b"\t" + row for user, row in stored_rows.all(left_out)]
    return _MAGIC + writer + zlib.compress(b"\n".join(lines))


def decode_node(data: bytes, scheduler: Scheduler | None = None) -> Memory | None:
    """Decode commitments and operator settings in a node, as written by this or the last release.

    Args:
        data: Content of the node; empty if there is no node.
        scheduler: The scheduler whose users are expected; None for any scheduler.

    Returns:
        The commitments and settings; None if the content is empty. An operator may have created an
            empty node, for example to set an ACL.

    Raises:
        StoreError: the content is foreign or damaged, or belongs to another scheduler.
    """
    if not data:
        return None
    if not data.startswith((_MAGIC, _FORMER)):
        raise StoreError("holds data of another program; choose another znode")
    content = _decompress(data[len(_MAGIC) + _WRITER_LENGTH :])
    if data.startswith(_FORMER):
        memory = codec.decode(content)
        require_scheduler(scheduler, None, memory)
        return memory
    head, *lines = content.split(b"\n")
    pairs = [(_name(name), row) for name, _, row in (line.partition(b"\t") for line in lines)]
    return rows.decode_memory(head, pairs, scheduler)


def _decompress(data: bytes) -> bytes:
    """Decompress a node's content, which may have at most `LARGEST_CONTENT` bytes.

    Raises:
        StoreDamaged: the content is damaged or too large.
    """
    unpacking = zlib.decompressobj()
    try:
        content = unpacking.decompress(data, LARGEST_CONTENT)
    except zlib.error as error:
        raise StoreDamaged(f"damaged: {error}; delete it to start without it") from error
    if not unpacking.eof:
        extent = "too many bytes" if unpacking.unconsumed_tail else "only a part of the data"
        raise StoreDamaged(f"damaged: it holds {extent}; delete it to start without it")
    return content


def _name(data: bytes) -> str:
    """Decode a user's name from JSON.

    Raises:
        StoreDamaged: the data are not a JSON string.
    """
    name = codec.plain(data)
    if not isinstance(name, str) or name != name.encode("utf-8", "replace").decode():
        raise StoreDamaged("damaged: a user's name is not text")
    return name
