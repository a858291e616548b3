"""The store of several machines: one node of the ZooKeeper that a Mesos cluster runs anyway."""

import json
import logging
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

from allocator.cluster.memory import Memory, MemoryChanges
from allocator.service.loop.cooperative import giving_way
from allocator.service.store import (
    StoreDamaged,
    StoreError,
    StoreTaken,
    StoreUnavailable,
    codec,
    rows,
)

LARGEST = 1_000_000
"""Bytes in a node; a server that is not told otherwise takes little more."""
PATIENCE = 20.0
"""Seconds to find a server at the start."""
_TIMEOUT = 5.0
"""Seconds for one request."""
_SESSION = 10.0
_MAGIC = b"LSHR2\n"
_FORMER = b"LSHR1\n"
"""What a release began a node with that wrote a memory as a whole; it is read, too."""
LARGEST_CONTENT = 2**26
"""Bytes of what a node holds, unpacked: a node of zeros would come to a gigabyte."""
_WRITER = 16
"""Bytes that say who wrote it."""

_log = structlog.get_logger(__name__)
_unheard = logging.getLogger(f"{__name__}.client")
_unheard.disabled = True  # a failing server fails our saves, and that is said once, in our form


class ZookeeperStore:
    """A node that one service at a time writes.

    Nothing keeps others from writing it, but it has a version: whoever did not write last is told
    so, and does not overwrite what the other has written, unless it is to take over.

    Args:
        hosts: HOST:PORT, separated by commas.
        znode: Path of the node; it is made, and those above it, at the first save.
        credentials: USER:PASSWORD of digest authentication, with which the node is protected.
        patience: Seconds to find a server.
        set_aside: Whether what a node holds that is ours and damaged is copied to another node, and
            begun anew.

    Raises:
        StoreUnavailable: no server was found.
        StoreError: the node holds something else, is damaged or may not be read.
    """

    shared = True

    def __init__(
        self,
        hosts: str,
        znode: str,
        credentials: str | None = None,
        patience: float = PATIENCE,
        *,
        set_aside: bool = False,
    ) -> None:
        self._znode = znode
        self._name = f"znode {znode} at {hosts}"
        self._writer = uuid.uuid4().bytes
        self._rows = rows.StoreRows()
        user, _, password = (credentials or "").partition(":")
        self._client = KazooClient(
            hosts=hosts,
            timeout=_SESSION,
            logger=_unheard,
            auth_data=[("digest", credentials)] if credentials else None,
            default_acl=[make_digest_acl(user, password, all=True)] if credentials else None,
        )
        try:
            with self._explained():
                self._client.start(timeout=patience)
                data, self._version = self._fetch()
                try:
                    self._loaded = unpacked(data)
                except StoreDamaged as error:
                    if not set_aside:
                        raise
                    self._loaded = None
                    self._keep_aside(data, error)
        except BaseException:
            self.close()
            raise

    def load(self) -> Memory | None:
        """Return what the node held when it was opened, whoever wrote it."""
        return self._loaded

    def recall(self) -> Memory | None:
        """Return what another service has written since; from then on it is ours to replace."""
        with self._explained():
            known = self._version
            data, version = self._fetch()
            if version == known:
                return None
            self._version = version
            if data.startswith(_MAGIC + self._writer):
                return None  # ours: the answer to a save was lost on its way
            return unpacked(data)

    def take_over(self) -> None:
        """Have the next save replace whatever is there."""
        with self._explained():
            _, self._version = self._fetch()

    def save(self, changes: MemoryChanges) -> None:
        """Write to the node; when this returns, a majority of servers has it on disk.

        A node is written as a whole, but only what has changed is encoded.
        """
        giving_way(self._rows.take(changes))
        data = packed(self._rows, self._writer)
        with self._explained():
            if len(data) > LARGEST:
                raise StoreError(
                    f"{len(data)} bytes are more than ZooKeeper takes ({LARGEST}); let users be "
                    "forgotten earlier (users.forget_after), or use SQLite"
                )
            if not self._client.connected:
                raise StoreUnavailable("not connected")
            try:
                self._write(data)
            except (BadVersionError, NodeExistsError):
                # Perhaps it is what we wrote ourselves when the answer was lost on its way.
                self._catch_up()
                self._write(data)
            self._rows.written()

    def close(self) -> None:
        """End the session."""
        self._client.stop()
        self._client.close()

    def _write(self, data: bytes) -> None:
        if self._version is None:
            above = self._znode.rpartition("/")[0] or "/"
            self._client.ensure_path_async(above).get(timeout=_TIMEOUT)
            self._client.create_async(self._znode, data).get(timeout=_TIMEOUT)
            self._version = 0
        else:
            changed = self._client.set_async(self._znode, data, self._version)
            self._version = changed.get(timeout=_TIMEOUT).version

    def _keep_aside(self, data: bytes, error: StoreDamaged) -> None:
        kept = self._client.create_async(f"{self._znode}.damaged-", data, sequence=True)
        _log.error(
            "what users owe is lost: what a damaged node held has been set aside",
            znode=kept.get(timeout=_TIMEOUT),
            reason=str(error),
        )

    def _catch_up(self) -> None:
        """Learn the node's version if it was we who wrote it, or that it is gone.

        Raises:
            StoreTaken: somebody else did.
        """
        data, version = self._fetch()
        if version is not None and not data.startswith(_MAGIC + self._writer):
            raise StoreTaken(
                "another service has written it; stop one of them, and if it is the other one, "
                "restart this one"
            )
        self._version = version

    def _fetch(self) -> tuple[bytes, int | None]:
        """Return bytes and version; version None: there is no node.

        The server is told to catch up before: a follower may be seconds behind its leader, and who
        begins with what was there then owes wrongly, and never gets to write.
        """
        self._client.sync_async("/").get(timeout=_TIMEOUT)
        try:
            data, stat = self._client.get_async(self._znode).get(timeout=_TIMEOUT)
        except NoNodeError:
            return b"", None
        return data, stat.version

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """Turn what ZooKeeper says into errors that name the node."""
        try:
            yield
        except StoreError as error:
            raise type(error)(f"{self._name}: {error}") from error
        except NoNodeError as error:
            self._version = None  # somebody deleted it; the next attempt makes it anew
            raise StoreUnavailable(f"{self._name}: is gone") from error
        except (NoAuthError, AuthFailedError) as error:
            raise StoreError(f"{self._name}: access denied; check store.credentials") from error
        except (KazooTimeoutError, ConnectionClosedError) as error:
            raise StoreUnavailable(f"{self._name}: no answer ({error})") from error
        except KazooException as error:
            raise StoreUnavailable(f"{self._name}: {type(error).__name__} {error}") from error


def packed(kept: rows.StoreRows, writer: bytes) -> bytes:
    """Return what a node is to hold: who wrote it; the head; for each user a line, name and row."""
    lines = [kept.head()]
    lines += [json.dumps(user).encode() + b"\t" + row for user, row in kept.all()]
    return _MAGIC + writer + zlib.compress(b"\n".join(lines))


def unpacked(data: bytes) -> Memory | None:
    """Return the memory that a node holds, which this release or the former wrote.

    None: it is not there, or was made beforehand, as by an operator who gives it an ACL.

    Raises:
        StoreError: it holds something else, or is damaged.
    """
    if not data:
        return None
    if not data.startswith((_MAGIC, _FORMER)):
        raise StoreError("holds something of another program's; choose another znode")
    content = _decompressed(data[len(_MAGIC) + _WRITER :])
    if data.startswith(_FORMER):
        return codec.decode(content)
    head, *lines = content.split(b"\n")
    pairs = [(_name(name), row) for name, _, row in (line.partition(b"\t") for line in lines)]
    return rows.assembled(head, pairs)


def _decompressed(data: bytes) -> bytes:
    unpacking = zlib.decompressobj()
    try:
        content = unpacking.decompress(data, LARGEST_CONTENT)
    except zlib.error as error:
        raise StoreDamaged(f"damaged: {error}; delete it to start without it") from error
    if not unpacking.eof:
        what = "more than it can" if unpacking.unconsumed_tail else "only a part of something"
        raise StoreDamaged(f"damaged: it holds {what}; delete it to start without it")
    return content


def _name(data: bytes) -> str:
    name = codec.plain(data)
    if not isinstance(name, str) or name != name.encode("utf-8", "replace").decode():
        raise StoreDamaged("damaged: a user's name is no text")
    return name
