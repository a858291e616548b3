"""What peers who only connect can take."""

import asyncio
from pathlib import Path

import pytest

from allocator.service import listening
from allocator.service.config import ListenSection


def test_a_port_takes_so_many_connections_and_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listening, "CONNECTIONS", 3)
    path = tmp_path / "s"

    async def crowd() -> int:
        section = ListenSection()
        async with listening._port(section, "address", f"unix://{path}", []):
            peers = [await asyncio.open_unix_connection(path) for _ in range(5)]
            greeted = await asyncio.gather(*(reader.read(1) for reader, _ in peers))
            for _, writer in peers:
                writer.close()
            return sum(map(bool, greeted))

    assert asyncio.run(crowd()) == 3
