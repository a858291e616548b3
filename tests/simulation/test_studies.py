"""Sweeps compute each cell once, despite interruptions, and reports show the results."""

import csv
import io
import json
import re
from dataclasses import replace
from functools import partialmethod
from pathlib import Path

import numpy as np
import pytest

from allocator.simulation import reference, store
from allocator.simulation.outcome import NEVER, Operations, Outcome
from allocator.simulation.setting import Setting
from allocator.simulation.studies import cells as cells_module
from allocator.simulation.studies import compared, measures, rivals, windows
from allocator.simulation.studies.cells import Cell
from allocator.simulation.studies.comparisons import (
    by_size,
    distribution,
    reduction,
    reduction_interval,
    speedup,
)
from allocator.simulation.studies.drawing import (
    colour_of,
    half_life_axis,
    new_figure,
    plain_log,
    save,
    styles,
    time_axis,
)
from allocator.simulation.studies.estimates import estimate
from allocator.simulation.studies.measures import JobMeasures
from allocator.simulation.studies.page import render
from allocator.simulation.studies.plan import SweepError, names, read_sweep
from allocator.simulation.studies.report import PAGE, write_report
from allocator.simulation.studies.results import ResultsError, read_results, write_index
from allocator.simulation.studies.section import (
    Finding,
    Section,
    Table,
    duration,
    plain,
    power_of_ten,
)
from allocator.simulation.studies.sources import resolve
from allocator.simulation.studies.sweep import SimulatorKind, cells_of, run
from allocator.simulation.trace import MachineClass, Trace
from tests.exchanged import exchange_new_folders
from tests.service.browser import axe, browsing, chromedriver
from tests.simulation.crowded import trace_of
from tests.simulation.test_advice import bursts_beside_a_hog

HERE = SimulatorKind("sequential")
SWEEP = """
title = "A hog and three others"
[[traces]]
path = "hog.parquet"
[[grid]]
loads = [0.6, 0.8]
engine = "reference"
policies = [{ policy = "drf" }, { policy = "sdrf", half_life = [60, "10m"] }]
"""


def prepared(folder: Path, text: str = SWEEP) -> list[Cell]:
    """Write a sweep's file and its trace; return its cells."""
    if not (folder / "hog.parquet").exists():
        store.write(bursts_beside_a_hog(), folder / "hog.parquet")
    (folder / "sweep.toml").write_text(text)
    sweep, beside = read_sweep(str(folder / "sweep.toml"))
    cells = cells_of(sweep, list(resolve(sweep.traces, beside, folder / "traces")))
    write_index(folder, sweep.title, cells)
    return cells


def test_a_grid_is_every_policy_at_every_load_and_equal_cells_are_one(tmp_path: Path) -> None:
    cells = prepared(tmp_path)
    assert [(cell.load, cell.policy, cell.parameters) for cell in cells] == [
        (load, policy, parameters)
        for load in (0.6, 0.8)
        for policy, parameters in (
            ("drf", {}),
            ("sdrf", {"half_life": 60}),
            ("sdrf", {"half_life": "10m"}),
        )
    ]
    assert len(prepared(tmp_path, SWEEP + SWEEP[SWEEP.index("[[grid]]") :])) == len(cells)


def test_a_finished_cell_is_computed_again_only_if_its_inputs_changed(tmp_path: Path) -> None:
    results = tmp_path / "cells"
    assert run(prepared(tmp_path), results, HERE) == 6
    stamps = {file: file.stat().st_mtime_ns for file in results.iterdir()}
    assert run(prepared(tmp_path), results, HERE) == 0
    assert run(prepared(tmp_path, SWEEP.replace('"10m"', '"20m"')), results, HERE) == 2
    assert run(prepared(tmp_path), results, HERE) == 0, "earlier results are kept"
    for file, stamp in stamps.items():
        assert file.stat().st_mtime_ns == stamp
    trace = bursts_beside_a_hog()
    store.write(replace(trace, runtime=trace.runtime + 1), tmp_path / "hog.parquet")
    assert run(prepared(tmp_path), results, HERE) == 6


def test_a_change_of_the_cell_format_recomputes_all_cells(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run(prepared(tmp_path), tmp_path / "cells", HERE) == 6
    monkeypatch.setattr(cells_module, "FORMAT", cells_module.FORMAT + 1)
    assert not any(cell.is_finished(tmp_path / "cells") for cell in prepared(tmp_path))


def test_finished_cells_are_kept_when_a_later_cell_fails(tmp_path: Path) -> None:
    cells = prepared(tmp_path)
    broken = replace(cells[3], load=-1.0)
    with pytest.raises(ValueError, match="load -1"):
        run([*cells[:3], broken, *cells[4:]], tmp_path / "cells", HERE)
    assert [cell.is_finished(tmp_path / "cells") for cell in cells[:3]] == 3 * [True]
    (tmp_path / "cells" / f"{cells[3].key}.json.77.part").write_text("half a file")
    assert run(cells, tmp_path / "cells", HERE) == 3


@pytest.mark.slow  # starts processes
def test_parallel_processes_give_the_same_results(tmp_path: Path) -> None:
    seen: list[int] = []
    cells = prepared(tmp_path)
    run(cells, tmp_path / "one", HERE)
    run(cells, tmp_path / "many", SimulatorKind("loky", jobs=2), seen.append)
    assert seen[-1] == 6
    for cell in cells:
        single, several = (
            json.loads(cell.file(tmp_path / name).read_text()) for name in ("one", "many")
        )
        for result in (single, several):
            result.pop("seconds")
            result["operations"].pop("seconds")
        assert single == several


def test_cells_with_the_same_trace_share_memory_that_is_freed_afterwards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    used: list[Path] = []
    shared = store.shared

    def noted(path: Path, copy: Path) -> Trace:
        used.append(copy)
        return shared(path, copy)

    monkeypatch.setattr(store, "shared", noted)
    run(prepared(tmp_path), tmp_path / "cells", HERE)
    assert len(used) == 1, "a process maps the trace once"
    assert {file.suffix for file in (tmp_path / "cells").iterdir()} == {".json"}
    used.clear()
    run([replace(prepared(tmp_path)[0], load=0.7)], tmp_path / "cells", HERE)
    assert not used, "a single cell shares no trace"


def test_a_folder_for_copies_that_another_user_exchanges_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cells, folder, replacement = prepared(tmp_path), tmp_path / "cells", tmp_path / "other"
    private = tmp_path / "thesis"
    private.write_text("own")
    copy = replacement / cells[0].source.digest
    copy.mkdir(parents=True)
    for column in store._COLUMNS:
        (copy / f"{column}.npy").symlink_to(private)
    folder.mkdir()
    folder.chmod(0o2775)
    exchange_new_folders(folder, replacement, monkeypatch)
    mkdir = partialmethod(Path.mkdir, exist_ok=True)
    monkeypatch.setattr(Path, "mkdir", mkdir)  # as by one more exchange, in `replacement`
    with pytest.raises(OSError, match="another user exchanged"):
        run(cells, folder, HERE)
    assert private.read_text() == "own"


def test_copies_of_traces_do_not_follow_an_exchange_of_their_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cells, folder, replacement = prepared(tmp_path), tmp_path / "cells", tmp_path / "other"
    private = replacement / "thesis"
    replacement.mkdir()
    private.write_text("own")
    share = store.share

    def exchange_and_share(path: Path, copy: Path) -> None:
        [made] = folder.iterdir()
        made.rename(tmp_path / "away")
        replacement.rename(made)
        share(path, copy)

    monkeypatch.setattr(store, "share", exchange_and_share)
    with pytest.raises(FileNotFoundError):  # the workers find no copy
        run(cells, folder, HERE)
    [made] = folder.iterdir()
    assert [file.name for file in made.iterdir()] == ["thesis"]
    assert not list((tmp_path / "away").iterdir())


def test_an_unknown_backend_is_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="abacus"):
        run(prepared(tmp_path), tmp_path / "cells", SimulatorKind("abacus"))


def test_a_cell_equals_the_result_of_the_simulator(tmp_path: Path) -> None:
    cells = prepared(tmp_path)
    run(cells, tmp_path / "cells", HERE)
    _, results = read_results(tmp_path)
    trace = bursts_beside_a_hog()
    for cell, result in zip(cells, results, strict=True):
        setting = cell.setting(trace)
        assert isinstance(setting, Setting)
        waits = reference.simulate(trace, setting).wait
        of_users = [waits[trace.user == user].mean() for user in range(len(trace.users))]
        assert result.mean_wait == pytest.approx(np.mean(of_users))
        assert result.users.wait == pytest.approx(of_users)
        assert result.users.tasks.sum() == len(trace)


def test_a_report_is_a_self_contained_page_with_its_figures(tmp_path: Path) -> None:
    run(prepared(tmp_path), tmp_path / "cells", HERE)
    sections = write_report(tmp_path, tmp_path, papers=True)
    assert {section.name for section in sections} == {
        *("sdrf-fig-8", "sdrf-fig-9", "sdrf-fig-10", "sdrf-fig-11"),
    }
    fast = SWEEP.replace('engine = "reference"', "")
    cells = prepared(tmp_path, fast)
    for cell in cells:  # the fast path decides the same, without its compiler
        plain = replace(cell, engine="reference").file(tmp_path / "cells")
        result = json.loads(plain.read_text()) | {"engine": "fast"}
        cell.file(tmp_path / "cells").write_text(json.dumps(result))
    sections = write_report(tmp_path, tmp_path / "page", papers=True)
    names = [section.name for section in sections]
    assert names == [
        *("sdrf-fig-8", "sdrf-fig-9", "sdrf-fig-10", "sdrf-fig-11"),
        *("gains-1", "gains-2"),
    ]
    page = (tmp_path / "page" / PAGE).read_text()
    assert re.findall(r'(?:src|href)="(?!data:image/png|#)', page) == []
    assert page.count("data:image/png;base64,") == len(names)
    for name in names:
        assert (tmp_path / "page" / "figures" / f"{name}.png").read_bytes()[:4] == b"\x89PNG"
    lowers = sections[0].claims[0]
    assert "at 60%" in lowers.measured
    _, results = read_results(tmp_path)
    waits = {(r.load, r.label): r.mean_wait for r in results}
    best = min(wait for (load, label), wait in waits.items() if load == 0.6 and label != "drf")
    assert f"{100 - 100 * best / waits[0.6, 'drf']:+.1f} % less at 60%" in lowers.measured
    assert lowers.agrees is None, "one trace has no interval"
    own = write_report(tmp_path, tmp_path / "own")
    assert [section.name for section in own] == ["half-lives-1", "gains-1", "gains-2"]
    assert not any(section.claims for section in own), (
        "papers make no claims about a user's own trace"
    )
    [(_, table)] = own[0].tables
    assert table.rows[0][2] == f"{1 - best / waits[0.6, 'drf']:+.1%}"
    assert "paper" not in (tmp_path / "own" / PAGE).read_text().lower()
    with pytest.raises(ResultsError, match=r"'nope'; there are: drf, sdrf \(half_life"):
        write_report(tmp_path, tmp_path / "own", "nope")


def test_a_policy_has_one_colour_in_every_figure() -> None:
    assert colour_of("drf") == colour_of("DRF")
    few, many = styles(["sdrf (half_life 1h)"]), styles(["tsf", "drf", "sdrf (half_life 2h)"])
    assert few["sdrf (half_life 1h)"] == many["sdrf (half_life 2h)"]
    both = styles(["sdrf (half_life 1h)", "sdrf (half_life 2h)"]).values()
    assert len({style["color"] for style in both}) == 1
    assert len({str(style["linestyle"]) for style in both}) == 2
    assert len({colour_of(policy) for policy in ("drf", "sdrf", "tsf", "stsf", "fifo")}) == 5


def test_machines_and_jobs_make_the_figures_of_the_other_paper(tmp_path: Path) -> None:
    rows = [(t, 40, name, 1.0, 1.0) for t, name in enumerate(["a", "a", "b", "c", "b", "c", "a"])]
    machines = (MachineClass("big", 1, (2.0, 2.0)), MachineClass("small", 1, (1.0, 1.0)))
    trace = trace_of(rows, machines, ((0,),), {"a": 0})
    store.write(trace, tmp_path / "hog.parquet")
    text = """
title = "Jobs"
[[traces]]
path = "hog.parquet"
[[grid]]
blocking = "skip"
users = "appearing"
keep = "tasks"
engine = "reference"
policies = [
    { policy = "tsf", per = "job" },
    { policy = "drf", per = "job" },
    { policy = "fifo", per = "job" },
]
"""
    run(prepared(tmp_path, text), tmp_path / "cells", HERE)
    report = write_report(tmp_path, tmp_path, papers=True)
    sections = {section.name: section for section in report}
    assert list(sections) == ["tsf-fig-8", "tsf-fig-9", "tsf-fig-10", "tsf-fig-11"]
    _, results = read_results(tmp_path)
    jobs = results[0].jobs
    assert jobs.size.tolist() == [3, 2, 2]
    assert jobs.machines.tolist() == [1, 2, 2]
    outcome = reference.simulate(
        trace, Setting("tsf", blocking="skip", users="appearing", per="job")
    )
    assert results[0].waits == pytest.approx(outcome.wait)
    for number in range(3):
        mine = trace.job == number
        first = trace.submitted[mine].min()
        assert jobs.delay[number] == pytest.approx((outcome.started[mine].min() - first) / 1e6)
        assert jobs.completion[number] == pytest.approx(
            (outcome.finished[mine].max() - first) / 1e6
        )


@pytest.mark.parametrize("name", names())
def test_the_studies_that_come_with_longshare_can_be_read(name: str) -> None:
    sweep, _ = read_sweep(name)
    assert sweep.title
    assert sweep.grids


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        ("loads", "lodes", "lodes"),
        ('"drf"', '"lottery"', "there are: cdrf"),
        ("half_life = [60", "half_life = [-60", "half_life"),
        ("[[traces]]", "[[traces]]\nseed = 1", "traces"),
        ("loads = [0.6", "loads = [0", "greater than 0"),
        ("title", "title =", "line 2"),
    ],
)
def test_an_invalid_sweep_is_named(tmp_path: Path, old: str, new: str, complaint: str) -> None:
    assert old in SWEEP
    with pytest.raises(SweepError, match=complaint):
        prepared(tmp_path, SWEEP.replace(old, new, 1))


def test_an_unknown_sweep_is_refused_with_a_list_of_known_sweeps() -> None:
    with pytest.raises(SweepError, match="sdrf-small"):
        read_sweep("nowhere.toml")


def test_an_unknown_generator_is_refused_with_a_list_of_known_generators(tmp_path: Path) -> None:
    text = SWEEP.replace('path = "hog.parquet"', 'generate = "noise"')
    with pytest.raises(ValueError, match="google-month"):
        prepared(tmp_path, text)


def test_a_folder_without_results_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ResultsError, match="longshare sweep"):
        read_results(tmp_path)
    prepared(tmp_path)
    with pytest.raises(ResultsError, match="none of the sweep's 6 cells"):
        read_results(tmp_path)


def test_comparisons_compute_the_stated_figures() -> None:
    assert reduction(10.0, 8.0) == pytest.approx(0.2)
    assert reduction(0.0, 8.0) == 0.0
    values, parts = distribution([3.0, float("nan"), 1.0, 2.0])
    assert (values.tolist(), parts.tolist()) == ([1.0, 2.0, 3.0], [0.25, 0.5, 0.75])
    size = np.array([1, 50, 600])
    first = JobMeasures(size, size, np.zeros(3), np.array([10.0, 20.0, np.nan]))
    second = JobMeasures(size, size, np.zeros(3), np.array([5.0, 30.0, 1.0]))
    gained = by_size(size, speedup(first, second))
    assert {name: values.tolist() for name, values in gained.items()} == {
        "small": [0.5],
        "medium": [-0.5],
        "big": [],
        "huge": [],
    }


def test_equal_fair_parts_have_jains_index_1_and_a_hog_lowers_the_index() -> None:
    setting = Setting("fifo", capacity=(2.0, 1.0))
    fair = [(0.0, 100.0, user, 1.0, 0.0) for user in "ab"]
    assert windows.jain(reference.simulate(trace_of(fair), setting), setting, 50.0) == 1.0
    hog = [(0.0, 100.0, "a", 1.0, 0.0), (0.0, 100.0, "a", 1.0, 0.0), (0.0, 100.0, "b", 1.0, 0.0)]
    outcome = reference.simulate(trace_of(hog), setting)
    # Windows of 50 s; in the first two of four, b gets nothing: (1 + 0)² / (2 · 1).
    assert windows.jain(outcome, setting, 50.0) == pytest.approx((0.5 + 0.5 + 1.0 + 1.0) / 4)
    little = [(0.0, 100.0, "a", 2.0, 0.0), (100.0, 1.0, "b", 0.1, 0.0)]
    assert windows.jain(reference.simulate(trace_of(little), setting), setting, 101.0) == 1.0


def test_a_recorded_workload_is_read_if_present_and_omitted_otherwise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = SWEEP.replace('path = "hog.parquet"', 'recorded = "two.swf"')
    monkeypatch.delenv("LONGSHARE_DATA", raising=False)
    assert prepared(tmp_path, text) == []
    monkeypatch.setenv("LONGSHARE_DATA", str(tmp_path))
    assert prepared(tmp_path, text) == []
    row = "{} {} 0 60 1 -1 -1 1 -1 -1 1 {} 1 -1 -1 -1 -1 -1"
    rows = [row.format(1, 0, 7), row.format(2, 30, 8)]
    (tmp_path / "two.swf").write_text("; a comment\n" + "\n".join(rows) + "\n")
    cells = prepared(tmp_path, text)
    assert {cell.source.name for cell in cells} == {"two"}
    assert len(cells) == 6


@pytest.mark.slow
def test_a_cell_can_be_sampled_keep_windows_and_have_liars(tmp_path: Path) -> None:
    begin = SWEEP[: SWEEP.index("policies")].replace("0.6, 0.8", "0.6")
    text = begin + 'keep = "windows"\nliars = 1\n'
    text += 'policies = [{ policy = "volcano" }, { policy = "volcano", sampled = "1m" }]'
    assert run(prepared(tmp_path, text), tmp_path / "cells", HERE) == 2
    _title, results = read_results(tmp_path)
    assert [result.label for result in results] == ["volcano", "volcano (sampled: 1m)"]
    for result in results:
        assert 0.0 < result.raw["windows"]["jain"] <= 1.0
        assert len({entry["lie"] for entry in result.raw["lies"]}) == len(result.raw["lies"]) == 8
    for row in csv.DictReader(io.StringIO(rivals.table(results, "volcano"))):
        assert row["lie"] != ""
        assert row["lie_low"] == row["lie_high"] == "", "a single liar has no interval"


RIVALS = """
title = "Rivals of a hog and three others"
[[traces]]
path = "hog.parquet"
[[grid]]
loads = [0.6]
engine = "reference"
keep = "windows"
policies = [
    { policy = "drf" },
    { policy = "sdrf", half_life = "10m" },
    { policy = "volcano", half_life = "10m" },
    { policy = "volcano", half_life = "10m", sampled = "5m" },
    { policy = "volcano", half_life = "10m", sampled = "1s" },
]
"""


def test_a_report_of_other_schedulers_describes_each_policy_and_the_cost_of_sampling(
    tmp_path: Path,
) -> None:
    run(prepared(tmp_path, RIVALS), tmp_path / "cells", HERE)
    [rivals_only, *_] = write_report(tmp_path, tmp_path)
    assert rivals_only.title == "Other systems' ways of sharing: hog at 60%"
    (_, overview), (_, sampling) = rivals_only.tables
    waits = [row[0] for row in overview.rows]
    assert waits[-1] == "drf", "all other policies remember the hog"
    assert len(waits) == 5
    assert "best lie" not in overview.headings, "no lies were simulated"
    assert all(overview.headings)
    assert all(sampling.headings)
    assert [row[0] for row in sampling.rows] == [
        "volcano (half_life 10m, sampled: 5m)",
        "volcano (half_life 10m, sampled: 1s)",
    ]
    [header, *rows] = (tmp_path / "rivals.csv").read_text().splitlines()
    assert header.startswith("workload,load,seeds,policy,mean_wait_s,less,less_low,less_high")
    assert [row.split(",")[0:3] for row in rows] == [["hog", "0.6", "1"]] * 5


def test_figures_of_several_traces_have_minimum_maximum_and_mean(tmp_path: Path) -> None:
    for tasks in (20, 30, 40):
        (tmp_path / str(tasks)).mkdir()
        store.write(bursts_beside_a_hog(tasks), tmp_path / str(tasks) / "hog.parquet")
    several = "[[traces]]".join(f'\npath = "{tasks}/hog.parquet"\n' for tasks in (20, 30, 40))
    text = RIVALS.replace('\npath = "hog.parquet"\n', several)
    run(prepared(tmp_path, text), tmp_path / "cells", HERE)
    [rivals_only, *_] = write_report(tmp_path, tmp_path)
    _overview, (heading, by_trace), _sampling = rivals_only.tables
    assert heading == "Differences between traces"
    assert ("drf", "+0.0%", "[+0.0%, +0.0%]", "+0.0%", "+0.0%") in by_trace.rows
    with (tmp_path / "rivals.csv").open() as file:
        row = next(row for row in csv.DictReader(file) if row["policy"].startswith("sdrf"))
    _title, results = read_results(tmp_path)
    waits = {(r.raw["trace"], r.policy): r.mean_wait for r in results}
    traces = {trace for trace, _policy in waits}
    reductions = [1 - waits[trace, "sdrf"] / waits[trace, "drf"] for trace in traces]
    reported = {
        name: float(row[f"traces_{name}"]) for name in ("less", "low", "high", "least", "most")
    }
    assert reported["least"] == pytest.approx(min(reductions), rel=1e-5)
    assert reported["most"] == pytest.approx(max(reductions), rel=1e-5)
    assert reported["less"] == pytest.approx(sum(reductions) / 3, rel=1e-5)
    assert reported["low"] < reported["less"] < reported["high"]


def test_an_interval_contains_the_reduction_and_is_a_point_for_equal_gains() -> None:
    before = np.array([10.0, 20.0, 30.0, 40.0, 50.0, np.nan])
    assert reduction_interval([(before, before / 2)]) == (0.5, 0.5)
    few = np.array([100.0, 1.0, 1.0, 1.0, 1.0])
    low, high = reduction_interval([(few, np.array([50.0, 2.0, 2.0, 2.0, 2.0]))])
    assert low < 1 - 58.0 / 104.0 < high
    assert low <= -1.0 + 1e-12, "a resample without the gaining user has only losing users"


def test_four_users_give_no_interval_over_users() -> None:
    before = np.array([10.0, 20.0, 30.0, 40.0, np.nan])
    assert np.isnan(reduction_interval([(before, before / 2)])).all()


def test_a_comparison_names_each_user_whose_wait_changes_by_more_than_a_second() -> None:
    def fared(*waits: float) -> measures.UserMeasures:
        return measures.UserMeasures(
            ("ann", "bob", "cyd", "dan"),
            np.ones(4, np.int64),
            np.array([0.1, 0.2, 0.3, 0.4]),
            np.array(waits),
            np.array([1.0, 0.5, 1.0, 0.5]),
        )

    first, second = compared.rows(
        {"drf": fared(10.0, 10.0, 10.0, 10.0), "sdrf": fared(8.0, 15.0, 10.5, 2.0)}
    )
    assert first.saved_s == {}
    assert list(second.saved_s.items()) == [("dan", 8.0), ("ann", 2.0), ("bob", -5.0)]
    assert (second.gain, second.lose, second.mean_user_completion_ratio) == (2, 1, 0.75)


def test_a_task_counts_in_the_period_of_its_submission_and_each_user_counts_once() -> None:
    rows = [(0, "a"), (1, "a"), (2, "b"), (10, "b"), (20, "b")]
    trace = trace_of([(when, 5, user, 1, 1) for when, user in rows])
    started = np.array([2, 5, 8, 14, -1]) * 10**6
    started[-1] = NEVER
    outcome = Outcome(trace, started, np.zeros(5, np.int32), Operations())
    assert compared.period_ends(trace, 2).tolist() == [0.0, 10.0, 20.0]
    assert compared.waits_by_period(*compared.user_sums_by_period(outcome, 2)).tolist() == [
        ((2 + 4) / 2 + 6) / 2,
        4.0,
    ]
    waits = compared.waits_by_period(*compared.user_sums_by_period(outcome, 3))
    assert waits[:2].tolist() == [4.5, 4.0]
    assert np.isnan(waits[2]), "the only task of the last period never started"


def test_a_row_of_each_user_has_both_waits_and_an_interval_over_its_periods(
    tmp_path: Path,
) -> None:
    rows = [(0, "a"), (1, "a"), (2, "b"), (10, "b"), (20, "a")]
    trace = trace_of([(when, 5, user, 1, 1) for when, user in rows])

    def outcome(*waits: int) -> Outcome:
        started = trace.submitted + np.array(waits) * 10**6
        return Outcome(trace, started, np.zeros(5, np.int32), Operations())

    outcomes = {"drf": outcome(2, 4, 6, 4, 9), "sdrf": outcome(2, 0, 6, 5, 5)}
    fared = {policy: measures.of_users(result) for policy, result in outcomes.items()}
    for periods in (None, 2):
        sums = {
            policy: compared.user_sums_by_period(result, periods)
            for policy, result in outcomes.items()
            if periods is not None
        }
        compared.write_users(fared, sums, tmp_path / "users.csv")
        with (tmp_path / "users.csv").open() as file:
            written = {row["user"]: row for row in csv.DictReader(file)}
        assert set(written) == {"a", "b"}
        assert {row["policy"] for row in written.values()} == {"sdrf"}
        assert [written[user]["half"] for user in "ab"] == ["heavy", "light"]
        a, b = written["a"], written["b"]
        assert (float(a["baseline_wait_s"]), float(b["baseline_wait_s"])) == (5.0, 5.0)
        assert float(a["saved_s"]) == pytest.approx(8 / 3)
        assert float(b["saved_s"]) == pytest.approx(-0.5)
        if periods is None:
            assert a["saved_low_s"] == ""
        else:
            ends = (float(a["saved_low_s"]) + float(a["saved_high_s"])) / 2
            assert ends == pytest.approx(8 / 3), "the interval is around the user's saved seconds"
            assert float(a["saved_low_s"]) < 8 / 3 < float(a["saved_high_s"])


def test_periods_decide_together_with_the_users() -> None:
    trace = trace_of([(0, 1, "a", 1, 1), (30, 1, "a", 1, 1)])

    def overall(*after: float) -> compared.PeriodComparison:
        before = np.array([100.0, 0.0, np.nan, 50.0])
        return compared.by_period(trace, {"drf": before, "sdrf": np.array(after)})["sdrf"]

    better = overall(80.0, 0.0, np.nan, 41.0)
    assert better.ends == (0.0, 7.5, 15.0, 22.5, 30.0)
    assert np.array(better.reductions) == pytest.approx([0.2, np.nan, np.nan, 0.18], nan_ok=True)
    assert better.overall.mean == pytest.approx(29 / 150)
    assert better.overall.draws == 3, "a period without tasks does not count"
    mixed = overall(60.0, 0.0, np.nan, 60.0)

    def verdict(
        low: float, high: float, periods: compared.PeriodComparison | None, *, named: bool = False
    ) -> str:
        return compared.GroupComparison(9, 1.0, 0.2, low, high, periods).verdict(named=named)

    assert [verdict(0.1, 0.3, periods) for periods in (None, better, mixed)] == [
        *("less", "less", "undecided"),
    ]
    assert [verdict(-0.3, -0.1, periods) for periods in (None, better)] == ["longer", "undecided"]
    assert verdict(-0.1, 0.3, better) == "undecided"
    assert verdict(np.nan, np.nan, None) == "undecided"
    assert verdict(np.nan, np.nan, None, named=True) == "undecided"
    assert verdict(np.nan, np.nan, better, named=True) == "less", "its users are the question"
    other_sign = compared.GroupComparison(2, 1.0, -0.2, np.nan, np.nan, better)
    assert other_sign.verdict(named=True) == "undecided"
    idle = compared.by_period(trace, {"drf": np.zeros(2), "sdrf": np.zeros(2)})["sdrf"]
    assert verdict(0.1, 0.3, idle) == "undecided", "nobody waits"


def test_ticks_of_logarithmic_axes_are_plain_numbers_and_durations() -> None:
    figure, panels = new_figure("ticks", panels=3)
    for panel, ends in zip(panels, ((1.71701, 1.71712), (0.02, 3000.0), (60.0, 8e6)), strict=True):
        panel.plot(ends, (0.0, 1.0))
    plain_log(panels[0])
    plain_log(panels[1])
    half_life_axis(panels[2])
    figure.canvas.draw()
    labels = [[label.get_text() for label in panel.get_xticklabels()] for panel in panels]
    assert not any("10^" in text for texts in labels for text in texts)
    assert len(set(labels[0])) == len(labels[0]), "near values have different labels"
    assert {"0.1", "1,000"} <= {*labels[1]}
    assert {"1 min", "1 d"} <= {*labels[2]}


def test_axes_of_times_have_ticks_in_seconds_minutes_hours_and_days() -> None:
    figure, panels = new_figure("ticks", panels=3)
    for panel, ends in zip(panels, ((0.0, 8.0), (-90.0, 5e4), (0.0, 3e7)), strict=True):
        panel.plot(ends, (0.0, 1.0))
        time_axis(panel, "x")
    figure.canvas.draw()
    labels = [[label.get_text() for label in panel.get_xticklabels()] for panel in panels]
    assert labels == [
        ["0", "1 s", "2 s", "5 s", "10 s"],
        ["-1 min", "-1 s", "0", "1 s", "1 min", "1 h", "1 d"],
        ["0", "1 s", "1 min", "1 h", "1 d", "10 d", "100 d"],
    ]


def test_numbers_of_reports_have_no_exponents_and_durations_have_the_largest_fitting_unit() -> None:
    assert [plain(number) for number in (0.0, 0.0792, -7.36, 31.25, 1340.4, 2e7)] == [
        *("0", "0.0792", "-7.36", "31.2", "1,340", "20,000,000")
    ]
    durations = [duration(seconds) for seconds in (0.37, 60.0, 119.0, 1800.0, 7200.0, -172800.0)]
    assert durations == ["0.37 s", "1 min", "1.98 min", "30 min", "2 h", "-2 d"]
    assert [power_of_ten(value) for value in (0.1, 0.001, 2.5e-6)] == ["0.1", "10⁻³", "2.5 × 10⁻⁶"]
    rate = estimate([100.0, 2500.0])
    assert rate.written(duration) == "21.7 min [−1.74 h, 2.47 h]"


def test_six_lines_of_one_policy_differ() -> None:
    lines = styles(f"sdrf (delta {delta})" for delta in range(6))
    assert len({str(style) for style in lines.values()}) == 6


def test_a_table_without_rows_is_left_out_of_a_report() -> None:
    section = Section("gains", "Gains", tables=(("Largest losses", Table(("user",), [])),))
    assert "Largest losses" not in render("report", [section], {})


@pytest.mark.slow
@pytest.mark.parametrize("width", [360, 1280])
@pytest.mark.skipif(chromedriver() is None, reason="Chromium and chromedriver are not installed")
def test_a_report_has_no_barriers_that_a_checker_finds(tmp_path: Path, width: int) -> None:
    checker = axe()
    if checker is None:
        pytest.skip("axe-core-python is not installed, so accessibility is not checked")
    figure, _ = new_figure("A figure")
    table = Table(("policy", *[f"column {number}" for number in range(20)]), [["drf"] + ["1"] * 20])
    findings = tuple(Finding("Paper", "Here", agrees, "Why.") for agrees in (True, False, None))
    sections = [
        Section(name, name.capitalize(), ("Text.",), figure, (("A table", table),), findings)
        for name in ("first", "second")
    ]
    files = save([(section.name, figure) for section in sections], tmp_path)
    page = tmp_path / PAGE
    page.write_text(render("A report", sections, files))
    with browsing(tmp_path, width) as browser:
        browser.open(page.as_uri())
        assert browser.run("return document.documentElement.scrollWidth") == width
        assert browser.violations(checker) == []


@pytest.mark.parametrize(
    ("usage", "light"),
    [
        ([0.1, 0.4, 0.2, 0.3], [True, False, True, False]),
        ([0.5, 0.2, 0.3], [False, True, False]),
        ([0.25, 0.25, 0.25, 0.25], [False] * 4),
        ([0.1, 0.1, 0.7, 0.1 + 1e-12], [True, True, False, True]),
        ([0.0, 0.0], [False, False]),
        ([1.0], [False]),
        ([], []),
    ],
)
def test_users_of_equal_usage_are_in_the_same_half(usage: list[float], light: list[bool]) -> None:
    numbers = np.array(usage)
    users = measures.UserMeasures(
        tuple(map(str, range(len(usage)))), numbers.astype(np.int64), numbers, numbers, numbers
    )
    assert users.lighter_half().tolist() == light
