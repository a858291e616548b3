"""All processes of the harness end with the harness, and a process that dies reports the cause."""

import time
from pathlib import Path

import pytest

from frameworks.harness import processes
from frameworks.harness.processes import ChildFailed, Children
from tests.service.served import PATIENCE


def alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except OSError:
        return False
    return state != "Z"


def test_children_are_stopped_however_the_block_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "PATIENCE", PATIENCE)
    config = tmp_path / "c.toml"
    config.write_text(
        f'[listen]\naddress = "unix://{tmp_path}/s"\n[metrics]\naddress = "127.0.0.1:0"\n'
        f'[store]\npath = "{tmp_path}/commitments.sqlite"\n'
    )
    pids: list[int] = []

    def interrupted() -> None:
        with Children(tmp_path) as children:
            service = children.start("service", "serve", "--config", str(config))
            waiting = children.start("fw", "framework", "--name", "A", "--wait", waits=True)
            pids.extend(child._process.pid for child in (service, waiting))
            while "ready" not in (tmp_path / "service.log").read_text():
                children.check()
                time.sleep(0.02)
            assert all(map(alive, pids))
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert not any(map(alive, pids))
    assert "stopping" in (tmp_path / "service.log").read_text(), "asked first, not killed"


def test_a_child_that_dies_is_named_with_its_last_words(tmp_path: Path) -> None:
    def watched() -> None:
        with Children(tmp_path) as children:
            children.start("broken", "serve", "--config", str(tmp_path / "nowhere.toml"))
            while True:
                children.check()
                time.sleep(0.02)

    with pytest.raises(ChildFailed) as caught:
        watched()
    assert "broken ended with exit code 2" in str(caught.value)
    assert "nowhere.toml: No such file" in str(caught.value)
    assert str(tmp_path / "broken.log") in str(caught.value)
