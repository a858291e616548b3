"""Policies that a test registers are removed after the test."""

import pytest

from allocator.fairness import policies


@pytest.fixture(autouse=True)
def of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(policies, "_POLICIES", dict(policies._POLICIES))
