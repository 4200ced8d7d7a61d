"""The settings of a broker come from a file and the command line, and each is checked."""

import tomllib
from dataclasses import fields
from datetime import timedelta
from pathlib import Path

import pytest

from headgate.errors import SettingsError
from headgate.server.configuration import (
    ServerOptions,
    a_duration,
    a_size,
    find_file,
    name_in_file,
    parse_assignment,
)
from headgate.settings import load_settings

SAMPLE = Path(__file__).parents[3] / "deploy" / "headgate.toml"


@pytest.fixture
def written(tmp_path):
    def write(text):
        file = tmp_path / "headgate.toml"
        file.write_text(text)
        return file

    return write


def test_the_sample_names_every_setting_with_its_default():
    options = ServerOptions.load(SAMPLE)
    assert options.data == SAMPLE.parent / "headgate-data"
    default = ServerOptions(data=options.data)
    assert default.changes(options) == {}
    commented = {line.removeprefix("# ").split(" =")[0] for line in SAMPLE.read_text().splitlines()}
    named = {
        f"{table}.{key}"
        for table, keys in tomllib.loads(SAMPLE.read_text()).items()
        for key in keys
    }
    for known in fields(ServerOptions):
        name = name_in_file(known)
        assert name in named or name.split(".")[1] in commented, f"{name} is not in {SAMPLE.name}"


def test_the_command_line_wins_over_the_file_and_the_file_over_defaults(written):
    file = written('[broker]\nhost = "::1"\namqp_port = 1\n[log]\nformat = "json"\n')
    options = ServerOptions.load(file, amqp_port=2, host=None)
    assert (options.host, options.amqp_port, options.log_format) == ("::1", 2, "json")
    assert options.page_out_after == 20_000
    assert options.data == Path("headgate-data")
    assert ServerOptions.load(file, data=None).data is None


def test_a_path_begins_at_the_directory_of_the_file(written, tmp_path):
    assert ServerOptions.load(written('[broker]\ndata = "d"')).data == tmp_path / "d"
    assert ServerOptions.load(written('[broker]\ndata = "/d"')).data == Path("/d")


def test_the_library_and_the_broker_share_a_file(written):
    file = written('database = "sqlite:///x.db"\n[broker]\namqp_port = 7\n')
    assert load_settings(file, environment={}).database == "sqlite:///x.db"
    assert ServerOptions.load(file).amqp_port == 7


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("[broker]\namqp_prot = 1", "no setting 'broker.amqp_prot'; did you mean 'broker.amqp_port'"),
        ("[brokr]\namqp_port = 1", "no table 'brokr'; did you mean 'broker'"),
        ("databse = 'x'", "no setting 'databse'; did you mean 'database'"),
        ("[broker]\namqp_port = '1'", r"broker.amqp_port must be an integer from 0 to 65,535, not '1'"),
        ("[broker]\namqp_port = 70000", "65,535, not 70000"),
        ("[broker]\nhost = ''", "broker.host must be a text that is not empty"),
        ("[broker]\nsynchronous = true", "broker.synchronous must be one of FULL, NORMAL, OFF"),
        ("[log]\nlevel = 'loud'", "log.level must be one of debug"),
        ("broker = 7", "no setting 'broker'"),
        ("[broker", "is not valid TOML"),
    ],
)  # fmt: skip
def test_a_mistake_in_the_file_is_refused_with_its_name(written, text, problem):
    with pytest.raises(SettingsError, match=problem) as caught:
        ServerOptions.load(written(text))
    assert "headgate.toml" in str(caught.value)


def test_a_file_that_is_missing_is_refused(tmp_path):
    with pytest.raises(SettingsError, match="cannot read the settings in"):
        ServerOptions.load(tmp_path / "none.toml")


def test_without_a_name_the_file_of_the_directory_is_read(written, monkeypatch):
    file = written("[broker]\namqp_port = 9")
    assert find_file({"HEADGATE_CONFIG": "x.toml"}) == Path("x.toml")
    monkeypatch.chdir(file.parent)
    assert find_file({}) == Path("headgate.toml")
    file.unlink()
    assert find_file({}) is None


def test_options_made_in_code_are_checked_as_well():
    with pytest.raises(SettingsError, match=r"broker\.amqp_port must be"):
        ServerOptions(amqp_port=-1)


@pytest.mark.parametrize(
    ("text", "field", "value"),
    [
        ("log.level=debug", "log_level", "debug"),
        ("broker.amqp_port=7", "amqp_port", 7),
        ('broker.host="a b"', "host", "a b"),
    ],
)
def test_a_setting_can_be_given_as_text(text, field, value):
    assert parse_assignment(text) == (field, value)


@pytest.mark.parametrize(
    ("text", "problem"), [("x", "table.key=value"), ("log.levle=x", "did you mean 'log.level'")]
)
def test_a_mistaken_setting_as_text_is_refused(text, problem):
    with pytest.raises(SettingsError, match=problem):
        parse_assignment(text)


def test_what_changes_says_whether_it_takes_effect_while_running():
    before, after = ServerOptions(), ServerOptions(log_level="debug", amqp_port=1)
    assert before.changes(after) == {"amqp_port": False, "log_level": True}


def test_durations_and_sizes_are_written_with_their_unit():
    assert a_duration("15m") == timedelta(minutes=15)
    assert (a_size("64MiB"), a_size(4096)) == (64 << 20, 4096)
    for check, wrong in ((a_duration, 15), (a_duration, "soon"), (a_size, "much"), (a_size, -1)):
        with pytest.raises(Exception, match=r"must be|is not a"):
            check(wrong)
