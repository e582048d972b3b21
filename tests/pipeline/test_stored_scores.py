"""Scores in an object store are the file's, whatever the store does on the way; nothing else there is replaced."""

from __future__ import annotations

import logging
import os
from pathlib import Path

import polars as pl
import pytest

from sciscidata._support import object_store
from sciscidata.cli.main import main
from sciscidata.config import BuildConfig
from sciscidata.corpus import stored_scores
from sciscidata.disruption.index import CDConfig
from sciscidata.errors import ConfigError, InputNotFoundError, ReleaseExistsError, StorageError
from sciscidata.pipeline import write_background
from sciscidata.sources.synthetic.source import SyntheticConfig
from sciscidata.stages import ingest, write_atypicality, write_cd_index, write_cd_sweep, write_null_cd_index
from sciscidata.storage.paths import hash_file
from tests.servers.faulty_proxy import FAULTS, FaultyProxy
from tests.servers.moto_server import KEYS, s3_server
from tests.servers.serving import serving
from tests.servers.store_server import StoreServer

OUT = "s3://scores/field/cd.parquet"


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
def proxy(s3, monkeypatch):
    """A store that spoils a fifth of its answers, with a key to it in the environment."""
    for name in [name for name in os.environ if name.startswith(("AWS_", "GOOGLE_", "AZURE_"))]:
        monkeypatch.delenv(name)
    with serving(FaultyProxy(s3[0], faults=(*FAULTS, "lost", "lost"))) as server:
        for name, value in {**KEYS, "aws_endpoint_url": server.url}.items():
            monkeypatch.setenv(name.upper(), value)
        yield server
    for found in s3[1].list_objects(Bucket="scores").get("Contents", ()):
        s3[1].delete_object(Bucket="scores", Key=found["Key"])


def stored(s3, key="field/cd.parquet"):
    return s3[1].get_object(Bucket="scores", Key=key)["Body"].read()


def writes(proxy, since=0):
    return [method for method, _, _ in proxy.asked[since:] if method in ("PUT", "POST", "DELETE")]


def test_scores_in_a_failing_store_are_the_file_and_only_other_scores_are_replaced_when_asked(s3, proxy, world, caplog):
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
    assert stored(s3) == (world / "three.parquet").read_bytes()
    assert proxy.n_faults


def test_every_stage_writes_into_a_store_and_a_large_file_goes_in_parts(s3, proxy, world, monkeypatch):
    monkeypatch.setattr(object_store, "_LARGEST_PUT", 0)
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
    s3[1].put_object(Bucket="scores", Key="field/cd.parquet", Body=b"a thesis")
    with pytest.raises(ReleaseExistsError, match=r"no file of scores that this package has uploaded"):
        write_cd_index(world / "world", OUT, cache_dir=world / "unused", overwrite=True)
    s3[1].delete_object(Bucket="scores", Key="field/cd.parquet")
    cache = world / "apart"

    def appear(file):
        s3[1].put_object(Bucket="scores", Key="field/cd.parquet", Body=b"a thesis")
        return hash_file(file)

    for largest in (1 << 28, 0):
        monkeypatch.setattr(object_store, "_LARGEST_PUT", largest)
        with monkeypatch.context() as meanwhile:
            meanwhile.setattr(stored_scores, "hash_file", appear)
            with pytest.raises(StorageError, match=r"has changed in the store.*kept in .*upload-\w+.parquet; the same"):
                write_cd_index(world / "world", OUT, cache_dir=cache, overwrite=True)
        assert stored(s3) == b"a thesis"
        s3[1].delete_object(Bucket="scores", Key="field/cd.parquet")
    monkeypatch.setattr("sciscidata.stages.write_scores", None)
    write_cd_index(world / "world", OUT, cache_dir=cache)  # nothing is scored again
    assert stored(s3) == (world / "cd.parquet").read_bytes()
    assert not list(cache.glob("upload-*"))


@pytest.mark.parametrize(
    ("out", "error", "reason"),
    [
        ("s3://no-such-bucket/cd.parquet", StorageError, r"^s3://no-such-bucket at http://127\S+ does not exist"),
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


def test_a_store_that_takes_nothing_is_named_before_anything_is_scored(proxy, world, tmp_path, monkeypatch):
    with serving(StoreServer(tmp_path, {})) as store:
        monkeypatch.setenv("AWS_ENDPOINT_URL", store.url)
        with pytest.raises(InputNotFoundError, match=r"may not be read") as raised:
            write_cd_index(world / "world", OUT, cache_dir=world / "unused")
    assert KEYS["aws_secret_access_key"] not in str(raised.value)


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
