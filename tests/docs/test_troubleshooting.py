"""The troubleshooting page explains each sentence of `longshare explain` by its own words."""

import inspect
import re
from pathlib import Path

import pytest

from allocator.cluster.engine import view, wording
from allocator.cluster.engine.wording import BRIEFLY, VOCABULARY, reasons_text
from allocator.cluster.frameworks import demands
from allocator.cluster.frameworks.framework import Client
from allocator.cluster.reasons import REASON_ORDER, Explanation
from allocator.service.masters import timestamp_guard
from allocator.service.operators import admin
from allocator.service.show import explain

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "troubleshoot.md"
ANSWERS = {
    "no such user": admin,
    "framework of the user": wording,
    "the service rejected framework": wording,
    "no master has been connected": wording,
    "no framework is known to the master": wording,
    "no framework is registered in the role": wording,
    "each of its frameworks is disconnected or inactive, or has suppressed offers": wording,
    "so it is passed over": wording,
    "cannot get offers:": wording,
    "no agent meets its constraint:": view,
    "one task needs": view,
    "and no agent has more than": demands,
    "the cluster has no": demands,
    "its offer constraints for the role": view,
    "has a label that the service ignores": wording,
    "The service has rejected data about the role": wording,
    "because its demand does not name": wording,
    "may run on": wording,
    "tasks smaller than limits.smallest_demand": wording,
    "gets no more offers": wording,
    "is served first": wording,
    "has a task that is larger than other users' tasks": wording,
    "Longshare does not preempt": explain,
    "its offer filters would keep": wording,
    "It has not answered offers of": explain,
    "in offers that it has not answered": explain,
    "compare offers and tasks in the master's /state": wording,
    "is served after": explain,
    "it is first": explain,
    "it is next": explain,
    "is number": explain,
    "it is offered no less than": wording,
    "the reservations are for": wording,
    "its first offer filter ends in": wording,
    "states no demand": wording,
    "framework gets no offers": wording,
    "a master's clock is implausible": timestamp_guard,
}
"""Words that both the page and the named module contain."""


def rows_of_reasons() -> list[list[str]]:
    """Return the cells of the table of reasons, from top to bottom."""
    section = PAGE.read_text().partition("\n### Why not me\n")[2].partition("\n## ")[0]
    rows = [line.split(" | ") for line in section.splitlines() if line.startswith("| `")]
    assert rows
    return rows


def explained_reasons() -> list[str]:
    """Return the names in the first column of the table of reasons, from top to bottom."""
    return [name for row in rows_of_reasons() for name in re.findall(r"`(\w+)`", row[0])]


def sentence_of(reason: str) -> str:
    """Return the sentence with which `longshare explain` states a reason."""
    if reason == "no_master":
        return VOCABULARY.out_of_contact
    (known,) = (name for name in REASON_ORDER if name == reason)
    return reasons_text(Explanation(Client("framework", "role"), known, False, {known: 2}), 0.0)


def test_the_page_explains_every_reason_in_the_order_of_precedence() -> None:
    assert explained_reasons() == [*REASON_ORDER, "no_master"]


def test_the_page_explains_every_reason_that_the_service_shows() -> None:
    assert set(explained_reasons()) == set(BRIEFLY)


def test_each_reason_is_found_by_its_words_in_tables_and_in_explanations() -> None:
    for reasons, sentences, *_ in rows_of_reasons():
        for reason in re.findall(r"`(\w+)`", reasons):
            assert BRIEFLY[reason] in reasons
            quoted = re.findall(r"`([^`]+)`", sentences)
            assert any(quote in sentence_of(reason) for quote in quoted), (reason, quoted)


@pytest.mark.parametrize("words", ANSWERS)
def test_each_answer_of_explain_is_found_by_its_words(words: str) -> None:
    source = re.sub(r'"\s*\n\s*f?"', "", inspect.getsource(ANSWERS[words]))
    assert words in source
    assert words in PAGE.read_text()
