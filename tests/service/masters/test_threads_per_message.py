"""A message of a master wakes few threads of the service."""

from pathlib import Path

import pytest

from allocator.contract import allocator_pb2 as contract
from bench.played.cluster import PlayedCluster
from bench.played.peers import service

MESSAGES = 500


def _waits_of_event_engine(process: int) -> int:
    """Return how often all threads of gRPC's event engine have waited."""
    waits = 0
    for task in Path(f"/proc/{process}/task").iterdir():
        lines = (task / "status").read_text(encoding="ascii").splitlines()
        fields = dict(line.split(":\t", 1) for line in lines)
        if fields["Name"] == "event_engine":
            waits += int(fields["voluntary_ctxt_switches"])
    return waits


def test_the_thread_that_waits_for_a_connection_also_reads_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("GRPC_EXPERIMENTS", raising=False)
    with service(tmp_path) as (stream, running):
        stream.begin(PlayedCluster(1, 1))
        before = _waits_of_event_engine(running.process.pid)
        for number in range(MESSAGES):
            event = contract.Event(sequence=number + 1, tick=contract.Tick())
            stream.apply(contract.Events(events=[event]))
        assert _waits_of_event_engine(running.process.pid) - before < MESSAGES
