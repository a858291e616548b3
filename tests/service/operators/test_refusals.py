"""Refused orders are thinned and counted, and hide no executed order."""

import asyncio
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import grpc
import pytest

from allocator.contract import operator_pb2 as operator
from allocator.contract.admin_pb2_grpc import AdminStub
from allocator.service.accounting.write_batch import OrderRecord
from allocator.service.operators.refusals import ALL, EACH, Refusals
from tests.service.served import PATIENCE
from tests.service.test_rights import audited, protected
from tests.service.test_tls import Authority


class Noted:
    """An accountant that keeps audit entries in a list."""

    def __init__(self) -> None:
        self.entries: list[OrderRecord] = []

    def note(self, entry: OrderRecord) -> None:
        self.entries.append(entry)


def refused(requester: str, number: int = 0) -> OrderRecord:
    return OrderRecord(
        f"{requester}-{number}",
        1.0 + number,
        requester,
        "certificate",
        "",
        "",
        "{}",
        "{}",
        "{}",
        "no",
    )


def noted(orders: list[OrderRecord]) -> list[OrderRecord]:
    bookkeeper: Any = Noted()

    async def note() -> None:
        refusals = Refusals(bookkeeper)
        for order in orders:
            refusals.note(order)
        bookkeeper.entries += refusals.counts()

    asyncio.run(note())
    return list(bookkeeper.entries)


def test_refused_orders_of_a_peer_are_kept_up_to_a_limit_and_then_counted() -> None:
    entries = noted([*(refused("eve", number) for number in range(1000)), refused("mallory")])
    assert Counter(entry.who for entry in entries) == {"eve": EACH + 1, "mallory": 1}
    assert entries[-1].who == "eve"
    assert entries[-1].refusal.startswith(f"{1000 - EACH} more refused in 60 s")
    assert entries[-1].at == 1000.0


def test_audits_between_refused_orders_make_no_entries() -> None:
    bookkeeper: Any = Noted()

    async def audit() -> list[OrderRecord]:
        refusals = Refusals(bookkeeper)
        for number in range(1000):
            refusals.note(refused("eve", number))
            refusals.counts()
        return refusals.counts()

    [shown] = asyncio.run(audit())
    assert shown.refusal.startswith(f"{1000 - EACH} more refused in 60 s")
    assert len(bookkeeper.entries) == EACH


def test_refused_orders_of_thousands_of_peers_make_few_entries() -> None:
    entries = noted([refused(f"eve-{number % 5000}", number) for number in range(10_000)])
    assert len(entries) <= 2 * ALL + 1
    refusals = [entry.refusal for entry in entries if entry.refusal != "no"]
    counts = [int(words.split()[0].replace(",", "")) for words in refusals]
    assert sum(counts) + sum(entry.refusal == "no" for entry in entries) == 10_000


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("openssl") is None, reason="certificates are made with openssl")
def test_an_audit_shows_executed_orders_among_hundreds_of_refused_orders(
    tmp_path: Path,
) -> None:
    authority = Authority(tmp_path / "ca").found()
    order = operator.Order()
    order.reset_commitments.SetInParent()
    with protected(tmp_path, authority, "") as running:
        codes = Counter[grpc.StatusCode]()
        # A connection without a permitted call may send less than 200 orders need.
        for name, times in (("alice", 1), *[("nobody", 50)] * 4, ("alice", 1)):
            credentials = authority.issue(name).credentials()
            assert credentials is not None
            with grpc.secure_channel(running.address, credentials) as channel:
                for _ in range(times):
                    try:
                        AdminStub(channel).Order(order, timeout=PATIENCE)
                    except grpc.RpcError as error:
                        codes[error.code()] += 1
                orders = [audited(channel) for _ in range(3)][-1] if name == "alice" else []
        assert codes == {grpc.StatusCode.PERMISSION_DENIED: 200}
        assert Counter(order.who for order in orders) == {"alice": 2, "nobody": EACH + 1}
        assert [
            order.refusal.split()[0] for order in orders if "more refused" in order.refusal
        ] == [str(200 - EACH)]
        running.wait_for_metric('longshare_refused_calls_total{right="operators"} 200.0')
