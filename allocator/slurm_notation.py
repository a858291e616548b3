"""Slurm's text notation: amounts, trackable resources (TRES), durations, times and job states."""

import re
from collections.abc import Mapping
from datetime import UTC, datetime, tzinfo
from functools import lru_cache

_NO_NUMBERS = ("4294967294", "4294967295", "18446744073709551614", "18446744073709551615")
"""Slurm's constants NO_VAL and INFINITE, with 32 and 64 bits. They mean that no number is set."""
NEVER = ("", "None", "Unknown", "N/A", "NONE", "UNKNOWN", "INVALID", "(null)", "0", *_NO_NUMBERS)
"""Texts that Slurm prints for a value that is not set."""
WAITING = {"PENDING", "CONFIGURING", "REQUEUE_HOLD", "REQUEUE_FED", "SPECIAL_EXIT"}
WAITING |= {"RESV_DEL_HOLD", "REVOKED", "EXPEDITING"}
"""States of jobs that hold no resources in the accounting. A revoked job ran on another cluster of
a federation. An expediting job was requeued, and starts before all other jobs (Slurm 25.11)."""
RUNNING = {"RUNNING", "SUSPENDED", "STOPPED", "SIGNALING"}
ENDED = {"COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "PREEMPTED", "DEADLINE"}
ENDED |= {"BOOT_FAIL", "OUT_OF_MEMORY", "LAUNCH_FAILED", "RECONFIG_FAIL", "COMPLETING"}
ENDED |= {"STAGE_OUT", "REQUEUED", "RESIZING"}
"""States of records with an end. REQUEUED ends an attempt, RESIZING an allocation's size."""
NO_DEMAND = {"billing", "node", "energy"}
"""Trackable resources that are no demand: derived from other resources, or measured."""
_SHORT_STATES = {
    "PD": "PENDING", "CF": "CONFIGURING", "R": "RUNNING", "S": "SUSPENDED", "ST": "STOPPED",
    "CD": "COMPLETED", "F": "FAILED", "CA": "CANCELLED", "TO": "TIMEOUT", "NF": "NODE_FAIL",
    "PR": "PREEMPTED", "DL": "DEADLINE", "BF": "BOOT_FAIL", "OOM": "OUT_OF_MEMORY",
    "CG": "COMPLETING", "RQ": "REQUEUED", "RS": "RESIZING", "RV": "REVOKED", "SO": "STAGE_OUT",
}  # fmt: skip
_MIB = {"": 1.0, "K": 2.0**-10, "M": 1.0, "G": 2.0**10, "T": 2.0**20, "P": 2.0**30}
_COUNT = {"": 1.0, "K": 2.0**10, "M": 2.0**20, "G": 2.0**30, "T": 2.0**40, "P": 2.0**50}
"""Factors of number suffixes.

Slurm prints 2048 as 2K, also for CPUs, nodes and generic resources.
"""
_AMOUNT = re.compile(r"(\d+\.?\d*|\.\d+)([KMGTP]?)")
_DURATION = re.compile(r"(?:(\d+)-)?(?:(\d+):)?(\d+):(\d+(?:\.\d*)?)")


class NotationError(ValueError):
    """Raised if a text is not in Slurm's notation; the message names what the text should be.

    Texts with similar errors have the same message, so that they are counted together.
    """


@lru_cache(4096)
def job_state(text: str) -> str:
    """Return a job's state without what Slurm appends: `CANCELLED by 1000` becomes `CANCELLED`.

    Slurm also appends `+` to a state that is too long for its column.
    """
    state = text.split(" ", maxsplit=1)[0].upper()
    if state.endswith("+"):
        whole = [name for name in (*WAITING, *RUNNING, *ENDED) if name.startswith(state[:-1])]
        state = whole[0] if len(whole) == 1 else state
    return _SHORT_STATES.get(state, state)


def duration(text: str, name: str) -> float | None:
    """Convert a duration (3600, 02:03, 01:02:03 or 1-02:03:04) to seconds; None for no value.

    Args:
        text: The duration.
        name: Name of the field, for error messages.

    Raises:
        NotationError: The text is not a duration.
    """
    if text in NEVER and text != "0":
        return None
    if text.isdecimal():
        return float(text)
    match = _DURATION.fullmatch(text)
    if match is None:
        raise NotationError(f"{name} is not a duration")
    days, hours, minutes, seconds = match.groups()
    return (int(days or 0) * 24 + int(hours or 0)) * 3600.0 + int(minutes) * 60 + float(seconds)


def instant(text: str, zone: tzinfo | None, name: str, fold: int = 0) -> float:
    """Convert a time to seconds since 1970.

    Args:
        text: The time: seconds since 1970, or ISO 8601.
        zone: Time zone of times without one; None: the time zone of this machine, with its changes
            of clocks.
        name: Name of the field, for error messages.
        fold: 1 selects the second occurrence of a local time that is repeated when clocks are set
            back.

    Raises:
        NotationError: The text is not a time.
    """
    if text.isdecimal():
        return float(text)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise NotationError(f"{name} is not a time") from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=zone, fold=fold)
    return moment.astimezone(UTC).timestamp()


@lru_cache(4096)
def trackable_resources(text: str) -> Mapping[str, str]:
    """Parse a list such as `cpu=4,gres/gpu:a100=2,mem=16G` to amounts as text, by name.

    Raises:
        NotationError: The text is not such a list.
    """
    resources: dict[str, str] = {}
    for entry in text.split(","):
        name, equals, amount = entry.strip().partition("=")
        if not equals and name.startswith("gres/"):
            name, amount = counted(name)
        if name and amount and name not in resources:
            resources[name] = amount
        elif entry.strip() and text not in NEVER:
            raise NotationError("trackable resources are not a list of NAME=AMOUNT")
    return resources


def counted(entry: str) -> tuple[str, str]:
    """Split a generic resource such as `gpu:p100:2` into name and count, both as text.

    The count is 1 if the text has none (`gpu:p100`).
    """
    name, _colon, count = entry.rpartition(":")
    return (name, count) if _AMOUNT.fullmatch(count) else (entry, "1")


def generic_resources(resources: Mapping[str, str]) -> dict[str, float]:
    """Return the amounts of GPUs and other generic resources (GRES) among trackable resources.

    A list may have the total of all kinds of GPU, amounts of each kind, or both. A kind is a model
    (`gres/gpu:a100`) or a part of a GPU (`gres/gpu:1g.5gb`). GPUs have the name `gpus`.

    Args:
        resources: Amounts as text, by name.

    Raises:
        NotationError: An amount is not a number.
    """
    totals: dict[str, float] = {}
    totals_of_kinds: dict[str, float] = {}
    for name, amount in resources.items():
        if name.startswith("gres/"):
            generic, colon, _kind = name.partition(":")
            if colon:
                totals_of_kinds[generic] = totals_of_kinds.get(generic, 0.0) + number(amount, name)
            else:
                totals[generic] = number(amount, name)
    return {
        "gpus" if name == "gres/gpu" else name: max(
            totals.get(name, 0.0), totals_of_kinds.get(name, 0.0)
        )
        for name in (*totals, *totals_of_kinds)
    }


@lru_cache(256)
def node_names(text: str) -> tuple[str, ...]:
    """Return the names of a list of nodes: `n[01-03,7],gpu1` yields n01, n02, n03, n7 and gpu1."""
    names: list[str] = []
    for entry in re.findall(r"(?:[^,\[]|\[[^\]]*\])+", text):
        together = [""]
        for place, part in enumerate(re.split(r"\[([^\]]*)\]", entry)):
            ends = _node_numbers(part) if place % 2 else [part]
            together = [f"{begin}{end}" for begin in together for end in ends]
        names += together
    return tuple(names)


def _node_numbers(text: str) -> list[str]:
    """Return the numbers of a list such as `01-03,7`, with leading zeros."""
    numbers = []
    for part in text.split(","):
        first, dash, last = part.partition("-")
        if dash and first.isdecimal() and last.isdecimal():
            width = len(first)
            numbers += [f"{number:0{width}}" for number in range(int(first), int(last) + 1)]
        else:
            numbers.append(part)
    return numbers


@lru_cache(4096)
def number(text: str, name: str) -> float:
    """Convert a number with an optional suffix, such as 2K for 2048.

    Args:
        text: The number.
        name: Name of the field, for error messages.

    Raises:
        NotationError: The text is not a number from 0 to 2^53.
    """
    match = _AMOUNT.fullmatch(text)
    is_number = match and match[1] not in _NO_NUMBERS
    value = float(match[1]) * _COUNT[match[2]] if match and is_number else -1.0
    if not 0.0 <= value < 2.0**53:
        raise NotationError(f"{name} are not numbers")
    return value


@lru_cache(4096)
def mebibytes(text: str) -> float:
    """Convert an amount of memory, such as 16G or 4000M, to MiB.

    Raises:
        NotationError: The text is not an amount of memory.
    """
    match = _AMOUNT.fullmatch(text)
    is_number = match and match[1] not in _NO_NUMBERS
    amount = float(match[1]) * _MIB[match[2]] if match and is_number else -1.0
    if not 0.0 <= amount < 2.0**53:
        raise NotationError("memory is not an amount")
    return amount
