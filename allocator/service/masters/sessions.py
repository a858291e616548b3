"""All masters that are connected, of whom the one elected last is served (fencing)."""

from collections.abc import AsyncIterator, Awaitable, Callable

import grpc
import structlog
from google.protobuf.message import DecodeError

from allocator.cluster.engine import Engine
from allocator.cluster.memory import Memory
from allocator.contract import allocator_pb2 as contract
from allocator.service.masters.session import (
    Ended,
    ProtocolError,
    Requests,
    Session,
    SessionStatistics,
    Unreadable,
)

Context = grpc.aio.ServicerContext[contract.FromMaster, contract.ToMaster]
_SERVICE = contract.DESCRIPTOR.services_by_name["Allocator"]

_log = structlog.get_logger(__name__)


class Sessions:
    """Serves the leading master, and lets those on standby wait.

    Messages are applied one by one in the event loop's thread, so whoever else looks at the
    engine from there sees it between two messages.

    Args:
        engine: Decides.
        statistics: Kept up to date.
        most: Streams at once.
        recall: Returns what is in the store now; None: nothing, or it cannot be read.
    """

    def __init__(
        self,
        engine: Engine,
        statistics: SessionStatistics,
        most: int,
        recall: Callable[[], Awaitable[Memory | None]],
    ) -> None:
        self._engine = engine
        self._recall = recall
        self._statistics = statistics
        self._most = most
        self._open: dict[Session, None] = {}
        self._leader: Session | None = None
        self._elected_ns = 0
        """When the present leader was, or the last one that was connected."""
        self._elected = ""
        """Its HOST:PORT."""

    def handlers(self) -> grpc.GenericRpcHandler:
        """Return what a gRPC server has to know.

        Not the generated servicer: there, what is not a message ends a stream without a word.
        """
        session = grpc.stream_stream_rpc_method_handler(
            self._session, request_deserializer=_parse, response_serializer=_serialise
        )
        return grpc.method_handlers_generic_handler(_SERVICE.full_name, {"Session": session})

    def end(self, reason: str) -> None:
        """End all streams."""
        for session in list(self._open):
            session.end(reason)

    async def _session(
        self, requests: Requests, context: Context
    ) -> AsyncIterator[contract.ToMaster]:
        """Serve a stream to its end."""
        session = Session(self._engine, self._statistics, self._recall, self._claim, self._resign)
        # Cancelled in a read or abandoned in a write: a lost peer shows in more ways than one.
        closed = "the master's side is gone"
        try:
            self._admit(session)
            await session.greet(requests)
            self._welcome(session)
            async for answer in session.serve(requests):
                yield answer
            closed = "the master's side is done"
        except ProtocolError as error:
            closed = ""
            _log.warning("stream refused", peer=context.peer(), reason=str(error))
            self._leave(session)
            await context.abort(error.code, str(error))
        except Ended as error:
            closed = str(error)
            self._leave(session)
            await context.abort(grpc.StatusCode.ABORTED, closed)
        except Exception:
            closed = ""
            _log.exception("session failed", master=session.hello.master)
            raise
        finally:
            self._leave(session)
            if closed:
                _log.info("session closed", master=session.hello.master, reason=closed)

    def _admit(self, session: Session) -> None:
        if len(self._open) >= self._most:
            raise ProtocolError(
                grpc.StatusCode.RESOURCE_EXHAUSTED,
                f"{self._most} masters are connected already (listen.sessions)",
            )
        self._open[session] = None

    def _welcome(self, session: Session) -> None:
        """A master that connects again has lost its former stream, though nobody said so."""
        hello = session.hello
        self._statistics.sessions += 1
        _log.info("session opened", master=hello.master, mesos=hello.mesos_version)
        for other in list(self._open):
            if other is not session and other.hello.session_id == hello.session_id:
                other.end(f"superseded by a new stream of the same master, {hello.master}")
                self._leave(other)
        self._count()

    def _claim(self, session: Session, elected_ns: int) -> None:
        """Make a master the leader.

        Raises:
            ProtocolError: another one was elected later.
        """
        if elected_ns < self._elected_ns:
            raise ProtocolError(
                grpc.StatusCode.FAILED_PRECONDITION,
                f"superseded: master {self._elected} was elected later, at "
                f"{self._elected_ns / 1e9:.3f} s since the epoch",
            )
        master = session.hello.master
        former, self._leader = self._leader, session
        if former is not session:
            _log.info("master leads", master=master, elected=elected_ns / 1e9)
            if former is not None:
                former.end(
                    f"superseded by master {master}, elected at {elected_ns / 1e9:.3f} s since "
                    "the epoch"
                )
                self._leave(former)
        self._elected_ns, self._elected = elected_ns, master
        self._count()

    def _resign(self, session: Session) -> None:
        if self._leader is session:
            self._leader = None
        self._count()

    def _leave(self, session: Session) -> None:
        self._open.pop(session, None)
        self._resign(session)

    def _count(self) -> None:
        self._statistics.connected = self._leader is not None
        greeted = sum(bool(session.hello.contract_version) for session in self._open)
        self._statistics.standby = greeted - self._statistics.connected


def _parse(data: bytes) -> contract.FromMaster | Unreadable:
    try:
        return contract.FromMaster.FromString(data)
    except DecodeError as error:
        return Unreadable(str(error))


def _serialise(message: contract.ToMaster) -> bytes:
    return message.SerializeToString()
