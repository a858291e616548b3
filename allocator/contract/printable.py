"""Text of others, made fit to be shown: the one place where that is done.

Names come from frameworks, reasons from peers; none of them may steer a terminal or forge a line.
"""

import re
import unicodedata

_MOST_MARKS = 4
"""Combining signs on one letter that are shown; no script needs more, and each takes height."""
_UNSEEN = re.compile(
    "[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e"
    "\u2060-\u206f\u2800\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufff8"
    "\U0001bca0-\U0001bca3\U0001d159\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
)
"""Unicode's Default_Ignorable_Code_Point, and two signs that are drawn as nothing: the empty
Braille pattern and the null notehead."""


def printable(text: str) -> str:
    r"""Show what is no letter, digit, sign or blank as an escape, such as `\x1b`.

    Characters that are not seen are escaped, too, such as `\u3164`, and combining signs that have
    no letter before them, or are more than a letter can carry.
    """
    if text.isascii() and text.isprintable():
        return text
    return "".join(_shown(text))


def _shown(text: str) -> list[str]:
    shown = list[str]()
    marks = _MOST_MARKS  # none without a letter
    for c in text:
        if unicodedata.category(c) in {"Mn", "Me"}:
            marks += 1
        else:
            marks = 0
        if c.isprintable() and not _UNSEEN.match(c) and marks <= _MOST_MARKS:
            shown.append(c)
        else:
            shown.append(c.encode("unicode_escape", "surrogatepass").decode("ascii"))
    return shown
