"""The notebooks are text files, open as notebooks, and run to the end."""

import re
import runpy
from pathlib import Path

import pytest

from allocator.fairness import policies

ROOT = Path(__file__).parents[2]
NOTEBOOKS = sorted((ROOT / "docs" / "notebooks").glob("*.py"))


@pytest.fixture(autouse=True)
def of_its_own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(policies, "_POLICIES", dict(policies._POLICIES))
    monkeypatch.chdir(tmp_path)


def test_the_page_names_all_five_notebooks() -> None:
    named = re.findall(
        r"\(\.\./notebooks/(\w+\.py)", (ROOT / "docs/how-to/use-from-python.md").read_text()
    )
    assert sorted(named) == [path.name for path in NOTEBOOKS]
    assert len(NOTEBOOKS) == 5


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs_from_its_first_cell_to_its_last(
    path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    runpy.run_path(str(path), run_name="__main__")
    assert capsys.readouterr().out


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_has_standard_cells_and_imports_only_the_public_api(path: Path) -> None:
    source = path.read_text()
    assert source.startswith("# %% [markdown]\n# # ")
    cells = re.split(r"^# %%", source, flags=re.MULTILINE)[1:]
    explanations = [cell for cell in cells if cell.startswith(" [markdown]\n")]
    assert len(explanations) >= 2
    for cell in explanations:
        assert all(line.startswith("#") for line in cell.splitlines()[1:] if line), cell
    assert set(re.findall(r"from (allocator\S*)", source)) == {"allocator.api"}
