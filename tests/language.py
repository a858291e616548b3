"""Measure how plainly the project is written, and keep a record that may only improve.

`python -m tests.language` prints the figures of each package beside the recorded ones. With
`--worst 40` it prints the sentences that a stranger would have to read twice. With `--renew` it
lowers the record.
docs/contributing/style.md explains the rules behind the figures.
"""

import argparse
import ast
import json
import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import TypeAlias

from rich.console import Console
from rich.table import Table

ROOT = Path(__file__).parents[1]
RECORD = Path(__file__).with_suffix(".json")
TOLERANCE = 0.1
"""Permitted rise of a percentage: the deletion of a plain sentence raises percentages too."""

_SOURCES = ("allocator", "bench", "deploy", "docs", "frameworks", "packages", "proto", "tests")
_PAGES = ("README.md", "CONTRIBUTING.md", "SECURITY.md", "docs/**/*.md")
_GENERATED = re.compile(r"_pb2(_grpc)?\.py$|^packages/pymesos/pymesos/|/build/|/\.ansible/")
_COMMENTED = (*_SOURCES, "ansible", ".ci", ".github")
"""Folders of files with comments that are neither Python nor pages."""
_SLASHED = re.compile(r"\.(cc|css|h|hpp|js|proto)$")
_HASHED = re.compile(
    r"\.(cff|cfg|conf|j2|nft|service|sh|toml|ya?ml)$|(^|/)(CMakeLists\.txt|Containerfile|Makefile|run)$"
)
_TEXT = re.compile(
    r"^( *)(?:- )?(?:why|[Dd]escription|summary|name|title|shows|fail_msg|success_msg)\s*[:=] *"
    r"(?:>-?\n((?:\1 +\S.*\n)+)|(\S.*))",
    re.MULTILINE,
)
"""A value that people read, on its line or, as YAML's folded text, below it."""
_HEADLESS = re.compile(
    r"(who|whoever|whom|whose|what|whatever|that which|where|of|those|nobody|anybody)\b",
    re.IGNORECASE,
)
"""Sentence openings that name no actor."""
_PRO_FORM = re.compile(
    r"who|whoever|whom|whose|what|whatever|that|it|ones?|those|these|there|so|such|others?"
    r"|(no|any|every|some)body"
)
_VAGUE_NAME = re.compile(
    r"_*(again|anew|anybody|each|found|here|it|left|less|likewise|more|nobody|none|ones?|others?|said"
    r"|some|such|that|there|these|this|those|told|what|which|who|whose)_*"
)
_LONG_SENTENCE = 30
"""Words."""
_SHORTEST_SENTENCE = 3
"""Words; headings and labels have fewer."""

Recorded: TypeAlias = dict[str, dict[str, float]]


@dataclass(frozen=True)
class Sentence:
    """A sentence of a docstring, a page or a comment."""

    path: str
    line: int
    """The line at which its paragraph begins."""
    text: str

    @cached_property
    def words(self) -> list[str]:
        """The words in lower case."""
        return [word.lower() for word in re.findall(r"[A-Za-z][A-Za-z'’-]*", self.text)]

    @property
    def headless(self) -> bool:
        """Whether the sentence begins without a noun."""
        return _HEADLESS.match(self.text) is not None

    @property
    def difficulty(self) -> float:
        """How hard the sentence is to read: its opening and pro-forms, reduced by its length."""
        words = self.words
        pro_forms = len(list(filter(_PRO_FORM.fullmatch, words)))
        return 5 * self.headless + pro_forms - len(words) / 20


@dataclass(frozen=True, slots=True)
class Figures:
    """Figures of how plainly a package or the pages are written."""

    headless: float
    """Sentences that begin without a noun, in percent."""
    pro_forms: float
    """Pro-forms in 100 words."""
    long: float
    """Sentences of more than 30 words, in percent."""
    vague_names: float = 0.0
    """Arguments and local variables named by a pro-form or an adjective, in percent."""


def sentences(path: str, text: str, line: int = 1) -> Iterator[Sentence]:
    """Yield the sentences of a prose text that begins at `line` of a file."""
    paragraph = re.compile(r"(?:(?!\n\s*\n|\n\s*(?:[*\-+]|\d+\.)\s).)+", re.DOTALL)
    for match in paragraph.finditer(text):
        start = match.start() + len(match[0]) - len(match[0].lstrip("\n"))
        prose = re.sub(r"^(?:[*\-+]|\d+\.)\s+", "", " ".join(match[0].split()))
        prose = re.sub(r"`([^`]*)`", _first_word, prose)
        prose = re.sub(r"[*_`|]", "", prose)
        for part in re.split(r"(?<=[.!?:])\s+(?=[A-Z\"“(])", prose):
            sentence = Sentence(path, line + text.count("\n", 0, start), part)
            if len(sentence.words) >= _SHORTEST_SENTENCE:
                yield sentence


def _first_word(code: re.Match[str]) -> str:
    """Return the word that replaces a piece of code in its sentence: its first name."""
    return (code[1].split("(")[0].split() or ["x"])[0]


def prose_of_page(markdown: str) -> str:
    """Return the prose of a page: no code, tables, headings, comments or addresses.

    Lines keep their numbers.
    """
    text = re.sub(r"```.*?```|<!--.*?-->", _newlines, markdown, flags=re.DOTALL)
    text = re.sub(r"^\s*[|#].*$", "", text, flags=re.MULTILINE)
    text = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", text)
    return re.sub(r"<[^>]+>", "", text)


def docstrings(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield the line and text of each docstring, those of attributes included."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            text = ast.get_docstring(node)
            if text is not None:
                yield node.body[0].lineno, text
        body = getattr(node, "body", None)
        for assignment, following in pairwise(body if isinstance(body, list) else ()):
            match assignment, following:
                case ast.Assign() | ast.AnnAssign(), ast.Expr(value=ast.Constant(value=str(text))):
                    yield following.lineno, text


def comments(path: str, text: str) -> Iterator[tuple[int, str]]:
    """Yield the line and text of each comment of a file, and of each value that people read.

    Comments on consecutive lines without code are one text.
    """
    slashed = _SLASHED.search(path) is not None
    for block in re.finditer(r"/\*+(.*?)\*/", text, re.DOTALL) if slashed else ():
        prose = re.sub(r"^\s*\* ?", "", block[1], flags=re.MULTILINE)
        yield text.count("\n", 0, block.start()) + 1, prose
    for value in _TEXT.finditer(text) if not slashed else ():
        prose = (value[2] or value[3]).strip(" '\"\n")
        yield text.count("\n", 0, value.start()) + 1, prose
    mark = "//+" if slashed else "#+(?!!)"
    whole_line = re.compile(rf"(?:^[ \t]*{mark}(?: .*)?\n)+", re.MULTILINE)
    for group in whole_line.finditer(text):
        prose = re.sub(rf"^[ \t]*{mark} ?", "", group[0], flags=re.MULTILINE)
        yield text.count("\n", 0, group.start()) + 1, prose
    code = whole_line.sub(_newlines, text)
    for trailing in re.finditer(rf"\S[ \t]+{mark} (.+)", code):
        yield code.count("\n", 0, trailing.start()) + 1, trailing[1]


def _newlines(match: re.Match[str]) -> str:
    """Return only the newlines of a match, so that the following lines keep their numbers."""
    return "\n" * match[0].count("\n")


def bindings(tree: ast.Module) -> Iterator[str]:
    """Yield the name of each argument and variable, as often as it is bound."""
    for node in ast.walk(tree):
        match node:
            case ast.arg(arg=name) | ast.Name(id=name, ctx=ast.Store()):
                yield name


@dataclass(frozen=True, slots=True)
class Survey:
    """All surveyed sentences and names by package, and classes by their modules."""

    prose: dict[str, list[Sentence]]
    names: dict[str, list[str]]
    classes: dict[str, list[str]]
    """The modules that define a public class, by its name; classes of tests do not count."""

    @property
    def figures(self) -> dict[str, Figures]:
        """The figures of each package and of the pages."""
        return {
            package: _figures(self.prose[package], self.names.get(package, []))
            for package in sorted(self.prose)
        }

    @property
    def shared_class_names(self) -> dict[str, list[str]]:
        """Public class names that more than one module defines."""
        return {name: modules for name, modules in sorted(self.classes.items()) if len(modules) > 1}

    def recorded(self) -> Recorded:
        """Return this survey in the form of the record."""
        figures: Recorded = {
            package: asdict(measured) for package, measured in self.figures.items()
        }
        figures["classes"] = {"shared_names": len(self.shared_class_names)}
        return figures


def _figures(prose: list[Sentence], names: list[str]) -> Figures:
    words = [word for sentence in prose for word in sentence.words]

    def percent(part: int, whole: int) -> float:
        return round(100 * part / max(whole, 1), 2)

    return Figures(
        headless=percent(sum(sentence.headless for sentence in prose), len(prose)),
        pro_forms=percent(len(list(filter(_PRO_FORM.fullmatch, words))), len(words)),
        long=percent(sum(len(sentence.words) > _LONG_SENTENCE for sentence in prose), len(prose)),
        vague_names=percent(len(list(filter(_VAGUE_NAME.fullmatch, names))), len(names)),
    )


def survey(root: Path = ROOT) -> Survey:
    """Read all pages, Python sources and commented files below `root`."""
    prose, names = defaultdict[str, list[Sentence]](list), defaultdict[str, list[str]](list)
    classes = defaultdict[str, list[str]](list)
    for page in (page for pattern in _PAGES for page in sorted(root.glob(pattern))):
        path = page.relative_to(root).as_posix()
        prose["pages"].extend(sentences(path, prose_of_page(page.read_text())))
    for source in _SOURCES:
        for module in sorted((root / source).rglob("*.py")):
            path = module.relative_to(root).as_posix()
            if _GENERATED.search(path):
                continue
            package = "/".join(path.split("/")[:2]) if source == "allocator" else source
            tree = ast.parse(module.read_text())
            for line, text in docstrings(tree):
                prose[package].extend(sentences(path, text, line))
            names[package].extend(bindings(tree))
            for node in tree.body if source in {"allocator", "frameworks"} else ():
                if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                    classes[node.name].append(path)
    for folder, path, text in _commented_files(root):
        for line, comment in comments(path, text):
            prose[f"comments/{folder}"].extend(sentences(path, comment, line))
    return Survey(dict(prose), dict(names), dict(classes))


def _commented_files(root: Path) -> Iterator[tuple[str, str, str]]:
    """Yield the top folder, path and text of each file with comments that is no Python."""
    files = [("root", file) for file in root.glob("*")]
    files += [(folder, file) for folder in _COMMENTED for file in (root / folder).rglob("*")]
    for folder, file in sorted(files):
        path = file.relative_to(root).as_posix()
        has_comments = _SLASHED.search(path) or _HASHED.search(path)
        if has_comments and file.is_file() and not _GENERATED.search(path):
            yield folder, path, file.read_text()


def recorded() -> Recorded:
    """Return the record: the highest values that are allowed."""
    figures: Recorded = json.loads(RECORD.read_text())
    return figures


def lowered(former: Recorded, present: Recorded) -> Recorded:
    """Return a record that allows no more than both; a new package is added with its figures."""
    return {
        package: {
            name: min(value, former.get(package, {}).get(name, value))
            for name, value in figures.items()
        }
        for package, figures in present.items()
    }


def main() -> None:
    """Print the figures, the worst sentences, or lower the record."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--worst", type=int, default=0, metavar="N", help="print the N worst sentences"
    )
    parser.add_argument("--under", default="", metavar="PATH", help="of files below this path only")
    parser.add_argument("--renew", action="store_true", help="lower the record to these figures")
    arguments = parser.parse_args()
    present, console = survey(), Console()
    if arguments.worst:
        prose = [sentence for part in present.prose.values() for sentence in part]
        chosen = [sentence for sentence in prose if sentence.path.startswith(arguments.under)]
        chosen.sort(key=lambda sentence: sentence.difficulty, reverse=True)
        for sentence in chosen[: arguments.worst]:
            console.print(
                f"{sentence.path}:{sentence.line}: {sentence.text}", markup=False, soft_wrap=True
            )
        return
    former = recorded() if RECORD.exists() else {}
    table = Table("package", *Figures.__dataclass_fields__, title="Language: now (recorded)")
    for package, figures in present.recorded().items():
        table.add_row(
            package,
            *(
                f"{value:g} ({former.get(package, {}).get(name, value):g})"
                for name, value in figures.items()
            ),
        )
    console.print(table)
    if arguments.renew:
        renewed = lowered(former, present.recorded())
        RECORD.write_text(json.dumps(renewed, indent=2, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()
