"""Experiments are data, and say so when they make no sense."""

import pytest

from frameworks import experiment

VALID = """
title = "t"
figure = "f"
shows = "s"
duration = 60
policy = { name = "drf" }
[cluster]
agents = 2
resources = "cpus:4;mem:4096"
[tasks]
demand = "cpus:1;mem:1024"
run_time = 5
[[users]]
name = "A"
[[users]]
name = "B"
start = 20
"""


def test_those_of_the_paper_are_as_the_paper_says() -> None:
    for e in experiment.load_all():
        assert e.cluster.capacity.to_doubles() == {"cpus": 160.0, "mem": 245760.0}
        assert e.tasks.quantities.to_doubles() == {"cpus": 1.0, "mem": 1024.0}
        assert [(u.name, u.start) for u in e.users] == [
            ("A", 0),
            ("B", 150),
            ("C", 300),
            ("D", 450),
        ]
        assert e.duration == 600
    owed = [u.commitment for u in experiment.load("sdrf-initial-commitments").users]
    assert owed == [0.5, 0.4, 0.3, 0.2]


def test_phases_are_from_start_to_start() -> None:
    phases = experiment.parse("x", VALID).phases
    assert [(p.start, p.end, p.users) for p in phases] == [(0, 20, ("A",)), (20, 60, ("A", "B"))]


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        ("duration = 60", "duration = 10", "starts after the end"),
        ('name = "B"', 'name = "A"', "same name"),
        ("cpus:1;mem:1024", "cpus:9;mem:1024", "larger than the cluster"),
        ("cpus:1;mem:1024", "cpus:lots", "'cpus:lots' is not of the form"),
        ('"drf"', '"lottery"', "there are: cdrf, cmmf"),
        ("start = 20", "begin = 20", "begin"),
        (
            "[cluster]",
            """[[claims]]
kind = "commitment-at"
user = "Z"
at = 1
value = 0
within = 1
[cluster]""",
            "no user is named 'Z'",
        ),
        (
            "[cluster]",
            '[[claims]]\nkind = "largest-lead"\nuser = "A"\nover = ["B"]\nphase = 3\n[cluster]',
            "there is no phase 3",
        ),
    ],
)
def test_what_makes_no_sense_is_named(old: str, new: str, complaint: str) -> None:
    assert old in VALID
    with pytest.raises(ValueError, match=complaint):
        experiment.parse("x", VALID.replace(old, new))


def test_an_unknown_name_is_answered_with_those_there_are() -> None:
    with pytest.raises(KeyError, match="drf-baseline"):
        experiment.load("fig-99")
