"""Repeated log lines are thinned, except lines about orders of operators."""

import subprocess
import sys

import structlog

from allocator.service.logs import BURST, LONGEST, NEVER_DROPPED, WINDOW, RateLimiter, _cleaned
from tests.counted import counted


class Log:
    """A log with the thinning processor, under a clock that the test moves."""

    def __init__(self) -> None:
        self.now = 0.0
        self._thinned = RateLimiter(lambda: self.now)

    def say(self, event: str) -> dict[str, object] | None:
        try:
            return dict(self._thinned(None, "warning", {"event": event}))
        except structlog.DropEvent:
            return None


def test_repeated_lines_are_left_out_and_counted() -> None:
    log = Log()
    logged = [log.say("stream refused") for _ in range(1000)]
    passed = [line for line in logged if line is not None]
    assert len(passed) == BURST
    assert "left out" in str(passed[-1]["more"])
    assert log.say("master leads") is not None, "other lines are not affected"
    log.now = WINDOW
    later = log.say("stream refused")
    assert later is not None
    assert later["left_out"] == 1000 - BURST


def test_every_order_of_an_operator_is_logged() -> None:
    log = Log()
    assert all(log.say(event) for event in NEVER_DROPPED for _ in range(1000))


def test_lines_of_libraries_are_thinned_as_well() -> None:
    code = (
        "import logging; from allocator.service import logs; "
        "from allocator.service.config import LogSection; logs.configure(LogSection()); "
        "[logging.getLogger('aiohttp.server').error('bad request') for _ in range(100)]"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, stderr=subprocess.PIPE)
    assert done.stderr.count(b"bad request") == BURST


def test_a_long_value_is_shortened_before_its_characters_are_escaped() -> None:
    reason = "\N{COMBINING ACUTE ACCENT}" * 1_000_000
    line = _cleaned(None, "warning", {"event": "set aside", "reason": reason})
    assert len(str(line["reason"])) < 10 * LONGEST
    assert str(line["reason"]).endswith("…")
    event: dict[str, object] = {"event": "set aside", "reason": reason}
    assert counted(lambda: _cleaned(None, "warning", event)) < 10 * LONGEST
    kept = _cleaned(None, "info", {"event": next(iter(NEVER_DROPPED)), "order": "x" * 2 * LONGEST})
    assert len(str(kept["order"])) == 2 * LONGEST


def test_an_exception_that_quotes_a_request_makes_no_long_line() -> None:
    code = (
        "import logging; from allocator.service import logs; "
        "from allocator.service.config import LogSection; logs.configure(LogSection())\n"
        "def deep(left):\n"
        "    if not left: raise ValueError(str(chr(27).encode() * 8000))\n"
        "    try: deep(left - 1)\n"
        "    except ValueError as error: raise ValueError(f'at {left}') from error\n"
        "try: deep({})\n"
        "except ValueError: logging.getLogger('aiohttp.server').exception('bad request')"
    )

    def logged(depth: int) -> str:
        command = [sys.executable, "-c", code.replace("{}", str(depth))]
        return subprocess.run(command, check=True, capture_output=True, text=True).stderr

    short = logged(0)
    assert "bad request" in short
    assert "ValueError: b'\\x1b" in short
    assert len(short) < 1000
    long = logged(100)
    assert long.rstrip().endswith("ValueError: at 100")
    assert LONGEST < len(long) < LONGEST + 1000


def test_an_exception_that_quotes_a_name_controls_no_terminal() -> None:
    line = _cleaned(None, "error", {"event": "fault", "exception": "Trace\n  x\nError: \x1b[2J"})
    assert line["exception"] == "Trace\n  x\nError: \\x1b[2J"
