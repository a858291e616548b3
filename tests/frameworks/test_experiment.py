"""Experiments are data, and invalid data is refused with an error."""

import pytest

from frameworks import experiment

VALID = """
title = "t"
figure = "f"
shows = "s"
duration = 60
policy = { name = "drf" }
[[cluster.agents]]
count = 2
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
VARIED = (
    VALID.replace("run_time = 5", "run_time = 5\ncount = 3")
    + """
[[variants]]
name = "alone"
without = ["B"]
[[variants]]
name = "apart"
nodes = { B = "2" }
[[claims]]
kind = "no-later"
users = ["A"]
variant = "alone"
than = "apart"
"""
)


def test_experiments_with_41_nodes_match_the_paper() -> None:
    for name in ("drf-baseline", "sdrf-adaptive", "sdrf-initial-commitments"):
        e = experiment.load(name)
        assert e.tasks is not None
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


def test_experiments_with_50_nodes_match_the_paper() -> None:
    for name in experiment.names():
        if not name.startswith("tsf-"):
            continue
        cluster = experiment.load(name).cluster
        kinds = [str(agents.quantities) for _, agents in cluster.hosts]
        assert kinds == 25 * ["cpus:1;mem:1024"] + 25 * ["cpus:2;mem:1024"]
    micro = experiment.load("tsf-micro")
    alone = [micro.cluster.monopoly(micro.tasks_of(u).quantities) for u in micro.users]
    assert alone == [75, 100, 100, 75]
    pools = experiment.load("tsf-vs-static-pools")
    small_first = experiment.load("tsf-small-tasks-first")
    assert {u.name: (u.weight, u.nodes, u.tasks) for u in small_first.users} == {
        u.name: (u.weight, u.nodes, u.tasks) for u in pools.users
    }
    static = pools.variant(pools.variants[0])
    for user in static.users:
        mine = [a for name, a in static.cluster.hosts if name in static.whitelist(user)]
        demand = static.tasks_of(user).quantities
        k = sum(min(a.quantities[n] // amount for n, amount in demand.items()) for a in mine)
        assert user.weight == pytest.approx(k / static.cluster.monopoly(demand))


def test_a_whitelist_of_nodes_names_hosts() -> None:
    e = experiment.parse("x", VALID.replace('name = "A"', 'name = "A"\nnodes = "2, 1-1"'))
    assert e.whitelist(e.users[0]) == ["agent-2", "agent-1"]
    assert e.whitelist(e.users[1]) == []


def test_a_variant_differs_only_in_its_stated_changes() -> None:
    e = experiment.parse("x", VARIED)
    first, second = (e.variant(variant) for variant in e.variants)
    assert [user.name for user in first.users] == ["A"]
    assert [(user.name, user.nodes) for user in second.users] == [("A", None), ("B", "2")]
    assert (first.cluster, first.policy, first.variants, first.claims) == (
        e.cluster,
        e.policy,
        (),
        (),
    )


def test_phases_are_from_start_to_start() -> None:
    phases = experiment.parse("x", VALID).phases
    assert [(p.start, p.end, p.users) for p in phases] == [(0, 20, ("A",)), (20, 60, ("A", "B"))]


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        ("duration = 60", "duration = 10", "starts after the end"),
        ('name = "B"', 'name = "A"', "same name"),
        ("cpus:1;mem:1024", "cpus:5;mem:1024", "larger than any agent"),
        (
            "cpus:1;mem:1024",
            "cpu:1;mem:1024",
            "needs cpu, which no agent has; there are: cpus, mem; did you mean cpus",
        ),
        ("start = 20", 'nodes = "1-3"', "agent 3 does not exist"),
        ("start = 20", 'nodes = "one"', "should match pattern"),
        ("start = 20", '[[variants]]\nname = "v"\nwithout = ["Z"]', "no user is named 'Z'"),
        ("start = 20", '[[variants]]\nname = "v"', "tasks need a count"),
        (
            "start = 20",
            '[[claims]]\nkind = "no-later"\nusers = ["A"]\nvariant = "x"\nthan = "y"',
            "no variant is named 'x'",
        ),
        (
            "start = 20",
            'nodes = "1"\n[[claims]]\nkind = "phases-agree"\nwithin_cpus = 1',
            "users' tasks differ",
        ),
        ("cpus:1;mem:1024", "cpus:lots", "'cpus:lots' is not of the form"),
        ('"drf"', '"lottery"', "there are: cdrf, cmmf"),
        ("start = 20", "begin = 20", "begin"),
        (
            "[[cluster.agents]]",
            """[[claims]]
kind = "commitment-at"
user = "Z"
at = 1
value = 0
within = 1
[[cluster.agents]]""",
            "no user is named 'Z'",
        ),
        (
            "[[cluster.agents]]",
            """[[claims]]
kind = "largest-lead"
user = "A"
over = ["B"]
phase = 3
[[cluster.agents]]""",
            "phase 3 does not exist",
        ),
    ],
)
def test_errors_name_the_invalid_setting(old: str, new: str, complaint: str) -> None:
    assert old in VALID
    with pytest.raises(ValueError, match=complaint):
        experiment.parse("x", VALID.replace(old, new))


def test_an_unknown_name_is_refused_with_a_list_of_known_names() -> None:
    with pytest.raises(KeyError, match="drf-baseline"):
        experiment.load("fig-99")
