"""Faults are made in rules, each once; the explained faults still exist."""

from pathlib import Path

from tests.mutation.__main__ import ROOT, every, sample
from tests.mutation.explained import Equivalent, equivalents
from tests.mutation.faults import described, mutants_of
from tests.mutation.score import Score

SOURCE = '''
LIMIT = 2

@cached
def rule(self, n: int = 3) -> bool:
    """Ask: 4 > 3."""
    if not self.é < n:
        raise ValueError(n + 1)

    def inner():
        self.told(n)
        return (self.known[0]
            and n is None)
    return inner() if n - 1 else False
'''


def test_faults_are_made_in_rules_and_not_in_messages() -> None:
    mutants = list(mutants_of("rules.py", SOURCE))
    made = {(mutant.was, mutant.now) for mutant in mutants}
    assert made == {
        ("LIMIT = 2", "LIMIT = (3)"),
        ("if not self.é < n:", "if (self.é < n):"),
        ("if not self.é < n:", "if not (self.é <= n):"),
        ("self.told(n)", "pass"),
        (
            "return (self.known[0] and n is None)",
            "return ((self.known[0] or n is None))",
        ),
        ("and n is None)", "and (n is not None))"),
        ("return inner() if n - 1 else False", "return (False if n - 1 else inner())"),
        ("return inner() if n - 1 else False", "return inner() if (n + 1) else False"),
        ("return inner() if n - 1 else False", "return inner() if n - (2) else False"),
        ("return inner() if n - 1 else False", "return inner() if n - 1 else (True)"),
    }
    assert len(mutants) == len(made)


def test_a_fault_knows_its_function_and_the_lines_that_tests_must_execute() -> None:
    places = {mutant.line: (mutant.function, mutant.lines) for mutant in mutants_of("", SOURCE)}
    assert places == {
        2: ("", range(2, 3)),
        7: ("rule", range(7, 8)),
        11: ("rule.inner", range(11, 12)),
        12: ("rule.inner", range(12, 14)),
        13: ("rule.inner", range(12, 14)),
        14: ("rule", range(14, 15)),
    }


def test_a_sample_is_stable_while_its_own_lines_are_unchanged() -> None:
    before = list(mutants_of("rules.py", SOURCE))
    after = list(mutants_of("rules.py", "MORE = 1\n" + SOURCE.replace("LIMIT = 2", "LIMIT = 4")))
    few, repeated = (
        {described(mutant) for mutant in sample(them, 5, 7)} for them in (before, after)
    )
    assert len(few & repeated) >= 3, "two of eleven faults differ"
    assert few != {described(mutant) for mutant in sample(before, 5, 8)}


def test_faults_are_drawn_from_the_given_folder_or_file() -> None:
    of_file = {mutant.path for mutant in every("allocator/fairness/exact.py")}
    assert of_file == {"allocator/fairness/exact.py"}
    of_folder = {mutant.path for mutant in every("allocator/fairness/policies")}
    assert {path.rpartition("/")[0] for path in of_folder} == {
        "allocator/fairness/policies",
        "allocator/fairness/policies/rivals",
    }
    assert not every("allocator/fair"), "the path is no folder"


def test_a_reason_explains_one_fault_or_all_faults_of_lines_or_of_a_function() -> None:
    mutants = list(mutants_of("rules.py", SOURCE))
    place, was = "rules.py rule", "return inner() if n - 1 else False"
    single = Equivalent(place, "", was, "return inner() if (n + 1) else False")
    lines, function = Equivalent(place, "", was), Equivalent(place, "")
    explained = [
        {mutant.now for mutant in mutants if equivalent.explains(mutant)}
        for equivalent in (single, lines)
    ]
    assert explained[0] == {single.now}
    assert explained[1] == {mutant.now for mutant in mutants if mutant.line == 14}
    assert {mutant.line for mutant in mutants if function.explains(mutant)} == {7, 14}
    assert [equivalent.alone for equivalent in (single, lines, function)] == [True, False, False]


def test_the_score_counts_found_and_explained_faults() -> None:
    assert Score(found=140, explained=50, open=10).of_all(1400) == (
        "140 found, 50 explained, 10 open, of 200: "
        "95.0% found or explained (91.0% to 97.3% of all 1400)"
    )


def test_each_explained_fault_exists_and_has_a_reason() -> None:
    explained = equivalents()
    paths = {equivalent.place.partition(" ")[0] for equivalent in explained}
    mutants = [
        mutant for path in paths for mutant in mutants_of(path, Path(ROOT / path).read_text())
    ]
    for equivalent in explained:
        assert any(map(equivalent.explains, mutants)), equivalent
        assert equivalent.why
