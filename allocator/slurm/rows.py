"""Rows of Slurm's output, with texts from users.

Slurm prints account names and job names unchanged, with separators, line breaks, and invalid UTF-8.
No text from a user may change the meaning of another row.
"""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from hashlib import blake2b

COLUMN_END = "\0"
"""Ends each column of a row. The client replaces a random text by this character. No text from a
user has this character, because Slurm's texts end there."""
_ROW_END = COLUMN_END + "\n"
_END_BYTES = _ROW_END.encode()
_LONGEST_NAME = 255
"""Maximum length of a name. Longer names are cut, and end with a hash."""
_REMEMBERED = 10_000
"""Maximum number of remembered rejections. A remembered record is not counted again."""
_MOST_REASONS = 100
"""Maximum number of reasons that are kept until they are taken."""
_LONGEST_EXCERPT = 300
_LONGEST_REASON = 1000
SOURCES = ("squeue", "scontrol", "sacct", "sacctmgr", "jobcomp")
"""Commands whose records may be rejected, and the file of `jobcomp/filetxt`."""


class ShapeError(ValueError):
    """A command of Slurm printed something else than expected; the message names the field."""


class UnreadableRowsError(ShapeError):
    """Unreadable rows are a majority of the rows, and from a majority of the users."""


class RejectedRecords:
    """Counts unreadable records. A record counts once, although each reading shows the record."""

    def __init__(self) -> None:
        self.counts = Counter[str]()
        """Number of rejected records by source."""
        self._remembered: dict[bytes, None] = {}
        """Hashes of reasons."""
        self._number = 0
        """Number of rejections since `take_new`."""
        self._reasons: list[str] = []
        """The first of their reasons."""

    def add(self, source: str, reason: str) -> None:
        """Count a record at its first rejection.

        Args:
            source: The command or file.
            reason: The reason, which names the record.
        """
        key = blake2b(reason.encode(errors="surrogateescape"), digest_size=16).digest()
        if key in self._remembered:
            return
        if len(self._remembered) >= _REMEMBERED:
            del self._remembered[next(iter(self._remembered))]
        self._remembered[key] = None
        self.counts[source] += 1
        self._number += 1
        if len(self._reasons) < _MOST_REASONS:
            self._reasons.append(reason)

    def add_rows(
        self,
        source: str,
        reasons: Mapping[str, Sequence[str]],
        users: Collection[str],
        readable: int,
    ) -> None:
        """Count unreadable rows, unless Slurm's output as a whole has another shape.

        Args:
            source: The command.
            reasons: Reasons, which name the row, by the user of the row.
            users: The users of all other rows.
            readable: Number of all other rows.

        Raises:
            UnreadableRowsError: More than half of the rows are unreadable, and more than half of
                the users have unreadable rows.
        """
        unreadable = sum(map(len, reasons.values()))
        if unreadable > readable and 2 * len(reasons) > len(reasons.keys() | set(users)):
            raise UnreadableRowsError(next(iter(reasons.values()))[0])
        for group in reasons.values():
            for reason in group:
                self.add(source, reason)

    def take_new(self) -> tuple[int, list[str]]:
        """Return the number of rejections since the previous call, and the first reasons."""
        number, self._number = self._number, 0
        reasons, self._reasons = self._reasons, []
        return number, reasons


def split_rows(printed: bytes, columns: int, source: str) -> Iterator[str]:
    """Yield rows with `COLUMN_END` between their columns; `surrogateescape` decodes invalid UTF-8.

    Each row is decoded on its own. In a text of all rows, one wide character of one user would
    multiply the memory of all characters by four.

    Args:
        printed: Output in which `COLUMN_END` ends each column, and a line break ends each row.
        columns: Number of columns.
        source: The command, for error messages.

    Raises:
        ShapeError: A row has another number of columns.
    """
    last = printed.rfind(_END_BYTES)
    rest = printed[last + len(_END_BYTES) :] if last >= 0 else printed
    if rest.strip():
        raise ShapeError(f"{source} printed a row without an end: {excerpt(decoded(rest))}")
    row, counted = "", 0
    for part in _parts(printed):
        # A column of a user may begin with a line break, so a part may be shorter than a row.
        row = f"{row}{_ROW_END}{part}" if counted else part
        counted = row.count(COLUMN_END) + 1
        if counted == columns:
            yield row
            row, counted = "", 0
        elif counted > columns:
            break
    if counted:
        found = row.partition(_ROW_END)[0].count(COLUMN_END) + 1
        raise ShapeError(f"{source} printed {found} columns instead of {columns}: {excerpt(row)}")


def _parts(printed: bytes) -> Iterator[str]:
    """Yield the texts before each `_ROW_END`, without a copy of the whole output."""
    start = 0
    while (end := printed.find(_END_BYTES, start)) >= 0:
        yield decoded(printed[start:end])
        start = end + len(_END_BYTES)


def decoded(printed: bytes) -> str:
    """Return the text of printed bytes; `surrogateescape` decodes invalid UTF-8."""
    return printed.decode(errors="surrogateescape")


def reason_of(error: Exception) -> str:
    """Return the message of an error, cut.

    Readers keep reasons, not errors: an error keeps the row, and all variables of the reader.
    """
    return str(error)[:_LONGEST_REASON]


def excerpt(text: str) -> str:
    """Return the beginning of a text with escapes, for error messages."""
    return repr(text[:_LONGEST_EXCERPT])


def plain_name(text: str) -> str:
    r"""Return a name as printable UTF-8. Different names stay different.

    Percent signs and the bytes of unprintable characters are percent-encoded: `%25`, `%0A`, `%FF`.

    Args:
        text: A name. `surrogateescape` has decoded invalid UTF-8.
    """
    if len(text) <= _LONGEST_NAME and text.isprintable() and "%" not in text:
        return text
    name = "".join(
        character if character.isprintable() and character != "%" else percent_encoded(character)
        for character in text
    )
    return shortened(name, text)


def shortened(name: str, text: str) -> str:
    """Return a name of at most 255 characters. A longer name is cut, and ends with a hash.

    Args:
        name: The printable name.
        text: The text that the name stands for.
    """
    if len(name) <= _LONGEST_NAME:
        return name
    hashed = blake2b(text.encode(errors="surrogateescape"), digest_size=16).hexdigest()
    return f"{name[:200]}%~{hashed}"


def percent_encoded(text: str) -> str:
    """Return the bytes of a text as `%XX`."""
    return "".join(f"%{byte:02X}" for byte in text.encode(errors="surrogateescape"))
