"""The sizes of an operator's request and of the answer are limited before any work."""

import asyncio
from pathlib import Path
from typing import Any

import grpc
import pytest

from allocator.cluster.engine import Engine
from allocator.cluster.settings import EngineSettings
from allocator.contract import admin_pb2 as admin
from allocator.contract import operator_pb2 as operator
from allocator.contract.admin_pb2_grpc import (
    AdminServicer,
    AdminStub,
    add_AdminServicer_to_server,
)
from allocator.fairness import policies
from allocator.service import listening
from allocator.service.config import ListenSection
from allocator.service.operators.orders import concerned_users
from allocator.service.operators.request_limits import (
    LARGEST_QUESTION,
    LARGEST_REQUEST,
    RequestLimits,
)
from allocator.service.rights import Rights
from allocator.service.show.shares import user_shares
from allocator.users.settings import DeclaredUser
from tests.counted import counted
from tests.service.operators.test_admin import refusal
from tests.service.served import PATIENCE, service


def test_overlong_requests_are_refused_and_long_answers_are_shortened(tmp_path: Path) -> None:
    with (
        service(tmp_path, '[policy]\nname = "drf"\n') as running,
        grpc.insecure_channel(running.address) as channel,
    ):
        stub = AdminStub(channel)

        question = admin.ExplainRequest(user="a" * LARGEST_QUESTION)
        change = operator.SetWeight(user="a" * LARGEST_REQUEST)
        for call, too_long, most in (
            (stub.Explain, question, LARGEST_QUESTION),
            (stub.Order, operator.Order(set_weight=change), LARGEST_REQUEST),
        ):
            code, words = refusal(call, too_long)
            assert code == grpc.StatusCode.RESOURCE_EXHAUSTED
            assert f"at most {most:,}" in words

        # A reason travels in a header. Clients read 8 KiB of it, and each escape takes 3 bytes.
        for letter in ("\x1b", "\u3164", "\U0001d15f"):
            many = [f"{number}{letter * 50}" for number in range(1000)]
            reset = operator.Order(reset_commitments=operator.ResetCommitments(users=many))
            code, words = refusal(stub.Order, reset)
            assert code == grpc.StatusCode.NOT_FOUND
            assert words.startswith("no such user")
            assert len(words) < 2000

        rubbish: Any = channel.unary_unary("/longshare.v1.Admin/Explain")
        assert refusal(rubbish, b"\xff" * 9)[0] == grpc.StatusCode.INVALID_ARGUMENT

        # gRPC ends this call before the service does.
        packed: Any = channel.unary_unary("/longshare.v1.Admin/Shares")
        with pytest.raises(grpc.RpcError) as refused:
            packed(bytes(100_000), compression=grpc.Compression.Gzip)
        error: Any = refused.value
        assert error.code() == grpc.StatusCode.UNIMPLEMENTED

        assert not stub.Shares(admin.SharesRequest()).users


@pytest.mark.parametrize(("name", "most"), [("Shares", 0), ("Order", LARGEST_REQUEST)])
def test_only_a_call_with_an_order_lets_its_connection_send_many_bytes_at_once(
    tmp_path: Path, name: str, most: int
) -> None:
    noted = list[tuple[int, ...]]()
    rights = Rights(None)
    rights.observe_request = lambda _peer, *numbers: noted.append(numbers)
    limits = RequestLimits(rights, lambda *_: None, shared=False)
    address = f"unix://{tmp_path}/s"

    def add(server: grpc.aio.Server) -> None:
        servicer: Any = AdminServicer  # abstract only in the stubs
        add_AdminServicer_to_server(servicer(), server)

    async def call() -> None:
        port = listening._port(ListenSection(), "operators", address, [add], limits)
        async with port, grpc.aio.insecure_channel(address) as channel:
            method: Any = channel.unary_unary(f"/longshare.v1.Admin/{name}")
            await method(b"", timeout=PATIENCE).code()

    asyncio.run(call())
    assert noted == [(most,), (-most, 0)]


def test_requests_with_a_name_that_no_user_can_have_are_refused_before_users_are_read(
    tmp_path: Path,
) -> None:
    # Python decodes a name of 3-byte characters so slowly that a comparison took 0.3 ms.
    name = "\u3164" * 343
    with (
        service(tmp_path, '[policy]\nname = "drf"\n') as running,
        grpc.insecure_channel(running.address) as channel,
    ):
        stub = AdminStub(channel)
        requests = (
            (stub.Explain, admin.ExplainRequest(user=name)),
            (stub.Forecast, admin.ForecastRequest(user=name, tasks=1, demand={"cpus": 1})),
            (stub.Usage, admin.UsageRequest(users=[name])),
            (stub.Order, operator.Order(set_weight=operator.SetWeight(user=name, weight=2))),
            (stub.Order, operator.Order(forget_users=operator.ForgetUsers(users=["a", name]))),
        )
        for call, request in requests:
            code, words = refusal(call, request)
            assert code == grpc.StatusCode.INVALID_ARGUMENT
            assert words.startswith("a user's name of 1,029 bytes")
            assert "limits.name" in words
        shortest = admin.ExplainRequest(user="a" * 1024)
        assert refusal(stub.Explain, shortest)[0] == grpc.StatusCode.NOT_FOUND


def test_finding_the_users_of_an_order_takes_equal_steps_for_any_number_of_names() -> None:
    rows = user_shares(crowd())
    assert len(rows) > 100

    def steps(names: list[str]) -> int:
        order = operator.Order(reset_commitments=operator.ResetCommitments(users=names))
        return counted(lambda: concerned_users(order, rows))

    few, many = steps(["none"]), steps([f"none-{number}" for number in range(10_000)])
    assert many == few


def test_an_order_concerns_the_named_users_and_their_sub_roles() -> None:
    rows = user_shares(crowd())
    order = operator.Order(reset_commitments=operator.ResetCommitments(users=["a", "user-1"]))
    assert sorted(concerned_users(order, rows)) == ["a", "a/b", "a/c", "user-1"]


@pytest.mark.parametrize(
    "order", [field.name for field in operator.Order.DESCRIPTOR.oneofs_by_name["order"].fields]
)
def test_each_order_of_the_contract_concerns_the_user_that_it_names(order: str) -> None:
    given = operator.Order()
    change: Any = getattr(given, order)
    if "users" in change.DESCRIPTOR.fields_by_name:
        change.users.append("user-1")
    else:
        change.user = "user-1"
    assert concerned_users(given, user_shares(crowd())) == ["user-1"]


def crowd() -> Engine:
    names = ["a/b", "a/c", "ab", *(f"user-{number}" for number in range(100))]
    return Engine(EngineSettings(policies.create("drf", {}), users=tuple(map(DeclaredUser, names))))
