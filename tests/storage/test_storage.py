"""A folder appears whole or not at all, whatever happens in between."""

from __future__ import annotations

import errno
import logging
import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from sciscidata.errors import EmptyInputError, StorageError
from sciscidata.storage import (
    atomic_file,
    atomic_folder,
    cached_folder,
    hash_file,
    note_finished,
    resumable_folder,
    scratch_folder,
)

STALE = ".result.tmp-0123456789abcdef"


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
        assert folder.is_relative_to(target.parent)
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
    for target in (tmp_path / "file" / "result", tmp_path / "file" / "deep" / "result"):
        with pytest.raises(StorageError, match=r"cannot write .*result: .*file is a file, not a folder.*move it"):  # noqa: SIM117
            with atomic_folder(target):
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


@pytest.mark.parametrize("kind", [PermissionError, ValueError])  # Polars sets no number and no name of a file
def test_a_file_that_is_named_in_the_text_alone_tells_input_from_output_too(tmp_path, kind):
    def failing(path):
        with atomic_folder(tmp_path / "home" / "out") as folder:
            raise kind(f"Permission denied (os error 13): {path or folder / 'part.parquet'}")

    with pytest.raises(kind, match="input"):
        failing(tmp_path / "input.parquet")
    cut_off = "(set POLARS_VERBOSE=1 to see full path)"
    for path in (None, f"...home/.out.tmp-{'0' * 16}/new/a {cut_off}", f"...ut.tmp-{'0' * 16}/new/a {cut_off}"):
        with pytest.raises(StorageError, match=r"cannot write .*out: Permission denied"):
            failing(path)
    for path in (f"...cut/off/part.parquet {cut_off}", f"...home/.other.tmp-{'0' * 16}/new/a {cut_off}"):
        with pytest.raises(kind, match="os error 13") as raised:
            failing(path)
        assert not isinstance(raised.value, StorageError)


def test_an_input_that_lies_beside_the_output_is_not_taken_for_it(tmp_path):
    target = tmp_path / "out"
    inputs = [
        "works.parquet",
        "out.parquet",
        ".out.parquet",
        f".out.tmp-{'0' * 15}",
        "outer/x",
        f".other.tmp-{'0' * 16}/new",
    ]
    for name in inputs:
        for error in (
            OSError(errno.EACCES, "no", str(tmp_path / name)),
            OSError(f"no (os error 13): {tmp_path / name}"),
        ):
            with pytest.raises(OSError, match=r"\bno\b") as raised, atomic_folder(target):
                raise error
            assert not isinstance(raised.value, StorageError)
    ours = ["out", "out/a", "", f".out.tmp-{'0' * 16}/new/a", f".out.new-{'0' * 16}", ".out.unfinished/lock"]
    for name in ours:
        with pytest.raises(StorageError, match="cannot write"), atomic_folder(target):
            raise OSError(errno.EACCES, "no", str(tmp_path / name))


def test_leftovers_of_killed_runs_are_removed_and_nothing_else(tmp_path):
    others = [".other.tmp-0123456789abcdef", ".result.tmp-of-mine", ".result.tmp-0123456789abcdee"]
    for name in (STALE, *others):
        (tmp_path / name).mkdir()
        (tmp_path / name / "half.txt").write_text("half")
    for name in (STALE, *others[:2]):  # the last one is no unfinished run: it has no lock
        (tmp_path / name / "lock").touch()
    with atomic_folder(tmp_path / "result"):
        pass
    assert names(tmp_path) == sorted([*others, "result"])


def test_the_work_of_a_living_run_is_kept_whoever_it_belongs_to(tmp_path):
    target = tmp_path / "result"
    with atomic_folder(target, overwrite=True) as first:
        (first / "first.txt").write_text("first")
        with atomic_folder(target, overwrite=True) as second:
            (second / "second.txt").write_text("second")
        assert names(target) == ["second.txt"]
        assert names(first) == ["first.txt"]
    assert names(target) == ["first.txt"]
    assert names(tmp_path) == ["result"]


def test_a_disk_without_locks_is_written_and_its_leftovers_kept(tmp_path, monkeypatch):
    fcntl = pytest.importorskip("fcntl")

    def refuse(*_):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", refuse)
    (tmp_path / STALE).mkdir()
    (tmp_path / STALE / "lock").touch()
    with atomic_folder(tmp_path / "result"):
        pass
    assert names(tmp_path) == [STALE, "result"]


def test_a_folder_put_aside_by_a_killed_run_is_restored(tmp_path):
    (tmp_path / STALE / "old").mkdir(parents=True)
    (tmp_path / STALE / "old" / "old.txt").write_text("old")
    (tmp_path / STALE / "lock").touch()
    fail_half_way(tmp_path / "result")
    assert names(tmp_path) == ["result"]
    assert names(tmp_path / "result") == ["old.txt"]


def test_a_folder_put_aside_comes_back_when_the_new_one_cannot_take_its_place(tmp_path, monkeypatch):
    target = tmp_path / "result"
    target.mkdir()
    (target / "old.txt").write_text("old")
    rename = Path.rename

    def fail_for_the_new(self, to):
        if self.name == "new":
            raise OSError(errno.EIO, "Input/output error", str(self))
        return rename(self, to)

    monkeypatch.setattr(Path, "rename", fail_for_the_new)
    with pytest.raises(StorageError, match="disk reports an error"), atomic_folder(target, overwrite=True):
        assert names(target) == ["old.txt"]
    assert names(target) == ["old.txt"]
    assert names(tmp_path) == ["result"]


def test_every_file_and_folder_is_on_the_disk_before_the_result_appears(tmp_path, monkeypatch):
    flushed = []

    def record(descriptor):
        flushed.append((os.fstat(descriptor).st_ino, (tmp_path / "result").exists()))

    monkeypatch.setattr(os, "fsync", record)
    with atomic_folder(tmp_path / "result") as folder:
        (folder / "deep").mkdir()
        (folder / "deep" / "a.txt").write_text("a")
        (folder / "b.txt").write_text("b")
    made = [tmp_path / "result" / name for name in ("deep/a.txt", "b.txt", "deep", ".")]
    assert {(path.stat().st_ino, False) for path in made} <= set(flushed)
    assert flushed[-1] == (tmp_path.stat().st_ino, True)


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


def test_a_file_appears_only_when_the_block_ends_and_replaces_what_was_there(tmp_path):
    target = tmp_path / "deep" / "a.txt"
    for text in ("old", "new"):
        with atomic_file(target) as path:
            path.write_text(text)
            assert (target.read_text() if target.exists() else None) == {"old": None, "new": "old"}[text]
        assert target.read_text() == text
        assert names(target.parent) == ["a.txt"]


@pytest.mark.parametrize("error", [RuntimeError("no"), OSError(errno.ENOSPC, "full"), KeyboardInterrupt()])
def test_a_failing_block_keeps_the_old_file(tmp_path, error):
    target = tmp_path / "a.txt"
    target.write_text("old")

    def fail():
        with atomic_file(target) as path:
            path.write_text("half")
            raise error

    with pytest.raises(StorageError if isinstance(error, OSError) else type(error)):
        fail()
    assert target.read_text() == "old"
    assert names(tmp_path) == ["a.txt"]


def test_a_full_disk_for_temporary_files_is_a_storage_error_and_an_input_is_not(tmp_path):
    with pytest.raises(StorageError, match=r"cannot write .*No space.* TMPDIR"), scratch_folder() as folder:
        raise OSError(errno.ENOSPC, "No space left on device")
    assert not folder.exists()
    with pytest.raises(FileNotFoundError) as raised, scratch_folder():
        (tmp_path / "input").read_text()
    assert not isinstance(raised.value, StorageError)


def test_too_few_open_files_are_said_with_the_way_to_more():
    code = (
        "import resource\nfrom sciscidata.storage import scratch_folder\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))\n"
        "with scratch_folder() as folder:\n    files = [(folder / str(i)).open('w') for i in range(80)]"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "StorageError: cannot write" in done.stderr
    assert "Too many open files. Allow this process more open files: ulimit -n 4096." in done.stderr


def test_scratch_of_a_killed_run_is_gone_at_the_next_one_and_a_living_run_keeps_its_own(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    code = (
        "import os, signal\nfrom sciscidata.storage import scratch_folder\n"
        "with scratch_folder() as folder:\n    (folder / 'large').touch()\n    os.kill(os.getpid(), signal.SIGKILL)"
    )
    subprocess.run([sys.executable, "-c", code], env=os.environ | {"TMPDIR": str(tmp_path)}, check=False)
    assert [path.name for path in tmp_path.rglob("large")] == ["large"]
    with scratch_folder() as folder:
        assert list(tmp_path.rglob("large")) == []
        (folder / "mine").touch()
        with scratch_folder() as other:
            assert other != folder
            assert (folder / "mine").exists()
            assert list(other.iterdir()) == []
            assert stat.S_IMODE(other.stat().st_mode) == 0o700
    assert list(tmp_path.iterdir()) == []


def fill(folder: Path) -> None:
    (folder / "a.bin").write_bytes(bytes(1000))
    (folder / "b.json").write_text("{}")


def test_a_whole_cached_folder_is_used_again(tmp_path, caplog):
    made = cached_folder(tmp_path / "kept", fill)
    (made / ".DS_Store").touch()
    assert cached_folder(tmp_path / "kept", lambda _: pytest.fail("made again")) == made
    assert not caplog.records
    if shutil.which("sha256sum"):
        subprocess.run(["sha256sum", "--check", "--strict", "SHA256SUMS"], cwd=made, check=True)


DAMAGES = {
    "a file cut off": lambda folder: os.truncate(folder / "a.bin", 101),
    "a byte changed": lambda folder: (folder / "a.bin").write_bytes(bytes(999) + b"x"),
    "a file lost": lambda folder: (folder / "b.json").unlink(),
    "a file too many": lambda folder: (folder / "c.txt").touch(),
    "the sums lost": lambda folder: (folder / "SHA256SUMS").unlink(),
    "the sums changed": lambda folder: (folder / "SHA256SUMS").write_bytes(b"\xff"),
    "all lost": lambda folder: [path.unlink() for path in folder.iterdir()],
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES.keys())
def test_a_damaged_cached_folder_is_made_again_with_a_warning(tmp_path, damage, caplog):
    made = cached_folder(tmp_path / "kept", fill)
    damage(made)
    with caplog.at_level(logging.WARNING):
        cached_folder(tmp_path / "kept", fill)
    assert "kept is damaged or unfinished" in caplog.text
    assert names(made) == ["SHA256SUMS", "a.bin", "b.json"]
    assert (made / "a.bin").read_bytes() == bytes(1000)
    cached_folder(tmp_path / "kept", lambda _: pytest.fail("made again"))


def test_a_folder_that_another_run_makes_while_it_is_looked_for_is_not_called_damaged(tmp_path, monkeypatch, caplog):
    def look_too_early(folder):
        monkeypatch.undo()
        assert not folder.exists()
        assert cached_folder(folder, fill) == folder  # the other run
        return False

    monkeypatch.setattr("sciscidata.storage.cache.is_whole_folder", look_too_early)
    assert names(cached_folder(tmp_path / "kept", fill)) == ["SHA256SUMS", "a.bin", "b.json"]
    assert "damaged" not in caplog.text
    assert names(tmp_path) == ["kept"]


def test_what_is_no_cached_folder_is_not_taken_for_one(tmp_path):
    (tmp_path / "kept").write_text("a file")
    with pytest.raises(StorageError, match="in the way"):
        cached_folder(tmp_path / "kept", fill)
    assert (tmp_path / "kept").read_text() == "a file"


def finish(folder: Path, name: str, content: bytes = b"") -> None:
    (folder / name).parent.mkdir(exist_ok=True)
    (folder / name).write_bytes(content)
    note_finished(folder, name, hash_file(folder / name))


def fill_and_stop(target: Path, error: BaseException, expected: type[BaseException] | None = None):
    def fill_some():
        with resumable_folder(target) as folder:
            finish(folder, "first")
            raise error

    with pytest.raises(expected or type(error)):
        fill_some()


def test_an_interrupted_folder_is_there_for_the_next_run_and_then_gone(tmp_path):
    fill_and_stop(tmp_path / "result", KeyboardInterrupt())
    assert names(tmp_path) == [".result.unfinished"]
    with resumable_folder(tmp_path / "result") as folder:
        assert names(folder) == ["first"]
        (folder / "second").touch()
    assert names(tmp_path) == ["result"]
    assert names(tmp_path / "result") == ["first", "second"]


def test_a_failed_folder_is_not_kept(tmp_path):
    for error in (EmptyInputError("no work"), RuntimeError("a mistake")):
        fill_and_stop(tmp_path / "result", error)
        assert names(tmp_path) == []


@pytest.mark.parametrize("error", [StorageError("disk is full"), OSError(errno.ENOSPC, "No space left on device")])
def test_a_folder_for_which_the_disk_was_too_small_goes_on_when_there_is_room(tmp_path, error):
    fill_and_stop(tmp_path / "result", error, StorageError)
    assert names(tmp_path) == [".result.unfinished"]
    with resumable_folder(tmp_path / "result") as folder:
        assert names(folder) == ["first"]
    assert names(tmp_path) == ["result"]


def test_what_another_run_has_made_meanwhile_leaves_no_half_work_beside_it(tmp_path):
    def race():
        with resumable_folder(tmp_path / "result"):
            (tmp_path / "result").mkdir()
            (tmp_path / "result" / "theirs").touch()

    with pytest.raises(StorageError, match="in the way"):
        race()
    assert names(tmp_path) == ["result"]


def test_a_second_run_on_the_same_folder_begins_anew_and_disturbs_nobody(tmp_path):
    with resumable_folder(tmp_path / "result") as first:
        (first / "first").touch()
        fill_and_stop(tmp_path / "result", RuntimeError())
        assert names(first) == ["first"]
        cached_folder(tmp_path / "result", fill, resume=True)
        with pytest.raises(OSError, match="not empty"):
            first.rename(tmp_path / "result")
        shutil.rmtree(tmp_path / "result")
    assert names(tmp_path) == ["result"]
    assert names(tmp_path / "result") == ["first"]


def test_a_killed_run_is_resumed(tmp_path):
    program = (
        "import os, signal, sys; from pathlib import Path\n"
        "from sciscidata.storage import hash_file, note_finished, resumable_folder\n"
        "with resumable_folder(Path(sys.argv[1])) as folder:\n"
        "    (folder / 'first').touch(); (folder / 'second').touch()\n"
        "    note_finished(folder, 'first', hash_file(folder / 'first'))\n"
        "    os.kill(os.getpid(), signal.SIGKILL)"
    )
    done = subprocess.run([sys.executable, "-c", program, str(tmp_path / "result")], check=False)
    assert done.returncode == -9
    with resumable_folder(tmp_path / "result") as folder:
        assert names(folder) == ["first"]
    assert names(tmp_path) == ["result"]


def test_a_cached_folder_that_was_interrupted_goes_on(tmp_path):
    def interrupted(folder):
        finish(folder, "a.bin", bytes(1000))
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        cached_folder(tmp_path / "kept", interrupted, resume=True)
    made = cached_folder(tmp_path / "kept", lambda folder: (folder / "b.json").write_text("{}"), resume=True)
    assert names(made) == ["SHA256SUMS", "a.bin", "b.json"]
    assert cached_folder(tmp_path / "kept", lambda _: pytest.fail("made again")) == made


HALF_WORK = {
    "a file cut off": lambda folder: os.truncate(folder / "a", 2),
    "a byte changed": lambda folder: (folder / "a").write_bytes(b"aaaX"),
    "a file replaced by a link to the same content": lambda folder: swap_for_link(folder / "a"),
    "the note lost": lambda folder: (folder.parent / "finished").write_text(""),
    "the note damaged": lambda folder: (folder.parent / "finished").write_bytes(b"\xff\xfe\n"),
    "the note a link": lambda folder: swap_for_link(folder.parent / "finished"),
    "half a note": lambda folder: os.truncate(folder.parent / "finished", 60),
}


def swap_for_link(path: Path) -> None:
    path.rename(path.with_name("aside"))
    path.symlink_to("aside")


@pytest.mark.parametrize("damage", HALF_WORK.values(), ids=HALF_WORK.keys())
def test_half_work_that_was_damaged_is_not_gone_on_with(tmp_path, damage):
    def stop():
        with resumable_folder(tmp_path / "result") as folder:
            finish(folder, "a", b"aaaa")
            (folder / "unfinished").write_bytes(b"bb")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        stop()
    damage(tmp_path / ".result.unfinished" / "new")
    with resumable_folder(tmp_path / "result") as folder:
        assert names(folder) == []
        finish(folder, "a", b"aaaa")
    assert names(tmp_path) == ["result"]


SPOOL_DAMAGES = {
    "none": lambda spool: None,
    "changed": lambda spool: (spool / "two").write_bytes(b"23"),
    "lost": lambda spool: (spool / "one").unlink(),
    "too many": lambda spool: (spool / "three").touch(),
}


@pytest.mark.parametrize("damage", SPOOL_DAMAGES)
def test_a_folder_of_half_work_is_kept_whole_or_not_at_all(tmp_path, damage):
    def stop():
        with resumable_folder(tmp_path / "result") as folder:
            finish(folder, "spool/one", b"1")
            finish(folder, "spool/two", b"22")
            finish(folder, "other", b"3")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        stop()
    SPOOL_DAMAGES[damage](tmp_path / ".result.unfinished" / "new" / "spool")
    with resumable_folder(tmp_path / "result") as folder:
        assert names(folder) == (["other", "spool"] if damage == "none" else ["other"])


def test_nothing_is_written_through_a_link_in_the_place_of_our_own_folders(tmp_path):
    victim = tmp_path / "victim"
    victim.mkdir()
    (victim / "lock").write_text("mine")
    (victim / "old").mkdir()
    for link in (".kept.unfinished", "kept"):
        (tmp_path / link).symlink_to(victim)
        with pytest.raises(StorageError, match="is a link"):
            cached_folder(tmp_path / "kept", fill, resume=True)
        (tmp_path / link).unlink()
    (tmp_path / ".kept.tmp-0123456789abcdef").symlink_to(victim)  # what a killed run leaves, but for the link
    cached_folder(tmp_path / "kept", fill, resume=True)
    assert names(tmp_path / "kept") == ["SHA256SUMS", "a.bin", "b.json"]
    assert names(victim) == ["lock", "old"]
    assert (victim / "lock").read_text() == "mine"


def test_a_file_that_appears_meanwhile_is_kept_where_nothing_was_to_be_replaced(tmp_path):
    target = tmp_path / "pairs.parquet"

    def race():
        with atomic_file(target, overwrite=False) as path:
            path.write_text("ours")
            target.write_text("theirs")

    with pytest.raises(StorageError, match="another run has made it meanwhile"):
        race()
    assert target.read_text() == "theirs"
    assert names(tmp_path) == ["pairs.parquet"]


@pytest.mark.skipif(sys.platform == "win32", reason="no locks there")
def test_runs_that_replace_one_folder_at_once_all_end_well_and_leave_one_whole_result(tmp_path):
    program = """
import sys
from pathlib import Path
from sciscidata.storage import atomic_folder
for turn in range(60):
    with atomic_folder(Path("result"), overwrite=True) as folder:
        for name in ("first", "second"):
            (folder / name).write_text(sys.argv[1] + str(turn))
"""
    runs = [
        subprocess.Popen([sys.executable, "-c", program, run], cwd=tmp_path, stderr=subprocess.PIPE, text=True)
        for run in "abc"
    ]
    errors = [run.communicate(timeout=600)[1] for run in runs]
    assert [run.returncode for run in runs] == [0, 0, 0], errors
    assert names(tmp_path) == ["result"]
    assert (tmp_path / "result" / "first").read_text() == (tmp_path / "result" / "second").read_text()


@pytest.mark.skipif(sys.platform == "win32", reason="no such locks there")
def test_a_folder_that_somebody_else_keeps_locked_is_not_waited_for_without_end(tmp_path, monkeypatch):
    import fcntl

    monkeypatch.setattr("sciscidata.storage.lock._PATIENCE_S", 0.05)
    descriptor = os.open(tmp_path, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)  # as `flock FOLDER sciscidata ...` does
        with atomic_file(tmp_path / "out.txt") as path:
            path.write_text("whole")
    finally:
        os.close(descriptor)
    assert (tmp_path / "out.txt").read_text() == "whole"
