"""Quarantine: what could not be accepted of what somebody said, kept so that it can be explained.

Whatever a framework, an agent or an operation says costs that one alone. What is wrong with it
stands here, by who said it and about what, until it says something acceptable or is gone.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeAlias

from allocator.cluster.input.errors import InvalidEvent
from allocator.cluster.input.text import shortened

Kind: TypeAlias = Literal["framework", "agent", "role", "master"]
"""Of whom something is set aside."""
Topic: TypeAlias = Literal[
    "subscription", "request", "resources", "maintenance", "answer", "weight", "call"
]
"""What it was about: each topic is made good for itself."""
Reason: TypeAlias = Literal["text", "limit", "malformed", "contradiction", "fault"]
"""Not UTF-8; beyond a limit; not what it should be; against what is known; a fault in here."""

MOST = 10_000
"""Subjects that are remembered; further ones are only counted."""


@dataclass(frozen=True, slots=True)
class ValidationError:
    """What is wrong, for programs and for people."""

    reason: Reason
    words: str

    def __post_init__(self) -> None:
        object.__setattr__(self, "words", shortened(self.words))


class RejectedInput(NamedTuple):
    """One thing that is set aside."""

    kind: Kind
    name: str
    topic: Topic
    flaw: ValidationError


class Quarantine:
    """All flaws that have not been made good, by subject and topic."""

    def __init__(self) -> None:
        self._flaws: dict[tuple[Kind, str], dict[Topic, ValidationError]] = {}

    def __iter__(self) -> Iterator[RejectedInput]:
        for (kind, name), topics in self._flaws.items():
            for topic, flaw in topics.items():
                yield RejectedInput(kind, name, topic, flaw)

    def __len__(self) -> int:
        return len(self._flaws)

    def put(self, kind: Kind, name: str, topic: Topic, flaw: ValidationError | None) -> None:
        """Say what is wrong with what somebody said about a topic; None: nothing any more."""
        subject = kind, name
        if flaw is not None:
            if subject in self._flaws or len(self._flaws) < MOST:
                self._flaws.setdefault(subject, {})[topic] = flaw
        elif self._flaws and topic in (known := self._flaws.get(subject, {})):
            del known[topic]
            if not known:
                del self._flaws[subject]

    def of(self, kind: Kind, name: str) -> list[ValidationError]:
        """Return what is wrong with what somebody said."""
        return list(self._flaws.get((kind, name), {}).values())

    def forget(self, kind: Kind, name: str) -> None:
        """Forget somebody who is gone."""
        self._flaws.pop((kind, name), None)


def in_words(error: Exception) -> str:
    """Say what went wrong, and where if nobody foresaw it."""
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
