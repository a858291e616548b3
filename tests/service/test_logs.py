"""Logs that repeat are thinned, but for what people did."""

import subprocess
import sys

import structlog

from allocator.service.logs import BURST, KEPT, WINDOW, Thinned


class Log:
    """What passes, by a clock that the test moves."""

    def __init__(self) -> None:
        self.now = 0.0
        self._thinned = Thinned(lambda: self.now)

    def say(self, event: str) -> dict[str, object] | None:
        try:
            return dict(self._thinned(None, "warning", {"event": event}))
        except structlog.DropEvent:
            return None


def test_a_line_that_repeats_is_left_out_and_counted() -> None:
    log = Log()
    said = [log.say("stream refused") for _ in range(1000)]
    passed = [line for line in said if line is not None]
    assert len(passed) == BURST
    assert "left out" in str(passed[-1]["more"])
    assert log.say("master leads") is not None, "others are not affected"
    log.now = WINDOW
    again = log.say("stream refused")
    assert again is not None
    assert again["left_out"] == 1000 - BURST


def test_every_order_of_an_operator_is_logged() -> None:
    log = Log()
    assert all(log.say(event) for event in KEPT for _ in range(1000))


def test_lines_of_libraries_are_thinned_as_well() -> None:
    code = (
        "import logging; from allocator.service import logs; "
        "from allocator.service.config import LogSection; logs.configure(LogSection()); "
        "[logging.getLogger('aiohttp.server').error('bad request') for _ in range(100)]"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, stderr=subprocess.PIPE)
    assert done.stderr.count(b"bad request") == BURST
