"""A folder appears whole or not at all, whatever happens in between."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from sciscidata.errors import EmptyInputError, StorageError
from sciscidata.storage import atomic_folder

NOBODY = 999_999_999  # above every pid_max


def names(folder: Path) -> list[str]:
    return sorted(entry.name for entry in folder.iterdir())


def fail_half_way(target: Path):
    def fill():
        with atomic_folder(target, overwrite=True) as folder:
            (folder / "new.txt").write_text("new")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fill()


def test_the_folder_appears_only_when_the_block_ends(tmp_path):
    target = tmp_path / "deep" / "result"
    with atomic_folder(target) as folder:
        (folder / "a.txt").write_text("a")
        assert not target.exists()
        assert folder.parent == target.parent
    assert (target / "a.txt").read_text() == "a"
    assert names(target.parent) == ["result"]


def test_a_failing_block_leaves_nothing_and_its_own_error(tmp_path):
    def fail():
        with atomic_folder(tmp_path / "result") as folder:
            (folder / "a.txt").write_text("a")
            raise EmptyInputError("no work")

    with pytest.raises(EmptyInputError, match="no work"):
        fail()
    assert names(tmp_path) == []


def test_overwriting_replaces_the_whole_folder(tmp_path):
    target = tmp_path / "result"
    target.mkdir()
    (target / "old.txt").write_text("old")
    with atomic_folder(target, overwrite=True) as folder:
        (folder / "new.txt").write_text("new")
        assert names(target) == ["old.txt"]
    assert names(target) == ["new.txt"]
    assert names(tmp_path) == ["result"]


def test_a_failing_overwrite_keeps_the_old_folder(tmp_path):
    target = tmp_path / "result"
    target.mkdir()
    (target / "old.txt").write_text("old")
    fail_half_way(target)
    assert names(target) == ["old.txt"]
    assert names(tmp_path) == ["result"]


def test_a_target_that_appears_meanwhile_is_not_replaced(tmp_path):
    target = tmp_path / "result"

    def race():
        with atomic_folder(target) as folder:
            (folder / "ours.txt").write_text("ours")
            target.mkdir()
            (target / "theirs.txt").write_text("theirs")

    with pytest.raises(StorageError, match="in the way"):
        race()
    assert names(target) == ["theirs.txt"]
    assert names(tmp_path) == ["result"]


def test_a_symbolic_link_is_kept_and_the_folder_behind_it_replaced(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    with atomic_folder(tmp_path / "link", overwrite=True) as folder:
        (folder / "a.txt").write_text("a")
    assert (tmp_path / "link").is_symlink()
    assert names(tmp_path / "real") == ["a.txt"]


def test_a_file_in_the_way_is_named_with_a_remedy(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match=r"cannot write .*result.*move it"):  # noqa: SIM117
        with atomic_folder(tmp_path / "file" / "result"):
            pass


def test_a_full_disk_is_a_storage_error_with_a_remedy(tmp_path):
    if not Path("/dev/full").exists():
        pytest.skip("no /dev/full here")
    with pytest.raises(StorageError, match=r"cannot write .*No space.*Free some disk space"):  # noqa: SIM117
        with atomic_folder(tmp_path / "result"), Path("/dev/full").open("wb", buffering=0) as full:
            full.write(b"x")
    assert names(tmp_path) == []


def test_an_input_that_cannot_be_read_is_not_taken_for_the_output(tmp_path):
    (tmp_path / "in").mkdir()
    with pytest.raises(IsADirectoryError), atomic_folder(tmp_path / "out" / "result"):
        (tmp_path / "in").read_text()
    for number in (errno.EACCES, errno.ENOTDIR):
        with pytest.raises(OSError, match="input") as raised, atomic_folder(tmp_path / "out" / "result"):
            raise OSError(number, "no", str(tmp_path / "input"))
        assert not isinstance(raised.value, StorageError)


def test_a_read_only_parent_is_a_storage_error(tmp_path):
    if os.geteuid() == 0:
        pytest.skip("root may write everywhere")
    tmp_path.chmod(0o500)
    with pytest.raises(StorageError, match="permissions"), atomic_folder(tmp_path / "result"):
        pass


def test_leftovers_of_killed_runs_are_removed_and_those_of_living_runs_kept(tmp_path):
    living = os.getppid()
    for name in (
        f".result.tmp-{NOBODY}",
        f".result.old-{NOBODY}",
        f".result.tmp-{living}",
        f".other.tmp-{NOBODY}",
    ):
        (tmp_path / name).mkdir()
        (tmp_path / name / "half.txt").write_text("half")
    (tmp_path / "result").mkdir()
    with atomic_folder(tmp_path / "result", overwrite=True):
        pass
    assert names(tmp_path) == sorted([f".result.tmp-{living}", f".other.tmp-{NOBODY}", "result"])


def test_a_folder_put_aside_by_a_killed_run_is_restored(tmp_path):
    (tmp_path / f".result.old-{NOBODY}").mkdir()
    (tmp_path / f".result.old-{NOBODY}" / "old.txt").write_text("old")
    fail_half_way(tmp_path / "result")
    assert names(tmp_path) == ["result"]
    assert names(tmp_path / "result") == ["old.txt"]


def test_a_killed_run_leaves_no_target_and_the_next_run_cleans_up(tmp_path):
    program = (
        "import os, signal, sys; from pathlib import Path; from sciscidata.storage import atomic_folder\n"
        "with atomic_folder(Path(sys.argv[1])) as folder:\n"
        "    (folder / 'half.txt').write_text('half'); os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    subprocess.run([sys.executable, "-c", program, str(tmp_path / "result")], check=False)
    assert [name.split("-")[0] for name in names(tmp_path)] == [".result.tmp"]
    with atomic_folder(tmp_path / "result") as folder:
        (folder / "whole.txt").write_text("whole")
    assert names(tmp_path) == ["result"]
