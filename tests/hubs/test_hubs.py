"""Releases sent to hubs and fetched again over real connections, with faults and kill -9; no token is left anywhere."""

from __future__ import annotations

import gzip
import json
import logging
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Generator
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from sciscidata.cli.main import main
from sciscidata.errors import ConfigError, HubError, ReleaseExistsError, UnsafeNameError, VerificationError
from sciscidata.hubs import fetch, hugging_face, publish
from sciscidata.hubs.hugging_face import read_hub_name
from sciscidata.release.manifest import DOCUMENTS
from sciscidata.release.read import hash_manifest
from sciscidata.release.verify import verify
from sciscidata.remote import answers
from tests.release.test_release import write
from tests.servers.hub_server import HubServer
from tests.servers.serving import Handler

#: Of what huggingface_hub calls to send a large file.
pytestmark = pytest.mark.filterwarnings("ignore:Use 'content=:DeprecationWarning")

TOKEN = "hf_secret-of-the-tests-7c1d"
WHO = ("Lovelace, Ada",)
NAME = "hf:ada/slices"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    stated = {"source": {"kind": "openalex"}}
    folder = write(tmp_path_factory.mktemp("hubs") / "slice").folder
    manifest = json.loads((folder / "manifest.json").read_text()) | stated
    (folder / "manifest.json").write_text(json.dumps(manifest | {"manifest_sha256": hash_manifest(manifest)}))
    return folder


@pytest.fixture
def release(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made, tmp_path / "slice"))


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Generator[HubServer]:
    """A hub that works; what finds it by the environment is this process, and those that it starts."""
    hub_http = pytest.importorskip("huggingface_hub.utils._http")
    hub_http.close_session()  # one that another test has opened may keep that test's proxy
    fast = SimpleNamespace(**{**vars(time), "sleep": lambda seconds: None})  # faults need no patience here
    monkeypatch.setattr(hugging_face, "_FIRST_WAIT_S", 0.0)
    monkeypatch.setattr(hub_http, "time", fast)
    monkeypatch.setattr("huggingface_hub.file_download.time", fast)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_DISABLE_XET", True)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "home" / "hub"))
    with HubServer(TOKEN) as server:
        for name, value in {
            "HF_ENDPOINT": server.url,
            "HF_TOKEN": TOKEN,
            "HF_HUB_DISABLE_XET": "1",
            "HF_HOME": str(tmp_path / "home"),
            "XDG_CACHE_HOME": str(tmp_path / "cache"),
        }.items():
            monkeypatch.setenv(name, value)
        yield server


@pytest.fixture(autouse=True)
def no_token_anywhere(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> Generator[None]:
    """Look for the token, after each test, in every file, in the log and in what was printed."""
    caplog.set_level(logging.DEBUG)
    yield
    logged = "".join(record.getMessage() for record in caplog.get_records("call"))
    assert all(TOKEN not in text for text in (logged, *capfd.readouterr()))
    for path in tmp_path.rglob("*"):
        assert not path.is_file() or TOKEN.encode() not in path.read_bytes(), path


def kill_midway(server: HubServer, *words: str, n_files: int = 2) -> None:
    """Run a command until so many files have arrived, and kill it."""
    server.stop_at = len(server.arrived) + n_files
    command = [sys.executable, "-m", "sciscidata", *words]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as process:
        has_stopped = server.stopped.wait(600)
        process.send_signal(signal.SIGKILL)
        printed = process.communicate()[0]
    server.stop_at = None
    assert has_stopped, printed
    assert TOKEN.encode() not in printed


def content_of(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


@pytest.mark.skipif(os.name != "posix", reason="kill -9")
def test_a_release_goes_to_the_hub_and_back_in_spite_of_faults_and_a_kill(
    release: Path, server: HubServer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    kill_midway(server, "publish", str(release), "--to", NAME, "--creator", *WHO)
    assert server.commits == []  # nobody sees half of it
    assert len(server.arrived) == 2
    server.faults = 0.2
    first = publish(release, to=NAME, creators=WHO)
    assert len(server.arrived[2:]) >= 1
    assert not {*server.arrived[:2]} & {*server.arrived[2:]}  # what had arrived was not sent again
    (commit,) = server.commits
    assert publish(release, to=NAME, creators=WHO).revision == first.revision == commit[0]
    assert len(server.commits) == 1
    data = {name: content for name, content in content_of(release).items() if name not in DOCUMENTS}
    assert {name: content for name, content in commit[1].items() if name not in DOCUMENTS} == data
    assert yaml.safe_load(commit[1]["CITATION.cff"])["url"] == f"{server.url}/datasets/ada/slices"
    commit[1]["run_me.py"] = b"import os"
    commit[1][".gitattributes"] = b"*.parquet filter=lfs"
    folder = fetch(f"{NAME}@main", out=tmp_path / "fetched")
    assert f"Pin it: {NAME}@{commit[0]}" in caplog.text
    assert {**content_of(folder)} == {n: c for n, c in commit[1].items() if n not in ("run_me.py", ".gitattributes")}
    assert {path.name for path in folder.iterdir() if path.is_dir()} == set()
    assert verify(folder).changed == tuple(sorted(DOCUMENTS, key=DOCUMENTS.index))
    cached = fetch(f"{NAME}@{commit[0]}")
    n_requests = len(server.requests)
    assert fetch(f"{NAME}@{commit[0]}") == cached
    assert len(server.requests) == n_requests  # a pinned release that is here needs no hub
    assert sum(server.injected.values()) > 5
    with pytest.raises(ReleaseExistsError, match="fetched already exists"):
        fetch(NAME, out=folder)


@pytest.mark.skipif(os.name != "posix", reason="kill -9")
def test_a_killed_fetch_goes_on_and_mixes_no_two_commits(release: Path, server: HubServer, tmp_path: Path) -> None:
    publish(release, to=NAME)
    ((_, files),) = server.commits
    out, n_data = tmp_path / "fetched", 2
    kill_midway(server, "fetch", NAME, "--out", str(out), n_files=1 + len(DOCUMENTS) + n_data + 1)  # the last: not sent
    assert not out.exists()
    documents = dict.fromkeys(DOCUMENTS, b"# Another commit\n")
    server.commits.append(("0" * 40, files | documents))
    server.faults = 0.2
    n_arrived = len(server.arrived)
    assert content_of(fetch(NAME, out=out)) == files | documents
    arrived = {*server.arrived[n_arrived:]}
    assert {"manifest.json", *DOCUMENTS} < arrived
    assert len({*files} - arrived) == n_data  # what had arrived whole was not fetched again
    assert verify(out).changed == DOCUMENTS
    assert {path.name for path in tmp_path.iterdir()} - {"home", "cache"} == {"slice", "fetched"}


def test_a_hub_that_asks_for_a_second_gets_it(server: HubServer) -> None:
    server.n_busy = 1
    began = time.monotonic()
    with pytest.raises(ConfigError):  # there is no such data set
        fetch(NAME)
    assert time.monotonic() - began >= 1.0
    assert server.n_busy == 0


def test_a_damaged_or_hostile_repository_is_refused_and_leaves_nothing(
    release: Path, server: HubServer, tmp_path: Path
) -> None:
    publish(release, to=NAME)
    files = server.commits[0][1]

    def commit(**changes: bytes | None) -> None:
        there = {name: content for name, content in (files | changes).items() if content is not None}
        server.commits.append((f"{len(server.commits):040x}", there))

    commit(**{"test.jsonl": b"{}\n"})
    with pytest.raises(VerificationError, match=r"test\.jsonl arrived damaged"):
        fetch(NAME, out=tmp_path / "fetched")
    commit(**{"test.jsonl": None})
    with pytest.raises(VerificationError, match=r"lacks test\.jsonl"):
        fetch(NAME, out=tmp_path / "fetched")
    manifest = json.loads(files["manifest.json"])
    for name in ("../thesis.tex", "/etc/passwd", "a/../../b"):
        stated = {**manifest, "files": manifest["files"] | {name: {"bytes": 1, "sha256": "0"}}}
        resealed = json.dumps(stated | {"manifest_sha256": hash_manifest(stated)}).encode()
        commit(**{"manifest.json": resealed, name: b"x"})
        with pytest.raises(UnsafeNameError, match="not a file inside"):
            fetch(NAME, out=tmp_path / "fetched")
    assert {path.name for path in tmp_path.iterdir()} - {"home", "cache"} == {"slice"}


@pytest.mark.parametrize("sha", ["x/../../../escaped", "0" * 39, 7])
def test_a_commit_that_is_none_becomes_no_folder(release: Path, server: HubServer, tmp_path: Path, sha: object) -> None:
    publish(release, to=NAME)
    server.sha = sha
    with pytest.raises(HubError, match=r"is at commit .*, needs 40 hexadecimal digits\. Check HF_ENDPOINT"):
        fetch(NAME)
    assert not [path for path in tmp_path.rglob("manifest.json") if path.parent != release]


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_the_token_goes_to_no_other_port_or_host(release: Path, server: HubServer, tmp_path: Path, host: str) -> None:
    with HubServer(TOKEN) as other:
        server.checks_at = other.url.replace("127.0.0.1", host)
        publish(release, to=NAME)
        assert "POST /checked" in other.requests
        other.commits, server.leads_to = server.commits, other.url.replace("127.0.0.1", host)
        fetch(NAME, out=tmp_path / "fetched")  # which is checked, wherever it comes from
        assert len(other.requests) > 5
        assert {*other.keys} == {None}
    assert {*server.keys} == {f"Bearer {TOKEN}"} | {None}  # None: where a large file is sent to


@cache
def packed(n_bytes: int = 500 << 20) -> bytes:
    return gzip.compress(bytes(n_bytes))


def bomb(handler: Handler) -> None:
    """Answer by some MB of gzip, which become half a GB."""
    handler.send(200, packed(), {"Content-Encoding": "gzip"})


def flood(handler: Handler) -> None:
    """Answer without end, and without saying how much there is."""
    handler.send_response(200)
    handler.end_headers()
    while True:
        handler.wfile.write(bytes(1 << 16))


def flood_of_nothing(handler: Handler) -> None:
    """Answer by members of gzip that are empty, without end."""
    handler.send_response(200)
    handler.send_header("Content-Encoding", "gzip")
    handler.end_headers()
    while True:
        handler.wfile.write(gzip.compress(b"") * 1_000)


@pytest.mark.parametrize(
    ("give", "file"),
    [
        (bomb, "README.md"),
        (bomb, "train.parquet"),
        (flood, "manifest.json"),
        (flood, "train.parquet"),
        (flood_of_nothing, "train.parquet"),
    ],
)
def test_a_body_larger_than_it_may_be_ends_the_download_and_leaves_nothing(
    release: Path, server: HubServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, give: Any, file: str
) -> None:
    publish(release, to=NAME)
    server.gives[file] = give
    kept: list[int] = []
    unlink = Path.unlink

    def note(path: Path, **options: bool) -> None:
        kept.append(path.stat().st_size if path.is_file() else 0)
        unlink(path, **options)

    monkeypatch.setattr(Path, "unlink", note)
    with pytest.raises(VerificationError, match=rf"resolve/[0-9a-f]{{40}}/{file} is larger than [0-9,]+ bytes"):
        fetch(NAME, out=tmp_path / "fetched")
    limit = {"manifest.json": 64 << 20, "README.md": 4 << 20, "train.parquet": 0}[file]
    assert max(kept) <= max(limit, (release / file).stat().st_size)
    assert {path.name for path in tmp_path.iterdir()} - {"home", "cache"} == {"slice"}


def test_a_data_set_described_without_end_ends(server: HubServer) -> None:
    server.gives["/api/datasets/ada/slices"] = bomb
    with pytest.raises(HubError, match="larger than"):
        fetch(NAME)


def drip_headers(handler: Handler) -> None:
    handler.wfile.write(b"HTTP/1.1 200 OK\r\nX-Slow: ")
    while True:
        time.sleep(0.1)
        handler.wfile.write(b"a")


def drip_body(handler: Handler) -> None:
    handler.send_response(200)
    handler.end_headers()
    while True:
        time.sleep(0.1)
        handler.wfile.write(b"a")


def drip_chunk_head(handler: Handler) -> None:
    handler.send_response(200)
    handler.send_header("Transfer-Encoding", "chunked")
    handler.end_headers()
    handler.wfile.write(b"1;")
    while True:
        time.sleep(0.1)
        handler.wfile.write(b"a")


@pytest.mark.parametrize("give", [drip_headers, drip_body, drip_chunk_head])
@pytest.mark.parametrize("what", ["/api/datasets/ada/slices", "manifest.json", "test.parquet"])
def test_a_hub_that_drips_ends_in_a_clear_error_and_the_same_command_goes_on(
    release: Path, server: HubServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, give: Any, what: str
) -> None:
    publish(release, to=NAME)
    monkeypatch.setattr(answers, "_SPAN_S", 0.5)
    server.gives[what] = give
    began = time.monotonic()
    with pytest.raises(HubError, match=rf"{server.url} fails to (find|give out) .* less than 1 KB a second"):
        fetch(NAME, out=tmp_path / "fetched")
    assert time.monotonic() - began < 5
    server.gives.clear()
    n_arrived = len(server.arrived)
    assert content_of(fetch(NAME, out=tmp_path / "fetched")) == server.commits[0][1]
    assert ("test.jsonl" in server.arrived[n_arrived:]) == (what != "test.parquet")  # what had arrived is kept


@pytest.mark.parametrize("page", [b"<!doctype html><title>Log in</title>", b"", b"[1]", b'{"sha": 7}', b"\xff\xfe{"])
def test_an_answer_that_is_not_what_was_asked_is_named_by_its_address(
    release: Path, server: HubServer, tmp_path: Path, page: bytes
) -> None:
    publish(release, to=NAME)
    commit = server.commits[0][0]
    for what in ("manifest.json", "train.jsonl", "/api/datasets/ada/slices"):
        server.gives = {what: lambda handler: handler.send(200, page, {"Content-Type": "text/html"})}
        with pytest.raises((HubError, VerificationError)) as refused:
            fetch(NAME, out=tmp_path / "fetched")
        assert str(tmp_path) not in str(refused.value)
        if what == "manifest.json":
            assert f"{server.url}/datasets/ada/slices/resolve/{commit}/manifest.json" in str(refused.value)
        else:
            assert (server.url if what.startswith("/api") else what) in str(refused.value)
    assert not (tmp_path / "fetched").exists()


def test_refusals_say_what_is_needed_and_never_the_token(
    release: Path, server: HubServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    for to, is_private, says in (
        (str(tmp_path / "copy"), True, "private=True has an effect on the Hugging Face Hub only"),
        ("ftp://example.org", False, "Write hf:OWNER/NAME, or a folder"),
        ("hf:ada/slices@v1", False, "names a revision"),
        (str(tmp_path), False, "already exists"),
    ):
        with pytest.raises((ConfigError, ReleaseExistsError), match=says):
            publish(release, to=to, private=is_private)
    plan = publish(release, to=NAME, creators=WHO, dry_run=True)
    assert (plan.is_final, server.requests) == (False, [])
    assert sum(plan.files.values()) > 10_000
    server.token = "another"
    with pytest.raises(ConfigError, match=r"refused to .*401") as refused:
        publish(release, to=NAME, creators=WHO)
    assert TOKEN not in str(refused.value)
    monkeypatch.setenv("HF_ENDPOINT", "http://example.org")
    with pytest.raises(ConfigError, match="HF_TOKEN would be sent there unencrypted"):
        publish(release, to=NAME)
    monkeypatch.setenv("HF_ENDPOINT", server.url)
    monkeypatch.delenv("HF_TOKEN")
    with pytest.raises(ConfigError, match="HF_TOKEN is not set"):
        publish(release, to=NAME)
    assert main(["publish", str(release), "--to", str(tmp_path / "copy"), "--creator", *WHO]) == 0
    assert f"published: {tmp_path / 'copy'}" in capfd.readouterr().out
    assert verify(tmp_path / "copy").changed == DOCUMENTS
    server.faults, server.token = 1.0, TOKEN
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    assert main(["fetch", NAME, "--out", str(tmp_path / "fetched")]) == HubError.exit_code
    assert "it goes on where it stopped" in capfd.readouterr().err


def test_a_card_edited_by_hand_is_sent_as_it_is(release: Path, tmp_path: Path) -> None:
    (release / "README.md").write_text("# My own words\n")
    publish(release, to=str(tmp_path / "copy"), creators=WHO)
    assert (tmp_path / "copy" / "README.md").read_text() == "# My own words\n"
    assert "Lovelace" in (tmp_path / "copy" / "CITATION.cff").read_text()


@pytest.mark.parametrize(
    "address", ["ada/slices", "hf:ada", "hf:../slices", "hf:ada/slices@", "hf:a/b@../c", "hf:a/b c"]
)
def test_an_address_that_is_none_is_refused(address: str) -> None:
    with pytest.raises(ConfigError, match="names no data set"):
        read_hub_name(address)


def test_without_the_extra_the_error_names_it(release: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    with pytest.raises(ConfigError, match=r'pip install "\.\[hub\]"'):
        publish(release, to=NAME)
