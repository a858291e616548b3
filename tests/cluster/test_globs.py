"""Globs match the same names as `fnmatch`."""

from fnmatch import fnmatchcase

from hypothesis import example, given
from hypothesis import strategies as st

from allocator.cluster.agents.globs import GlobSet, NameTable, matcher
from tests.counted import counted

_CHARACTERS = "ab-z[]!^\\\0é"
_NAMES = st.lists(st.text(_CHARACTERS, max_size=8), max_size=12)
_GLOBS = st.one_of(
    st.text(_CHARACTERS + "*?", min_size=1, max_size=8),
    st.lists(
        st.sampled_from(["a", "*", "?", "[a-b]", "[!a]", "[z-a]", "[!z-a]", "[]-a]", "[a-b-z]"]),
        min_size=1,
        max_size=8,
    ).map("".join),
)


@given(names=_NAMES, glob=_GLOBS)
@example(names=["ab", "", "b"], glob="**")
@example(names=["a\0", "a"], glob="a?")
@example(names=["a\0", "a"], glob="a*[\0]")
@example(names=[], glob="*")
@example(names=["abab", "ba"], glob="*a*b")
def test_a_table_finds_the_names_that_match_one_by_one(names: list[str], glob: str) -> None:
    expected = [fnmatchcase(name, glob) for name in names]
    matching = NameTable(names).matching(glob)
    assert [bool(matching >> number & 1) for number in range(len(names))] == expected
    assert matching >> len(names) == 0
    assert [GlobSet([glob]).match(name) for name in names] == expected
    assert [bool(matcher([glob]).match(name)) for name in names] == expected


def test_a_table_costs_no_more_for_more_names() -> None:
    def cost(number: int) -> int:
        table = NameTable([f"node-{name:05d}.example.org" for name in range(number)])
        globs = ["*d*0*e*e*g", "node-?0*", "node-[0-3]*[!2]*o*g"]
        matching = [table.matching(glob) for glob in globs]
        assert all(matching)
        return counted(lambda: [table.matching(glob) for glob in globs])

    assert cost(4000) <= 1.2 * cost(500)


def test_a_character_class_is_not_compiled() -> None:
    names = [f"node-{name}" for name in range(100)]
    table = NameTable(names)
    classes = [f"*[{chr(0x4E00 + number)}-\uffff0-9]" for number in range(200)]
    assert counted(lambda: [table.matching(glob) for glob in classes]) < 200 * 200
