"""The commands in the documentation work, and print the output shown on the page."""

import re
import time
import tomllib
from pathlib import Path

import pytest

from allocator.service.config import Config
from tests.docs.sessions import PATIENCE, ROOT, Block, Session, blocks, looks_like, pages

REASONS = {
    "needs AWS",
    "needs a cluster's accounting",
    "needs a release",
    "needs root",
    "needs Docker",
    "needs the trace",
    "needs a real Mesos",
    "needs Mesos's sources",
    "needs the sources of clusterd",
    "takes minutes",
    "shows the form",
}


def name(page: Path) -> str:
    return str(page.relative_to(ROOT))


def chosen(block: Block) -> bool:
    return block.runs and not block.mark.startswith("not run: ")


NEWCOMERS = ("README.md", "docs/tutorials/first-hour.md")
"""Pages for new users, on which each command starts a new interpreter."""
SESSIONS = [page for page in pages() if any(map(chosen, blocks(page)))]


@pytest.mark.slow
@pytest.mark.timeout(400)  # the compilers of the fast path may have an empty cache
@pytest.mark.parametrize("page", SESSIONS, ids=name)
def test_the_commands_of_a_page_work_one_after_the_other(page: Path, tmp_path: Path) -> None:
    page_blocks = blocks(page)
    session = Session(tmp_path, fresh=name(page) in NEWCOMERS)
    try:
        for block in page_blocks:
            if block.mark.startswith("file: "):
                session.write(block.mark.removeprefix("file: "), block.text)
        for block in filter(chosen, page_blocks):
            for command, written in block.steps:
                deadline = time.monotonic() + PATIENCE
                while True:
                    code, output = session.run(command)
                    if code == 0 and (not written or looks_like(output, written)):
                        break
                    assert written, f"{block}: {command}\n{output}\nexit code {code}"
                    assert time.monotonic() < deadline, (
                        f"{block}: {command}\n{output}\nis not what is written:\n{written}"
                    )
                    time.sleep(0.2)
    finally:
        session.close()


@pytest.mark.parametrize("page", pages(), ids=name)
def test_blocks_that_are_not_run_give_a_known_reason(page: Path) -> None:
    for block in blocks(page):
        if block.mark.startswith("not run: "):
            assert block.mark.removeprefix("not run: ") in REASONS, str(block)
            assert block.runs, f"{block}: holds no commands"


@pytest.mark.parametrize("page", pages(), ids=name)
def test_commands_are_written_between_fences(page: Path) -> None:
    text = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)
    assert re.findall(r"^    (?:longshare|make|\$|\.venv/bin/\w+) .*", text, re.MULTILINE) == []


@pytest.mark.parametrize("page", pages(), ids=name)
def test_shown_configurations_are_valid(page: Path) -> None:
    for block in blocks(page):
        if block.language == "toml" and not block.mark:
            Config.model_validate(tomllib.loads(block.text))


def test_outputs_are_compared_without_numbers_and_elided_parts() -> None:
    written = "rank user\n   1 web   20.0%\n…\nend in 1.0 h on agent-1\n"
    output = "rank user\n   1 web     5%\n   2 a\n   3 b\nend in 0.5 h on agent-1\n"
    assert looks_like(output, written)
    assert looks_like(
        f"{output}the order is in the log, but not in the audit yet: its database is slow or "
        "fails\n",
        written,
    )
    for difference in (("web", "adhoc"), (" h ", " min "), ("agent-1", "agent-2")):
        assert not looks_like(output.replace(*difference), written)
