"""Installed packages offer policies; a policy's module is imported only on request."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from allocator import plugins
from allocator.fairness import policies
from allocator.plugins.entry_points import installed
from tests.plugins.written import NORM


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Install a distribution with a valid policy and three invalid ones."""
    (tmp_path / "normal.py").write_text(NORM)
    about = tmp_path / "normal-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: normal\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text(
        "[longshare.policies]\nnorm = normal:Norm\nother = normal:Norm\nnone = normal:Nobody\n"
        "number = normal:__doc__\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    yield tmp_path
    sys.modules.pop("normal", None)


def test_a_policy_of_an_installed_package_is_found_by_its_name(package: Path) -> None:
    assert set(installed()) >= {"norm", "other", "none", "number"}
    assert "normal" not in sys.modules
    assert plugins.create("norm", {"power": 4}).model_dump() == {"power": 4.0}
    origin = policies.find("norm").origin
    assert origin is not None
    assert (origin.file, origin.source) == (str(package / "normal.py"), NORM)


@pytest.mark.parametrize(
    ("name", "complaint"),
    [
        ("other", "the class calls itself 'norm'"),
        ("none", "AttributeError: .*Nobody"),
        ("number", "must name a class"),
        ("lottery", r"'lottery' is unknown; .*here are: cdrf.*norm"),
    ],
)
def test_an_unusable_entry_point_is_reported(package: Path, name: str, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        plugins.create(name, {})


def test_two_packages_with_the_same_policy_name_are_refused(package: Path) -> None:
    about = package / "abnormal-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: abnormal\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text("[longshare.policies]\nnorm = elsewhere:Norm\n")
    with pytest.raises(plugins.PolicyError, match=r"elsewhere:Norm and normal:Norm offer it"):
        plugins.create("norm", {})
