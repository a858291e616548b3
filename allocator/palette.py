"""Colours of figures, reports, the status page and films: one definition, also as CSS variables."""

from collections.abc import Iterable

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

    A user's name determines its colour, so the colour is the same in every picture. If two names
    determine the same colour, the name that is later in alphabetical order gets the next unused
    colour. Colours repeat only if there are more users than colours.
    """
    colours: dict[str, int] = {}
    for user in sorted(users):
        first = (sum(map(ord, user)) - ord("A")) % len(COLOURS)
        candidates = [(first + step) % len(COLOURS) for step in range(len(COLOURS))]
        used = set(colours.values())
        colours[user] = next((colour for colour in candidates if colour not in used), first)
    return colours


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
