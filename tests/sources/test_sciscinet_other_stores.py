"""SciSciNet from where it is published: Google Cloud Storage and the Hugging Face hub, served by this machine."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from sciscidata.cli.main import main
from sciscidata.errors import InputNotFoundError
from sciscidata.sources.sciscinet.source import SciSciNetConfig, scan_sciscinet
from tests.program import run
from tests.servers.serving import serving
from tests.servers.store_server import HUB_TOKEN, StoreServer

HUB = "Northwestern-CSSI/sciscinet-v2"
REFERENCES = "sciscinet_paperrefs.parquet"
TEXTS = "sciscinet_papertitleabstract.parquet"
SIZES = ("--n-train", "30", "--n-test", "3")


@pytest.fixture(scope="module")
def local(sciscinet_tables, tmp_path_factory) -> Path:
    home = tmp_path_factory.mktemp("local")
    places = ("--out", str(home / "slice"), "--cache-dir", str(home / "cache"))
    assert main(["build", "--sciscinet", str(sciscinet_tables), *places, *SIZES]) == 0
    return home / "slice"


@pytest.fixture
def store(sciscinet_tables, tmp_path):
    """All tables in a bucket, texts in an open one; in a dataset of the hub neither these nor the references."""
    objects = {f"science/v2/{path.name}": path for path in sciscinet_tables.iterdir()}
    objects |= {
        f"{HUB}/{path.name}": path for path in sciscinet_tables.iterdir() if path.name not in (TEXTS, REFERENCES)
    }
    with serving(StoreServer(tmp_path, {**objects, f"open/v2/{TEXTS}": sciscinet_tables / TEXTS})) as server:
        yield server


@pytest.fixture
def account(store, tmp_path, monkeypatch):
    file = tmp_path / "account.json"
    file.write_text(json.dumps(store.account))
    monkeypatch.setenv("GOOGLE_SERVICE_ACCOUNT", str(file))
    return file


def same_slice(out: Path, local: Path) -> bool:
    return all((out / name).read_bytes() == (local / name).read_bytes() for name in ("train.jsonl", "test.jsonl"))


def test_a_slice_out_of_google_cloud_storage_is_that_out_of_the_folder(store, account, local, tmp_path):
    places = ("--out", str(tmp_path / "slice"), "--cache-dir", str(tmp_path / "cache"))
    assert main(["build", "--sciscinet", "gs://science/v2", *places, *SIZES]) == 0
    assert same_slice(tmp_path / "slice", local)
    assert not store.refused


def test_credentials_of_google_may_be_given_in_python_and_a_missing_table_is_seen(store, sciscinet_tables):
    options = {"google_service_account_key": json.dumps(store.account)}
    found = scan_sciscinet(SciSciNetConfig(folder="gs://science/v2", storage_options=options))
    expected = scan_sciscinet(SciSciNetConfig(folder=str(sciscinet_tables)))
    assert found.in_text_order().collect().equals(expected.in_text_order().collect())
    del store.objects[f"science/v2/{TEXTS}"]
    assert "texts" not in scan_sciscinet(SciSciNetConfig(folder="gs://science/v2", storage_options=options)).tables
    with pytest.raises(InputNotFoundError, match=r"^gs://science/other has no table sciscinet_papers, or does not"):
        scan_sciscinet(SciSciNetConfig(folder="gs://science/other", storage_options=options))


def test_another_service_account_is_one_clear_error(store, tmp_path):
    (tmp_path / "other").mkdir()
    with serving(StoreServer(tmp_path / "other", {})) as other:
        stranger = {**store.account, "private_key": other.account["private_key"]}
    options = {"google_service_account_key": json.dumps(stranger)}
    with pytest.raises(InputNotFoundError, match=r"cannot be opened: .*credentials of the store") as error:
        scan_sciscinet(SciSciNetConfig(folder="gs://science/v2", storage_options=options))
    assert "\n" not in str(error.value)
    assert store.refused


def test_tables_from_the_hub_and_texts_from_an_open_bucket_give_the_slice_of_the_folder(store, local, tmp_path):
    # A process of its own: the way to the hub is read from the environment once.
    places = ("--out", tmp_path / "slice", "--cache-dir", tmp_path / "cache")
    words = ("--sciscinet-texts", "gs://open/v2", *places, *SIZES)
    way = {"HTTPS_PROXY": store.url, "SSL_CERT_FILE": str(store.certificate), "HF_TOKEN": HUB_TOKEN}
    way |= {"GOOGLE_BASE_URL": store.url, "GOOGLE_SKIP_SIGNATURE": "true"}
    done = run("build", "--sciscinet", f"hf://datasets/{HUB}", *words, cwd=tmp_path, env=os.environ | way)
    assert done.returncode == 0, done.stderr
    assert same_slice(tmp_path / "slice", local)
    assert not store.refused
