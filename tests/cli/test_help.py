"""Help texts: headings, types of options, and an example for each command that the parser takes."""

import re
import shlex
from collections.abc import Iterator
from typing import Any

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from allocator.cli import app
from allocator.cli.parameters import parse
from allocator.simulation.originals.catalogue import create_policy
from tests.language import Sentence, sentences

WIDE = {"COLUMNS": "200"}
LONGEST_SENTENCE = 30
"""Words."""


def commands() -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield the words of each command, and the command itself; groups come before their members."""

    def below(
        words: tuple[str, ...],
        command: Any,  # noqa: ANN401 - one of several classes of typer
    ) -> Iterator[tuple[tuple[str, ...], Any]]:
        yield words, command
        for name, member in getattr(command, "commands", {}).items():
            yield from below((*words, name), member)

    return below((), get_command(app))


COMMANDS = dict(commands())


def shown_help(words: tuple[str, ...]) -> str:
    completed = CliRunner().invoke(app, [*words, "--help"], env=WIDE)
    assert completed.exit_code == 0
    return completed.output


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_the_help_of_each_command_has_an_example_that_the_parser_takes(
    words: tuple[str, ...],
) -> None:
    example = re.search(r"Example: (longshare .*?)\.?$", text_of(words), re.MULTILINE)
    assert example is not None
    program, *arguments = shlex.split(example[1].split(". ")[0])
    own, rest = arguments[: len(words)], arguments[len(words) :]
    assert (program, *own) == ("longshare", *words)
    command = COMMANDS[words]
    if not hasattr(command, "commands"):
        with command.make_context(" ".join(words), rest) as context:
            for policy, parameters in policies_of(context.params):
                create_policy(policy, parse(parameters))


def policies_of(options: dict[str, Any]) -> Iterator[tuple[str, list[str]]]:
    """Yield the name and the parameters of each policy that a simulation would create."""
    if {"trace", "policy"} <= options.keys():
        yield options["policy"], list(options.get("parameters") or [])
    elif {"trace", "policies"} <= options.keys():
        for each in options["policies"].split(","):
            name, *parameters = each.split(":")
            yield name, parameters


@pytest.mark.parametrize("command", ["simulate", "compare", "lies"])
def test_examples_of_simulations_name_a_policy(command: str) -> None:
    example = re.search(r"Example: longshare \w+ (.*)", text_of((command,)))
    assert example is not None
    context = COMMANDS[command,].make_context(command, shlex.split(example[1]))
    assert list(policies_of(context.params))


def text_of(words: tuple[str, ...]) -> str:
    """Return the prose of a command's help: description, last paragraph and texts of options."""
    command = COMMANDS[words]
    parts = [command.help, command.epilog, *(getattr(p, "help", "") for p in command.params)]
    return "\n\n".join(filter(None, parts))


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_help_texts_name_an_actor_and_are_short(words: tuple[str, ...]) -> None:
    def hard(sentence: Sentence) -> bool:
        return sentence.headless or len(sentence.words) > LONGEST_SENTENCE

    prose = re.sub(r"^Example: .*$", "", text_of(words), flags=re.MULTILINE)
    assert [each.text for each in sentences("help", prose) if hard(each)] == []


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_the_help_names_no_types_of_python(words: tuple[str, ...]) -> None:
    assert re.findall(r"<(?:bool|str|float|int|list)\b[^>]*>", shown_help(words)) == []


def test_the_help_lists_each_command_under_a_heading() -> None:
    headings = re.findall(r"^╭─ (.+?) ─", shown_help(()), re.MULTILINE)
    assert "Commands" not in headings
    assert len(headings) == 7


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_each_option_has_a_help_text(words: tuple[str, ...]) -> None:
    without = [
        parameter.name
        for parameter in COMMANDS[words].params
        if not getattr(parameter, "help", None) and not getattr(parameter, "hidden", False)
    ]
    assert not without
