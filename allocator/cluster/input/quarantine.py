"""Quarantine: keeps the validation errors of rejected input, so that displays can explain them.

Invalid input of a framework, an agent or an operation affects only its sender. The validation error
is kept, by sender and topic, until the sender provides valid input or is removed.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeAlias

from allocator.cluster.input.errors import InvalidEvent
from allocator.formatting import shortened

Kind: TypeAlias = Literal["framework", "agent", "role", "master"]
"""The kind of sender whose input is rejected."""
Topic: TypeAlias = Literal[
    "subscription", "request", "resources", "maintenance", "answer", "weight", "call"
]
"""The topic of the input; each topic is cleared separately."""
Reason: TypeAlias = Literal["text", "limit", "malformed", "contradiction", "fault"]
"""Why input is rejected: not UTF-8; over a limit; malformed; contradicts known state; internal
error."""

MOST = 10_000
"""Maximum number of senders with validation errors; errors of further senders are dropped."""


@dataclass(frozen=True, slots=True)
class ValidationError:
    """Why input of a framework, agent or operator was rejected.

    The error has a reason for programs, and an explanation for people.
    """

    reason: Reason
    """The kind of error, for programs."""
    words: str
    """The error message, for people; shortened if very long."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "words", shortened(self.words))


class RejectedInput(NamedTuple):
    """One entry of the quarantine: the sender, the topic, and the validation error."""

    kind: Kind
    name: str
    """ID or name of the sender."""
    topic: Topic
    flaw: ValidationError


class Quarantine:
    """All current validation errors, by sender (kind and name) and topic."""

    def __init__(self) -> None:
        self._flaws: dict[tuple[Kind, str], dict[Topic, ValidationError]] = {}
        self.version = 0
        """Number of changes."""

    def __iter__(self) -> Iterator[RejectedInput]:
        for (kind, name), topics in self._flaws.items():
            for topic, flaw in topics.items():
                yield RejectedInput(kind, name, topic, flaw)

    def __len__(self) -> int:
        return len(self._flaws)

    def put(self, kind: Kind, name: str, topic: Topic, flaw: ValidationError | None) -> None:
        """Replace the validation error of a sender for one topic; None clears the error.

        Args:
            kind: The kind of sender.
            name: The sender's ID or name.
            topic: The part of the input that is invalid.
            flaw: The error in the input; None if the input is valid now.
        """
        subject = kind, name
        if flaw is not None:
            if subject in self._flaws or len(self._flaws) < MOST:
                self._flaws.setdefault(subject, {})[topic] = flaw
                self.version += 1
        elif self._flaws and topic in (topics := self._flaws.get(subject, {})):
            del topics[topic]
            self.version += 1
            if not topics:
                del self._flaws[subject]

    def of(self, kind: Kind, name: str) -> list[ValidationError]:
        """Return all current validation errors of a sender."""
        return list(self._flaws.get((kind, name), {}).values())

    def forget(self, kind: Kind, name: str) -> None:
        """Forget the errors of a sender that was removed."""
        if self._flaws.pop((kind, name), None) is not None:
            self.version += 1


def describe_error(error: Exception) -> str:
    """Return a text for an error message; for an unexpected exception, with type, file and line."""
    if isinstance(error, InvalidEvent):
        return str(error)
    innermost = error.__traceback__
    while innermost is not None and innermost.tb_next is not None:
        innermost = innermost.tb_next
    where = ""
    if innermost is not None:
        file = innermost.tb_frame.f_code.co_filename.rpartition("/")[2]
        where = f" in {file}, line {innermost.tb_lineno}"
    return shortened(f"{type(error).__name__}{where}: {error}")
