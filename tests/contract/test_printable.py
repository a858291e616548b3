"""Untrusted text is displayed without effect on the terminal."""

import json
import logging
import re

import pytest
import structlog
from hypothesis import given
from hypothesis import strategies as st

from allocator.contract.printable import printable
from allocator.service.config import LogSection
from allocator.service.logs import configure


@given(text=st.text(st.characters(codec=None)))
def test_printable_text_has_no_control_characters_and_no_line_breaks(text: str) -> None:
    shown = printable(text)
    assert shown.isprintable()
    assert printable(shown) == shown
    if text.isascii():
        assert text.isprintable() == (shown == text)


@given(text=st.text(st.sampled_from("a\u0301\u20dd\ufe0f\x1b")))
def test_a_letter_is_shown_with_four_combining_signs_at_the_most(text: str) -> None:
    shown = printable(text)
    assert printable(shown) == shown
    assert max(map(len, re.findall(r"[\u0301\u20dd]+", shown)), default=0) <= 4
    assert not re.match(r"[\u0301\u20dd]", shown)


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("ops\u3164", r"ops\u3164"),
        ("ops\ufe0f", r"ops\ufe0f"),
        ("o\u200bps", r"o\u200bps"),
        ("\u2800", r"\u2800"),
        ("\U000e0041", r"\U000e0041"),
        ("a" + 400 * "\u0301", "a" + 4 * "\u0301" + 396 * r"\u0301"),
        ("\u0301a", r"\u0301a"),
    ],
)
def test_invisible_characters_are_shown_as_escapes(name: str, shown: str) -> None:
    assert printable(name) == shown


@pytest.mark.parametrize(
    "name",
    [
        "команда",
        "équipe",
        "e\u0301quipe",
        "Nguyễn",
        "กลุ่ม",
        "שָׁלוֹם",
        "टीम",
        "チーム",
        "팀",
        "team 😀",
        "a→b",
    ],
)
def test_names_in_any_script_are_shown_unchanged(name: str) -> None:
    assert printable(name) == name


@pytest.mark.parametrize("form", ["console", "json"])
def test_the_log_shows_text_of_peers_without_control_characters(
    form: str, capsys: pytest.CaptureFixture[str]
) -> None:
    before, root = structlog.get_config(), logging.getLogger()
    handlers, level = root.handlers[:], root.level
    try:
        configure(LogSection(format=form))  # type: ignore[arg-type]
        structlog.get_logger().warning("stream refused", reason="\x1b[2J\nready policy=sdrf")
    finally:
        structlog.configure(**before)
        root.handlers[:] = handlers  # otherwise later tests get the logs of libraries
        root.setLevel(level)
    [line] = capsys.readouterr().err.splitlines()
    assert "\x1b[2J" not in line
    assert r"x1b[2J\nready" in (json.loads(line)["reason"] if form == "json" else line).replace(
        r"\\", "\\"
    )
