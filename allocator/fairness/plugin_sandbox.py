"""Policies that others have written, contained: what goes wrong in one costs a user its place.

Where a policy fails for a user, or says what is no priority, that user comes after all for whom
it does not, and those in DRF's order. So a policy that always fails is `drf`; no state is kept,
and the same accounts give the same order.
"""

from collections.abc import Callable, Iterator
from types import TracebackType, new_class
from typing import Any, ClassVar, TypeVar

from typing_extensions import override

from allocator.fairness.account import Account
from allocator.fairness.policies.lines import LinePolicy
from allocator.fairness.policies.policy import Faults, KeyPolicy, Origin, Policy
from allocator.fairness.policies.sdrf import Sdrf

LARGEST = 1e12
"""Of what a policy from outside may say, up or down."""
_AFTER_ALL = 1e15
"""Far beyond what lines of such numbers reach in a year."""

Value = TypeVar("Value")


class PolicyFailedError(ValueError):
    """A policy from outside failed in a study, so the study has no result.

    Args:
        policy: The policy's name.
        times: How often the policy failed.
        latest: The latest error, with its file and line.
    """

    def __init__(self, policy: str, times: int, latest: str) -> None:
        super().__init__(policy, times, latest)
        self.policy = policy
        self.times = times
        self.latest = latest

    @override
    def __str__(self) -> str:
        return f"policy {self.policy!r} failed, so there is no result: {self.latest}"

    def summary(self) -> dict[str, object]:
        """Return what a study prints as JSON in place of a result."""
        failed = {"policy": self.policy, "times": self.times, "latest": self.latest}
        return {"failed": failed}


def require_success(policy: Policy) -> None:
    """Refuse the results of a policy that has failed: the order of users was not the policy's.

    Raises:
        PolicyFailedError: The policy failed at least once.
    """
    faults = policy.faults
    if faults.count:
        raise PolicyFailedError(policy.name, faults.count, faults.latest)


def adopted(kind: type[Policy], origin: Origin) -> type[Policy]:
    """Return a policy's class whose mistakes are contained.

    Args:
        kind: A class with a name.
        origin: Where it is from.

    Raises:
        ValueError: it cannot be asked what its users' priorities are; the message says what would
            do.
    """
    containing = next((each for base, each in _CONTAINING if issubclass(kind, base)), None)
    if containing is None:
        raise ValueError(
            f"class {kind.__name__}: a policy is a KeyPolicy, a LinePolicy or an Sdrf; derive it "
            "from one of these"
        )
    _require_sound(kind, containing)
    bases = (containing, kind)
    described: dict[str, object] = {
        "__doc__": kind.__doc__,
        "__module__": kind.__module__,
        "origin": origin,
    }
    if issubclass(kind, KeyPolicy) and not _says(kind, "goes_by_shares"):
        described["goes_by_shares"] = False
    return new_class(kind.__name__, bases, exec_body=lambda body: body.update(described))


class _Contained(Policy):
    """What all kinds have in common."""

    @override
    def measure(self, account: Account) -> dict[str, float]:
        return _contained(self.faults, super().measure, account, _measures, account.shares.copy)

    @override
    def rate_of_use(self, account: Account) -> float:
        return _contained(
            self.faults, super().rate_of_use, account, _not_negative, lambda: account.share
        )


class _ContainedKey(_Contained, KeyPolicy):
    SAYS: ClassVar[tuple[str, ...]] = ("key", "measure")

    @override
    def key(self, account: Account) -> float:
        return _contained(
            self.faults,
            super().key,  # type: ignore[safe-super]  # of the class that is contained
            account,
            _number,
            lambda: _after_all(account),
        )


class _ContainedLine(_Contained, LinePolicy):
    SAYS: ClassVar[tuple[str, ...]] = ("line", "rate_of_use", "measure")

    @override
    def line(self, account: Account) -> tuple[float, float]:
        return _contained(
            self.faults,
            super().line,  # type: ignore[safe-super]  # likewise
            account,
            _line,
            lambda: (_after_all(account), 0.0),
        )


class _ContainedSdrf(_Contained, Sdrf):
    SAYS: ClassVar[tuple[str, ...]] = ("measure",)


_CONTAINING: tuple[tuple[type[Policy], type[Any]], ...] = (
    (KeyPolicy, _ContainedKey),
    (LinePolicy, _ContainedLine),
    (Sdrf, _ContainedSdrf),
)


def _require_sound(kind: type[Policy], containing: type[Any]) -> None:
    missing = sorted(kind.__abstractmethods__)
    if missing:
        raise ValueError(f"class {kind.__name__}: it lacks {' and '.join(missing)}(self, account)")
    says: tuple[str, ...] = containing.SAYS
    for each in _theirs(kind):
        for name in vars(each):
            if name in _FLAGS and type(vars(each)[name]) is not bool:
                raise ValueError(f"class {kind.__name__}: {name} is True or False")
            if name in _OURS - set(says):
                raise ValueError(
                    f"class {kind.__name__}: Longshare itself does what {name!r} does; write "
                    f"{' or '.join(says)} instead"
                )


def _says(kind: type[Policy], name: str) -> bool:
    return any(name in vars(each) for each in _theirs(kind))


def _theirs(kind: type[Policy]) -> Iterator[type[Any]]:
    """Go through the classes that a policy is made of, up to the first of ours."""
    for each in kind.__mro__:
        if each.__module__.partition(".")[0] == "allocator":
            return
        yield each


_FLAGS = {"counts_tasks", "goes_by_shares", "moves_at_once", "queues", "per_machine"}
_OURS = {
    *(
        "attribute",
        "crossing",
        "elapsed",
        "faults",
        "free_of_charge",
        "key",
        "least",
        "line",
        "measure",
    ),
    *("new_ranking", "origin", "phase", "priority", "rank", "rate_of_use", "rebased_after"),
    *("tau", "welcome"),
}
"""What a class from outside may not say, but for what its kind is there for."""


def _contained(
    faults: Faults,
    ask: Callable[[Account], Value],
    account: Account,
    sound: Callable[[Value], Value],
    instead: Callable[[], Value],
) -> Value:
    try:
        return sound(ask(account))
    except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever others' code does
        faults.count += 1
        faults.latest = _described(error)
        return instead()


def _after_all(account: Account) -> float:
    """Return a priority that is beyond all others', and ordered as by DRF."""
    share = account.share / account.weight
    return _AFTER_ALL * (1.0 + share / (1.0 + share))


def _number(value: float) -> float:
    """Accept a number that priorities can be.

    Raises:
        TypeError: it is no number.
        ValueError: it is too large, infinite, or not a number after all.
    """
    if isinstance(value, bool) or not isinstance(value, float | int):
        raise TypeError(f"{value!r} is not a number")
    if not -LARGEST <= value <= LARGEST:
        raise ValueError(f"{value} is not a number from {-LARGEST:g} to {LARGEST:g}")
    return float(value)


def _not_negative(value: float) -> float:
    if _number(value) < 0:
        raise ValueError(f"{value} is less than 0")
    return float(value)


def _line(value: tuple[float, float]) -> tuple[float, float]:
    if not isinstance(value, tuple) or len(value) != 2:
        raise TypeError(f"{value!r} is not a pair of a priority and its growth in a second")
    return _number(value[0]), _number(value[1])


def _measures(value: dict[str, float]) -> dict[str, float]:
    if not isinstance(value, dict) or not all(isinstance(name, str) for name in value):
        raise TypeError(f"{value!r} is not a dictionary of fractions by name")
    return {name: _not_negative(part) for name, part in value.items()}


def _described(error: BaseException) -> str:
    """Return what went wrong, and where in the policy's file."""
    step: TracebackType | None = error.__traceback__
    file, line = "", 0
    while step is not None:
        module = str(step.tb_frame.f_globals.get("__name__", ""))
        within = step.tb_frame.f_code.co_filename
        if file in {"", within} and module.partition(".")[0] != "allocator":
            file, line = within, step.tb_lineno
        step = step.tb_next
    where = f" ({file}, line {line})" if file else ""
    return f"{type(error).__name__}: {str(error)[:200]}{where}"
