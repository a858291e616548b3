"""The troubleshooting page explains every reason for which a framework gets no offers."""

import re
from pathlib import Path

from allocator.cluster.engine.wording import BRIEFLY
from allocator.cluster.reasons import REASON_ORDER

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "troubleshoot.md"


def explained_reasons() -> list[str]:
    """Return the names in the first column of the table of reasons, from top to bottom."""
    section = PAGE.read_text().partition("\n### Why not me\n")[2].partition("\n## ")[0]
    cells = re.findall(r"^\| (`.*?) \|", section, re.MULTILINE)
    return [name for cell in cells for name in re.findall(r"`(\w+)`", cell)]


def test_the_page_explains_every_reason_in_the_order_of_precedence() -> None:
    assert explained_reasons() == [*REASON_ORDER, "no_master"]


def test_the_page_explains_every_reason_that_the_service_shows() -> None:
    assert set(explained_reasons()) == set(BRIEFLY)
