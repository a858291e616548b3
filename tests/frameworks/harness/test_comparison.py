"""Distinction between real differences of variants and noise."""

import pytest

from frameworks.experiment import NoLater
from frameworks.harness.comparison import _no_later

STRICT = NoLater(kind="no-later", users=("u",), variant="a", than="b")
LENIENT = STRICT.model_copy(update={"within_noise": True})


@pytest.mark.parametrize(
    ("claim", "took", "than", "holds"),
    [
        (STRICT, [10.0, 20.0], [11.0, 20.0], True),
        (STRICT, [10.0, 20.0], [10.0, 20.0], True),
        (STRICT, [10.1, 20.0], [10.0, 20.0], False),
        (LENIENT, [10.0, 20.0, 30.0], [10.3, 19.4, 30.2], True),
        (LENIENT, [11.0, 21.0, 31.1], [10.0, 20.0, 30.0], False),
        (LENIENT, [10.1], [10.0], False),
    ],
    ids=["earlier", "equal", "later", "within noise", "always later", "one run tells no noise"],
)
def test_no_later_is_of_paired_means(
    claim: NoLater, took: list[float], than: list[float], *, holds: bool
) -> None:
    finding = _no_later(claim, "u", took, than)
    assert finding.holds == holds
    assert ("noise" in finding.claim) == claim.within_noise
