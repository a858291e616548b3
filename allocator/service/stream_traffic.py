"""Numbers of bytes of the messages on a master's stream."""

from dataclasses import dataclass

MESSAGE_BYTES = 2**8
"""Bytes that a message on a master's stream may take besides its content: frames of HTTP/2 and TLS,
and gRPC's replies to them. Large messages may take 1/32 of their content more."""


@dataclass(slots=True)
class StreamTraffic:
    """Bytes of the messages on a master's stream, and whether the master leads.

    The event loop counts the bytes. Another thread, which scans connections, reads the numbers.
    """

    received: int = 0
    """Bytes of all messages from the master, with `MESSAGE_BYTES` for each."""
    sent: int = 0
    """Bytes of all messages to the master, with `MESSAGE_BYTES` for each."""
    leads: bool = False
    """Whether the master leads."""
    noted_received: int = 0
    """Value of `received` that the latest scan has read."""
    noted_sent: int = 0
    """Value of `sent` that the latest scan has read."""

    def note_received(self, size: int) -> None:
        """Count a message from the master, of a size in bytes."""
        self.received += size + (size >> 5) + MESSAGE_BYTES

    def note_sent(self, size: int) -> None:
        """Count a message to the master, of a size in bytes."""
        self.sent += size + (size >> 5) + MESSAGE_BYTES
