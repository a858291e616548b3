"""Sentences for people: the words of one scheduler, and its reasons why users get nothing more."""

from abc import ABC, abstractmethod
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

from allocator.contract import admin_pb2 as admin
from allocator.cooperative import Cooperative


class ClientWait(Protocol):
    """The reason why one client gets nothing more now."""

    @property
    def client(self) -> Any:  # noqa: ANN401 - each adapter has its own clients
        """The client."""

    @property
    def reason(self) -> str:
        """The reason, a key of `Wording.reasons`."""

    @property
    def idle(self) -> bool:
        """Whether the client holds no resources."""

    @property
    def lacking_resources(self) -> frozenset[str]:
        """Resources for which the client waits; empty if unknown."""

    @property
    def is_reported(self) -> bool:
        """Whether the service logs a long wait. A wait by the client's own wish is not logged."""


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """Words of one scheduler, for sentences shared by all schedulers."""

    machine: str
    """Noun for a machine, such as "agent"."""
    wants: str
    """Verb phrase for an active user: "wants offers"."""
    want: str
    """Verb phrase for several active users: "want offers"."""
    wants_nothing: str
    """Verb phrase for an inactive user: "wants no offers"."""
    assumed: str
    """Verb for an assumption about an inactive user: "does", as in "assumes that it does"."""
    gets_nothing: str
    """Verb phrase for an unserved user: "gets no offers"."""
    passed_over: str
    """Clause about a user without a machine to serve the user."""
    out_of_contact: str
    """Clause about the time without the scheduler: "no master has been connected"."""
    delays: str
    """Causes of delays of a user's turn, at the start of a sentence: "Quota and declines"."""
    remedy: str
    """Imperative for operators, for now and for good: "stop tasks; for good, set a quota"."""
    lasting_wait: str
    """Log message about a long wait of a client: "framework gets no offers"."""
    page: "PageWords"
    """Words of the status page."""


@dataclass(frozen=True, slots=True)
class PageWords:
    """Words of the status page for one scheduler."""

    machines: str
    """Heading of the number of machines: "agents"."""
    applications: str
    """Heading of the number of applications: "frameworks"."""
    wants: str
    """Heading of the column about active users: "wants offers"."""
    trail: str
    """Heading of the latest offers or starts: "Latest offers, and reasons"."""
    connected: str
    """Sentence for a scheduler in contact: "A leading master is connected."."""
    disconnected: str
    """Sentence for a scheduler out of contact."""
    clock: str
    """Owner of all displayed times: "the master's"."""


class Wording(ABC):
    """Texts about the clients of one scheduler, for explanations, forecasts, pages and logs."""

    vocabulary: ClassVar[Vocabulary]
    reasons: ClassVar[Mapping[str, str]]
    """Each reason for waiting, with a few words for tables. The first reason is the loss of the
    scheduler; then come the reasons closest to being served."""

    @abstractmethod
    def why_inactive(self, user: str) -> str:
        """Return why a user is inactive, as the end of a sentence about the user."""

    @abstractmethod
    def about_clients(self, user: str) -> Cooperative[list[str]]:
        """Return sentences about a user's clients, regardless of the time.

        Generator for cooperative steps. Events may be applied between two steps.
        """

    @abstractmethod
    def add_waits(
        self,
        explanation: admin.Explanation,
        waits: Sequence[Any],
        idle_since: Mapping[Hashable, float],
        *,
        starved: bool,
    ) -> None:
        """Add to an explanation why a user's clients get nothing more, as fields and sentences.

        Args:
            explanation: The explanation to complete.
            waits: The reasons, one for each client, as `Survey.explain` returned them.
            idle_since: client → start of the time without resources, in seconds since 1970.
            starved: Whether the user wants resources, and holds less than half of its entitlement.
        """

    @abstractmethod
    def about_gaps(self) -> str:
        """Return the rest of a sentence about a user whose task fits into no machine's free part.

        The caller puts the user's name before the text.
        """

    def kept_back(self, user: str) -> str:
        """Return sentences about free resources that are kept from a user before the order; or "".

        Args:
            user: A user of any level.
        """
        del user
        return ""

    def left_out_of_order(self) -> str:
        """Return sentences about rules that come before the order of users, or limit it; or ""."""
        return ""

    @abstractmethod
    def wait_details(self, wait: Any) -> dict[str, str]:  # noqa: ANN401 - an adapter's own
        """Return the fields of a log line about a long wait of a client."""

    @abstractmethod
    def about_unknown_user(self, user: str) -> Cooperative[str]:
        """Return a hint about an unknown user, as the end of a sentence; often empty.

        Generator for cooperative steps.
        """
