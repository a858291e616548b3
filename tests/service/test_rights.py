"""Masters, operators and readers have separate rights, by certificate or by port."""

import getpass
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError
from typing_extensions import override

from allocator.contract import admin_pb2 as admin
from allocator.contract import operator_pb2 as operator
from allocator.contract.admin_pb2_grpc import AdminStub
from allocator.contract.allocator_pb2_grpc import AllocatorStub
from allocator.service.config import Config, RightsSection
from allocator.service.rights import MOST_NAMES, Right, Rights, identified
from frameworks.harness.ports import free_port
from tests.forks import longshare
from tests.service.served import PATIENCE, Service, Stream, hello, service, wait_for
from tests.service.test_tls import Authority

ROOT = Path(__file__).parents[2]
READING = {"reading", "foreseeing", "accounting", "auditing"}
RIGHTS = RightsSection(masters=("master-*",), operators=("alice",), readers=("dashboard",))
ALL: tuple[Right, ...] = ("masters", "operators", "readers")
ANSWERED = grpc.StatusCode.OK
DENIED = grpc.StatusCode.PERMISSION_DENIED


@pytest.mark.parametrize(
    ("name", "has"),
    [
        ("master-1", {"masters"}),
        ("alice", {"operators", "readers"}),
        ("dashboard", {"readers"}),
        ("alice2", set()),
        ("xmaster-1", set()),
        ("", set()),
    ],
)
def test_a_certificate_name_gives_the_rights_it_is_listed_for(name: str, has: set[str]) -> None:
    rights = Rights(RIGHTS)
    assert {right for right in ALL if rights.has([name], right)} == has


@given(st.lists(st.text()), st.sampled_from(ALL))
def test_no_peer_has_a_right_without_a_listed_name(found: list[str], right: Right) -> None:
    assert not Rights(RightsSection()).has(found, right)
    assert not Rights(RIGHTS).has([], right)


class Peer:
    """A gRPC context of a peer with this certificate."""

    def __init__(self, common_name: str, *alternative_names: str) -> None:
        self._told = {
            "transport_security_type": [b"ssl"],
            "x509_common_name": [common_name.encode()],
            "x509_subject_alternative_name": [name.encode() for name in alternative_names],
        }

    def auth_context(self) -> dict[str, list[bytes]]:
        return self._told

    def peer(self) -> str:
        return "ipv4:10.0.0.1:4000"


@pytest.mark.parametrize(
    ("names", "who"),
    [
        (("alice", "localhost"), "alice"),
        (("", "alice"), "alice"),
        (("",), "a certificate without a name"),
        (("a" * 60_000,), "a" * 300 + "…"),
    ],
)
def test_a_peer_is_named_by_the_first_name_of_its_certificate_shortened(
    names: tuple[str, ...], who: str
) -> None:
    peer: Any = Peer(*names)
    assert identified(peer) == (who, "certificate")
    host_names = [f"host-{number}" for number in range(3500)]
    stranger: Any = Peer("eve", *host_names)
    assert Rights(RIGHTS).refusal(stranger, "readers") == (
        "eve (and 3500 other names) is not among listen.rights.readers"
    )


def test_the_first_names_of_a_certificate_count_and_no_more_are_looked_at() -> None:
    class Name(bytes):
        read = 0

        @override
        def decode(self, *_: str, **__: str) -> str:
            Name.read += 1
            return super().decode()

    peer: Any = Peer("eve")
    last = [Name(b"host") for _ in range(MOST_NAMES - 2)]
    peer.auth_context()["x509_subject_alternative_name"] = [*last, Name(b"alice"), Name(b"bob")]
    assert Rights(RIGHTS).refusal(peer, "operators") is None
    peer.auth_context()["x509_subject_alternative_name"] = [Name(b"host"), *last, Name(b"alice")]
    Name.read = 0
    refusal = Rights(RIGHTS).refusal(peer, "operators")
    assert refusal is not None
    assert refusal.startswith(f"eve (and {MOST_NAMES} other names)")
    assert Name.read == MOST_NAMES - 1


def test_further_calls_of_a_refused_connection_cost_no_look_at_its_certificate() -> None:
    looks = 0

    class Caller(Peer):
        def __init__(self, name: str, address: str) -> None:
            super().__init__(name)
            self._address = address

        @override
        def auth_context(self) -> dict[str, list[bytes]]:
            nonlocal looks
            looks += 1
            return super().auth_context()

        @override
        def peer(self) -> str:
            return self._address

        def set_code(self, code: grpc.StatusCode) -> None:
            assert code == DENIED

        def set_details(self, details: str) -> None:
            assert details

    def permitted(rights: Rights, caller: Any, right: Right) -> bool:  # noqa: ANN401
        return rights.permit(caller, right) is None

    def identified(rights: Rights, caller: Any) -> tuple[str, str]:  # noqa: ANN401
        return rights.identified(caller)

    rights = Rights(RIGHTS)
    eve: Any = Caller("eve", "ipv4:10.0.0.1:4000")
    bob: Any = Caller("bob", "unix:")
    assert not any(permitted(rights, eve, "readers") for _ in range(100))
    assert looks == 1
    assert {identified(rights, eve) for _ in range(100)} == {("eve", "certificate")}
    assert looks == 2
    assert rights.refused["readers"] == 100
    assert permitted(rights, Caller("alice", "ipv4:10.0.0.1:4001"), "readers")
    assert not permitted(rights, Caller("eve", "unix:"), "readers")
    assert identified(rights, bob) == ("bob", "certificate")
    assert permitted(rights, Caller("alice", "unix:"), "readers")


def test_rights_by_name_require_client_certificates() -> None:
    with pytest.raises(ValidationError, match="client_ca"):
        Config.model_validate({"listen": {"rights": {"masters": ["m"]}}})


def asked(channel: grpc.Channel) -> dict[str, grpc.StatusCode]:
    """Make each kind of call; return the status code of each."""
    stub, order = AdminStub(channel), operator.Order()
    order.reset_commitments.SetInParent()
    calls: dict[str, Callable[[], object]] = {
        "reading": lambda: stub.Shares(admin.SharesRequest(), timeout=PATIENCE),
        "foreseeing": lambda: stub.Forecast(admin.ForecastRequest(user="nobody"), timeout=PATIENCE),
        "accounting": lambda: stub.Usage(admin.UsageRequest(until=1.0), timeout=PATIENCE),
        "auditing": lambda: stub.Audit(admin.AuditRequest(until=1.0), timeout=PATIENCE),
        "ordering": lambda: stub.Order(order, timeout=PATIENCE),
        "leading": lambda: next(AllocatorStub(channel).Session(iter([hello()]), timeout=PATIENCE)),
    }
    ended = {}
    for name, call in calls.items():
        try:
            call()
            ended[name] = ANSWERED
        except grpc.RpcError as error:
            answered = error.code() == grpc.StatusCode.NOT_FOUND  # there is no user of that name
            ended[name] = ANSWERED if answered else error.code()
    return ended


def audited(channel: grpc.Channel) -> list[admin.Ordered]:
    """Return the orders in the audit database."""
    asking = admin.AuditRequest(until=1e12)
    return list(AdminStub(channel).Audit(asking, timeout=PATIENCE).orders)


@contextmanager
def protected(folder: Path, authority: Authority, listen: str) -> Iterator[Service]:
    own = authority.issue("service")
    settings = (
        f"[accounting]\nevery = 60\n[listen]\n{listen}\n"
        f'[listen.tls]\ncertificate = "{own.certificate}"\n'
        f'key = "{own.key}"\nclient_ca = "{authority.certificate}"\n'
        '[listen.rights]\nmasters = ["master-*"]\noperators = ["alice"]\nreaders = ["dashboard"]\n'
    )
    with service(folder, settings, listen=f"localhost:{free_port()}") as running:
        yield running


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("openssl") is None, reason="certificates are made with openssl")
def test_each_certificate_allows_exactly_the_calls_of_its_rights(tmp_path: Path) -> None:
    authority = Authority(tmp_path / "ca").found()
    socket = f"unix://{tmp_path}/operators.sock"
    with protected(tmp_path, authority, f'operators = "{socket}"') as running:
        ended = {}
        for name in ("master-1", "alice", "nobody"):
            credentials = authority.issue(name).credentials()
            assert credentials is not None
            with grpc.secure_channel(running.address, credentials) as channel:
                ended[name] = asked(channel)["leading"]
        assert ended == {"master-1": ANSWERED, "alice": DENIED, "nobody": DENIED}
        on_the_port_of_masters = {
            "master-1": "not among listen.rights.readers; use a certificate",
            "alice": "this port serves masters; commands connect to the address in listen.",
        }
        for name, words in on_the_port_of_masters.items():
            own = authority.issue(name)
            refused = longshare(
                *("shares", "--address", running.address),
                env={
                    **os.environ,
                    "LONGSHARE_CA": str(authority.certificate),
                    "LONGSHARE_CERTIFICATE": str(own.certificate),
                    "LONGSHARE_KEY": str(own.key),
                },
            )
            assert words in refused.stderr
            assert refused.returncode == 3
        running.wait_to_say('"certificate": "master-1"')
        with grpc.insecure_channel(socket) as channel:
            assert asked(channel) == {
                **dict.fromkeys(READING, ANSWERED),
                "ordering": ANSWERED,
                "leading": grpc.StatusCode.UNIMPLEMENTED,
            }
            # A slow database may store an order after the order is answered.
            wait_for(lambda: bool(audited(channel)))
    with protected(tmp_path, authority, "") as running:
        for name, may in {
            "master-1": {"leading"},
            "alice": {*READING, "ordering"},
            "dashboard": READING,
            "nobody": set[str](),
        }.items():
            credentials = authority.issue(name).credentials()
            assert credentials is not None
            with grpc.secure_channel(running.address, credentials) as channel:
                assert asked(channel) == {
                    call: ANSWERED if call in may else DENIED
                    for call in (*READING, "ordering", "leading")
                }
        credentials = authority.issue("dashboard").credentials()
        assert credentials is not None
        with grpc.secure_channel(running.address, credentials) as channel:
            orders = audited(channel)
        assert {(order.who, order.how, bool(order.refusal)) for order in orders} == {
            ("root" if os.getuid() == 0 else getpass.getuser(), "socket", False),  # first run
            ("alice", "certificate", False),
            ("master-1", "certificate", True),
            ("dashboard", "certificate", True),
            ("nobody", "certificate", True),
        }


@pytest.mark.slow
@pytest.mark.parametrize("refusing", ["socket", "folder"])
def test_a_command_says_that_the_permissions_of_a_socket_refuse_it(
    tmp_path: Path, refusing: str
) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    path = folder / "operators.sock"
    command = [sys.executable, "-m", "allocator.cli", "shares", "--address", f"unix://{path}"]
    with service(tmp_path, f'[listen]\noperators = "unix://{path}"\n'):
        refused = path if refusing == "socket" else folder
        refused.chmod(0o000)
        owner = getpass.getuser()
        if os.geteuid() == 0:
            shutil.chown(refused, owner := "daemon")
            drop = ("setpriv", "--bounding-set=-dac_override,-dac_read_search")
            command = [*drop, *command]
        completed = subprocess.run(
            command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=PATIENCE
        )
        refused.chmod(0o700)
    assert f"the permissions of {refused} (mode 0000, user {owner}) do not let" in completed.stderr
    assert f"run the command as {owner} or root" in completed.stderr
    assert completed.returncode == 3


def test_without_tls_masters_and_operators_have_separate_ports(
    tmp_path: Path,
) -> None:
    socket = f"unix://{tmp_path}/operators.sock"
    with service(tmp_path, f'[listen]\noperators = "{socket}"\n') as running:
        assert Path(tmp_path, "operators.sock").stat().st_mode & 0o777 == 0o600
        Stream(running.address).open()
        with grpc.insecure_channel(running.address) as channel:
            ended = asked(channel)
            assert ended["reading"] == ended["ordering"] == grpc.StatusCode.UNIMPLEMENTED
        with grpc.insecure_channel(socket) as channel:
            ended = asked(channel)
            assert ended["reading"] == ended["ordering"] == ANSWERED
            assert ended["accounting"] == grpc.StatusCode.FAILED_PRECONDITION  # no accounts
            assert ended["leading"] == grpc.StatusCode.UNIMPLEMENTED
