"""The table of `longshare replay` shows whole names and numbers in any terminal."""

import io

import pytest
from rich.console import Console

from allocator.cli.replay import show_fates
from allocator.service.record.whatif import UserOutcome

NAMES = ("anna", "eng/search/indexing/of/everything")


@pytest.mark.parametrize("width", [60, 80])
def test_no_number_and_no_name_is_truncated(width: int) -> None:
    fates = {name: UserOutcome(1370, 0.443, 1083.0, 12_345.0, 0.021) for name in NAMES}
    outcomes = {name: UserOutcome(1370, 0.443, 1010.0, 12_400.0, 0.999) for name in NAMES}
    written = io.StringIO()
    console = Console(file=written, width=width)
    show_fates("666 s", ("sdrf", "drf"), (fates, fates, outcomes), console)
    lines = written.getvalue().splitlines()
    numbers = ["1,370", "44.3%", "1083", "s", "1010", "s", "+73", "s", "+55", "0.021", "0.999"]
    assert ["anna", *numbers] in [line.split() for line in lines]
    assert any(line.startswith("eng/sea") and line.split()[1:] == numbers for line in lines)
    first = next(number for number, line in enumerate(lines) if line.startswith("eng/sea"))
    assert "".join(line.split()[0] for line in lines[first:]).startswith(NAMES[1])
