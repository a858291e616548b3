"""TLS and mutual TLS on the gRPC port, end to end: masters, operators, refused peers."""

import json
import shutil
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import grpc
import pytest

from allocator.contract import admin_pb2 as admin
from allocator.contract.admin_pb2_grpc import AdminStub
from allocator.contract.channel import Identity
from allocator.service.listening import LOOK_EVERY
from frameworks.harness.ports import free_port
from frameworks.harness.processes import Children
from tests.service.served import PATIENCE, Service, service, wait_for

pytestmark = pytest.mark.skipif(
    shutil.which("openssl") is None, reason="certificates are made with the command openssl"
)


@dataclass(frozen=True)
class Authority:
    """A certificate authority that signs certificates in a folder."""

    folder: Path

    @property
    def certificate(self) -> Path:
        return self.folder / "ca.pem"

    def found(self) -> "Authority":
        self.folder.mkdir()
        _openssl(
            *("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"),
            *("-nodes", "-days", "2", "-subj", "/CN=authority", "-keyout", self.folder / "ca.key"),
            *("-out", self.certificate),
        )
        return self

    def issue(self, name: str) -> Identity:
        key, request, issued = (self.folder / f"{name}.{kind}" for kind in ("key", "csr", "pem"))
        names = self.folder / "names"
        names.write_text("subjectAltName=DNS:localhost,IP:127.0.0.1\n")
        _openssl(
            *("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"),
            *("-subj", f"/CN={name}", "-keyout", key, "-out", request),
        )
        _openssl(
            *("x509", "-req", "-in", request, "-days", "2", "-CA", self.certificate),
            *("-CAkey", self.folder / "ca.key", "-CAcreateserial", "-extfile", names),
            *("-out", issued),
        )
        return Identity(self.certificate, issued, key)


def _openssl(*arguments: object) -> None:
    subprocess.run(["openssl", *map(str, arguments)], check=True, capture_output=True)


@contextmanager
def protected(folder: Path, authority: Authority, *, mutual: bool) -> Iterator[Service]:
    own = authority.issue("service")
    tls = f'[listen.tls]\ncertificate = "{own.certificate}"\nkey = "{own.key}"\n'
    if mutual:
        tls += f'client_ca = "{authority.certificate}"\n'
    with service(folder, tls, listen=f"localhost:{free_port()}") as running:
        yield running


def asks(running: Service, identity: Identity) -> admin.SharesReply:
    credentials = identity.credentials()
    assert credentials is not None
    with grpc.secure_channel(running.address, credentials) as channel:
        stub = AdminStub(channel)
        for _ in range(2):  # a busy machine may need a second to send a request, which is too late
            with late_request():
                return stub.Shares(admin.SharesRequest(), timeout=PATIENCE)
        return stub.Shares(admin.SharesRequest(), timeout=PATIENCE)


@contextmanager
def late_request() -> Iterator[None]:
    """Ignore that the service rejects a request because the request arrives late."""
    try:
        yield
    except grpc.RpcError as error:
        if "did not arrive in time" not in str(error):
            raise


@contextmanager
def kept_out() -> Iterator[None]:
    """Expect that no connection is established; a timeout does not count as a refusal."""
    with pytest.raises(grpc.RpcError) as raised:
        yield
    assert raised.value.code() == grpc.StatusCode.UNAVAILABLE


def test_with_tls_a_client_with_the_authority_is_answered_and_plain_text_is_not(
    tmp_path: Path,
) -> None:
    authority = Authority(tmp_path / "ca").found()
    with protected(tmp_path, authority, mutual=False) as running:
        assert asks(running, Identity(authority.certificate)).cluster.policy == "sdrf"
        with grpc.insecure_channel(running.address) as channel, kept_out():
            AdminStub(channel).Shares(admin.SharesRequest(), timeout=PATIENCE)


def test_with_mtls_only_clients_with_a_certificate_of_the_authority_are_answered(
    tmp_path: Path,
) -> None:
    authority = Authority(tmp_path / "ca").found()
    stranger = Authority(tmp_path / "other").found().issue("stranger")
    impostor = Identity(authority.certificate, stranger.certificate, stranger.key)
    with protected(tmp_path, authority, mutual=True) as running:
        assert asks(running, authority.issue("operator")).cluster.policy == "sdrf"
        for identity in (Identity(authority.certificate), impostor):
            with kept_out():
                asks(running, identity)


def test_a_renewed_certificate_is_used_without_a_restart(tmp_path: Path) -> None:
    authority = Authority(tmp_path / "ca").found()
    with protected(tmp_path, authority, mutual=False) as running:
        assert asks(running, Identity(authority.certificate))
        newer = Authority(tmp_path / "newer").found()
        renewed = newer.issue("service")
        assert renewed.certificate is not None
        assert renewed.key is not None
        shutil.copy(renewed.key, authority.folder / "service.key")
        shutil.copy(renewed.certificate, authority.folder / "service.pem")
        time.sleep(LOOK_EVERY)
        assert asks(running, Identity(newer.certificate)).cluster.policy == "sdrf"


def test_no_session_is_resumed_without_a_check_of_the_certificate(tmp_path: Path) -> None:
    authority = Authority(tmp_path / "authority").found()
    client = authority.issue("client")
    context = ssl.create_default_context(cafile=str(client.authority))
    context.load_cert_chain(str(client.certificate), str(client.key))
    context.set_alpn_protocols(["h2"])

    def connect(running: Service, former: ssl.SSLSession | None) -> ssl.SSLSession | None:
        host, _, port = running.address.rpartition(":")
        with (
            socket.create_connection((host, int(port))) as plain,
            context.wrap_socket(plain, server_hostname=host, session=former) as encrypted,
        ):
            encrypted.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes((0, 0, 0, 4)) + bytes(5))
            encrypted.recv(100)  # the ticket comes first
            assert not encrypted.session_reused
            return encrypted.session

    with protected(tmp_path, authority, mutual=True) as running:
        session = connect(running, None)
        assert session is not None
        assert session.has_ticket
        time.sleep(LOOK_EVERY)
        connect(running, session)


def test_a_master_and_an_operator_connect_by_mtls(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    authority = Authority(tmp_path / "ca").found()
    mine = authority.issue("master")
    monkeypatch.setenv("LONGSHARE_CA", str(mine.authority))
    monkeypatch.setenv("LONGSHARE_CERTIFICATE", str(mine.certificate))
    monkeypatch.setenv("LONGSHARE_KEY", str(mine.key))
    (tmp_path / "logs").mkdir()
    with (
        protected(tmp_path, authority, mutual=True) as running,
        Children(tmp_path / "logs") as children,
    ):
        children.start("mesos", "local-mesos", f"--allocator={running.address}", "--port=0")
        wait_for(lambda: asks(running, mine).cluster.agents == 4)
        asking = ("shares", f"--address={running.address}", f"--timeout={PATIENCE:g}", "--json")
        children.start("shares", *asking)
        log = tmp_path / "logs" / "shares.log"
        wait_for(lambda: '"agents": 4' in log.read_text())


def test_a_failed_handshake_writes_no_grpc_lines_to_the_log(
    tmp_path: Path,
) -> None:
    authority = Authority(tmp_path / "ca").found()
    own, port, log = authority.issue("service"), free_port(), tmp_path / "log"
    config = tmp_path / "longshare.toml"
    config.write_text(
        f'[listen]\naddress = "localhost:{port}"\n[listen.tls]\ncertificate = "{own.certificate}"\n'
        f'key = "{own.key}"\n[store]\nkind = "none"\n[accounting]\ndatabase = "none"\n'
        '[metrics]\naddress = "127.0.0.1:0"\n[log]\nformat = "json"\n'
    )
    command = [sys.executable, "-m", "allocator.cli", "serve", "--config", str(config)]
    with log.open("wb") as errors, subprocess.Popen(command, stderr=errors) as started:
        try:
            wait_for(lambda: '"ready"' in log.read_text())
            for _ in range(3):
                with socket.create_connection(("localhost", port)) as peer:
                    peer.sendall(b"GET / HTTP/1.0\r\n\r\n")
                    while peer.recv(100):
                        pass
        finally:
            started.terminate()
    assert all("event" in json.loads(line) for line in log.read_text().splitlines())


def test_a_missing_key_file_is_named(tmp_path: Path) -> None:
    tls = '[listen.tls]\ncertificate = "none.pem"\nkey = "none.key"\n'
    failing = Service(tmp_path, tls)
    assert failing.process.wait(PATIENCE) == 2
    assert "listen.tls.key: none.key: No such file" in failing.log.read_text()
