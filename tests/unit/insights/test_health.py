"""The health of the machine, part by part."""

from headgate.insights import health


def test_a_directory_that_does_not_exist_yet_is_judged_by_its_parent(tmp_path):
    assert health.check_disk(tmp_path / "not" / "yet").state == "fine"


def test_a_missing_extra_is_absent_and_not_missing(monkeypatch):
    monkeypatch.setattr(health, "_installed_version", lambda package: None)
    assert [found.state for found in health.check_spark(start=False)] == ["absent"]
    assert health.check_postgres(None).advice.startswith("pip install 'headgate[postgres]'")


def test_an_old_sqlite_is_missing(monkeypatch):
    monkeypatch.setattr("apsw.sqlite_lib_version", lambda: "3.45.0")
    assert health.check_sqlite().state == "missing"


def test_a_slow_disk_is_weak(monkeypatch, tmp_path):
    monkeypatch.setattr(health, "_time_sync", lambda file: 0.05)
    assert health.check_sync(tmp_path).state == "weak"


def test_the_fsync_check_leaves_no_file_behind(tmp_path):
    health.check_sync(tmp_path)
    assert list(tmp_path.iterdir()) == []
