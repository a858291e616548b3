"""Make the notebooks: `python -m docs.notebook` runs docs/notebooks/*.py, and writes *.ipynb.

`make docs` shows the notebooks with the stored outputs.
"""

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import jupytext
import nbformat
from nbclient import NotebookClient
from nbformat import NotebookNode
from traitlets.config import Config

FOLDER = Path(__file__).parent / "notebooks"
FIGURES = "--InlineBackend.figure_formats={'retina'}"
"""Figures have twice the pixels, for sharp pictures on present screens."""
PICTURE = "image/png"


def main(folder: Path = FOLDER) -> None:
    """Write the notebook of each script in a folder."""
    for script in sorted(folder.glob("*.py")):
        nbformat.write(executed(script), script.with_suffix(".ipynb"))


def executed(script: Path) -> NotebookNode:
    """Return the notebook of a script with its outputs, without times and versions.

    The cells run in a temporary folder. `script` has cells of the form `# %%`.

    Raises:
        CellExecutionError: A cell has failed.
    """
    notebook: NotebookNode = jupytext.read(script)
    for number, cell in enumerate(notebook.cells, 1):
        cell.id = f"cell-{number}"
    notebook.metadata = {
        "kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}
    }
    with TemporaryDirectory() as folder:
        # Sockets in the folder, because connections over TCP would not be encrypted.
        sockets = {"transport": "ipc", "ip": f"{folder}/socket"}
        NotebookClient(
            notebook,
            config=Config(KernelManager=sockets),
            timeout=600,
            record_timing=False,
            coalesce_streams=True,
            extra_arguments=[FIGURES],
            resources={"metadata": {"path": folder}},
        ).execute()
    notebook.metadata.language_info = {"name": "python"}
    return notebook


def markdown(notebook: NotebookNode, name: str) -> str:
    """Return a notebook with its stored outputs as a page of the documentation.

    Args:
        notebook: A notebook with outputs.
        name: The name of its file without a suffix.
    """
    return "\n\n".join(_blocks(notebook, name)) + "\n"


def _blocks(notebook: NotebookNode, name: str) -> Iterator[str]:
    first, *cells = notebook.cells
    yield first.source
    yield f"Download: {{download}}`{name}.ipynb`, {{download}}`{name}.py`"
    for cell in cells:
        if cell.cell_type == "markdown":
            yield cell.source
            continue
        yield f"~~~~python\n{cell.source}\n~~~~"
        for output in cell.outputs:
            yield _output(output)


def _output(output: NotebookNode) -> str:
    """Return what a cell has printed, or drawn.

    Raises:
        ValueError: The page has no place for such an output.
    """
    if output.output_type == "stream" and output.name == "stdout":
        return _printed(output.text)
    data = output.get("data", {})
    if PICTURE in data:
        width = output.metadata[PICTURE]["width"]
        base64 = re.sub(r"\s", "", data[PICTURE])
        return (
            f"~~~~{{image}} data:{PICTURE};base64,{base64}\n"
            f":alt: The figure that the cell above draws\n:width: {width}px\n~~~~"
        )
    if "text/plain" in data:
        return _printed(data["text/plain"])
    raise ValueError(f"an output of the type {output.output_type} has no place on a page")


def _printed(text: str) -> str:
    return f"~~~~{{code-block}} text\n:class: printed\n\n{text.rstrip()}\n~~~~"


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
