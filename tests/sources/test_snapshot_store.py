"""A snapshot out of an object store is that out of the folder, whatever the store does on the way."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from itertools import count

import msgspec
import pytest

from benchmarks.make_snapshot import export_record, write_deleted, write_manifest, write_part
from sciscidata.errors import ConfigError, CorruptRecordError, InputNotFoundError
from sciscidata.remote import object_store
from sciscidata.remote.object_store import Store
from sciscidata.sources.snapshot.source import SnapshotConfig, ingest_snapshot, snapshot_bytes
from tests.conftest import REPOSITORY
from tests.servers.faulty_proxy import FaultyProxy
from tests.servers.moto_server import KEYS, s3_server

N_PARTS = 8


def record(number):
    cited = [f"https://openalex.org/W{max(number - 1, 1)}"]
    entry = {"id": f"https://openalex.org/W{number}", "publication_year": 2000 + number % 20, "is_xpac": False}
    return export_record(entry | {"title": f"Work {number}", "referenced_works": cited})


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A snapshot of both editions, and what it gives out of the folder."""
    home = tmp_path_factory.mktemp("snapshot")
    for edition, first in (("jsonl", 1), ("parquet", 90_001)):
        names = [f"updated_date=2026-06-{day:02}/part_0000" for day in range(1, N_PARTS + 1)]
        for place, name in enumerate(names):
            rows = [record(first + 1000 * place + k) for k in range(200)]
            write_part(home / "openalex", edition, name, rows)
        write_deleted(home / "openalex", edition, [first + 5])
        write_manifest(home / "openalex", edition, dict.fromkeys(names, 200))
    for edition in ("jsonl", "parquet"):
        read(home / "openalex", home / edition, edition=edition)
    return home


def read(place, out, **options):
    return ingest_snapshot(SnapshotConfig(folder=str(place), **{"n_workers": 1} | options), out)


def made(out):
    """All bytes below ``out`` but what it remembers of the source: time and ETag of each part."""
    files = sorted(path for path in out.rglob("*") if path.is_file() and not path.is_relative_to(out / ".downloads"))
    return {path.relative_to(out).as_posix(): path.read_bytes() for path in files if path.parent.name != "receipts"}


def parts_asked(proxy, since=0):
    return [path for _, path, _ in proxy.asked[since:] if "/part_" in path]


@pytest.fixture(scope="module")
def s3(folder):
    with s3_server("openalex", "mine") as (url, client):
        for path in sorted((folder / "openalex").rglob("*")):
            if path.is_file():
                key = path.relative_to(folder / "openalex").as_posix()
                client.put_object(Bucket="openalex", Key=key, Body=path.read_bytes(), ACL="public-read")
        yield url, client


@pytest.fixture
def no_credentials(monkeypatch):
    for name in [name for name in os.environ if name.startswith(("AWS_", "GOOGLE_", "AZURE_"))]:
        monkeypatch.delenv(name)


def test_a_killed_run_over_a_failing_store_has_the_bytes_of_the_folder_and_asks_for_nothing_twice(
    s3, folder, tmp_path, monkeypatch
):
    out = tmp_path / "out"
    words = [*("ingest", "--snapshot", "s3://openalex", "--edition", "jsonl", "--n-workers", "2")]
    command = [sys.executable, "-m", "sciscidata", *words, "--out", str(out)]
    with FaultyProxy(s3[0]) as proxy:
        proxy.decide = lambda _: time.sleep(0.05)  # so that the kill comes before the end
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, [str(REPOSITORY), *sys.path]))}
        environment |= {"AWS_ENDPOINT_URL": proxy.url, **{name.upper(): value for name, value in KEYS.items()}}
        run = subprocess.Popen(command, env=environment, stderr=subprocess.PIPE)
        for _ in count():
            if len(list(out.glob("receipts/*"))) >= 2 or run.poll() is not None:
                break
            time.sleep(0.002)
        run.send_signal(signal.SIGKILL)
        error = run.communicate()[1].decode()
        finished = {path.stem.removeprefix("part-").removesuffix("-0000") for path in out.glob("receipts/*")}
        assert 2 <= len(finished) < N_PARTS, error
        before = len(proxy.asked)
        done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
        assert made(out) == made(folder / "jsonl")
        again = {re.search(r"updated_date=([0-9-]+)", path)[1] for path in parts_asked(proxy, before)}
        assert len(again) < N_PARTS
        assert not again & finished
        assert proxy.n_faults > 2
        before = len(proxy.asked)
        for name in ("AWS_ENDPOINT_URL", *map(str.upper, KEYS)):
            monkeypatch.setenv(name, environment[name])
        read("s3://openalex", out, edition="jsonl")
        later = [path for _, path, _ in proxy.asked[before:]]
        assert later  # it lists the bucket, and reads the manifest
        assert not [path for path in later if "part_" in path or "deleted" in path]
    written = "".join(path.read_text("utf-8", "replace") for path in out.rglob("*.json"))
    assert KEYS["aws_secret_access_key"] not in done.stderr + done.stdout + written
    assert not list((out / ".downloads").glob("*part*"))


def open_store(url):
    return Store("s3://openalex", {"endpoint": url})


def test_a_download_continues_where_it_was_cut_and_a_changed_object_is_seen(
    s3, folder, tmp_path, no_credentials, monkeypatch
):
    url, _ = s3
    key = "data/jsonl/works/updated_date=2026-06-01/part_0000.gz"
    whole, counted = (folder / "openalex" / key).read_bytes(), []
    with FaultyProxy(url, share=0) as proxy:
        store = open_store(proxy.url)
        found = store.list_below("data/jsonl/works")[key]
        (tmp_path / "copy").write_bytes(whole[:700])
        store.download(found, tmp_path / "copy", counted.append)
        assert (tmp_path / "copy").read_bytes() == whole
        assert proxy.asked[-1] == ("GET", f"/openalex/{key}", f"bytes=700-{len(whole) - 1}")
        assert counted[0] == 700
        assert sum(counted) == len(whole)
        changed = msgspec.structs.replace(found, version='"another"')
        with pytest.raises(CorruptRecordError, match="changed in the store while it was read"):
            store.download(changed, tmp_path / "other", counted.append)
        assert not (tmp_path / "other").read_bytes()
    monkeypatch.setattr(object_store, "_REQUEST_BYTES", 100)
    with FaultyProxy(url) as proxy:
        open_store(proxy.url).download(found, tmp_path / "pieces", counted.append)
        assert (tmp_path / "pieces").read_bytes() == whole
        assert len(proxy.asked) - proxy.n_faults >= len(whole) // 100
        assert proxy.n_faults


def test_a_part_that_is_replaced_in_the_store_is_read_anew_and_no_other(folder, tmp_path, no_credentials, s3):
    url, client = s3
    key = "mirror/updated_date=2026-06-01/part_0000.gz"
    for name in ("updated_date=2026-06-01/part_0000", "updated_date=2026-06-02/part_0000"):
        content = (folder / f"openalex/data/jsonl/works/{name}.gz").read_bytes()  # without a manifest
        client.put_object(Bucket="mine", Key=f"mirror/{name}.gz", Body=content, ACL="public-read")
    with FaultyProxy(url, share=0) as proxy:
        options = {"allow_missing_manifest": True, "store_options": {"endpoint": proxy.url, "region": "us-east-1"}}
        assert read("s3://mine/mirror", tmp_path / "out", **options).provenance["works"] == 400
        before, content = len(proxy.asked), (folder / "openalex/data/jsonl/works" / key.partition("/")[2]).read_bytes()
        time.sleep(1.1)  # until S3 has another time
        client.put_object(Bucket="mine", Key=key, Body=content, ACL="public-read")
        read("s3://mine/mirror", tmp_path / "out", **options)
        assert not parts_asked(proxy, before)  # the ETag is the same
        client.put_object(Bucket="mine", Key=key, Body=b"{}", ACL="public-read")
        before = len(proxy.asked)
        with pytest.raises(CorruptRecordError, match=r"1 corrupt part.*2026-06-01/part_0000.gz.*Run again to download"):
            read("s3://mine/mirror", tmp_path / "out", **options)
        assert set(parts_asked(proxy, before)) == {f"/mine/{key}"}


@pytest.mark.parametrize(
    ("place", "options", "reason"),
    [
        ("s3://no-such-bucket/x", {}, r"s3://no-such-bucket/\S* at http://127\.\S+ does not exist"),
        ("s3://openalex/elsewhere", {}, r"^s3://openalex/elsewhere holds no jsonl or parquet part.*public snapshot is"),
        ("s3://openalex", {"endpoint": "http://127.0.0.1:9", "max_retries": 0}, r"cannot be read: GET http://127"),
        (
            "s3://openalex",
            {"endpoint": "http://10.0.0.1", "skip_signature": "false"},
            "would be sent there unencrypted",
        ),
        ("s3://openalex", {"no_such_option": "1"}, "no_such_option"),
        ("ftp://openalex", {}, r"needs a path, or a URL of a store: s3://BUCKET"),
        ("az://openalex", {}, "Account must be specified.*AZURE_STORAGE_ACCOUNT_NAME"),
        ("s3://user:word@openalex/x", {}, "without a user name or password"),
    ],
)
def test_what_is_wrong_with_a_store_is_one_clear_error(s3, tmp_path, no_credentials, place, options, reason):
    given = {"endpoint": s3[0], **options} if place.startswith("s3") else options
    with pytest.raises((InputNotFoundError, ConfigError), match=reason) as error:
        read(place, tmp_path / "out", store_options=given)
    assert "\n" not in str(error.value)
    assert "word" not in str(error.value).replace("password", "")
    assert not (tmp_path / "out").exists()


def test_a_store_that_refuses_names_the_remedy_and_no_key(s3, tmp_path, no_credentials, monkeypatch):
    with FaultyProxy(s3[0], share=1, faults=["403"]) as store:
        options = {"endpoint": store.url, "max_retries": 0}
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIAIOSFODNN7EXAMPLE")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wJalrXUtnFEMI")
        with pytest.raises(InputNotFoundError, match=r"may not be read.*AWS_SKIP_SIGNATURE=true") as error:
            read("s3://openalex", tmp_path / "out", store_options=options)
    assert "AKIA" not in str(error.value)


def test_options_that_are_credentials_or_have_no_effect_are_refused_and_a_missing_package_is_named(monkeypatch):
    for name in ("secret_access_key", "AWS_SESSION_TOKEN", "sas_token"):
        with pytest.raises(ConfigError, match=rf"holds {name}, a credential.*environment") as error:
            SnapshotConfig(folder="s3://openalex", store_options={name: "hidden"})
        assert "hidden" not in str(error.value)
    with pytest.raises(ConfigError, match="store_options has no effect on a folder"):
        snapshot_bytes(SnapshotConfig(folder="openalex", store_options={"region": "eu-1"}))
    with monkeypatch.context() as without:
        without.setitem(sys.modules, "obstore", None)
        with pytest.raises(ConfigError, match=r'needs obstore .*Run pip install "\.\[store\]"'):
            snapshot_bytes(SnapshotConfig(folder="s3://openalex"))
