"""The plugin sandbox contains failures of external policies: a failure costs a user its rank.

If a policy fails for a user, or returns an invalid priority, the user is ranked after all users for
which the policy works. Users with failures are ranked in DRF order among themselves. So a policy
that always fails behaves like `drf`. The sandbox keeps no state, so the same accounts give the same
order.
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
"""Largest absolute value that an external policy may return."""
_AFTER_ALL = 1e15
"""A priority far beyond the values that lines within `LARGEST` reach in a year."""

Value = TypeVar("Value")


class PolicyFailedError(ValueError):
    """An external policy failed during a simulation or report, which therefore has no result.

    Args:
        policy: The policy's name.
        times: Number of failures.
        latest: The latest error's message, with its file and line.
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
        """Return the failure as a JSON object, which a command prints in place of a result."""
        failed = {"policy": self.policy, "times": self.times, "latest": self.latest}
        return {"failed": failed}


def require_success(policy: Policy) -> None:
    """Raise an error if an external policy has failed, because its results are then invalid.

    A failure has changed the order of users.

    Raises:
        PolicyFailedError: The policy failed at least once.
    """
    faults = policy.faults
    if faults.count:
        raise PolicyFailedError(policy.name, faults.count, faults.latest)


def contained(kind: type[Policy], origin: Origin) -> type[Policy]:
    """Return a subclass of an external policy's class that catches the policy's errors.

    Args:
        kind: A policy class with a name.
        origin: The file or package that defines the class.

    Raises:
        ValueError: the class cannot compute priorities; the message says how to mend it.
    """
    containing = next(
        (container for base, container in _CONTAINING if issubclass(kind, base)), None
    )
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
    if issubclass(kind, KeyPolicy) and not _defines(kind, "goes_by_shares"):
        described["goes_by_shares"] = False
    return new_class(kind.__name__, bases, exec_body=lambda body: body.update(described))


class _Contained(Policy):
    """Base of wrappers that catch errors in an external policy's `measure` and `rate_of_use`.

    After an error, the user's shares are used instead.
    """

    @override
    def measure(self, account: Account) -> dict[str, float]:
        return _contained(self.faults, super().measure, account, _as_measures, account.shares.copy)

    @override
    def rate_of_use(self, account: Account) -> float:
        return _contained(
            self.faults, super().rate_of_use, account, _as_nonnegative, lambda: account.share
        )


class _ContainedKey(_Contained, KeyPolicy):
    METHODS: ClassVar[tuple[str, ...]] = ("key", "measure")

    @override
    def key(self, account: Account) -> float:
        return _contained(
            self.faults,
            super().key,  # type: ignore[safe-super]  # defined by the external class
            account,
            _as_number,
            lambda: _after_all(account),
        )


class _ContainedLine(_Contained, LinePolicy):
    METHODS: ClassVar[tuple[str, ...]] = ("line", "rate_of_use", "measure")

    @override
    def line(self, account: Account) -> tuple[float, float]:
        return _contained(
            self.faults,
            super().line,  # type: ignore[safe-super]  # defined by the external class
            account,
            _as_line,
            lambda: (_after_all(account), 0.0),
        )


class _ContainedSdrf(_Contained, Sdrf):
    METHODS: ClassVar[tuple[str, ...]] = ("measure",)


_CONTAINING: tuple[tuple[type[Policy], type[Any]], ...] = (
    (KeyPolicy, _ContainedKey),
    (LinePolicy, _ContainedLine),
    (Sdrf, _ContainedSdrf),
)


def _require_sound(kind: type[Policy], containing: type[Any]) -> None:
    """Check that an external policy's class defines all required methods, and nothing reserved.

    Args:
        kind: The external class.
        containing: The wrapper for its kind of policies, which names the permitted methods.

    Raises:
        ValueError: a method is missing, or an attribute is reserved or has a wrong type.
    """
    missing = sorted(kind.__abstractmethods__)
    if missing:
        raise ValueError(f"class {kind.__name__}: it lacks {' and '.join(missing)}(self, account)")
    allowed: tuple[str, ...] = containing.METHODS
    for base in _external_classes(kind):
        for name in vars(base):
            if name in _FLAG_NAMES and type(vars(base)[name]) is not bool:
                raise ValueError(f"class {kind.__name__}: {name} must be True or False")
            if name in _RESERVED - set(allowed):
                raise ValueError(
                    f"class {kind.__name__}: Longshare provides {name!r}; define "
                    f"{' or '.join(allowed)} instead"
                )


def _defines(kind: type[Policy], name: str) -> bool:
    """Return whether an external class, not a class of Longshare, defines an attribute."""
    return any(name in vars(base) for base in _external_classes(kind))


def _external_classes(kind: type[Policy]) -> Iterator[type[Any]]:
    """Yield a policy's class and its base classes, up to the first class of Longshare."""
    for base in kind.__mro__:
        if base.__module__.partition(".")[0] == "allocator":
            return
        yield base


_FLAG_NAMES = {"counts_tasks", "goes_by_shares", "moves_at_once", "queues", "per_machine"}
_RESERVED = {
    *(
        "attribute",
        "begins_at_mean",
        "crossing",
        "elapsed",
        "faults",
        "free_of_charge",
        "has_guarantees",
        "key",
        "least",
        "line",
        "measure",
    ),
    *("new_ranking", "origin", "phase", "priority", "rank", "rate_of_use", "rebased_after"),
    "tau",
}
"""Attributes that an external class must not define, except the methods of its kind."""


def _contained(
    faults: Faults,
    method: Callable[[Account], Value],
    account: Account,
    validate: Callable[[Value], Value],
    fallback: Callable[[], Value],
) -> Value:
    """Call an external policy's method; after a failure, record it and return a fallback.

    Args:
        faults: Counts failures.
        method: The external method.
        account: Its argument.
        validate: Returns the result if the result is valid, else raises an error.
        fallback: Returns the value to use after a failure.
    """
    try:
        return validate(method(account))
    except (Exception, SystemExit) as error:  # noqa: BLE001 - external code may raise anything
        faults.count += 1
        faults.latest = _error_text(error)
        return fallback()


def _after_all(account: Account) -> float:
    """Return the priority of a user for which a policy failed: after all valid priorities.

    Users with such priorities are in order of their dominant shares, as under DRF.
    """
    share = account.share / account.weight
    return _AFTER_ALL * (1.0 + share / (1.0 + share))


def _as_number(value: float) -> float:
    """Validate a priority that an external policy returned, and return it as a float.

    Raises:
        TypeError: the value is not a number.
        ValueError: the value is too large, infinite or NaN.
    """
    if isinstance(value, bool) or not isinstance(value, float | int):
        raise TypeError(f"{value!r} is not a number")
    if not -LARGEST <= value <= LARGEST:
        raise ValueError(f"{value} is not a number from {-LARGEST:g} to {LARGEST:g}")
    return float(value)


def _as_nonnegative(value: float) -> float:
    """Validate a number that an external policy returned, and return it as a float.

    Raises:
        TypeError: the value is not a number.
        ValueError: the value is negative, too large, infinite or NaN.
    """
    if _as_number(value) < 0:
        raise ValueError(f"{value} is less than 0")
    return float(value)


def _as_line(value: tuple[float, float]) -> tuple[float, float]:
    """Validate a pair from an external policy, a priority and its growth per second; return it."""
    if not isinstance(value, tuple) or len(value) != 2:
        raise TypeError(f"{value!r} is not a pair of a priority and its growth in a second")
    return _as_number(value[0]), _as_number(value[1])


def _as_measures(value: dict[str, float]) -> dict[str, float]:
    """Validate and return an external policy's measured values: nonnegative fractions by name."""
    if not isinstance(value, dict) or not all(isinstance(name, str) for name in value):
        raise TypeError(f"{value!r} is not a dictionary of fractions by name")
    return {name: _as_nonnegative(part) for name, part in value.items()}


def _error_text(error: BaseException) -> str:
    """Return an error's message with the policy's file and the line of the error."""
    traceback: TracebackType | None = error.__traceback__
    file, line = "", 0
    while traceback is not None:
        module = str(traceback.tb_frame.f_globals.get("__name__", ""))
        within = traceback.tb_frame.f_code.co_filename
        if file in {"", within} and module.partition(".")[0] != "allocator":
            file, line = within, traceback.tb_lineno
        traceback = traceback.tb_next
    location = f" ({file}, line {line})" if file else ""
    return f"{type(error).__name__}: {str(error)[:200]}{location}"
