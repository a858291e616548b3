"""The search for flakes counts what has passed since the last failure, of one commit."""

from tests.flakes import Run, in_a_row


def run(*, passed: bool) -> Run:
    return Run("a1b2", ["disk"], [], 7, mesos=False, seconds=400, passed=passed, said="1 passed")


def test_a_failure_begins_the_count_again() -> None:
    runs = [run(passed=passed) for passed in (True, True, False, True, True, True)]
    assert in_a_row(runs[:2]) == 2
    assert in_a_row(runs[:3]) == 0
    assert in_a_row(runs) == 3
    assert in_a_row([]) == 0
