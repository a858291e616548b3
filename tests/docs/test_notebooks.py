"""The notebooks are made from their scripts, and a run makes their stored outputs again."""

import base64
import io
import re
from pathlib import Path

import nbformat
import numpy as np
import pytest
from matplotlib.image import imread
from nbformat import NotebookNode

from docs.notebook import PICTURE, executed, markdown

ROOT = Path(__file__).parents[2]
NOTEBOOKS = sorted((ROOT / "docs" / "notebooks").glob("*.py"))


def stored(script: Path) -> NotebookNode:
    notebook: NotebookNode = nbformat.read(script.with_suffix(".ipynb"), as_version=4)
    return notebook


def taken_pictures(notebook: NotebookNode) -> list[np.ndarray]:
    """Replace the figures of a notebook by a word, and return their pixels."""
    pictures = []
    for output in (output for cell in notebook.cells for output in cell.get("outputs", [])):
        if encoded := output.get("data", {}).get(PICTURE):
            pictures.append(imread(io.BytesIO(base64.b64decode(encoded))))
            output.data[PICTURE] = "a figure"
    return pictures


def test_the_page_names_all_five_notebooks() -> None:
    named = re.findall(
        r"\(\.\./notebooks/(\w+)\.ipynb", (ROOT / "docs/how-to/use-from-python.md").read_text()
    )
    assert sorted(named) == [path.stem for path in NOTEBOOKS]
    assert len(NOTEBOOKS) == 5


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_run_of_a_script_makes_its_notebook_with_the_stored_outputs(path: Path) -> None:
    ours, made = stored(path), executed(path)
    pictures, made_pictures = taken_pictures(ours), taken_pictures(made)
    assert made == ours, "run `python -m docs.notebook`"
    assert any(cell.get("outputs") for cell in made.cells)
    for picture, made_picture in zip(pictures, made_pictures, strict=True):
        assert picture.shape == made_picture.shape
        assert np.abs(picture - made_picture).mean() < 0.01


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_prints_plain_numbers(path: Path) -> None:
    page = markdown(stored(path), path.stem)
    printed = re.findall(r"^:class: printed$(.*?)^~~~~$", page, re.MULTILINE | re.DOTALL)
    assert printed
    for text in printed:
        assert not re.search(r"np\.|array\(|Figure|<|\d\.\d{4}", text)


def test_a_page_of_the_site_has_the_figures_and_no_unknown_output() -> None:
    notebook = stored(ROOT / "docs" / "notebooks" / "sharing_over_time.py")
    assert "data:image/png;base64," in markdown(notebook, "sharing_over_time")
    notebook.cells[1].outputs = [nbformat.v4.new_output("stream", name="stderr", text="warning")]
    with pytest.raises(ValueError, match="an output of the type stream"):
        markdown(notebook, "sharing_over_time")


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
