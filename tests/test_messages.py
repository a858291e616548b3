"""Texts for people in the source code follow the rules for plain language.

The tests read each text of four words or more: errors, log events, explanations, help texts and
labels. docs/contributing/style.md explains the rules.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.language import ROOT, Sentence, sentences

FEWEST_WORDS = 4
LONGEST_SENTENCE = 30
"""Words."""
MODULES = [
    path.relative_to(ROOT).as_posix()
    for package in ("allocator", "frameworks")
    for path in sorted((ROOT / package).rglob("*.py"))
    if not re.search(r"_pb2(_grpc)?\.py$", path.name)
]
AVOIDED = re.compile(
    r"\b(anew|likewise|beside|thereof|(any|every|no|some)body|who(m|s)?ever|whatever|forgiv\w+)\b"
    r"|\bis no (number|time|duration|list|name|text|URL)\b|\bwould do\b|\bthat there (is|are)\b",
    re.IGNORECASE,
)
"""Words that docs/contributing/style.md excludes."""
MARKUP = re.compile(r"^\s*<|\{ font")


def texts(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield the line and content of each text that is no docstring; a value in it becomes X."""
    skipped = set[int]()
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list):
            skipped |= {id(child.value) for child in body if isinstance(child, ast.Expr)}
        if isinstance(node, ast.JoinedStr):
            skipped |= {id(part) for part in ast.walk(node) if part is not node}
    for node in ast.walk(tree):
        match node:
            case _ if id(node) in skipped:
                continue
            case ast.Constant(value=str(text)):
                yield node.lineno, text
            case ast.JoinedStr(values=values):
                yield (
                    node.lineno,
                    "".join(
                        str(value.value) if isinstance(value, ast.Constant) else "X"
                        for value in values
                    ),
                )


def hard_sentences(path: str, source: str) -> Iterator[Sentence]:
    """Yield the sentences that a reader must read twice."""
    for line, text in texts(ast.parse(source)):
        if len(text.split()) < FEWEST_WORDS or MARKUP.search(text):
            continue
        for sentence in sentences(path, text, line):
            long = len(sentence.words) > LONGEST_SENTENCE
            if sentence.headless or long or AVOIDED.search(sentence.text):
                yield sentence


@pytest.mark.parametrize(
    "text",
    [
        "what listens here does not know this command",
        "When the agent is free, nobody knows the reason.",
        "run time is no number",
        " ".join(["word"] * 31),
    ],
)
def test_hard_sentences_are_found(text: str) -> None:
    assert [found.text for found in hard_sentences("x.py", f"raise ValueError(f{text!r})")] == [
        text
    ]


def test_docstrings_and_plain_sentences_are_accepted() -> None:
    source = 'def f():\n    """Who is it."""\n    raise ValueError(f"agent {name} is not known")\n'
    assert list(hard_sentences("x.py", source)) == []


@pytest.mark.parametrize("module", MODULES)
def test_texts_for_people_are_plain(module: str) -> None:
    found = hard_sentences(module, Path(ROOT, module).read_text())
    assert [f"{module}:{sentence.line}: {sentence.text}" for sentence in found] == []
