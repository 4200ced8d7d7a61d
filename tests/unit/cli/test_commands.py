"""What every command has: an example that parses, the same --json, --db and -f, and its line in the root's help."""

import shlex

import pytest
import typer

from headgate.cli.app import ALIASES, NOUNS, VERBS, build_app, run
from headgate.cli.reference import EXAMPLE

ROOT = typer.main.get_command(build_app())


def find_commands(command=ROOT, path=()):
    """Every command that does something, with its path."""
    if not hasattr(command, "commands"):
        return [(path, command)]
    context = command.make_context(path[-1] if path else "headgate", [], resilient_parsing=True)
    found = []
    for name in command.list_commands(context):
        word, sub, _ = command.resolve_command(context, [name])
        found += find_commands(sub, (*path, word))
    return found


COMMANDS = find_commands()


def each_command(function):
    ids = [" ".join(path) for path, _ in COMMANDS]
    return pytest.mark.parametrize(("path", "command"), COMMANDS, ids=ids)(function)


def options_of(command, name):
    return [option for option in command.params if name in option.opts]


@each_command
def test_the_help_of_a_command_ends_with_an_example_that_parses(path, command):
    *_, last = command.help.strip().split("\n\n")
    assert last.startswith(f"{EXAMPLE}headgate {' '.join(path)}"), last
    arguments = shlex.split(last.removeprefix(EXAMPLE))[1 + len(path) :]
    context = command.make_context(path[-1], arguments)
    assert not context.args


@each_command
def test_json_is_a_flag_with_one_shape(path, command):
    for option in options_of(command, "--json"):
        assert option.is_flag
        assert option.help == "Print JSON, one object per line."


@each_command
def test_a_database_is_named_by_db_and_f_follows(path, command):
    for option in command.params:
        if option.metavar == "URL":
            assert option.opts == ["--db"]
        assert ("-f" in option.opts) == (option.name == "follow")


@pytest.mark.parametrize("word", VERBS)
def test_the_help_of_the_root_says_of_a_verb_what_its_own_help_says(word):
    command = dict(COMMANDS)[(word,)]
    assert command.help.split("\n\n")[0].replace("\n", " ") == VERBS[word]


@pytest.mark.parametrize("noun", NOUNS)
def test_nouns_are_accepted_in_the_plural(noun, capsys):
    assert run([noun, "--help"]) == 0
    singular = capsys.readouterr().out
    assert run([f"{noun}s", "--help"]) == 0
    assert capsys.readouterr().out == singular
    assert ALIASES[f"{noun}s"] == noun


def test_a_command_that_does_not_exist_is_refused_with_the_nearest(capsys):
    assert run(["strem", "ls"]) == 2
    assert "Did you mean 'stream'" in capsys.readouterr().err
