"""All masters that are connected, of whom the one that leads is served."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress

import grpc
import structlog

from allocator.cluster.engine import Engine
from allocator.cluster.memory import Memory
from allocator.contract import allocator_pb2 as contract
from allocator.service.loop.engine_lock import EngineLock
from allocator.service.masters import wire
from allocator.service.masters.leadership import Leadership, same_master
from allocator.service.masters.session import (
    Ended,
    ProtocolError,
    Requests,
    Session,
    SessionStatistics,
    Unread,
)
from allocator.service.masters.timestamp_guard import Timeline, TimestampGuard
from allocator.service.rights import Rights, certificate

STRANGERS = 64
"""Streams at once on which no snapshot has come yet; a newcomer ends the oldest of them."""

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
        most: Masters on standby at once, and likewise such as wait for a leader to go.
        recall: Returns what another service has stored meanwhile; None: nothing, or it cannot be
            read.
        took_over: Told that another master, or stream of one, leads.
        timeline: By which stamps are judged.
        most_parts: Of a message.
        virtual_clocks: Whether a master may say that its clock is virtual; its stamps are believed.
        rights: Who may be a master.
        turn: Waited for before the engine is touched.
        before_message: Told that a message is about to reach the engine, whole or its first part.
    """

    def __init__(  # noqa: PLR0913 - what a session needs of the service, by name
        self,
        engine: Engine,
        statistics: SessionStatistics,
        *,
        most: int,
        recall: Callable[[], Awaitable[Memory | None]],
        took_over: Callable[[], None] = lambda: None,
        timeline: Timeline,
        most_parts: int = 2**23,
        virtual_clocks: bool = False,
        rights: Rights,
        turn: EngineLock | None = None,
        before_message: Callable[[], None] = lambda: None,
    ) -> None:
        self.turn = EngineLock() if turn is None else turn
        self.before_message = before_message
        self._most_parts = most_parts
        self._engine = engine
        self._recall = recall
        self._took_over = took_over
        self._statistics = statistics
        self._most = most
        self._timeline = timeline
        self._virtual_clocks = virtual_clocks
        self._rights = rights
        self._open: dict[Session, None] = {}
        self._leadership = Leadership()

    def handlers(self) -> grpc.GenericRpcHandler:
        """Return what a gRPC server has to know.

        Not the generated servicer: there, what is not a message ends a stream without a word.
        """
        session = grpc.stream_stream_rpc_method_handler(
            self._session,
            request_deserializer=_parser(self._most_parts),
            response_serializer=_serialise,
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
        if self._rights.permit(context, "masters") is not None:
            return
        session = Session(self._engine, self._statistics, self, certificate(context))
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
            _log.warning(
                "stream refused",
                peer=context.peer(),
                certificate=session.certificate,
                reason=str(error),
            )
            _close(context, error.code, str(error))
        except Ended as error:
            closed = str(error)
            _close(context, grpc.StatusCode.ABORTED, closed)
        except Exception:
            closed = ""
            _log.exception("session failed", master=session.hello.master)
            raise
        finally:
            self._leave(session)
            if closed:
                _log.info("session closed", master=session.hello.master, reason=closed)

    def stamps(self, session: Session) -> TimestampGuard | None:
        """Return who bounds the stamps of a session; None: nobody.

        Raises:
            ProtocolError: its clock is virtual, and that is not allowed.
        """
        if not session.hello.virtual_clock:
            return TimestampGuard(self._timeline, session.hello.master)
        if not self._virtual_clocks:
            raise ProtocolError(
                grpc.StatusCode.FAILED_PRECONDITION,
                "the master says that its clock is virtual; for an experiment set "
                "listen.virtual_clocks = true",
            )
        return None

    def settle(self, session: Session) -> None:
        """Count a session among those on standby, or those that say they lead.

        Whoever may lead at once needs no room, so nobody can take it.

        Raises:
            ProtocolError: there are too many already.
        """
        if not session.settled:
            claims = session.elected_ns > 0
            alike = sum(
                other.settled and (other.elected_ns > 0) == claims
                for other in self._open
                if other is not self._leadership.leader and not same_master(other, session)
            )
            if alike >= self._most and not (claims and self.obstacle(session) is None):
                raise ProtocolError(
                    grpc.StatusCode.RESOURCE_EXHAUSTED,
                    f"{self._most} masters wait already (listen.sessions)",
                )
            session.settled = True
            self._supersede(session)
        self._count()

    def obstacle(self, session: Session) -> str | None:
        """Return why a master that says it leads is not served; None: it may be."""
        return self._leadership.obstacle(session)

    async def recall(self) -> Memory | None:
        """Return what another service has stored meanwhile."""
        return await self._recall()

    def lead(self, session: Session) -> None:
        """Make a master the leader; the stream of the one before is closed with the reason."""
        if self._leadership.leader is not session:
            self._took_over()
        former = self._leadership.take(session)
        if isinstance(former, Session):
            again = same_master(session, former)
            what = "a new stream of the same master" if again else "master"
            self._end(former, f"superseded by {what} {session.hello.master}")
        self._count()

    def resign(self, session: Session) -> None:
        """Follow that a master says that it does not lead."""
        self._leadership.leave(session)
        self._count()

    def heard(self, session: Session) -> None:
        """Note that a session has said something."""
        session.heard = self._leadership.clock()

    def _admit(self, session: Session) -> None:
        """Let a newcomer in; of those that have not said who they are, the oldest has to go."""
        strangers = [other for other in self._open if not other.settled]
        if len(strangers) >= STRANGERS:
            self._end(
                strangers[0], "others wait, and no snapshot has come on this stream; connect again"
            )
        self._open[session] = None

    def _welcome(self, session: Session) -> None:
        hello = session.hello
        self._statistics.sessions += 1
        _log.info(
            "session opened",
            master=hello.master,
            mesos=hello.mesos_version,
            certificate=session.certificate,
        )
        self._count()

    def _supersede(self, session: Session) -> None:
        """A master on standby that connects again has lost its former stream, unnoticed."""
        for other in list(self._open):
            leads = other is self._leadership.leader
            if other is not session and not leads and same_master(other, session):
                self._end(other, f"superseded by a new stream of master {session.hello.master}")

    def _end(self, session: Session, reason: str) -> None:
        session.end(reason)
        self._leave(session)

    def _leave(self, session: Session) -> None:
        session.left = True
        self._open.pop(session, None)
        self.resign(session)

    def _count(self) -> None:
        self._statistics.lead(connected=self._leadership.leader is not None)
        greeted = sum(bool(session.hello.contract_version) for session in self._open)
        self._statistics.standby = greeted - self._statistics.connected


def _close(context: Context, code: grpc.StatusCode, reason: str) -> None:
    """Set the status of a stream, which ends when its handler returns.

    gRPC's own `abort` would keep its exception in the call, and so every frame with a message.
    """
    context.set_code(code)
    context.set_details(reason)


def _parser(most_parts: int) -> Callable[[bytes], contract.FromMaster | Unread]:
    """Return what reads short messages; long ones are read by whoever waits for them."""

    def parse(data: bytes) -> contract.FromMaster | Unread:
        if len(data) <= wire.SHORT:
            with suppress(wire.WireError):  # raised again where the stream can be told
                return wire.parse(data, most_parts)
        return wire.reading(data, most_parts)

    return parse


def _serialise(message: contract.ToMaster) -> bytes:
    return message.SerializeToString()
