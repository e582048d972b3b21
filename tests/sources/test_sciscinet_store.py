"""SciSciNet out of an object store: a real S3 server on this machine, in a process of its own."""

from __future__ import annotations

import os

import polars as pl
import pytest

from sciscidata.cli.main import main
from sciscidata.config import BuildConfig
from sciscidata.errors import ConfigError, InputNotFoundError
from sciscidata.pipeline import build
from sciscidata.sampling.config import SplitConfig
from sciscidata.sources.sciscinet.source import SciSciNetConfig, scan_sciscinet
from sciscidata.sources.sciscinet.tables import reading
from tests.servers.moto_server import KEYS, s3_server


@pytest.fixture(scope="module")
def options(sciscinet_tables):
    """Settings of a store whose bucket holds the tables under v2/, and the texts under texts/ too."""
    with s3_server("science") as (url, client):
        for path in sciscinet_tables.iterdir():
            client.upload_file(str(path), "science", f"v2/{path.name}")
        client.upload_file(
            str(sciscinet_tables / "sciscinet_papertitleabstract.parquet"), "science", "texts/moved.parquet"
        )
        yield {**KEYS, "aws_region": "us-east-1", "aws_endpoint_url": url, "aws_allow_http": "true"}


def take(folder, tmp_path, name, **source):
    config = SciSciNetConfig(folder=str(folder), **source)
    places = {"out": tmp_path / name, "cache_dir": tmp_path / "cache"}
    return build(BuildConfig(source=config, split=SplitConfig(n_train=30, n_test=3), **places))


@pytest.mark.parametrize("recompute", [False, True])
def test_a_slice_out_of_a_bucket_is_that_out_of_the_folder(sciscinet_tables, options, tmp_path, recompute):
    local = take(sciscinet_tables, tmp_path, "local", recompute=recompute)
    remote = take("s3://science/v2", tmp_path, "remote", recompute=recompute, storage_options=options)
    assert remote.manifest == local.manifest
    for name in ("train.jsonl", "test.jsonl"):
        assert (remote.folder / name).read_bytes() == (local.folder / name).read_bytes()
    shown = (remote.folder / "manifest.json").read_text() + repr(remote.manifest)
    assert not any(secret in shown for secret in ("aws_", options["aws_endpoint_url"]))


def test_all_works_come_from_a_bucket_as_from_the_folder(sciscinet_tables, options):
    local = scan_sciscinet(SciSciNetConfig(folder=str(sciscinet_tables)))
    remote = scan_sciscinet(SciSciNetConfig(folder="s3://science/v2", storage_options=options))
    assert remote.in_text_order().collect().equals(local.in_text_order().collect())
    mixed = scan_sciscinet(
        SciSciNetConfig(folder=str(sciscinet_tables), texts="s3://science/v2", storage_options=options)
    )
    some = local.structure.select("work_id").collect()["work_id"].sort()[::50]
    assert mixed.read_works(some).equals(local.read_works(some))


def test_the_command_line_takes_address_and_credentials_from_the_environment(
    sciscinet_tables, options, tmp_path, monkeypatch
):
    for name, value in options.items():
        monkeypatch.setenv(name.upper(), value)
    sizes = ["--n-train", "30", "--n-test", "3", "--cache-dir", str(tmp_path / "cache")]
    for name, folder in (("remote", "s3://science/v2"), ("local", str(sciscinet_tables))):
        assert main(["build", "--sciscinet", folder, "--out", str(tmp_path / name), *sizes]) == 0
    local, remote = ((tmp_path / name / "train.jsonl").read_bytes() for name in ("local", "remote"))
    assert local == remote


@pytest.mark.parametrize("folder", ["s3://no-such-bucket/v2", "s3://science/elsewhere"])
def test_a_bucket_or_a_folder_that_is_not_there_is_one_clear_error(options, folder):
    with pytest.raises(InputNotFoundError, match=rf"^{folder} has no table sciscinet_papers, or does not exist"):
        scan_sciscinet(SciSciNetConfig(folder=folder, storage_options=options))


@pytest.mark.parametrize(
    ("change", "reason"),
    [({"aws_endpoint_url": "http://127.0.0.1:9"}, "GET http://127.0.0.1:9"), ({"aws_allow_http": "false"}, "http")],
)
def test_a_store_that_does_not_answer_is_one_clear_error(options, change, reason):
    once = {**options, **change, "max_retries": 0}
    with pytest.raises(InputNotFoundError, match="cannot be opened: ") as error:
        scan_sciscinet(SciSciNetConfig(folder="s3://science/v2", storage_options=once))
    assert "\n" not in str(error.value)
    assert reason in str(error.value)
    assert "AWS_ENDPOINT_URL" in str(error.value)


def test_an_option_that_is_none_is_one_clear_error(options):
    with pytest.raises(ConfigError, match=r"^SciSciNetConfig\.storage_options: invalid value for 'max_retries'"):
        scan_sciscinet(SciSciNetConfig(folder="s3://science/v2", storage_options=options | {"max_retries": "two"}))


def test_without_credentials_one_clear_error(options, monkeypatch):
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    # Where no machine of Amazon's gives any: the address of a server that is none.
    none = {"aws_endpoint_url": options["aws_endpoint_url"], "aws_allow_http": "true", "aws_region": "us-east-1"}
    none |= {"aws_metadata_endpoint": "http://127.0.0.1:9", "max_retries": 0}
    with pytest.raises(InputNotFoundError, match=r"cannot be opened: .*credentials of the store"):
        scan_sciscinet(SciSciNetConfig(folder="s3://science/v2", storage_options=none))


def test_a_store_that_fails_while_it_is_read_is_named(options):
    found = scan_sciscinet(SciSciNetConfig(folder="s3://science/v2", storage_options=options))
    gone = options | {"aws_endpoint_url": "http://127.0.0.1:9", "max_retries": 0}
    with (
        pytest.raises(InputNotFoundError, match=r"^SciSciNet: .*127\.0\.0\.1:9.*AWS_ENDPOINT_URL"),
        reading(found.tables),
    ):
        pl.scan_parquet("s3://science/v2/sciscinet_papers.parquet", storage_options=gone).collect()
