"""The project is written at least as plainly as its record, and commits name their component."""

import ast
import re
import subprocess
from pathlib import Path

import pytest

from tests.language import (
    ROOT,
    TOLERANCE,
    Figures,
    bindings,
    comments,
    docstrings,
    lowered,
    prose_of_page,
    recorded,
    sentences,
    survey,
)

FIRST_CHECKED = "b5d9a9b"
"""The last commit with a subject that breaks the rules."""
SUBJECT = re.compile(r"[a-z0-9_./-]+(, [a-z0-9_./-]+)*: \S.*[^.]")
"""`component: imperative summary`."""
LONGEST_SUBJECT = 72
"""Characters."""


def test_sentences_are_separated_and_keep_their_line() -> None:
    text = "The sorter ranks clients. Who is next gets\nit.\n\n* Those wait for `Tick(now)` here."
    assert [
        (sentence.line, sentence.text, sentence.headless) for sentence in sentences("a.md", text)
    ] == [
        (1, "The sorter ranks clients.", False),
        (1, "Who is next gets it.", True),
        (4, "Those wait for Tick here.", True),
    ]


def test_code_tables_and_headings_of_a_page_are_not_prose() -> None:
    page = "# Who\n\n```\nwhat is that\n```\n<!-- of it -->\n| those |\n[The log](x.md) grows."
    assert prose_of_page(page).split() == ["The", "log", "grows."]


def test_docstrings_of_attributes_count() -> None:
    tree = ast.parse('class A:\n    """An agent."""\n    x = 1\n    """Seconds."""\n')
    assert list(docstrings(tree)) == [(2, "An agent."), (4, "Seconds.")]


@pytest.mark.parametrize(
    ("path", "text", "expected"),
    [
        ("run", "#!/bin/sh\n# One\n# text.\nx # end\n", [(2, "One\ntext.\n"), (4, "end")]),
        ("a.toml", 'why = "A reason."\nx = "# no"\n', [(1, "A reason.")]),
        (
            "a.yml",
            "- name: Start\n  summary: >-\n    Long\n    text.\n",
            [(1, "Start"), (2, "Long\n    text.")],
        ),
        ("a.js", "/* A\n * block */\nx; // end\n", [(1, " A\nblock "), (3, "end")]),
        ("a.proto", '  // Whole.\n  x = "unix://y";\n', [(1, "Whole.\n")]),
    ],
)
def test_comments_and_texts_for_people_are_read_from_other_files(
    path: str, text: str, expected: list[tuple[int, str]]
) -> None:
    assert list(comments(path, text)) == expected


def test_arguments_and_variables_are_bindings() -> None:
    assert sorted(bindings(ast.parse("def f(a, *, b): c = a.d = b\n"))) == ["a", "b", "c"]


def test_figures_cover_all_sentences_words_and_names(tmp_path: Path) -> None:
    (tmp_path / "allocator/x").mkdir(parents=True)
    module = tmp_path / "allocator/x/a.py"
    module.write_text('"""Who waits, waits.\n\nAn agent has one CPU."""\nthose, agent = 1, 2\n')
    (tmp_path / "deploy").mkdir()
    (tmp_path / "deploy/rules.yml").write_text("# Who waits, waits.\n")
    assert survey(tmp_path).figures == {
        "allocator/x": Figures(50.0, 25.0, 0.0, 50.0),
        "comments/deploy": Figures(100.0, 33.33, 0.0, 0.0),
    }


def test_a_record_is_only_lowered_and_new_packages_are_added() -> None:
    former = {"a": {"long": 2.0, "headless": 1.0}, "gone": {"long": 1.0}}
    present = {"a": {"long": 3.0, "headless": 0.5}, "b": {"long": 4.0}}
    assert lowered(former, present) == {"a": {"long": 2.0, "headless": 0.5}, "b": {"long": 4.0}}


def test_no_package_is_written_less_plainly_than_recorded() -> None:
    record, present = recorded(), survey().recorded()
    risen = {
        f"{package}: {name}": f"{record[package][name]:g} → {value:g}"
        for package, figures in present.items()
        for name, value in figures.items()
        if value > record.get(package, {}).get(name, 0.0) + TOLERANCE
    }
    assert not risen, "`python -m tests.language --worst 40 --under PACKAGE` prints what to rewrite"
    assert set(record) == set(present), "`make language` takes in new packages"


def test_subjects_of_commits_name_a_component_and_are_short() -> None:
    if not (ROOT / ".git").exists():
        pytest.skip("the sources came without their history")
    history = subprocess.run(
        ["git", "log", "--no-merges", "--format=%h %s", f"{FIRST_CHECKED}..HEAD"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    wrong = [
        line
        for line in history.stdout.splitlines()
        if len(subject := line.split(" ", 1)[1]) > LONGEST_SUBJECT or not SUBJECT.fullmatch(subject)
    ]
    assert not wrong, "a subject is `component: imperative summary`, at most 72 characters"
