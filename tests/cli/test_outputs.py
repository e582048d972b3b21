"""A command replaces files and folders of ours only: as root, and behind a link, too."""

from __future__ import annotations

import os
import socket
import stat
import subprocess
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

from sciscidata.cli.main import main
from sciscidata.config import BuildConfig
from sciscidata.errors import SciSciDataError
from sciscidata.pipeline import build, write_background
from sciscidata.sampling.config import SplitConfig
from sciscidata.sources.synthetic.source import SyntheticConfig
from sciscidata.stages import ingest, write_cd_index, write_cd_sweep
from sciscidata.storage import atomic_file, atomic_folder, whole_when_done
from sciscidata.storage.sums import sealed_file

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="has no such files")
SOURCE = SyntheticConfig(n_works=1_000)
MINE = "<h1>my thesis</h1>"


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("outputs")
    places = {"cache_dir": home / "cache"}
    build(BuildConfig(source=SOURCE, **places, out=home / "slice", split=SplitConfig(n_train=30, n_test=9)))
    ingest(SOURCE, home / "world", **places)
    write_cd_index(home / "world", home / "cd.parquet", **places)
    return home


def kind(path: Path) -> int:
    return stat.S_IFMT(path.lstat().st_mode)


def make_pipe(path: Path) -> None:
    os.mkfifo(path)


def make_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as one:
        here = Path.cwd()
        os.chdir(path.parent)  # a path of a socket has 107 letters at most
        one.bind(path.name)
        os.chdir(here)


def make_device(path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root makes devices")
    try:
        os.mknod(path, stat.S_IFCHR | 0o666, os.makedev(1, 3))
    except PermissionError:
        pytest.skip("this container makes no devices")


MAKERS = [make_pipe, make_socket, make_device]


@contextmanager
def untouched(place: Path) -> Generator[None]:
    """Nothing in a folder is replaced, removed or added while the block runs, unless below a folder that is asked."""

    def look() -> dict[str, tuple[int, int, bytes]]:
        return {
            path.name: (kind(path), path.lstat().st_ino, path.read_bytes() if kind(path) == stat.S_IFREG else b"")
            for path in place.iterdir()
        }

    before = look()
    yield
    assert look() == before


@pytest.mark.parametrize("make", MAKERS)
@pytest.mark.parametrize("is_link", [False, True])
@pytest.mark.parametrize("write", [atomic_file, atomic_folder, whole_when_done, sealed_file])
def test_no_writer_replaces_a_pipe_a_socket_or_a_device(
    tmp_path: Path, make: Callable[[Path], None], is_link: bool, write: Callable[..., object]
) -> None:
    there = tmp_path / "there"
    make(there)
    target = tmp_path / "target"
    target.symlink_to(there) if is_link else there.rename(target)
    real = there if is_link else target
    before = kind(real), real.lstat().st_ino

    def act() -> None:
        options = {"overwrite": True} if write in (atomic_file, atomic_folder) else {}
        with write(target, **options) as unfinished:
            (unfinished / "a" if unfinished.is_dir() else unfinished).write_text("new")

    if is_link and write is whole_when_done:  # replaces a link in a folder of its own, and never follows it
        act()
    else:
        with pytest.raises(SciSciDataError, match=r": it is a (pipe|socket|device), which is never replaced"):
            act()
    assert (kind(real), real.lstat().st_ino) == before


def refuses(home: Path, *words: str, capsys: pytest.CaptureFixture[str], says: str = "") -> None:
    assert main([*words, "--cache-dir", str(home / "cache")] if words[0] != "describe" else [*words]) == 1
    err = capsys.readouterr().err
    assert err.count("error: ") == 1
    assert says in err


@pytest.mark.parametrize("make", MAKERS)
@pytest.mark.parametrize("is_link", [False, True])
def test_no_command_replaces_a_pipe_a_socket_or_a_device(
    home: Path, tmp_path: Path, make: Callable[[Path], None], is_link: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("x.html", "x.parquet", "x.png", "folder"):
        if is_link:
            make(tmp_path / f"to.{name}")
            (tmp_path / name).symlink_to(f"to.{name}")
        else:
            make(tmp_path / name)
    slice_, world, synthetic = str(home / "slice"), str(home / "world"), ["--source", "synthetic", "--n-works", "1000"]
    page, table, picture, folder = (str(tmp_path / name) for name in ("x.html", "x.parquet", "x.png", "folder"))
    with untouched(tmp_path):
        for words in (
            ("describe", slice_, "--html", page),
            ("describe", slice_, "--html", page, "--overwrite"),
            ("cd", world, "--out", table, "--overwrite"),
            ("null-cd", world, "--out", table, "--overwrite"),
            ("novelty", world, "--out", table, "--overwrite"),
            ("sweep", world, "--out", table, "--overwrite"),
            ("background", *synthetic, "--out", table, "--overwrite"),
            ("diagnose", world, "--picture", picture),
            ("build", *synthetic, "--out", folder, "--overwrite"),
            ("ingest", *synthetic, "--out", folder),
            ("export", *synthetic, "--out", folder),
        ):
            refuses(home, *words, capsys=capsys)
        assert main(["publish", slice_, "--to", folder]) == 1
    (tmp_path / "x.parquet").unlink()
    with untouched(tmp_path), pytest.raises(SciSciDataError, match=r"x\.png: it is a"):  # the picture of a sweep
        write_cd_sweep(world, table, cache_dir=home / "cache", overwrite=True)


def test_describe_as_root_leaves_dev_null_a_device(home: Path, tmp_path: Path) -> None:
    link = tmp_path / "page.html"
    link.symlink_to("/dev/null")
    for target in ("/dev/null", str(link)):
        words = ["-m", "sciscidata", "describe", str(home / "slice"), "--html", target, "--overwrite"]
        ended = subprocess.run([sys.executable, *words], capture_output=True, text=True, check=False)
        assert ended.returncode == 1
        assert "it is a device, which is never replaced" in ended.stderr
    assert stat.S_ISCHR(Path("/dev/null").stat().st_mode)


def test_a_file_of_somebody_else_stays_also_behind_a_link(home: Path, tmp_path: Path) -> None:
    thesis = tmp_path / "thesis"
    for name in ("x.html", "x.parquet", "x.png", "x.svg"):
        (tmp_path / name).symlink_to(thesis)
    world, slice_, cache = home / "world", home / "slice", home / "cache"
    for content in (MINE, "", "PAR1"):
        thesis.write_text(content)
        with untouched(tmp_path):
            assert main(["describe", str(slice_), "--html", str(tmp_path / "x.html")]) == 1
            for suffix in ("png", "svg"):
                words = ["diagnose", str(world), "--picture", str(tmp_path / f"x.{suffix}")]
                assert main([*words, "--cache-dir", str(cache)]) == 1
            with pytest.raises(SciSciDataError, match="not replaced"):
                write_background(SOURCE, tmp_path / "x.parquet", cache_dir=cache, overwrite=True)
            with pytest.raises(SciSciDataError, match="not replaced"):
                write_cd_index(world, tmp_path / "x.parquet", cache_dir=cache, overwrite=True)
    with untouched(tmp_path):  # before the sweep is made
        (tmp_path / "x.parquet").rename(tmp_path / "elsewhere")
        with pytest.raises(SciSciDataError, match=r"x\.png already exists"):
            write_cd_sweep(world, tmp_path / "x.parquet", cache_dir=cache, overwrite=True)
        (tmp_path / "elsewhere").rename(tmp_path / "x.parquet")


def test_what_a_command_has_written_it_writes_again_also_behind_a_link(home: Path, tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    places = ["--cache-dir", str(home / "cache")]
    for name, words in {
        "x.html": ["describe", str(home / "slice"), "--html"],
        "x.png": ["diagnose", str(home / "world"), *places, "--picture"],
        "x.svg": ["diagnose", str(home / "world"), *places, "--picture"],
        "x.pdf": ["diagnose", str(home / "world"), *places, "--picture"],
    }.items():
        (tmp_path / name).symlink_to(tmp_path / "there" / name)
        for _ in range(2):
            assert main([*words, str(tmp_path / name)]) == 0
        assert (tmp_path / name).is_symlink()
        assert (tmp_path / "there" / name).stat().st_size > 1_000
