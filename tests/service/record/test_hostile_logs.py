"""Hostile event logs are refused with a message and exit code 2, and allocate no memory."""

import json
import os
import tracemalloc
from pathlib import Path

import pytest
from typer.testing import CliRunner

from allocator.cli import app
from allocator.cluster.settings import EngineSettings
from allocator.contract import log_pb2 as log
from allocator.fairness import policies
from allocator.service.record.event_log import (
    MAGIC,
    EventLog,
    EventLogError,
    encode_settings,
    read,
)

SOUND = json.loads(encode_settings(EngineSettings(policies.create("drf", {}))))
NO_SETTINGS = [b"", b"[]", b"null", b"7", b'"x"', b"{}", b"[" * 100_000, b"\xff\xfe", b"{"]
LIES: list[dict[str, object]] = [
    {"policy": 1},
    {"policy": {"name": "sdrf", "parameters": 3}},
    {"policy": {"name": [], "parameters": {}}},
    {"policy": {"name": "no such", "parameters": {}}},
    {"users": 1},
    {"users": [1]},
    {"users": [{"name": "a", "weight": -1.0}]},
    {"users": [{"name": "a", "weight": "x"}]},
    {"users": [{"name": "a", "commitment": float("nan")}]},
    {"users": [{"name": ["a"]}]},
    {"demands": []},
    {"demands": {"f": {"cpus": float("inf")}}},
    {"demands": {"f": 1}},
    {"constraints": {"f": 1}},
    {"constraints": []},
    {"seed": {}},
    {"no such setting": 1},
]


def with_header(path: Path, header: log.LogHeader) -> Path:
    file = EventLog(path)
    file.write(log.LogEntry(header=header))
    file.close()
    return path


@pytest.mark.parametrize(
    "settings", [*NO_SETTINGS, *(json.dumps({**SOUND, **lie}).encode() for lie in LIES)]
)
def test_hostile_settings_are_refused(tmp_path: Path, settings: bytes) -> None:
    path = with_header(tmp_path / "events", log.LogHeader(settings=settings))
    done = CliRunner().invoke(app, ["replay", str(path)])
    assert done.exit_code == 2, "exit code 1 would mean a differing decision"
    assert "longshare replay: " in done.stderr


@pytest.mark.parametrize("memory", [b"x", b"{}\n{}", b"\xff\n", b'{"format":"longshare-memory"}'])
def test_an_unreadable_memory_is_refused(tmp_path: Path, memory: bytes) -> None:
    header = log.LogHeader(settings=json.dumps(SOUND).encode(), memory=memory)
    done = CliRunner().invoke(app, ["replay", str(with_header(tmp_path / "events", header))])
    assert done.exit_code == 2
    assert "longshare replay: " in done.stderr


@pytest.mark.parametrize("claims", [2**33, 2**31, 2**30])
def test_a_false_length_allocates_no_memory(tmp_path: Path, claims: int) -> None:
    path, prefix, length = tmp_path / "events", b"", claims
    while length > 0x7F:
        prefix += bytes([length & 0x7F | 0x80])
        length >>= 7
    path.write_bytes(MAGIC + prefix + bytes([length]))
    os.truncate(path, claims + 100)  # the file is as long as claimed, but sparse
    tracemalloc.start()
    try:
        with pytest.raises(EventLogError, match=r"is damaged at byte \d+: a length of"):
            list(read(path))
        assert tracemalloc.get_traced_memory()[1] < 2**20
    finally:
        tracemalloc.stop()
