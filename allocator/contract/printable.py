"""Escapes text from other systems before display. No other module does this.

Frameworks choose names and peers choose reasons. Neither may control a terminal or forge a line.
"""

import re
import unicodedata

_MAX_MARKS = 4
"""Maximum number of combining marks on one letter that are displayed. No script needs more, and
each mark takes height."""
_INVISIBLE = re.compile(
    "[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e"
    "\u2060-\u206f\u2800\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufff8"
    "\U0001bca0-\U0001bca3\U0001d159\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
)
"""Unicode's Default_Ignorable_Code_Point, and two visible characters that are drawn as nothing: the
empty Braille pattern and the null notehead."""


def printable(text: str) -> str:
    r"""Return a text in which unprintable characters are replaced by escapes, such as `\x1b`.

    Invisible characters are escaped, too, such as `\u3164`. Combining marks are escaped if they
    follow no letter, or if they exceed the maximum number on one letter.
    """
    if text.isascii() and text.isprintable():
        return text
    return "".join(_escaped(text))


def _escaped(text: str) -> list[str]:
    """Return the text's characters as a list, with escapes in place of unprintable characters."""
    characters = list[str]()
    marks = _MAX_MARKS  # a mark needs a letter before it
    for character in text:
        if unicodedata.category(character) in {"Mn", "Me"}:
            marks += 1
        else:
            marks = 0
        if character.isprintable() and not _INVISIBLE.match(character) and marks <= _MAX_MARKS:
            characters.append(character)
        else:
            characters.append(character.encode("unicode_escape", "surrogatepass").decode("ascii"))
    return characters
