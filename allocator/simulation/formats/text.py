"""Reads text files in columns, in batches, with line numbers and checks of fields."""

import codecs
import csv
import io
import itertools
import json
import lzma
import re
import stat
import zipfile
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import tzinfo
from pathlib import Path
from typing import IO, Any, Literal
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
from numpy.typing import NDArray
from typing_extensions import override

from allocator.simulation.formats.conversion import SkippedRows, Text
from allocator.simulation.trace import MICROSECONDS, TraceError
from allocator.slurm_notation import NotationError, instant, mebibytes

LONGEST = 2**53
"""Longest time in microseconds (285 years) up to which float64 seconds distinguish microseconds."""

LONGEST_LINE = 1 << 22
"""Maximum length of a line with its end. Slurm limits a submit line to 2²⁰ bytes."""
_BLOCK = 1 << 24
"""Number of bytes of text to read at a time."""
_INFLATED = 1 << 26
"""Number of bytes to which any compressed file may inflate."""
_MOST_INFLATION = 1000
"""Number of times its own size to which a larger file may inflate. Verbose JSON of jobs can inflate
600 times (xz), repetitions without end 7,000 times."""

_COMPRESSIONS = {b"\x1f\x8b": "gzip", b"BZh": "bz2", b"\x28\xb5\x2f\xfd": "zstd"}
"""pyarrow's names of compressions by the first bytes of a file."""
_SEPARATORS = ",;\t|"
_NEEDED = {"user", "machine"}
"""Columns of which one is in each CSV of tasks, users or machines."""
_SUFFIXES = {".gz", ".bz2", ".zst", ".xz", ".zip"}
_XZ = b"\xfd7zXZ\x00"
_ZIP = (b"PK\x03\x04", b"PK\x05\x06")
_PARQUET = b"PAR1"
_WORKBOOK = "[Content_Types].xml"
"""A file in each workbook of Excel."""
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"

_NUMBER = r"^-?(\d+\.?\d*|\.\d+)([eE][-+]?\d{1,3})?$"
_INTEGER = r"^-?\d{1,18}$"
_LARGEST = str(2**63 - 1)
_WITH_UNIT = r"^(\d+\.?\d*|\.\d+) ?([KMGTP])(i?[bB])?$"


@dataclass(frozen=True)
class Rows:
    """A batch of input rows, without the rows that have a wrong number of fields.

    Args:
        lines: Line number of each row in the file, from 1.
        columns: Columns by name; fields have no surrounding white space.
    """

    lines: NDArray[np.int64]
    columns: dict[str, Text]

    def __len__(self) -> int:
        return len(self.lines)


@contextmanager
def opened(path: Path) -> Iterator[IO[bytes]]:
    """Open a file for reading; decompress gzip, bzip2, xz, Zstandard and zip files.

    The first bytes of the file tell the compression, because a name may lack the ending. A zip file
    must contain exactly one file.

    Raises:
        OSError: The file cannot be read.
        TraceError: The file cannot be decompressed, is a zip file of several files, or is a pipe.
            The file inflates to much more than its own size.
    """
    if str(path) == "-" or stat.S_ISFIFO(path.stat().st_mode):
        raise TraceError(
            f"{path} is a pipe, and a converter reads its source several times; save the output "
            "to a file, and convert the file"
        )
    with path.open("rb") as raw:
        begin = raw.read(8)
    try:
        if begin.startswith(_PARQUET):
            raise TraceError(
                f"{path} is a Parquet file; if it is a trace of Longshare, it needs no conversion"
            )
        if begin.startswith(_ZIP):
            with zipfile.ZipFile(path) as archive:
                names = archive.namelist()
                if _WORKBOOK in names:
                    raise TraceError(f"{path} is a workbook of Excel; save its sheet as CSV")
                if len(names) != 1:
                    raise TraceError(f"{path} holds {len(names)} files, not one; unpack it first")
                with archive.open(names[0]) as file:
                    yield _limited(file, path)
        elif begin.startswith(_XZ):
            with lzma.open(path) as file:
                yield _limited(file, path)
        else:
            magics = [magic for magic in _COMPRESSIONS if begin.startswith(magic)]
            if not magics and path.suffix.lower() in _SUFFIXES:
                raise TraceError(f"{path} cannot be read: it is not compressed, as its name says")
            compression = _COMPRESSIONS[magics[0]] if magics else None
            with pa.input_stream(str(path), compression=compression) as stream:
                yield _limited(stream, path) if magics else stream
    except (OSError, EOFError, lzma.LZMAError, zipfile.BadZipFile) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise
        raise TraceError(f"{path} cannot be read: {error}") from error


class _Inflated(io.RawIOBase):
    """A decompressed file that refuses to inflate to much more than the compressed file's size.

    Args:
        file: The decompressed file.
        path: Path of the compressed file.
    """

    def __init__(self, file: IO[bytes], path: Path) -> None:
        super().__init__()
        self._file = file
        self._path = path
        self._most = max(_INFLATED, _MOST_INFLATION * path.stat().st_size)
        self._read = 0

    @override
    def readable(self) -> bool:
        return True

    @override
    def readinto(self, buffer: Any) -> int:
        block = self._file.read(len(buffer))
        self._read += len(block)
        if self._read > self._most:
            raise TraceError(
                f"{self._path} inflates to more than {self._most:,} bytes; if it is intact, "
                "decompress it first, and convert the decompressed file"
            )
        buffer[: len(block)] = block
        return len(block)


def _limited(file: IO[bytes], path: Path) -> IO[bytes]:
    """Return a decompressed file with a limit on its size; see `_Inflated`."""
    return io.BufferedReader(_Inflated(file, path), 1 << 17)


def text_lines(path: Path, newline: str | None = None) -> Generator[str, None, None]:
    r"""Iterate over the lines of a text file, with their line ends.

    Args:
        path: The file; may be compressed, as for `opened`.
        newline: None to end each line with LF; "" to keep the line ends of the file.

    Raises:
        OSError: The file cannot be read.
        TraceError: The file cannot be decompressed, or has a line beyond `LONGEST_LINE`.
    """
    with opened(path) as file:
        text = io.TextIOWrapper(file, "utf-8-sig", "backslashreplace", newline)
        for number in itertools.count(1):
            line = text.readline(LONGEST_LINE + 1)
            if len(line) > LONGEST_LINE:
                raise _too_long(path, number)
            if not line:
                return
            yield line


def _too_long(path: Path, line: int) -> TraceError:
    return TraceError(
        f"{path}:{line}: the line has more than {LONGEST_LINE:,} characters; check that the file "
        "is text in lines, and remove the line"
    )


def _escaped_in_json(error: UnicodeError) -> tuple[str, int]:
    r"""Replace invalid bytes of JSON by a text that the parser reads as `\xFC`.

    Names in another encoding than UTF-8 then stay different.
    """
    if not isinstance(error, UnicodeDecodeError):
        raise error
    invalid = error.object[error.start : error.end]
    return "".join(rf"\\x{byte:02x}" for byte in invalid), error.end


_ESCAPED_IN_JSON = "longshare.escaped_in_json"
codecs.register_error(_ESCAPED_IN_JSON, _escaped_in_json)


def json_values(path: Path, printed_by: str) -> Iterator[Any]:
    """Iterate over the successive JSON values in a file.

    Args:
        path: The file; may be compressed, as for `opened`.
        printed_by: The command that prints such a file, for error messages.

    Raises:
        OSError: The file cannot be read.
        TraceError: The file cannot be decompressed, or a value is not JSON.
    """
    with opened(path) as file:
        content = file.read()
    try:
        encoding = json.detect_encoding(content)
        text = content.decode(encoding, _ESCAPED_IN_JSON).removeprefix("\ufeff")
        decoder = json.JSONDecoder()
        position = _next_value(text, 0)
        while position < len(text):
            value, position = decoder.raw_decode(text, position)
            yield value
            position = _next_value(text, position)
    except (ValueError, RecursionError) as error:
        raise TraceError(f"{path} is not JSON, as {printed_by} prints it: {error}") from None


def _next_value(text: str, position: int) -> int:
    while position < len(text) and text[position].isspace():
        position += 1
    return position


def refuse_utf_16(path: Path) -> None:
    """Check the first bytes of a text file. Output that PowerShell redirects to a file is UTF-16.

    Raises:
        OSError: The file cannot be read.
        TraceError: The file is UTF-16, or cannot be decompressed.
    """
    with opened(path) as file:
        if file.read(2) in {b"\xff\xfe", b"\xfe\xff"}:
            raise TraceError(f"{path} is UTF-16; save it as UTF-8")


def contains(path: Path, text: bytes) -> bool:
    """Return whether a file contains a text.

    Raises:
        OSError: The file cannot be read.
        TraceError: The file cannot be decompressed.
    """
    end = b""
    with opened(path) as file:
        while block := file.read(_BLOCK):
            if text in end + block[: len(text)] or text in block:
                return True
            end = block[-len(text) :]
    return False


def header(path: Path) -> tuple[str, ...]:
    """Return the column names in the first line of a file.

    The names may be separated by commas, semicolons, tabs or bars.

    Raises:
        OSError: The file cannot be read.
        TraceError: The file cannot be decompressed.
    """
    line = _first_line(path)
    names = next(csv.reader([line], delimiter=_delimiter(line)), [])
    return tuple(name.strip() for name in names)


def delimiter(path: Path) -> str:
    """Detect the separator in the first line of a file: a comma, semicolon, tab or bar.

    Raises:
        OSError: The file cannot be read.
        TraceError: The file cannot be decompressed.
    """
    return _delimiter(_first_line(path))


def _first_line(path: Path) -> str:
    refuse_utf_16(path)
    with opened(path) as file:
        line = file.read(1 << 16).splitlines()[:1]
    return b"".join(line).decode("utf-8-sig", "backslashreplace")


def _delimiter(line: str) -> str:
    """Return the separator with which a header has a needed column, or else the most columns."""
    columns = {mark: next(csv.reader([line], delimiter=mark), []) for mark in _SEPARATORS}
    needed = [mark for mark in _SEPARATORS if _NEEDED & {name.strip() for name in columns[mark]}]
    return max(needed or _SEPARATORS, key=lambda mark: len(columns[mark]))


def separated(
    path: Path,
    names: Sequence[str],
    left_out: SkippedRows,
    *,
    headed: bool = False,
    delimiter: str = ",",
) -> Iterator[Rows]:
    """Read a file with separated fields in batches. Rows with a wrong number of fields are skipped.

    Args:
        path: The file; may be compressed, as for `opened`.
        names: Names of the columns, in order.
        left_out: Collects the rows that were skipped.
        headed: True to skip the first line, which is a header.
        delimiter: The separator between fields.

    Raises:
        OSError: The file cannot be read.
        TraceError: The file is not text in columns.
    """
    invalid: list[int] = []

    def leave_out(row: Any) -> Literal["skip"]:  # noqa: ANN401 - pyarrow has no types
        invalid.append(row.number)
        return "skip"

    with opened(path) as file:
        if not file.read(1):
            return
    reported = 0
    read = 0
    with opened(path) as file:
        try:
            reader = pyarrow.csv.open_csv(
                file,
                pyarrow.csv.ReadOptions(
                    use_threads=False,  # otherwise invalid rows have no number
                    block_size=_BLOCK,
                    column_names=list(names),
                    skip_rows=int(headed),
                ),
                pyarrow.csv.ParseOptions(
                    delimiter=delimiter, invalid_row_handler=leave_out, ignore_empty_lines=False
                ),
                pyarrow.csv.ConvertOptions(
                    column_types=dict.fromkeys(names, pa.binary()), strings_can_be_null=False
                ),
            )
            for batch in reader:
                odd_positions = np.array(invalid) - 1 - np.arange(len(invalid)) - headed
                positions = np.arange(read, read + len(batch))
                lines = (
                    positions + 1 + headed + np.searchsorted(odd_positions, positions, side="right")
                )
                read += len(batch)
                yield Rows(lines, {name: _text(batch.column(name)) for name in names})
                left_out.add(
                    f"not {len(names)} fields", path.name, np.array(invalid[reported:], np.int64)
                )
                reported = len(invalid)
        except pa.ArrowInvalid as error:
            if "straddling" in str(error):
                raise _too_long(path, read + len(invalid) + 1 + headed) from error
            raise TraceError(f"{path}, after {read} rows: {error}") from error
    left_out.rows_read += read + len(invalid)
    left_out.add(f"not {len(names)} fields", path.name, np.array(invalid[reported:], np.int64))


def spaced(
    path: Path, names: Sequence[str], comment: bytes, left_out: SkippedRows
) -> Iterator[Rows]:
    """Read a file with white space between fields, in batches.

    A line ends with LF, CR LF, or CR. Empty lines and comment lines do not count as rows.

    Args:
        path: The file; may be compressed, as for `opened`.
        names: Names of the columns, in order.
        comment: Prefix of comment lines.
        left_out: Collects the rows that were skipped, because their number of fields is wrong.

    Raises:
        OSError: The file cannot be read.
        TraceError: The file is UTF-16, or cannot be decompressed.
    """
    refuse_utf_16(path)
    with opened(path) as file:
        for first, raw in _whole_lines(file, path):
            lines = np.array(
                [
                    line
                    for line, row in enumerate(raw, first)
                    if row.strip() and not row.lstrip().startswith(comment)
                ],
                np.int64,
            )
            rows = pa.array([raw[index] for index in (lines - first).tolist()], pa.binary())
            fields = pc.utf8_split_whitespace(_text(rows))
            valid = _array(pc.equal(pc.list_value_length(fields), len(names)))
            left_out.rows_read += len(lines)
            left_out.add(f"not {len(names)} fields", path.name, lines[~valid])
            whole = fields.filter(pa.array(valid))
            yield Rows(
                lines[valid],
                {name: pc.list_element(whole, index) for index, name in enumerate(names)},
            )


def integers(column: Text) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Convert a column of text to whole numbers.

    Returns:
        The numbers; and a mask of fields that are not 64-bit integers, which become 0.
    """
    try:
        return _array(column.cast(pa.int64())), np.zeros(len(column), np.bool_)
    except pa.ArrowInvalid:
        long = pc.and_(
            pc.match_substring_regex(column, r"^\d{19}$"), pc.less_equal(column, _LARGEST)
        )
        valid = pc.or_(pc.match_substring_regex(column, _INTEGER), long)
        return _array(pc.if_else(valid, column, "0").cast(pa.int64())), ~_array(valid)


def whole_numbers(column: Text) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Convert a column of text to whole numbers, which may have zeros as decimals: 7.0 is 7.

    Returns:
        The numbers; and a mask of fields that are not 64-bit integers, which become 0.
    """
    return integers(pc.replace_substring_regex(column, r"^(-?\d+)\.0*$", r"\1"))


def with_decimal_points(column: Text) -> tuple[Text, NDArray[np.bool_]]:
    """Replace decimal commas in a column of text: 1,5 becomes 1.5.

    Returns:
        The column; and a mask of the changed fields.
    """
    commas = pc.match_substring_regex(column, r"^-?\d*,\d+([eE][-+]?\d{1,3})?$")
    return pc.if_else(commas, pc.replace_substring(column, ",", "."), column), _array(commas)


def numbers(column: Text) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Convert a column of text to floating-point numbers.

    Returns:
        The numbers; and a mask of fields that are not finite numbers, which become 0.
    """
    try:
        values = _array(column.cast(pa.float64()))
        wrong = np.zeros(len(column), np.bool_)
    except pa.ArrowInvalid:
        valid = pc.match_substring_regex(column, _NUMBER)
        values = _array(pc.if_else(valid, column, "0").cast(pa.float64()))
        wrong = ~_array(valid)
    wrong |= ~np.isfinite(values)
    return np.where(wrong, 0.0, values), wrong


def time_zone(name: str) -> ZoneInfo:
    """Return the time zone with an IANA name.

    Raises:
        TraceError: The time zone does not exist.
    """
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError):
        raise TraceError(
            f"time zone {name!r} is unknown; write a name such as Europe/Berlin"
        ) from None


def instants(
    column: Text, zone: tzinfo, fold: int = 0
) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Convert a column of dates to seconds since 1970.

    Args:
        column: The dates, as ISO 8601 or as seconds since 1970.
        zone: Time zone of dates without one.
        fold: 1 selects the second occurrence of a local time that is repeated when clocks are set
            back.

    Returns:
        The seconds; and a mask of fields that are not dates, which become 0.
    """
    seconds, wrong = numbers(column)
    if wrong.any():
        encoded = column.dictionary_encode()
        of_text = np.array(
            [_instant(text, zone, fold) for text in encoded.dictionary.to_pylist()], np.float64
        )
        dates = of_text[encoded.indices.to_numpy(zero_copy_only=False)]
        seconds = np.where(wrong, np.nan_to_num(dates), seconds)
        wrong &= np.isnan(dates)
    return seconds, wrong


def _instant(text: str, zone: tzinfo, fold: int) -> float:
    """Return a date as seconds since 1970, or NaN for another text."""
    try:
        return instant(text, zone, "time", fold)
    except (NotationError, OverflowError):
        return np.nan


def in_mebibytes(column: Text) -> tuple[Text, NDArray[np.bool_]]:
    """Convert the amounts of memory with a unit to MiB: 8G and 8 GiB become 8192.0.

    Returns:
        The column, in which fields without a unit are unchanged; and a mask of the changed fields.
    """
    changed = pc.match_substring_regex(column, _WITH_UNIT)
    mask = _array(changed)
    if mask.any():
        encoded = column.dictionary_encode()
        converted = pa.array(
            [as_mebibytes(text) for text in encoded.dictionary.to_pylist()], pa.string()
        )
        column = converted.take(encoded.indices)
    return column, mask


def as_mebibytes(text: str) -> str:
    """Convert an amount of memory with a unit to MiB; return other texts unchanged."""
    match = re.match(_WITH_UNIT, text)
    try:
        return str(mebibytes(match[1] + match[2])) if match else text
    except NotationError:  # too large for a number of MiB
        return text


def microseconds(seconds: NDArray[np.float64]) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Convert seconds to whole microseconds.

    Returns:
        The microseconds; and a mask of the values beyond ±LONGEST, which become 0.
    """
    wrong = np.abs(seconds) > LONGEST / MICROSECONDS
    return np.rint(np.where(wrong, 0.0, seconds) * MICROSECONDS).astype(np.int64), wrong


def missing(column: Text) -> NDArray[np.bool_]:
    """Return a mask of a column's empty fields."""
    return _array(pc.equal(column, ""))


def beginning(column: Text, text: str) -> NDArray[np.bool_]:
    """Return a mask of a column's fields that begin with a text."""
    return _array(pc.starts_with(column, text))


def _whole_lines(file: IO[bytes], path: Path) -> Iterator[tuple[int, list[bytes]]]:
    """Read a file in large pieces that end at the end of a line.

    A line ends with LF, CR LF, or CR. Yield (number of the first line, lines without line ends) for
    each piece. A byte order mark is no part of the first line.

    Args:
        file: The file.
        path: Its path, for errors.

    Raises:
        TraceError: A line is longer than `LONGEST_LINE`.
    """
    first = 1
    remainder = b""
    begins = True
    while block := file.read(_BLOCK):
        piece = remainder + block
        piece = piece.removeprefix(_BYTE_ORDER_MARK) if begins else piece
        begins = False
        held_back = b"\r" if piece.endswith(b"\r") else b""  # LF may begin the next block
        piece = piece.removesuffix(held_back)
        if b"\r" in piece:
            piece = piece.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        *whole, remainder = piece.split(b"\n")
        for line, content in enumerate((*whole, remainder), first):
            if len(content) > LONGEST_LINE:
                raise _too_long(path, line)
        remainder += held_back
        yield first, whole
        first += len(whole)
    yield first, [remainder.removesuffix(b"\r")]


def _text(column: Any) -> Text:  # noqa: ANN401
    try:
        text = column.cast(pa.string())
    except pa.ArrowInvalid:  # not UTF-8: escaped, so that different names stay different
        text = pa.array([value.decode(errors="backslashreplace") for value in column.to_pylist()])
    return pc.utf8_trim_whitespace(text)


def _array(column: Any) -> NDArray[Any]:  # noqa: ANN401
    values: NDArray[Any] = column.to_numpy(zero_copy_only=False)
    return values
