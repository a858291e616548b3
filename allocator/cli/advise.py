"""`longshare advise`: which memory serves a workload best."""

import json
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING

import typer

from allocator.cli import options
from allocator.cli.connection import USAGE, fail
from allocator.cli.parameters import by_user
from allocator.cli.simulate import capacity_of, compiled

if TYPE_CHECKING:
    from allocator.simulation.advice import Advice

_TRIALS = (12, 6)


def advise(
    trace: options.TraceFile,
    *,
    load: options.Load = None,
    capacity: options.Capacity = None,
    blocking: options.BlockingRule = options.Blocking.HEAD_OF_LINE,
    users: options.CountingRule = options.CountedUsers.KNOWN,
    weights: options.Weights = None,
    owes: options.Commitments = None,
    as_json: options.AsJson = False,
) -> None:
    """Say which half-life of SDRF makes users of a trace wait least, and how sure that is.

    Simulates DRF, and SDRF with half-lives from a minute to four times the trace's length, closer
    around the best one. What counts is the mean of users' mean waits; see docs/advice.md.

    Exit codes: 0, done; 1, memory can change nothing; 2, the trace or the setting cannot be used.
    """
    from allocator.cli.progress import bar
    from allocator.simulation import advice, fast, store
    from allocator.simulation.setting import Setting

    try:
        read = store.read(trace)
        setting = Setting(
            policy="drf",
            capacity=capacity_of(read, load, capacity),
            blocking=blocking.value,
            users=users.value,
            weights=by_user(weights, "--weight"),
            owes=by_user(owes, "--owes"),
        )
        setting.check(read)
        compiled()
        coarse, fine = _TRIALS
        done = 0
        with bar("simulating", 1 + coarse + fine, "runs") as report:

            def on_trial() -> None:
                nonlocal done
                done += 1
                report(done)

            found = advice.advise(
                read,
                setting,
                partial(fast.simulate, events=False),
                coarse=coarse,
                fine=fine,
                on_trial=on_trial,
            )
    except advice.AdviceError as error:
        fail(1, str(error))
    except (OSError, ValueError) as error:
        fail(USAGE, error)
    if as_json:
        typer.echo(json.dumps(asdict(found) | {"helps": found.helps}, indent=2))
    else:
        _show(found)


def _show(found: "Advice") -> None:
    from rich.table import Table

    from allocator.cli.tables import console
    from allocator.service.show.formatting import duration

    out = console()
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for heading in ("half-life", "1 − δ", "mean wait", "less by", "light", "heavy"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("users wait less, longer", justify="right")
    for trial in found.trials:
        mark = "bold" if trial == found.best else ""
        table.add_row(
            duration(trial.half_life_s),
            f"{1 - trial.delta:.2g}",
            duration(trial.mean_user_wait_s),
            f"{trial.reduction:+.1%}",
            f"{trial.light:+.1%}",
            f"{trial.heavy:+.1%}",
            f"{trial.waits_less}, {trial.waits_longer}",
            style=mark,
        )
    out.print(table)
    out.print(f"Under DRF users wait {duration(found.drf_wait_s)} in the mean of their means.")
    best = found.best
    if not found.helps:
        out.print("No half-life is better than DRF here: take policy drf.", highlight=False)
        return
    out.print(
        f"Best: half_life = {best.half_life_s:.0f} (δ = 1 − {1 - best.delta:.2g}): "
        f"{best.reduction:.1%} less than under DRF.",
        highlight=False,
    )
    out.print(
        f"How sure: with users drawn anew from these, it is {best.low:+.1%} to {best.high:+.1%} "
        f"less in 90 of 100 draws, and less at all in {best.better:.0f}."
        + (" This trace cannot tell whether memory helps." if best.low <= 0.0 else ""),
        highlight=False,
    )
    out.print(
        f"From {duration(found.flat_from_s)} to {duration(found.flat_to_s)} every half-life that "
        "was tried has at least nine tenths of that, so choose what suits you in between.",
        highlight=False,
    )
    if not found.interior:
        out.print(
            "The best is the first or the last that was tried: this workload is too short to tell.",
            highlight=False,
        )
