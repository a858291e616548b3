"""Quarantine: keeps the validation errors of rejected input, so that displays can explain them.

Invalid input of a framework, an agent or an operation affects only its sender. The validation error
is kept, by sender and topic, until the sender provides valid input or is removed.
"""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
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

Sender: TypeAlias = tuple[Kind, str]
"""Kind of a sender, and its ID or name."""

MOST = 10_000
"""Maximum number of senders with errors of calls and weights, whose sender need not be known. Such
errors of further senders are dropped. Other errors are kept as long as their sender is known."""
_MOST_CHANGES = 10_000
"""Number of latest changes whose senders are remembered."""
_OF_ANY_SENDER: frozenset[Topic] = frozenset({"call", "weight"})
"""Topics of errors whose sender need not be known."""


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
        self._flaws: dict[Sender, dict[Topic, ValidationError]] = {}
        self._limited = set[Sender]()
        """Senders with an error whose sender need not be known."""
        self._changed: deque[Sender] = deque(maxlen=_MOST_CHANGES)
        """Senders of the latest changes, oldest first."""
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
            if topic in _OF_ANY_SENDER:
                if len(self._limited) >= MOST and subject not in self._limited:
                    return
                self._limited.add(subject)
            self._flaws.setdefault(subject, {})[topic] = flaw
            self._note_change(subject)
        elif self._flaws and topic in (topics := self._flaws.get(subject, {})):
            del topics[topic]
            self._note_change(subject)
            if _OF_ANY_SENDER.isdisjoint(topics):
                self._limited.discard(subject)
            if not topics:
                del self._flaws[subject]

    def of(self, kind: Kind, name: str) -> list[RejectedInput]:
        """Return all current validation errors of a sender."""
        topics = self._flaws.get((kind, name), {})
        return [RejectedInput(kind, name, topic, flaw) for topic, flaw in topics.items()]

    def changed_since(self, version: int) -> list[Sender] | None:
        """Return the senders of changes after a version, oldest first; None if not remembered."""
        number = self.version - version
        if number > len(self._changed):
            return None
        return list(islice(self._changed, len(self._changed) - number, None))

    def forget(self, kind: Kind, name: str) -> None:
        """Forget the errors of a sender that was removed."""
        self._limited.discard((kind, name))
        if self._flaws.pop((kind, name), None) is not None:
            self._note_change((kind, name))

    def _note_change(self, sender: Sender) -> None:
        self.version += 1
        self._changed.append(sender)


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
