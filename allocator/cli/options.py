"""Options and arguments that several commands share, with their help texts."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

DEFAULT_TIMEOUT = 10.0
"""Seconds to wait for an answer of the service."""


class Blocking(StrEnum):
    """Values of `--blocking`: what the simulator does if the next user's task does not fit."""

    HEAD_OF_LINE = "head-of-line"
    SKIP = "skip"
    HOLD = "hold"
    HOLD_ALL = "hold-all"


class CountedUsers(StrEnum):
    """Values of `--users`: users of a trace count in n from the start, or from their first task.

    n is the number of users that share the cluster.
    """

    KNOWN = "known"
    APPEARING = "appearing"


class SharingUnit(StrEnum):
    """Values of `--per`: the policy treats each user of the trace as a user, or each job."""

    USER = "user"
    JOB = "job"


Address = Annotated[
    str | None,
    typer.Option(
        "--address",
        help="Address of the service: HOST:PORT or unix:///PATH.",
        show_default="the address in --config, else LONGSHARE_ADDRESS, else 127.0.0.1:5060",
    ),
]
ConfigFile = Annotated[
    Path | None,
    typer.Option("--config", "-c", help="The service's TOML file, which has its address."),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Timeout = Annotated[
    float, typer.Option(min=0.001, max=86400.0, help="Seconds to wait for an answer.")
]
KnownUser = Annotated[str, typer.Argument(help="A user that `longshare shares` shows.")]
Duration = Annotated[
    str | None,
    typer.Option("--for", help="A duration: 90s, 30m, 2h, 7d."),
]
Since = Annotated[
    str | None,
    typer.Option(
        "--since",
        help="Start: a day (2026-11-22), an instant (2026-11-22T14:00), or a time before now (36h, "
        "7d). Times are UTC.",
        show_default="the start of this day",
    ),
]
Until = Annotated[
    str | None,
    typer.Option(
        "--until", help="End, which is not included, in the same forms.", show_default="now"
    ),
]

Policy = Annotated[
    str, typer.Option(help="Policy that orders the users; see policies.md in docs/reference.")
]
DivisiblePolicy = Annotated[
    str, typer.Option(help="tsf, stsf, cdrf, drfh, per-machine-drf, cmmf, drf or sdrf.")
]
Parameters = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        "--parameter",
        metavar="KEY=VALUE",
        help="A parameter of the policy, such as half_life=1d; repeatable.",
    ),
]
PolicyFiles = Annotated[
    list[Path] | None,
    typer.Option(
        "--policy-file",
        metavar="FILE",
        help="Python file with a policy; repeatable; see first-policy.md in docs/tutorials.",
    ),
]
Weights = Annotated[
    list[str] | None,
    typer.Option(
        "--weight",
        metavar="USER=W",
        help="A user's weight, which replaces the weight in the trace; repeatable.",
    ),
]
Commitments = Annotated[
    list[str] | None,
    typer.Option(
        "--owes",
        metavar="USER=C",
        help="A user's commitment at the start, as a fraction of the capacity; repeatable.",
    ),
]

Groups = Annotated[
    list[str] | None,
    typer.Option(
        "--group",
        metavar="NAME=USER,...",
        help="Also compare these users' mean wait, with intervals; repeatable.",
    ),
]
TraceFile = Annotated[Path, typer.Argument(metavar="TRACE", help="A Parquet file of a trace.")]
Load = Annotated[
    float | None,
    typer.Option(
        help="Replace the machines by one pool: its capacity is L times the trace's mean use. "
        "Below 1, the pool is overloaded.",
        metavar="L",
    ),
]
Capacity = Annotated[
    str | None,
    typer.Option(
        metavar="NAME=N,...",
        help="Replace the machines by one pool with this capacity, in the units of the trace: "
        "cpus=64,mem=262144. If these are MiB, memory may have a unit: mem=256G.",
        show_default="the trace's machines",
    ),
]
_BLOCKING = (
    "Rule if the next user's task does not fit. head-of-line waits, and skip tries the following "
    "users. hold and hold-all keep a machine for the task."
)
BlockingRule = Annotated[
    Blocking,
    typer.Option(
        metavar="RULE",
        help=_BLOCKING,
    ),
]
BlockingRules = Annotated[
    Blocking | None,
    typer.Option(
        metavar="RULE",
        help=_BLOCKING,
        show_default="head-of-line and skip",
    ),
]
CountingRule = Annotated[
    CountedUsers,
    typer.Option(
        metavar="WHO",
        help="Users among which the policy divides the cluster: known, all users from the start; "
        "appearing, each user from its first task on.",
    ),
]
Per = Annotated[
    SharingUnit,
    typer.Option(
        help="The policy shares between users, or between jobs (fifo: in order of submission)."
    ),
]
SamplingInterval = Annotated[
    str | None,
    typer.Option(
        metavar="TIME|original",
        help="Interval at which priorities are computed: a time such as 5m, or original for the "
        "interval of the policy's own scheduler (other-schedulers.md in docs/research).",
        show_default="at every instant",
    ),
]
