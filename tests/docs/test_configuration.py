"""Generated parts of pages match the program."""

import runpy
from pathlib import Path

from allocator.fairness import policies
from allocator.service.config import Config

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "reference" / "configuration.md").read_text()


def test_the_generated_parts_of_pages_match_the_output_of_generate_py() -> None:
    generator = runpy.run_path(str(DOCS / "generate.py"))
    for page in generator["PAGES"]:
        assert generator["text"](page) == page.read_text(), "run: python docs/generate.py"


def test_every_section_has_a_table() -> None:
    marks = {line.split()[2].split(".")[0] for line in PAGE.splitlines() if "<!-- table:" in line}
    as_a_policy = {"shadow"}  # [[shadow]] accepts the settings of [policy]
    assert marks | as_a_policy == set(Config.model_fields)


def test_the_page_names_the_default_policy() -> None:
    name, parameters = Config().policy.name, Config().policy.model_extra
    assert (name, parameters) == ("sdrf", {"half_life": "1h"})
    assert "`sdrf` with a half-life of an hour" in PAGE


def test_the_page_on_policies_names_every_policy() -> None:
    page = (DOCS / "reference" / "policies.md").read_text()
    assert [policy for policy in policies.ours() if f"`{policy}`" not in page] == []
