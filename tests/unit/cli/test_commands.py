"""What every command has: an example that parses, the same --json, --db and -f, and its line in the root's help."""

import shlex

import pytest
import typer

from headgate.cli import guessed_verbs
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


@pytest.mark.parametrize(
    ("verb", "named"),
    [
        (
            "publish",
            ("headgate stream publish", "headgate queue publish", "headgate exchange publish"),
        ),
        ("consume", ("headgate stream tail", "headgate queue tail")),
        ("claim", ("headgate queue claim",)),
    ],
)
def test_a_verb_without_a_noun_is_refused_with_the_commands_that_have_it(verb, named, capsys):
    assert run([verb, "orders"]) == 2
    said = " ".join(capsys.readouterr().err.replace("│", "").split())
    for command in named:
        assert command in said


@pytest.mark.parametrize("verb", guessed_verbs.COMMANDS)
def test_a_command_of_rabbitmqctl_is_refused_with_the_one_that_is_here(verb, capsys):
    found = guessed_verbs.COMMANDS[verb].split()
    for words in ([verb], [verb.replace("_", "-"), "x", "--vhost", "/"], ["queue", verb]):
        assert run(words) == 2
        assert " ".join(found) in " ".join(capsys.readouterr().err.replace("│", "").split())
    words = tuple(word for word in found if not word.startswith("-"))
    command = dict(COMMANDS)[words]
    for option in found[len(words) :]:
        assert options_of(command, option)


@pytest.mark.parametrize(
    ("guess", "command"),
    [
        ("user list", "user ls"),
        ("user create", "user add"),
        ("user delete", "user rm"),
        ("user change_password", "user password"),
        ("user set_tags", "user tags"),
        ("vhosts remove", "vhost rm"),
        ("vhost set-limits", "vhost limit"),
        ("permission add", "permission set"),
        ("permission delete", "permission clear"),
        ("policy clear", "policy rm"),
        ("exchange create", "exchange declare"),
        ("exchange delete", "exchange rm"),
        ("binding create", "binding add"),
        ("connection list", "connection ls"),
        ("broker queue list", "broker queue ls"),
        ("broker super_stream delete", "broker super-stream rm"),
        ("queue clear", "queue purge"),
        ("stream list", "stream ls"),
        ("queue get", "queue peek"),
        ("stream produce", "stream publish"),
    ],
)
def test_a_verb_that_one_guesses_is_understood(guess, command, capsys):
    assert run([*guess.split(), "--help"]) == 0
    assert f"headgate {command} " in capsys.readouterr().out
