"""The configuration's documentation is that of its schema."""

import runpy
from pathlib import Path

from allocator.service.config import Config

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "configuration.md").read_text()


def test_the_tables_are_what_generate_py_writes_today() -> None:
    generator = runpy.run_path(str(DOCS / "generate.py"))
    assert generator["text"]() == PAGE, "run: python docs/generate.py"


def test_every_section_has_a_table() -> None:
    marks = {line.split()[2].split(".")[0] for line in PAGE.splitlines() if "<!-- table:" in line}
    assert marks == set(Config.model_fields)


def test_the_default_policy_is_the_one_that_the_page_names() -> None:
    name, parameters = Config().policy.name, Config().policy.model_extra
    assert (name, parameters) == ("sdrf", {"half_life": "1h"})
    assert "`sdrf` with a half-life of an hour" in PAGE
