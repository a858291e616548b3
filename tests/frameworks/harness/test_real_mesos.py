"""A real Mesos gets no requests during its start, when a request would crash the master."""

import sys
from pathlib import Path

import pytest

from frameworks.harness.processes import ChildFailed, Children
from frameworks.harness.real_mesos import MODULE, MesosHome, RealMesos

MASTER = f"""#!{sys.executable}
import http.server, select, socketserver, sys

class Asked(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b'{{"master/elected": 1.0}}')

port = next(each for each in sys.argv if each.startswith("--port=")).partition("=")[2]
server = socketserver.TCPServer(("127.0.0.1", int(port)), Asked)
print("Build: by nobody", flush=True)
asked, _, _ = select.select([server], [], [], 1.0)
if asked:
    sys.exit("*** SIGSEGV")
if "--refused" in sys.argv:
    sys.exit("no such flag")
print("Using 'HierarchicalDRF' allocator", flush=True)
server.serve_forever()
"""
"""Listens like a master of Mesos, and crashes like the real one if queried in its first moments."""


def home(folder: Path) -> MesosHome:
    for name in ("mesos-agent", MODULE):
        (folder / name).touch()
    program = folder / "mesos-master"
    program.write_text(MASTER)
    program.chmod(0o755)
    return MesosHome(folder)


def test_a_master_gets_no_requests_before_authentication_is_ready(tmp_path: Path) -> None:
    with Children(tmp_path) as children:
        mesos = RealMesos(home(tmp_path), children, tmp_path)
        address = mesos.master(None)
        metrics = mesos.wait_for(address, "to lead", lambda metrics: metrics["master/elected"] == 1)
    assert metrics == {"master/elected": 1.0}


def test_a_master_that_does_not_start_is_reported_with_its_last_output(tmp_path: Path) -> None:
    with Children(tmp_path) as children:
        mesos = RealMesos(home(tmp_path), children, tmp_path)
        with pytest.raises(ChildFailed, match="no such flag"):
            mesos.master(None, "--refused")
