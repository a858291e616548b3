"""Reads the rows that `sacct --parsable2` prints, for the Slurm converter."""

import csv
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from allocator.simulation.formats.records import Records, UnusableError
from allocator.simulation.formats.text import LONGEST_LINE, refuse_utf_16, text_lines
from allocator.simulation.trace import TraceError

_NEEDED = ("User", "Submit", "Start", "End")
_JOBS = ("JobID", "JobIDRaw")
"""Columns that identify a job; at least one is needed. JobID also identifies the job array."""
_SIZES = ("AllocTRES", "AllocCPUS", "ReqCPUS", "NCPUS", "ReqTRES")
"""Columns that state a job's resources; at least one is needed."""
_READ = (
    *_NEEDED,
    *_JOBS,
    *_SIZES,
    "Cluster",
    "Eligible",
    "State",
    "ElapsedRaw",
    "Elapsed",
    "Suspended",
    "CPUTimeRAW",
    "CPUTime",
    "NNodes",
    "ReqMem",
    "AllocGRES",
    "ReqGRES",
)
_CANONICAL = {name.lower(): name for name in _READ}
_DELIMITERS = "|;\t,"
_MOST_LINES = 50
"""Maximum number of lines of a row. A field with line breaks takes several lines."""


class _Header:
    """The delimiter and the names of the columns of the rows below a header."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._delimiter = next((mark for mark in _DELIMITERS if len(_fields(text, mark)) > 1), "|")
        self.names = [_CANONICAL.get(name.lower(), name) for name in _fields(text, self._delimiter)]
        first: dict[str, int] = {}
        self._repeated = [
            (name, first[name], index)
            for index, name in enumerate(self.names)
            if name in _READ and first.setdefault(name, index) != index
        ]

    def check(self, path: Path, records: Records) -> None:
        """Check that no needed column is missing, and record the columns that are not read.

        Raises:
            TraceError: A column is missing; the message has the remedy.
        """
        absent = [name for name in _NEEDED if name not in self.names]
        if not set(_JOBS) & set(self.names):
            absent = ["JobID", *absent]
        if len(self.names) == 1 and {*_NEEDED, *_JOBS} & set(self._text.split()):
            raise TraceError(
                f"{path} is sacct's output of fixed width, which cuts long fields off; print it "
                "with --parsable2 (-P), or with --json"
            )
        if absent:
            raise TraceError(
                f"{path} has no column {', '.join(absent)} in its first line; "
                "docs/how-to/prepare-a-trace.md has the "
                "command that prints it"
            )
        if not set(_SIZES) & set(self.names):
            raise TraceError(f"{path} has none of the columns {', '.join(_SIZES)}")
        records.ignore(name for name in self.names if name and name not in _READ)

    def fields(self, text: str) -> list[str]:
        """Return the fields of a line."""
        return _fields(text, self._delimiter)

    def row(self, fields: list[str]) -> dict[str, str]:
        """Return a line's fields by column.

        Raises:
            UnusableError: Two columns of one name differ.
        """
        for name, first, further in self._repeated:
            if fields[first] != fields[further]:
                raise UnusableError(f"the columns named {name} differ")
        return dict(zip(self.names, fields, strict=True))


def rows(path: Path, records: Records) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield the text and the fields of each row. A row is the current record of `records`.

    Args:
        path: The file. It may consist of several files, each with a header of its own.
        records: Collects the lines that are no rows.

    Raises:
        OSError: The file cannot be read.
        TraceError: The file is UTF-16, or lacks needed columns.
    """
    refuse_utf_16(path)
    with closing(text_lines(path)) as lines:
        header = _Header(next(lines, "").rstrip("\r\n"))
        header.check(path, records)
        parts: list[tuple[int, str]] = []
        """Successive lines with fewer fields than columns, which may together be a row."""
        for number, line in enumerate(lines, 2):
            text = line.rstrip("\r\n")
            further = _further_header(text)
            fields = header.fields(text)
            missing = len(header.names) - len(fields)
            if missing > 0 and not further:
                parts.append((number, text))
                first, text = parts[0][0], "\n".join(part for _, part in parts)
                fields = header.fields(text)
                missing = len(header.names) - len(fields)
                if missing < 0 or len(parts) > _MOST_LINES or len(text) > LONGEST_LINE:
                    _leave_out(records, path, parts[:-1])
                    parts = parts[-1:]
                if missing:
                    continue
                records.begin(path.name, first)
                records.assume("a field contains line breaks: several lines are one row")
                parts = []
            else:
                _leave_out(records, path, parts)
                parts = []
                records.begin(path.name, number)
            if not line.endswith("\n"):
                records.assume("the file ends without a line break: the last row may be cut off")
            if further:
                if further.names == header.names:
                    records.leave_out("repeats the header")
                else:
                    records.leave_out("is a further header: the rows below have its columns")
                    further.check(path, records)
                    header = further
            elif missing:
                records.leave_out("has more or fewer fields than the header")
            else:
                try:
                    yield text, header.row(fields)
                except UnusableError as error:
                    records.leave_out(str(error))
        _leave_out(records, path, parts)


def _further_header(text: str) -> _Header | None:
    """Return the header that a line is; None if the line is none."""
    if "jobid" not in text.lower():
        return None
    header = _Header(text)
    return header if {*_NEEDED} <= {*header.names} else None


def _leave_out(records: Records, path: Path, lines: list[tuple[int, str]]) -> None:
    for number, _ in lines:
        records.begin(path.name, number)
        records.leave_out("has more or fewer fields than the header")


def _fields(line: str, delimiter: str) -> list[str]:
    """Return the fields of a line, without white space around them; none if a field is too long."""
    if delimiter == "|":
        fields = line.split("|")
    else:
        try:
            fields = next(csv.reader([line], delimiter=delimiter), [])
        except csv.Error:
            fields = []
    return [field.strip() for field in fields]
