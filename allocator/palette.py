"""Colours of figures, reports, the status page and films: one definition, also as CSS variables."""

from collections.abc import Iterable, Sequence

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
"""Okabe and Ito's palette (2008): distinguishable for colour-blind people and in grey."""

_COLOURS_IN_THE_DARK = (
    "#3A9BDC",
    "#E8762B",
    "#1FBF92",
    "#D48FB5",
    "#E69F00",
    "#7CC6F0",
    "#F2F2F2",
)
"""The same hues for a dark ground."""

_LIGHT = {
    "ground": "#ffffff",
    "ink": "#1b1f24",
    "soft": "#57606a",
    "line": "#d0d7de",
    "panel": "#f3f5f8",
    "link": "#0550ae",
    "good": "#116329",
    "bad": "#a40e26",
    **{f"u{number}": colour for number, colour in enumerate(COLOURS)},
    f"u{len(COLOURS)}": "#8c959f",
}
_DARK = {
    "ground": "#0d1117",
    "ink": "#e6edf3",
    "soft": "#9da7b3",
    "line": "#30363d",
    "panel": "#161b22",
    "link": "#79c0ff",
    "good": "#56d364",
    "bad": "#ff7b72",
    **{f"u{number}": colour for number, colour in enumerate(_COLOURS_IN_THE_DARK)},
    f"u{len(COLOURS)}": "#6e7681",
}


def user_colours(users: Iterable[str]) -> dict[str, int]:
    """Choose a colour for each user. Return indexes in `COLOURS`, by user.

    The name determines the colour, so a user keeps its colour in every picture while users
    come and go. More users than colours repeat colours. With fewer users, two names may determine
    the same colour. Then the later name in alphabetical order gets the next unused colour.
    """
    names = sorted(set(users))
    colours = {name: _number(name) for name in names}
    if len(names) > len(COLOURS):
        return colours
    used: set[int] = set()
    for name, first in colours.items():
        candidates = ((first + step) % len(COLOURS) for step in range(len(COLOURS)))
        colours[name] = next(colour for colour in candidates if colour not in used)
        used.add(colours[name])
    return colours


def distinct_colours(users: Sequence[str]) -> dict[str, int]:
    """Choose the users that a picture shows in colour, at most one for each colour.

    Args:
        users: All users of the picture, the largest first.

    Returns:
        The first user of each colour of `user_colours`. The remaining users are grey.
    """
    colours = user_colours(users)
    first = {colours[user]: user for user in reversed(users)}
    return {user: colours[user] for user in users if first[colours[user]] == user}


def _number(name: str) -> int:
    """Return the colour of a name; consecutive letters or numbers have consecutive colours."""
    number = 0
    for character in name:
        number = (10 * number + ord(character)) % len(COLOURS)
    return (number - ord("A")) % len(COLOURS)


def style() -> str:
    """Return CSS that defines the variables of all pages, for light and dark.

    The variables are `--ground`, `--ink`, `--soft`, `--line`, `--panel`, `--link`, `--good`,
    `--bad`, and `--u0` to `--u7`: the users' colours, and grey for all other users.
    """
    return (
        f":root {{ color-scheme: light dark; {_variables(_LIGHT)} }}\n"
        f"@media (prefers-color-scheme: dark) {{ :root {{ {_variables(_DARK)} }} }}\n"
    )


def _variables(colours: dict[str, str]) -> str:
    return " ".join(f"--{name}: {colour};" for name, colour in colours.items())
