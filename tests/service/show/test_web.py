"""What the HTTP face answers is made bit by bit, so that nobody else has to wait for all of it."""

import json
import math

import pytest

from allocator.cluster.cooperative import run_to_completion
from allocator.service.show.web import encoding

TOLD = {
    "users": [{"user": 'a"b', "share": 0.1}, {"user": "é/{}"}],
    "agents": [],
    "capacity": {"cpus": 1.5},
    "half_life": None,
}


def test_an_answer_made_bit_by_bit_is_the_same_as_at_once() -> None:
    assert run_to_completion(encoding(TOLD)) == json.dumps(TOLD)


def test_there_is_a_step_for_each_entry_of_a_list() -> None:
    assert sum(1 for _ in encoding(TOLD)) == 4


def test_what_is_no_number_is_refused() -> None:
    with pytest.raises(ValueError, match="Out of range float"):
        run_to_completion(encoding({"users": [{"share": math.nan}]}))
