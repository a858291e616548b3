"""HTTP answers are encoded in steps, so that other tasks do not wait for the whole answer."""

import json
import math

import pytest

from allocator.cooperative import run_to_completion
from allocator.service.show.curves import encoding

TOLD = {
    "users": [{"user": 'a"b', "share": 0.1}, {"user": "é/{}"}],
    "agents": [],
    "capacity": {"cpus": 1.5},
    "half_life": None,
}


def test_an_answer_encoded_in_steps_equals_the_whole_encoding() -> None:
    assert run_to_completion(encoding(TOLD)) == json.dumps(TOLD)


def test_encoding_takes_a_step_for_each_list_entry() -> None:
    assert sum(1 for _ in encoding(TOLD)) == 4


def test_nan_is_refused() -> None:
    with pytest.raises(ValueError, match="Out of range float"):
        run_to_completion(encoding({"users": [{"share": math.nan}]}))
