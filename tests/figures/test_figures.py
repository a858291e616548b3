"""The papers' figures come out as their words say, and as independent computations do."""

import itertools
import math
from collections import Counter
from fractions import Fraction
from pathlib import Path

import pytest

from allocator.figures import (
    constraint_graph,
    live_tree,
    memory,
    objectives,
    sprayer,
    tanks,
    unfairness,
)
from allocator.figures.catalogue import FIGURES
from allocator.figures.lead import divisible, leads
from allocator.figures.picture import draw, picture
from allocator.simulation.generator.crowd import Crowd
from allocator.theory.divisible import smmf
from allocator.theory.divisible.optimum import create, optimum
from allocator.theory.divisible.problem import read_problem

F = Fraction


def test_sdrf_2_users_2_and_3_get_their_demands_and_with_commitments_users_3_and_4() -> None:
    demands = tanks.DEMANDS
    plain = tanks.filled(demands, [F(0)] * 4)
    assert [has == wants for has, wants in zip(plain, demands, strict=True)] == [0, 1, 1, 0]
    stateful = tanks.filled(demands, tanks.COMMITMENTS)
    assert stateful[1] < plain[1]
    assert stateful[3] == demands[3]
    floating = smmf([float(d) for d in demands], [float(c) for c in tanks.COMMITMENTS])
    assert [float(has) for has in stateful] == pytest.approx([o for (o,) in floating.allocations])
    assert sum(plain) == sum(stateful) == 1


def test_sdrf_section_4_1_entitled_to_3_cpus_with_commitment_1_may_use_2() -> None:
    everything = F(1)
    got = tanks.filled([everything] * 4, [F(1, 12), F(0), F(0), F(0)])
    assert got[0] * 12 >= 2


def test_thesis_2_5_users_b_and_c_need_less_than_their_part_a_and_d_get_the_rest() -> None:
    part = F(1, 4)
    a, b, c, d = tanks.DEMANDS
    has_a, has_b, has_c, has_d = (row[3] for row in FIGURES["thesis-2.5"]().rows)
    assert has_b == b < part
    assert has_c == c < part
    assert has_a == has_d == (1 - b - c) / 2 < min(a, d)


def test_thesis_2_6_a_has_3_cores_and_120_gb_b_6_and_20() -> None:
    (a, b) = FIGURES["thesis-2.6"]().rows
    assert a == ("A", 4, 160, 3, 120, F(2, 3))
    assert b == ("B", 9, 30, 6, 20, F(2, 3))


def _fits(routes: tuple[tuple[str, ...], ...]) -> bool:
    """Return whether routes of flows A, B, C and D match the thesis's description of Figure 1.1."""
    equal, fair = objectives.equal(routes), objectives.max_min(routes)
    if not (fair[:3] == equal[:3] and fair[3] > equal[3]):  # only D gains
        return False
    best = objectives.efficient(routes)
    full = all(
        sum(rate for rate, route in zip(best, routes, strict=True) if link in route) == capacity
        for link, capacity in objectives.LINKS.items()
    )
    return full and best[0] < min(best[1:]) and sum(map(len, routes)) > len(routes)


def test_thesis_1_1_only_the_routes_drawn_fit_the_words_and_their_mirror_image() -> None:
    ways = [w for n in (1, 2, 3) for w in itertools.combinations(objectives.LINKS, n)]
    short = (r for r in itertools.product(ways, repeat=4) if sum(map(len, r)) <= 5)
    a, b, c, d = objectives.ROUTES.values()
    assert {routes for routes in short if _fits(routes)} == {(a, b, c, d), (a, c, b, d)}


def test_thesis_1_1_rates() -> None:
    efficient, equal, fair = FIGURES["thesis-1.1"]().rows
    assert efficient[1:6] == (0, 4, 8, 9, 21)
    assert equal[1:] == (4, 4, 4, 4, 16, 1)
    assert fair[1:6] == (4, 4, 4, 5, 17)


def test_sdrf_1_b_never_used_its_share_and_gets_as_much_as_a() -> None:
    run = unfairness.trajectory(None)
    both = [held for held in run.allocations if held[1][0] > 0.0]
    assert all(held == [[0.5, 0.25], [0.5, 0.25]] for held in both)
    assert unfairness.finished(run) == pytest.approx(unfairness.COMES + 2 * unfairness.WORK)


def test_sdrf_3_is_the_closed_form_and_b_is_done_earlier() -> None:
    tau = -1.0 / math.log(unfairness.DELTA)
    run = unfairness.trajectory(tau)
    owed = 0.5 * (1.0 - math.exp(-unfairness.COMES / tau))
    done = unfairness.finished(run)
    for at, held in zip(run.times, run.allocations, strict=True):
        if unfairness.COMES <= at < done:
            faded = math.exp(-1.5 * (at - unfairness.COMES) / tau)
            assert held[1][0] == pytest.approx(0.5 + owed / 2 * faded, abs=0.001)
            assert held[1][1] == held[1][0] / 2
    took = (done - unfairness.COMES) / tau
    work = took / 2 + owed / 3 * (1.0 - math.exp(-1.5 * took))
    assert work * tau == pytest.approx(unfairness.WORK, rel=0.001)
    assert done < unfairness.COMES + 2 * unfairness.WORK


def test_sdrf_3_costs_a_nothing_in_the_end() -> None:
    had = "days of the whole CPU that A has had at the end"
    assert FIGURES["sdrf-1"]().facts[had] == pytest.approx(FIGURES["sdrf-3"]().facts[had])


def test_sdrf_4_an_element_has_an_event_if_it_will_change_places_with_its_successor() -> None:
    rows = FIGURES["sdrf-4"]().rows
    lines = live_tree.PRIORITIES
    order = sorted(lines, key=lambda element: (lines[element].value, lines[element].slope))
    assert [row[1] for row in rows] == [str(element) for element in order]
    for row, earlier, right in zip(rows, order, order[1:], strict=False):
        faster = lines[earlier].slope - lines[right].slope
        if faster > 0:  # the priority of the left element grows faster: it reaches the right one
            when = F(lines[right].value - lines[earlier].value, faster)
            assert row[4:] == (when, str(right))
        else:
            assert row[4:] == ("none", "none")
    assert rows[-1][4] == "none"  # the last element has no successor
    assert 0 < FIGURES["sdrf-4"]().facts["events"] < len(lines) - 1


def test_sdrf_4_an_update_past_the_first_event_swaps_that_pair() -> None:
    made = live_tree.tree()
    before, first = list(made), next(made.crossings())
    made.update(first.when)
    at = before.index(first.left)
    assert list(made) == [*before[:at], first.right, first.left, *before[at + 2 :]]


def test_tsf_1_the_graph_has_the_edges_of_its_caption_and_is_connected() -> None:
    made = FIGURES["tsf-1"]()
    everywhere = {"m1", "m2", "m3", "m4"}
    edges = {user: set(machines) for user, machines in constraint_graph.EDGES.items()}
    assert edges == {
        "u1": everywhere - {"m4"},
        "u2": everywhere,
        "u3": {"m3"},
        "u4": {"m2", "m4"},
    }
    assert len(made.panels[0].links) == made.facts["edges"] == 10
    assert made.facts["connected components"] == 1


@pytest.mark.parametrize("policy", ["tsf", "cdrf", "drfh"])
def test_components_of_a_constraint_graph_that_is_not_connected_can_be_shared_apart(
    policy: str,
) -> None:
    """Independent components of the constraint graph share as if alone (paper, below Fig. 1)."""
    edges = {"u1": ("m1", "m2"), "u2": ("m2",), "u3": ("m3",), "u4": ("m3",)}
    demands = {"u1": (1, 2), "u2": (3, 1), "u3": (1, 1), "u4": (2, 1)}

    def tasks(users: tuple[str, ...]) -> dict[str, object]:
        problem = {
            "machines": [
                {"name": name, "resources": {"cpu": 6, "mem": 8}} for name in ("m1", "m2", "m3")
            ],
            "users": [
                {
                    "name": name,
                    "demand": dict(zip(("cpu", "mem"), demands[name], strict=True)),
                    "machines": list(edges[name]),
                }
                for name in users
            ],
        }
        allocation = optimum(read_problem(problem), create(policy, {}))
        return {name: part.tasks for name, part in allocation.users.items()}

    components = constraint_graph.components(edges)
    assert components == [{"u1", "u2", "m1", "m2"}, {"u3", "u4", "m3"}]
    assert tasks(tuple(edges)) == tasks(("u1", "u2")) | tasks(("u3", "u4"))


@pytest.mark.slow
def test_sdrf_6_the_lead_of_about_50_is_one_of_long_tasks() -> None:
    short, long = leads(20, seed=1), leads(140, seed=1)
    assert 80 <= short < divisible() < 94
    assert 45 <= long <= 60


def test_patterns_of_flows_on_cores_are_as_likely_as_by_counting() -> None:
    counted = Counter(
        tuple(sorted(Counter(cores).values(), reverse=True))
        for cores in itertools.product(range(3), repeat=5)
    )
    assert dict(sprayer.patterns(5, 3)) == pytest.approx({k: n / 3**5 for k, n in counted.items()})


@pytest.mark.parametrize("flows", [1, 3, 16])
def test_the_mean_of_busy_cores_is_the_closed_form(flows: int) -> None:
    busy = 8 * (1 - F(7, 8) ** flows)
    assert sprayer.hashed(flows).packets.mean == pytest.approx(float(busy) * 0.2)


def test_sprayer_one_flow_is_eight_times_as_fast_and_many_are_alike() -> None:
    assert sprayer.hashed(1).packets.mean * 8 == pytest.approx(1.6)
    assert sprayer.hashed(1).jain.mean == 1.0
    assert sprayer.hashed(32).packets.mean > 0.98 * 1.6
    middle = sprayer.hashed(12)
    assert middle.jain.low < middle.jain.mean < 0.9
    assert middle.packets.low < middle.packets.mean < 1.6


@pytest.mark.parametrize("name", ["sdrf-1", "sdrf-2", "sdrf-4", "thesis-2.6", "tsf-1"])
def test_a_figure_is_drawn(name: str, tmp_path: Path) -> None:
    made = FIGURES[name]()
    assert made.name == name
    assert draw(made, tmp_path).stat().st_size > 10_000


def test_panels_of_the_same_quantity_have_the_same_scale_and_one_legend() -> None:
    axes = picture(FIGURES["sdrf-3"]()).axes
    assert axes[0].get_ylim() == axes[1].get_ylim()
    assert [axis.get_legend() is not None for axis in axes] == [True, False]


def test_rows_of_a_graph_have_names() -> None:
    (axis,) = picture(FIGURES["tsf-1"]()).axes
    assert [label.get_text() for label in axis.get_yticklabels()] == ["machines", "users"]


def test_memory_saves_most_where_few_tasks_run_at_once() -> None:
    narrow, wide = (memory.saved(Crowd(width=w), 0.5, (1, 2, 3), "head-of-line") for w in (4, 48))
    assert narrow.less.low > wide.less.high
    assert wide.less.low > 0.0
