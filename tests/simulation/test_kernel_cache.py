"""Compiled kernels are cached only where no foreign user can change the code."""

import os
from pathlib import Path

import pytest

from allocator.cli.simulate import compiled
from allocator.simulation import fast
from allocator.simulation.kernels.compiled import cache_folder

pytestmark = pytest.mark.skipif(fast.MISSING is not None, reason=f"no fast path: {fast.MISSING}")


@pytest.mark.parametrize("name", ["", "longshare", "longshare/kernels"])
def test_a_cache_that_others_can_write_or_exchange_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "above" / "caches"))
    folder = cache_folder()
    assert folder is not None
    places = {"": tmp_path / "above", "longshare": folder.parent, "longshare/kernels": folder}
    places[name].chmod(0o777)
    assert cache_folder() is None
    places[name].chmod(0o1777 if name == "" else 0o755)  # sticky as /tmp
    assert cache_folder() == folder


def test_a_cache_below_a_link_is_used_by_its_real_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "homes").mkdir()
    (tmp_path / "home").symlink_to(tmp_path / "homes")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home" / "caches"))
    folder = cache_folder()
    assert folder is not None
    assert folder.is_relative_to(tmp_path.resolve() / "homes")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives folders away")
def test_a_cache_below_a_folder_of_another_user_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    os.chown(tmp_path, 4711, -1)
    assert cache_folder() is None


@pytest.mark.parametrize("mode", [0o755, 0o775])
def test_a_command_says_that_the_simulator_is_compiled_each_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], mode: int
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(fast, "compile_kernels", lambda: False)
    tmp_path.chmod(mode)
    compiled()
    assert ("chmod go-w" in capsys.readouterr().err) == (mode == 0o775)
