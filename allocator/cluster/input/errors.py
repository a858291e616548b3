"""Exceptions for input that the engine cannot apply."""


class InvalidEvent(ValueError):  # noqa: N818 - the name describes the event
    """An event is malformed or contradicts the engine's state.

    The event has changed nothing; earlier events of the same message remain applied. The master's
    side resolves the difference by sending a snapshot.
    """


class LostTrack(InvalidEvent):
    """Events are missing or were received twice, so later events cannot be applied."""
