"""Scores in an object store are the file's, whatever the store does on the way; nothing else there is replaced."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from itertools import chain, repeat
from pathlib import Path

import polars as pl
import pytest

from sciscidata.cli.main import main
from sciscidata.config import BuildConfig
from sciscidata.corpus import stored_scores
from sciscidata.disruption.index import CDConfig
from sciscidata.errors import ConfigError, InputNotFoundError, ReleaseExistsError, StorageError
from sciscidata.pipeline import write_background
from sciscidata.remote import object_store
from sciscidata.remote.object_store import Access, Store
from sciscidata.sources.synthetic.source import SyntheticConfig
from sciscidata.stages import ingest, write_atypicality, write_cd_index, write_cd_sweep, write_null_cd_index
from sciscidata.storage.paths import hash_file
from tests.conftest import REPOSITORY
from tests.servers.faulty_proxy import FAULTS, FaultyProxy
from tests.servers.moto_server import KEYS, s3_server

OUT = "s3://scores/field/cd.parquet"
NAME = "field/cd.parquet"
#: The command, with four parts of a file that would go in one request.
IN_PARTS = """
import sys
from sciscidata.remote import object_store
from sciscidata.cli.main import main
object_store._REQUEST_BYTES = 4_096
sys.exit(main(sys.argv[1:]))
"""


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    home = tmp_path_factory.mktemp("stored")
    ingest(SyntheticConfig(n_works=1_500), home / "world", cache_dir=home)
    write_cd_index(home / "world", home / "cd.parquet", cache_dir=home / "cache")
    return home


@pytest.fixture(scope="module")
def s3():
    with s3_server("scores") as (url, client):
        yield url, client


@pytest.fixture
def nothing_set(monkeypatch):
    """No credentials in the environment, and short waits."""
    for name in [name for name in os.environ if name.startswith(("AWS_", "GOOGLE_", "AZURE_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setattr(object_store, "_FIRST_WAIT_S", 0.01)
    monkeypatch.setattr(object_store, "_LONGEST_WAIT_S", 0.02)


def failing(url):
    return FaultyProxy(url, faults=(*FAULTS, "lost", "lost"))


@pytest.fixture
def proxy(s3, nothing_set, monkeypatch):
    """A store that spoils a fifth of its answers, with a key to it in the environment."""
    with failing(s3[0]) as server:
        for name, value in {**KEYS, "aws_endpoint_url": server.url}.items():
            monkeypatch.setenv(name.upper(), value)
        yield server
    for found in s3[1].list_objects(Bucket="scores").get("Contents", ()):
        s3[1].delete_object(Bucket="scores", Key=found["Key"])


def stored(s3, key=NAME):
    return s3[1].get_object(Bucket="scores", Key=key)["Body"].read()


def writes(proxy, since=0):
    return [method for method, _, _ in proxy.asked[since:] if method in ("PUT", "POST", "DELETE")]


@pytest.mark.parametrize("size", [32 << 20, 4_096], ids=["in one request", "in parts"])
def test_scores_in_a_failing_store_are_the_file_and_only_other_scores_are_replaced_when_asked(
    s3, proxy, size, world, tmp_path, caplog, monkeypatch
):
    monkeypatch.setattr(object_store, "_REQUEST_BYTES", size)
    cache = world / "cache"
    assert write_cd_index(world / "world", OUT, cache_dir=cache) == OUT
    assert stored(s3) == (world / "cd.parquet").read_bytes()
    assert not list(cache.glob("upload-*"))
    before = len(proxy.asked)
    with caplog.at_level(logging.INFO):
        write_cd_index(world / "world", OUT, cache_dir=world / "unused")
    assert "holds these scores already (sha256 " in caplog.text
    assert not writes(proxy, before)
    assert not (world / "unused").exists()
    other = CDConfig(window_years=3)
    with pytest.raises(ReleaseExistsError, match=r"cd.parquet already exists. Choose another URL.*overwrite=True"):
        write_cd_index(world / "world", OUT, other, cache_dir=world / "unused")
    write_cd_index(world / "world", OUT, other, cache_dir=cache, overwrite=True)
    write_cd_index(world / "world", world / "three.parquet", other, cache_dir=cache)
    store = Store("s3://scores", Access({}, "out", "the environment"))
    store.download(store.list_below("field")[NAME], tmp_path / "back", lambda _: None)
    assert (tmp_path / "back").read_bytes() == stored(s3) == (world / "three.parquet").read_bytes()
    assert proxy.n_faults


def spoil(proxy, step, faults):
    """Answer the parts of an upload, or what puts them together, as ``faults`` say; all other requests as before."""

    def decide(address):
        is_part = "partNumber=" in address
        is_end = not is_part and "uploadId=" in address
        return next(faults, None) if {"part": is_part, "end": is_end}[step] else None

    proxy.decide = decide


def test_an_upload_that_fails_or_is_killed_shows_nothing_and_is_repeated(s3, proxy, world, monkeypatch):
    cache = world / "interrupted"
    monkeypatch.setattr(object_store, "_REQUEST_BYTES", 4_096)
    spoil(proxy, "part", chain((None, None), repeat("503")))
    with pytest.raises(StorageError, match=r"cannot be written: .*kept in .*upload-\w+.parquet; the same") as error:
        write_cd_index(world / "world", OUT, cache_dir=cache)
    assert "\n" not in str(error.value)
    assert "Contents" not in s3[1].list_objects(Bucket="scores")

    def kill():
        yield from (None, None)
        run.kill()
        yield from repeat("no answer")

    spoil(proxy, "part", kill())
    words = ["cd", str(world / "world"), "--out", OUT, "--cache-dir", str(cache)]
    environment = os.environ | {"PYTHONPATH": str(REPOSITORY)}
    run = subprocess.Popen([sys.executable, "-c", IN_PARTS, *words], env=environment, stderr=subprocess.PIPE)
    printed = run.communicate()[1]
    assert run.returncode == -9, printed
    assert "Contents" not in s3[1].list_objects(Bucket="scores")
    spoil(proxy, "end", iter(["lost"]))
    monkeypatch.setattr("sciscidata.stages.write_scores", None)
    write_cd_index(world / "world", OUT, cache_dir=cache)  # nothing is scored again
    assert stored(s3) == (world / "cd.parquet").read_bytes()
    assert not list(cache.glob("upload-*"))


def test_every_stage_writes_into_a_store_and_a_large_file_goes_in_parts(s3, proxy, world, monkeypatch):
    monkeypatch.setattr(object_store, "_REQUEST_BYTES", 4_096)
    cache, places = world / "cache", {}
    for write, options in (
        (write_null_cd_index, {"n_draws": 2}),
        (write_atypicality, {}),
        (write_cd_sweep, {"windows": (3,)}),
    ):
        places[write.__name__] = (write, options)
        write(world / "world", f"s3://scores/{write.__name__}.parquet", cache_dir=cache, **options)
    assert writes(proxy).count("POST") >= 6  # begun and ended
    for name, (write, options) in places.items():
        write(world / "world", world / f"{name}.parquet", cache_dir=cache, **options)
        assert stored(s3, f"{name}.parquet") == (world / f"{name}.parquet").read_bytes()
    assert not list(cache.glob("upload-*"))


def test_what_this_package_has_not_written_stays_also_when_it_appears_meanwhile(s3, proxy, world, monkeypatch):
    s3[1].put_object(Bucket="scores", Key=NAME, Body=b"a thesis")
    with pytest.raises(ReleaseExistsError, match=r"no file of scores that this package has uploaded"):
        write_cd_index(world / "world", OUT, cache_dir=world / "unused", overwrite=True)
    s3[1].delete_object(Bucket="scores", Key=NAME)
    cache = world / "apart"

    def appear(file):
        s3[1].put_object(Bucket="scores", Key=NAME, Body=b"a thesis")
        return hash_file(file)

    monkeypatch.setattr(stored_scores, "hash_file", appear)
    with pytest.raises(StorageError, match=r"has changed in the store.*kept in .*upload-\w+.parquet; the same"):
        write_cd_index(world / "world", OUT, cache_dir=cache, overwrite=True)
    assert stored(s3) == b"a thesis"


@pytest.mark.parametrize(
    ("out", "error", "reason"),
    [
        ("s3://scores", ConfigError, "needs the URL of a file, for example s3://scores/cd.parquet"),
        ("s3://scores/cd.csv", ConfigError, "Choose cd.parquet"),
        ("ftp://scores/cd.parquet", ConfigError, r"out is ftp://scores, needs a path, or a URL of a store: s3://"),
        (Path("s3://scores/cd.parquet"), ConfigError, r"out begins with s3:/, as a URL in a Path does"),
        ("az://scores/cd.parquet", ConfigError, "Account must be specified"),
    ],
)
def test_a_wrong_place_is_one_clear_line_before_anything_is_scored(proxy, world, out, error, reason):
    with pytest.raises(error, match=reason) as raised:
        write_cd_index(world / "world", out, cache_dir=world / "unused")
    assert "\n" not in str(raised.value)
    assert not (world / "unused").exists()


def test_a_missing_bucket_is_one_clear_line_before_anything_is_scored(proxy, world):
    out = "s3://no-such-bucket/cd.parquet"
    with pytest.raises(StorageError, match=r"^s3://no-such-bucket at http://127\S+ does not exist") as raised:
        write_cd_index(world / "world", out, cache_dir=world / "unused")
    assert "\n" not in str(raised.value)
    assert not (world / "unused").exists()


def test_a_wrong_key_is_one_clear_line_that_does_not_show_it(proxy, world):
    proxy.decide = lambda address: "403"
    with pytest.raises(InputNotFoundError, match=r"may not be looked at: HEAD .*403 \w+\. Check the cred") as raised:
        write_cd_index(world / "world", OUT, cache_dir=world / "unused")
    message = str(raised.value)
    assert "\n" not in message
    assert KEYS["aws_secret_access_key"] not in message
    assert not (world / "unused").exists()


def test_google_is_not_asked_to_write_without_credentials(s3, nothing_set, world, monkeypatch):
    monkeypatch.setenv("GOOGLE_BASE_URL", s3[0])
    with pytest.raises(StorageError, match=r"^gs://open cannot be written without credentials\. Set GOOGLE_SERV"):
        write_cd_index(world / "world", "gs://open/cd.parquet", cache_dir=world / "unused")


def test_the_command_takes_a_url_and_others_name_the_remedy(s3, proxy, world, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    corpus = str(world / "world")
    assert main(["sweep", corpus, "--window", "3", "--out", "s3://scores/sweep.parquet"]) == 0
    printed = capsys.readouterr().out
    assert "scores: s3://scores/sweep.parquet" in printed
    assert "picture: none" in printed
    assert pl.read_parquet(stored(s3, "sweep.parquet")).height
    for words in (
        ["build", "--corpus", corpus],
        ["background", "--corpus", corpus],
        ["ingest", "--source", "synthetic"],
    ):
        assert main([*words, "--out", "s3://scores/x.parquet"]) == 1
        assert "--out is a URL (s3://), needs a path on a disk. Only files of scores" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["verify", "s3://scores/cd.parquet"])
    assert "is a URL, needs a path on a disk. Copy the file out of the store first" in capsys.readouterr().err
    for give in (
        lambda out: BuildConfig(source=SyntheticConfig(), out=out),
        lambda out: write_background(SyntheticConfig(), out),
        lambda out: ingest(SyntheticConfig(), out, cache_dir=tmp_path),
    ):
        for out in ("s3://scores/x.parquet", Path("s3://scores/x.parquet")):
            with pytest.raises(ConfigError, match="sciscidata publish"):
                give(out)
    assert not list(tmp_path.iterdir())
