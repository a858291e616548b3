"""Matches globs, such as `node-[1-9]*`: many globs against one name, or one against many names.

The syntax is that of `fnmatch.fnmatchcase`. A `[` that no `]` follows is a literal character.
"""

import re
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from fnmatch import translate
from itertools import zip_longest
from typing import TypeAlias

_PART = re.compile(r"\[(?>!?\]?[^\]]*)\]|.", re.DOTALL)
"""A part of a glob that matches one character, or `*`; a `[` without its end is a literal."""
_MEMBER = re.compile(r"(.)-(.)|.", re.DOTALL)
"""A range of characters in a class, or one character."""
_FEW_GLOBS = 4
"""Number of globs in a list up to which they are one regular expression."""
_BEYOND = "\0"
"""Fills a column of characters for the names that are too short."""

NameMask: TypeAlias = int
"""A set of names: an integer in which bit i represents name i of a `NameTable`."""


_Having: TypeAlias = dict[int, NameMask]
"""Names by a position at which they have a character, in ascending order."""


class _CharacterClass:
    """A class of characters, such as `[!a-z_]`.

    `fnmatch` has the same meaning, but compiles a regular expression for each class (100 µs).

    Args:
        part: The class with its brackets.
    """

    def __init__(self, part: str) -> None:
        body = part[1:-1]
        self._negated = body.startswith("!")
        members = list(_MEMBER.finditer(body, int(self._negated)))
        self._ranges = [(member[1], member[2]) for member in members if member[1]]
        self._characters = "".join(member[0] for member in members if not member[1])

    def has(self, character: str) -> bool:
        """Return whether a character is in the class."""
        listed = character in self._characters or any(
            first <= character <= last for first, last in self._ranges
        )
        return listed != self._negated


class GlobSet:
    """A matcher of many globs, which compares a name with all of them at once.

    The state is a set of positions in the globs, kept as an integer (Navarro and Raffinot, Flexible
    Pattern Matching in Strings, §4). A character of a name costs a few operations on integers. The
    integers have a bit for each character of the globs that are not longer than the name.

    Args:
        globs: Globs in lower case.
    """

    def __init__(self, globs: Iterable[str]) -> None:
        self._repeated = self._end = self._any = 0
        self._shortest = list[int]()
        """Length of the shortest name that each glob can match, in ascending order."""
        self._begins = [0]
        """Beginnings of the first globs, by their number, in the order of `_shortest`."""
        self._letters: dict[str, int] = {}
        """Positions that a literal reaches, by character."""
        self._classes: dict[str, int] = {}
        """Positions that a character of a class such as `[a-z]` reaches, by class."""
        self._reached: dict[str, int] = {}
        """All positions that a character reaches, for characters of earlier names."""
        position = 1
        by_length = [(len(parts) - parts.count("*"), parts) for parts in map(_PART.findall, globs)]
        for shortest, parts in sorted(by_length):
            self._shortest.append(shortest)
            self._begins.append(self._begins[-1] | position)
            for part in parts:
                if part == "*":
                    self._repeated |= position
                    continue
                position <<= 1
                if part == "?":
                    self._any |= position
                else:
                    table = self._letters if len(part) == 1 else self._classes
                    table[part] = table.get(part, 0) | position
            self._end |= position
            position <<= 1
        self._members = {part: _CharacterClass(part) for part in self._classes}

    def match(self, name: str) -> bool:
        """Return whether a name matches one of the globs."""
        state = self._begins[bisect_right(self._shortest, len(name))]
        repeated, reached = self._repeated, self._reached
        for character in name:
            if character not in reached:
                reached[character] = self._positions(character)
            state = state << 1 & reached[character] | state & repeated
            if not state:
                return False
        return bool(state & self._end)

    def _positions(self, character: str) -> int:
        positions = self._letters.get(character, 0) | self._any
        for part, reached in self._classes.items():
            if self._members[part].has(character):
                positions |= reached
        return positions


def matcher(globs: Sequence[str]) -> "re.Pattern[str] | GlobSet":
    """Return a matcher of globs; a regular expression is faster only for a few.

    Args:
        globs: Different globs in lower case.
    """
    if len(globs) > _FEW_GLOBS:
        return GlobSet(globs)
    return re.compile("|".join(map(_regular_expression, globs)))


def _regular_expression(glob: str) -> str:
    """Convert a glob, such as `node-[1-9]*`, into a regular expression.

    A `[` that no `]` follows is a literal character. The function escapes such brackets first,
    because `fnmatch.translate` would search the whole rest of the glob for each of them.
    """
    head, closing, tail = glob.rpartition("]")
    return translate(head + closing + tail.replace("[", "[[]"))


class NameTable:
    """A sequence of names, indexed so that a glob is compared with all names at once.

    For each character and position, the table has the set of names with this character at this
    position. A part of a glob then costs a few operations on sets for each position that it may
    match at. A set is an integer, so 4,096 names cost about 0.2 µs an operation.

    Args:
        names: The names.
    """

    def __init__(self, names: Sequence[str]) -> None:
        self._all: NameMask = (1 << len(names)) - 1
        self._columns = ["".join(each) for each in zip_longest(*names[::-1], fillvalue=_BEYOND)]
        """For each position, the characters of all names, in reverse order."""
        self._alphabet = frozenset[str]().union(*names)
        self._by_character: dict[str, _Having] = {}
        """Names with each of the characters that earlier globs have."""
        self._ends = _by_length(names)
        """Names by length."""
        self._longer: _Having = {}
        """Names with any character, by position."""
        longer = self._all
        for position in range(len(self._columns)):
            longer &= ~self._ends.get(position, 0)
            self._longer[position] = longer

    def matching(self, glob: str) -> NameMask:
        """Return the names that match a glob, which is in the case of the names."""
        states: _Having = {0: self._all}
        repeated = False
        for part in _PART.findall(glob):
            if part == "*":
                repeated = True
                continue
            states = self._advanced(states, part, repeated=repeated)
            repeated = False
            if not states:
                return 0
        matching: NameMask = 0
        for position, names in states.items():
            matching |= names if repeated else names & self._ends.get(position, 0)
        return matching

    def _advanced(self, states: _Having, part: str, *, repeated: bool) -> _Having:
        """Return the states after a part of a glob that matches one character.

        Args:
            states: Names by the number of characters that the former parts of the glob match, in
                ascending order.
            part: A character, `?` or a class.
            repeated: Whether the part follows a `*`.
        """
        having = self._having(part)
        if not repeated:
            return {
                position + 1: both
                for position, names in states.items()
                if (both := names & having.get(position, 0))
            }
        advanced: _Having = {}
        reached: NameMask = 0
        waiting, taken = list(states.items()), 0
        for position, names in having.items():
            while taken < len(waiting) and waiting[taken][0] <= position:
                reached |= waiting[taken][1]
                taken += 1
            if both := reached & names:
                advanced[position + 1] = both
        return advanced

    def _having(self, part: str) -> _Having:
        """Return the names that have a character, or any character of a class, by position.

        A class is not kept, because frameworks may name any number of classes.
        """
        if part == "?":
            return self._longer
        if len(part) == 1:
            return self._having_character(part)
        joined: _Having = {}
        for character in filter(_CharacterClass(part).has, self._alphabet):
            for position, names in self._having_character(character).items():
                joined[position] = joined.get(position, 0) | names
        return dict(sorted(joined.items()))

    def _having_character(self, character: str) -> _Having:
        """Return the names that have a character of the alphabet, by position."""
        if character not in self._alphabet:
            return {}
        known = self._by_character.get(character)
        if known is None:
            digits = dict.fromkeys(map(ord, (*self._alphabet, _BEYOND)), "0")
            digits[ord(character)] = "1"
            known = self._by_character[character] = {
                position: names
                for position, column in enumerate(self._columns)
                if character in column
                and (names := int(column.translate(digits), 2) & self._longer[position])
            }
        return known


def _by_length(names: Sequence[str]) -> dict[int, NameMask]:
    """Return the names with each length."""
    by_length: dict[int, bytearray] = {}
    for number, name in enumerate(names, 1):
        flags = by_length.get(len(name))
        if flags is None:
            flags = by_length[len(name)] = bytearray(b"0" * len(names))
        flags[-number] = 49  # the digit 1
    return {length: int(flags, 2) for length, flags in by_length.items()}
