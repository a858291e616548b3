"""A user has the same colour in each figure, film and page; colours are defined once."""

import re
from collections import Counter
from importlib.resources import files

from hypothesis import given
from hypothesis import strategies as st

from allocator.palette import COLOURS, distinct_colours, style, user_colours

OWN_COLOUR = re.compile(r"#[0-9a-f]{6}\b|#[0-9a-f]{3}\b")


@given(st.sets(st.text(), max_size=len(COLOURS)))
def test_users_have_different_colours_while_there_are_enough_colours(users: set[str]) -> None:
    assert len(set(user_colours(users).values())) == len(users)


@given(st.lists(st.text(), unique=True, max_size=20))
def test_colours_do_not_depend_on_the_order_in_which_users_are_listed(users: list[str]) -> None:
    assert user_colours(users) == user_colours(reversed(users))


def test_consecutive_names_get_consecutive_colours_and_keep_them_when_users_come_and_go() -> None:
    assert user_colours("ABCD") == {"A": 0, "B": 1, "C": 2, "D": 3}
    assert user_colours("BD") == {"B": 1, "D": 3}


def test_numbered_names_have_all_colours_equally_often() -> None:
    for step in (1, 2, 3, 5, 10, 100):
        users = [f"user-{number:04}" for number in range(0, 70 * step, step)]
        counts = Counter(user_colours(users).values())
        assert [*counts.values()] == [10] * len(COLOURS)


names = st.text(min_size=1, max_size=5)


@given(st.sets(names, min_size=len(COLOURS) + 1, max_size=30), names)
def test_a_user_keeps_its_colour_when_others_come_to_more_users_than_colours(
    users: set[str], newcomer: str
) -> None:
    before = user_colours(users)
    assert user_colours({*users, newcomer}).items() >= before.items()


@given(st.lists(names, unique=True, max_size=30))
def test_a_picture_shows_one_user_of_each_colour_and_never_in_another_colour(
    users: list[str],
) -> None:
    shown, everywhere = distinct_colours(users), user_colours(users)
    assert len(set(shown.values())) == len(shown)
    assert set(shown.values()) == set(everywhere.values())
    assert shown.items() <= everywhere.items()
    assert not users or users[0] in shown, "the largest user is not grey"


def test_the_pages_take_all_colours_from_the_palette() -> None:
    for package, *path in (
        ("allocator.film", "player", "player.css"),
        ("allocator.service.show", "page", "page.css"),
    ):
        text = files(package).joinpath(*path).read_text(encoding="utf-8")
        assert OWN_COLOUR.findall(text) == []
        used = set(re.findall(r"var\(--(\w+)", text))
        own = set(re.findall(r"--(\w+):", text)) | {
            "cell",
            "done",
            "gap",
            "own",
        }  # set by the script
        assert used <= own | set(re.findall(r"--(\w+):", style())), path


def test_each_variable_has_a_light_and_a_dark_colour() -> None:
    light, dark = style().split("@media")
    names = re.findall(r"--(\w+): #", light)
    assert names == re.findall(r"--(\w+): #", dark)
    assert [f"u{number}" in names for number in range(len(COLOURS) + 1)] == [True] * 8
    for number, colour in enumerate(COLOURS):
        assert f"--u{number}: {colour};" in light
