"""ZooKeeper as its clients see the service: versions, lagging followers, and lost answers.

The store's own code runs on this client instead of kazoo's. A lost answer costs no virtual time,
because code inside a thread may not wait; the request may have been carried out nevertheless.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any, Generic, TypeVar

from kazoo.exceptions import BadVersionError, NodeExistsError, NoNodeError, SessionExpiredError
from kazoo.handlers.threading import KazooTimeoutError

T = TypeVar("T")
LAG = 8.0
"""Maximum lag of a follower in seconds; the leader drops a follower with a larger lag."""


@dataclass(frozen=True)
class Stat:
    """The metadata of a node."""

    version: int


@dataclass
class _Node:
    states: list[tuple[float, bytes]] = field(default_factory=list)
    """The times and contents of all states; the version is the number of the latest state."""


class Ensemble:
    """Servers shared by all services of the world.

    Args:
        time: Returns the world's time.
        chance: Draws losses.
    """

    def __init__(self, time: Callable[[], float], chance: Random) -> None:
        self.time = time
        self.chance = chance
        self.gone = False
        """Whether the ensemble is unreachable."""
        self.silent = False
        """Whether answers are lost; half of the requests are carried out nevertheless."""
        self.lags = False
        """Whether clients are connected to a lagging follower."""
        self.expired = 0
        """Number of losses of all sessions."""
        self.nodes: dict[str, _Node] = {}

    @property
    def well(self) -> bool:
        """Whether the ensemble answers."""
        return not (self.gone or self.silent)

    def client(self, **_options: Any) -> "Client":  # noqa: ANN401 - kazoo's own
        """Stand in for `KazooClient`."""
        return Client(self)


class Result(Generic[T]):
    """The result of an asynchronous call of kazoo, computed when the result is requested."""

    def __init__(self, answer: Callable[[], T]) -> None:
        self._answer = answer

    def get(self, timeout: float) -> T:
        """Return the answer.

        Raises:
            KazooException: The server's error.
        """
        assert timeout > 0
        return self._answer()


class Client:
    """The part of `KazooClient` that the store uses."""

    def __init__(self, ensemble: Ensemble) -> None:
        self._ensemble = ensemble
        self._seen = 0.0
        """Up to which instant this session's server has followed, for sure."""
        self._session = ensemble.expired

    def start(self, timeout: float) -> None:
        """Find a server."""
        if not self._ensemble.well:
            raise KazooTimeoutError(f"no server within {timeout:g} s")

    def stop(self) -> None:
        """End the session."""

    def close(self) -> None:
        """Release resources (no effect)."""

    @property
    def connected(self) -> bool:
        """Whether the server is reachable."""
        return not self._ensemble.gone

    def sync_async(self, _path: str) -> Result[str]:
        """Have the server catch up with its leader."""
        return Result(lambda: self._ask(self._sync))

    def get_async(self, path: str) -> Result[tuple[bytes, Stat]]:
        """Read a node."""
        return Result(lambda: self._ask(lambda: self._get(path)))

    def set_async(self, path: str, data: bytes, version: int) -> Result[Stat]:
        """Write a node if its version matches."""
        return Result(lambda: self._ask(lambda: self._set(path, data, version)))

    def create_async(self, path: str, data: bytes, sequence: bool = False) -> Result[str]:  # noqa: FBT001, FBT002 - kazoo's own
        """Make a node."""
        number = f"{len(self._ensemble.nodes):010}" if sequence else ""
        return Result(lambda: self._ask(lambda: self._create(path + number, data)))

    def ensure_path_async(self, _path: str) -> Result[bool]:
        """Create the parents of a node."""
        return Result(lambda: self._ask(lambda: True))

    def _ask(self, do: Callable[[], T]) -> T:
        ensemble = self._ensemble
        if ensemble.gone:
            raise KazooTimeoutError
        if self._session != ensemble.expired:
            self._session = ensemble.expired
            raise SessionExpiredError
        if ensemble.silent:
            if ensemble.chance.random() < 0.5:
                do()
            raise KazooTimeoutError
        return do()

    def _sync(self) -> str:
        self._seen = self._ensemble.time()
        return "/"

    def _state(self, path: str) -> tuple[int, bytes]:
        """Return version and content as the session's server has them."""
        node = self._ensemble.nodes.get(path)
        if node is None:
            raise NoNodeError
        until = self._ensemble.time()
        if self._ensemble.lags:
            until = max(self._seen, until - LAG)
        known = [data for since, data in node.states if since <= until]
        if not known:
            raise NoNodeError
        return len(known) - 1, known[-1]

    def _get(self, path: str) -> tuple[bytes, Stat]:
        version, data = self._state(path)
        return data, Stat(version)

    def _set(self, path: str, data: bytes, version: int) -> Stat:
        node = self._ensemble.nodes.get(path)
        if node is None:
            raise NoNodeError
        if len(node.states) - 1 != version:
            raise BadVersionError
        node.states.append((self._ensemble.time(), data))
        self._seen = self._ensemble.time()  # a session sees its own writes
        return Stat(len(node.states) - 1)

    def _create(self, path: str, data: bytes) -> str:
        if path in self._ensemble.nodes:
            raise NodeExistsError
        self._ensemble.nodes[path] = _Node([(self._ensemble.time(), data)])
        self._seen = self._ensemble.time()
        return path
