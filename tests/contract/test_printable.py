"""What others have said can be shown without being obeyed."""

import json
import logging

import pytest
import structlog
from hypothesis import given
from hypothesis import strategies as st

from allocator.contract.printable import printable
from allocator.service.config import LogSection
from allocator.service.logs import configure


@given(text=st.text(st.characters(codec=None)))
def test_what_is_shown_has_nothing_that_steers_a_terminal_or_forges_a_line(text: str) -> None:
    shown = printable(text)
    assert shown.isprintable()
    assert printable(shown) == shown
    assert text.isprintable() == (shown == text)


@pytest.mark.parametrize("form", ["console", "json"])
def test_the_log_shows_what_a_peer_says_and_obeys_nothing_of_it(
    form: str, capsys: pytest.CaptureFixture[str]
) -> None:
    before, root = structlog.get_config(), logging.getLogger()
    handlers, level = root.handlers[:], root.level
    try:
        configure(LogSection(format=form))  # type: ignore[arg-type]
        structlog.get_logger().warning("stream refused", reason="\x1b[2J\nready policy=sdrf")
    finally:
        structlog.configure(**before)
        root.handlers[:] = handlers  # or what libraries log is told in the tests that follow
        root.setLevel(level)
    [line] = capsys.readouterr().err.splitlines()
    assert "\x1b[2J" not in line
    assert r"x1b[2J\nready" in (json.loads(line)["reason"] if form == "json" else line).replace(
        r"\\", "\\"
    )
