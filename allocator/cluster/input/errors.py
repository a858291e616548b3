"""What the engine raises."""


class InvalidOrder(ValueError):  # noqa: N818 - it names the order, which is what is wrong
    """An operator's order cannot be carried out; it has changed nothing."""


class InvalidEvent(ValueError):  # noqa: N818 - it names the event, which is what is wrong
    """An event is malformed or contradicts what the engine knows.

    The event has changed nothing; those before it in the same message stand. The master's
    side heals the difference by sending a snapshot.
    """


class LostTrack(InvalidEvent):
    """Events are missing or came twice: nothing that follows can be understood."""
