"""An answer names the number of messages it reflects, and the messages that came meanwhile."""

import asyncio
from itertools import count
from types import SimpleNamespace
from typing import Any

import pytest
from typing_extensions import override

from allocator.cluster.input.errors import InvalidEvent
from allocator.contract import admin_pb2 as admin
from allocator.contract import allocator_pb2 as contract
from allocator.contract import operator_pb2 as operator
from allocator.service.loop import cooperative
from allocator.service.loop.engine_lock import EngineLock
from allocator.service.masters.session import SessionStatistics
from allocator.service.operators.admin import Admin
from allocator.service.operators.grpc_errors import CallRefused
from allocator.service.show.wait_reasons import Waits
from allocator.users.orders import InvalidOrder
from tests.cluster.master_side import MasterSide


class Ticking(EngineLock):
    """An engine lock; a second of the master's time passes before the given acquisitions."""

    def __init__(self, master: MasterSide, *turns: int) -> None:
        super().__init__()
        self._master = master
        self._turns = turns
        self.taken = 0

    @override
    async def __aenter__(self) -> None:
        await super().__aenter__()
        self.taken += 1
        if self.taken in self._turns:
            self._master.tick(1)


@pytest.fixture(name="master")
def _master(monkeypatch: pytest.MonkeyPatch) -> MasterSide:
    """A master with two users; each time slice of an answer has one step.

    The clock counts its readings. A slice would otherwise have more steps after a long wait for the
    lock.
    """
    readings = count()
    clock = SimpleNamespace(perf_counter=lambda: 1e-6 * next(readings))
    monkeypatch.setattr(cooperative, "time", clock)
    monkeypatch.setattr(cooperative, "SLICE", 1e-9)
    master = MasterSide("sdrf", {"half_life": 60.0})
    master.add_framework("f1", "a")
    master.add_framework("f2", "b")
    master.add_agent("s1", "cpus:4;mem:512")
    master.tick(10)
    return master


PEER: Any = SimpleNamespace(auth_context=dict)


def serving(master: MasterSide, turn: EngineLock) -> Admin:
    waits = Waits(master.engine, SessionStatistics(connected=True))
    return Admin(master.engine, waits, None, None, turn)


def asked(master: MasterSide, *turns: int) -> admin.SharesReply:
    serves = serving(master, Ticking(master, *turns))
    return asyncio.run(serves.Shares(admin.SharesRequest(), PEER))


def explained(master: MasterSide, turn: EngineLock) -> admin.Explanation:
    return asyncio.run(serving(master, turn).Explain(admin.ExplainRequest(user="a"), PEER))


def test_an_uninterrupted_answer_names_the_last_applied_message(
    master: MasterSide,
) -> None:
    reply = asked(master, 1)
    assert sorted(row.user for row in reply.users) == ["a", "b"]
    assert reply.meanwhile == 0
    assert reply.cluster.messages == master.engine.statistics.messages
    assert reply.cluster.time == master.engine.now


@pytest.mark.parametrize("turns", [(2,), (3, 5)], ids=["the second user", "what they are told as"])
def test_an_answer_counts_the_messages_that_came_meanwhile(
    turns: tuple[int, ...], master: MasterSide
) -> None:
    reply = asked(master, *turns)
    assert reply.meanwhile == len(turns)
    assert reply.cluster.time == master.engine.now
    assert reply.cluster.messages == master.engine.statistics.messages


def test_orders_and_refused_messages_count_as_messages(master: MasterSide) -> None:
    before = asked(master).cluster.messages
    with pytest.raises(InvalidOrder):
        master.engine.order(operator.Order())
    with pytest.raises(InvalidEvent):
        master.engine.apply(contract.Events(events=[contract.Event(sequence=1)]))
    assert asked(master).cluster.messages == before + 2


@pytest.mark.parametrize("turns", [(), (1,), (2, 4)], ids=["none", "before it begins", "two"])
def test_an_explanation_counts_the_messages_since_the_request(
    turns: tuple[int, ...], master: MasterSide
) -> None:
    explanation = explained(master, Ticking(master, *turns))
    assert explanation.meanwhile == len(turns)
    assert explanation.cluster.messages == master.engine.statistics.messages


def test_a_user_that_leaves_during_its_explanation_is_explained_as_before(
    master: MasterSide,
) -> None:
    class Leaving(Ticking):
        @override
        async def __aenter__(self) -> None:
            await super().__aenter__()
            if self.taken == 4:  # the rank is known, the wait reasons are not yet
                self._master.send(contract.RemoveFramework(framework_id="f1"))

    explanation = explained(master, Leaving(master))
    assert explanation.user.user == "a"
    assert explanation.meanwhile == 1
    assert not explanation.reasons


@pytest.mark.parametrize(
    "order", [operator.Order(), operator.Order(forget_users=operator.ForgetUsers())]
)
def test_a_refused_order_that_names_nobody_reads_no_users(
    order: operator.Order, master: MasterSide
) -> None:
    turn = Ticking(master)
    context: Any = SimpleNamespace(
        auth_context=dict,
        peer=lambda: "unix:",
        set_code=lambda _: None,
        set_details=lambda _: None,
    )
    with pytest.raises(CallRefused):
        asyncio.run(serving(master, turn).Order(order, context))
    assert turn.taken == 1


def test_the_masters_messages_are_answered_between_orders_that_come_at_once(
    master: MasterSide, monkeypatch: pytest.MonkeyPatch
) -> None:
    turn, taken = EngineLock(), list[str]()
    serves, carry_out = serving(master, turn), master.engine.order

    def note(order: operator.Order) -> None:
        taken.append("order")
        carry_out(order)

    monkeypatch.setattr(master.engine, "order", note)
    context: Any = SimpleNamespace(auth_context=dict, peer=lambda: "unix:")

    async def send_messages() -> None:
        while taken.count("order") < 4:
            async with turn:
                taken.append("message")
            await asyncio.sleep(0)

    async def scenario() -> None:
        orders = (
            operator.Order(set_weight=operator.SetWeight(user="a", weight=weight))
            for weight in range(2, 6)
        )
        messages = asyncio.create_task(send_messages())
        await asyncio.gather(*(serves.Order(order, context) for order in orders))
        await messages

    asyncio.run(scenario())
    assert taken.count("order") == 4
    assert "order order" not in " ".join(taken)
