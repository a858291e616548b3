"""docs/research/reproduction.md lists all numbered claims, and each listed test exists."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/research/reproduction.md").read_text(encoding="utf-8")
CLAIMS = PAGE.partition("## Claims, and the tests that check them")[2].partition("\n## ")[0]
PARTS = dict(zip(("sdrf", "tsf", "incentives"), CLAIMS.split("| checked by |")[1:], strict=True))
NUMBERED = {
    "sdrf": ["Lemma 1", "Corollary 1", *(f"Proposition {n}" for n in range(1, 7)), "Table 1"],
    "tsf": [
        *(f"Lemma {n}" for n in range(1, 4)),
        *(f"Theorem {n}" for n in range(1, 18)),
        "Table I",
        "Table II",
    ],
    "incentives": [
        *(f"Table {n}" for n in range(1, 6)),
        *(f"Theorem 3.{n}" for n in (1, 2, 5, 6)),
        *(f"Lemma 3.{n}" for n in (3, 4, 7)),
        *(f"Theorem 4.{n}" for n in (1, 4, 6, 7, 8)),
        *(f"Lemma 4.{n}" for n in (2, 3, 5)),
        "Corollary 4.9",
        *(f"Theorem 5.{n}" for n in range(1, 5)),
        "Theorem B.1",
        *(f"Lemma C.{n}" for n in range(1, 4)),
        *(f"Lemma D.{n}" for n in (1, 5, 6, 9)),
        *(f"Corollary D.{n}" for n in (4, 7, 8)),
    ],
}


def named(part: str) -> set[str]:
    """Return the claims named in the first column of a table, with plurals split."""
    names = set()
    for row in re.findall(r"^\| ([^|]+) \|", part, flags=re.MULTILINE):
        kind = ""
        for word in re.findall(r"[A-Za-z]{4,}|[A-D]?\.?\d+(?:\.\d+)?|\bII?\b", row):
            if word.rstrip("s") in {"Lemma", "Theorem", "Proposition", "Table"}:
                kind = word.rstrip("s")
            elif word in {"Corollary", "Corollaries"}:
                kind = "Corollary"
            elif (kind and not word.isalpha()) or word in {"I", "II"}:
                names.add(f"{kind} {word}")
    return names


@pytest.mark.parametrize("paper", NUMBERED)
def test_every_numbered_claim_of_the_papers_is_listed_with_its_tests(paper: str) -> None:
    assert set(NUMBERED[paper]) - named(PARTS[paper]) == set()


@pytest.mark.parametrize("test", sorted(set(re.findall(r"`(test_\w+\.py::test_\w+)`", CLAIMS))))
def test_every_test_named_in_the_list_exists(test: str) -> None:
    file, _, name = test.partition("::")
    assert f"\ndef {name}(" in (ROOT / "tests/theory" / file).read_text(encoding="utf-8")
