"""Releases sent to hubs and fetched again over real connections, with faults and kill -9; no token is left anywhere."""

from __future__ import annotations

import json
import logging
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Generator
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from sciscidata.cli.main import main
from sciscidata.errors import ConfigError, HubError, ReleaseExistsError, UnsafeNameError, VerificationError
from sciscidata.hubs import exchange, fetch, publish
from sciscidata.hubs.exchange import Access
from sciscidata.hubs.hugging_face import read_hub_name
from sciscidata.hubs.zenodo import Deposition, Zenodo
from sciscidata.release.manifest import DOCUMENTS, hash_manifest
from sciscidata.release.verify import verify
from tests.release.test_release import write
from tests.servers.hub_server import HubServer
from tests.servers.serving import Handler, Server

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
    fast = SimpleNamespace(**{**vars(exchange.time), "sleep": lambda seconds: None})  # faults need no patience here
    monkeypatch.setattr(exchange, "time", fast)
    monkeypatch.setattr(hub_http, "time", fast)
    monkeypatch.setattr("huggingface_hub.file_download.time", fast)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_DISABLE_XET", True)
    with HubServer(TOKEN) as server:
        for name, value in {
            "HF_ENDPOINT": server.url,
            "ZENODO_URL": server.url,
            "HF_TOKEN": TOKEN,
            "ZENODO_TOKEN": TOKEN,
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
def test_zenodo_gets_one_deposition_with_its_doi_in_spite_of_faults_and_a_kill(
    release: Path, server: HubServer
) -> None:
    kill_midway(server, "publish", str(release), "--to", "zenodo", "--creator", *WHO)
    (release.parent / ".slice.published.json").unlink()  # lost: the draft is found by its notes
    server.faults = 0.2
    draft = publish(release, to="zenodo", creators=WHO)
    done = publish(release, to="zenodo", creators=WHO, final=True)
    ((number, one),) = server.depositions.items()
    assert (draft.is_final, done.is_final, one["submitted"]) == (False, True, True)
    assert done.doi == draft.doi == f"10.5281/zenodo.{number}"
    assert {*one["files"]} == {*content_of(release)}
    for name in {*one["files"]} - {*DOCUMENTS}:
        assert one["files"][name] == (release / name).read_bytes()
    assert one["files"]["README.md"].count(done.doi.encode()) == 2
    assert yaml.safe_load(one["files"]["CITATION.cff"])["doi"] == done.doi
    metadata = one["metadata"]
    assert (metadata["license"], metadata["upload_type"]) == ("cc-zero", "dataset")
    assert metadata["creators"] == [{"name": WHO[0]}]
    assert sum(server.injected.values()) > 3
    n_arrived = len(server.arrived)
    assert publish(release, to="zenodo", creators=WHO, final=True).doi == done.doi
    assert len(server.arrived) == n_arrived


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
    assert {path.name for path in tmp_path.iterdir()} - {"home", "cache"} == {
        *("slice", ".slice.published.json", "fetched")
    }


def test_a_hub_that_asks_for_a_second_gets_it(
    release: Path, server: HubServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exchange, "time", time)
    for ask in (lambda: fetch(NAME), lambda: publish(release, to="zenodo", creators=WHO)):
        server.n_busy = 1
        began = time.monotonic()
        with suppress(ConfigError):  # there is no such data set
            ask()
        assert time.monotonic() - began >= 1.0
        assert server.n_busy == 0


def test_a_release_that_was_published_before_gets_a_doi_of_its_own(
    release: Path, server: HubServer, tmp_path: Path
) -> None:
    def send(slice_: Path, **options: Any) -> tuple[str, dict[str, Any]]:
        sent = publish(slice_, to="zenodo", **options)
        return sent.doi or "", server.depositions[max(server.depositions)]

    def fill(name: str, one: dict[str, Any]) -> Path:
        (tmp_path / name).mkdir()
        for file, content in one["files"].items():
            (tmp_path / name / file).write_bytes(content)
        return tmp_path / name

    old, one = send(release, creators=WHO, final=True)
    downloaded = fill("downloaded", one)
    for to in (NAME, str(tmp_path / "copy")):  # elsewhere the DOI stays: the data are the same
        publish(downloaded, to=to)
    for content in (server.commits[-1][1]["CITATION.cff"], (tmp_path / "copy" / "CITATION.cff").read_bytes()):
        cited = yaml.safe_load(content)
        assert (cited["doi"], cited["authors"][0]["family-names"]) == (old, "Lovelace")
    new, other = send(fetch(NAME, out=tmp_path / "fetched"))
    assert new != old
    assert all(old.encode() not in other["files"][name] for name in DOCUMENTS)
    assert yaml.safe_load(other["files"]["CITATION.cff"])["doi"] == new
    related = {one["identifier"]: one["relation"] for one in other["metadata"]["related_identifiers"]}
    assert related[old] == "isIdenticalTo"
    # Edited by hand, it keeps its words, but not a DOI of something else.
    citation = downloaded / "CITATION.cff"
    citation.write_text(citation.read_text() + "contact: []\n")
    with pytest.raises(ConfigError, match=rf"has the DOI {old}, but Zenodo gives this release 10\.5281/zenodo\.\d+"):
        publish(downloaded, to="zenodo")


def test_a_damaged_or_hostile_repository_is_refused_and_leaves_nothing(
    release: Path, server: HubServer, tmp_path: Path
) -> None:
    publish(release, to=NAME)
    files = server.commits[0][1]
    good, files["test.jsonl"] = files["test.jsonl"], b"{}\n"
    with pytest.raises(VerificationError, match=r"test\.jsonl arrived damaged"):
        fetch(NAME, out=tmp_path / "fetched")
    del files["test.jsonl"]
    with pytest.raises(VerificationError, match=r"lacks test\.jsonl"):
        fetch(NAME, out=tmp_path / "fetched")
    files["test.jsonl"] = good
    manifest = json.loads(files["manifest.json"])
    for name in ("../thesis.tex", "/etc/passwd", "a/../../b"):
        stated = {**manifest, "files": manifest["files"] | {name: {"bytes": 1, "sha256": "0"}}}
        files["manifest.json"] = json.dumps(stated | {"manifest_sha256": hash_manifest(stated)}).encode()
        files[name] = b"x"
        with pytest.raises(UnsafeNameError, match="not a file inside"):
            fetch(NAME, out=tmp_path / "fetched")
    for entry in ({"files": [1]}, {"files": {"train.jsonl": None}}, {"sides": None}, {"counts": {"filters": 7}}):
        stated = {**manifest, **entry}
        files["manifest.json"] = json.dumps(stated | {"manifest_sha256": hash_manifest(stated)}).encode()
        with pytest.raises(VerificationError, match=f"was not written by sciscidata: {next(iter(entry))}"):
            fetch(NAME, out=tmp_path / "fetched")
    assert {path.name for path in tmp_path.iterdir()} - {"home", "cache"} == {"slice", ".slice.published.json"}


@pytest.mark.parametrize("sha", ["x/../../../escaped", "0" * 39, 7])
def test_a_commit_that_is_none_becomes_no_folder(release: Path, server: HubServer, tmp_path: Path, sha: object) -> None:
    publish(release, to=NAME)
    server.sha = sha
    with pytest.raises(HubError, match=r"is at commit .*, needs 40 hexadecimal digits\. Check HF_ENDPOINT"):
        fetch(NAME)
    assert not [path for path in tmp_path.rglob("manifest.json") if path.parent != release]


def test_the_token_goes_to_no_other_host(release: Path, server: HubServer, tmp_path: Path) -> None:
    publish(release, to=NAME)
    with HubServer(TOKEN) as other:
        other.commits, server.leads_to = server.commits, other.url.replace("127.0.0.1", "localhost")
        with pytest.raises(HubError, match=r"failed to give out manifest\.json"):
            fetch(NAME, out=tmp_path / "fetched")
        assert {*other.keys} == {None}


class _OddAnswers(Handler):
    """Answers whatever it is asked with one text, and status 200."""

    text = b""

    def _answer(self) -> None:
        self.body()
        self.send(200, self.text)

    do_GET = do_POST = do_PUT = _answer


@pytest.mark.parametrize(
    "text",
    [b"<html>Sorry</html>", b"[7]", b'{"id": 1}', b'[{"id": "../x"}]', b"\xff"],
    ids=repr,
)
def test_an_odd_answer_of_zenodo_is_a_named_error(
    release: Path, server: HubServer, monkeypatch: pytest.MonkeyPatch, text: bytes
) -> None:
    handler = type("Odd", (_OddAnswers,), {"text": text})
    with Server(handler) as odd:
        url = odd.url
        monkeypatch.setenv("ZENODO_URL", url)
        with pytest.raises(HubError, match=r"failed to find or make|described a deposition without"):
            publish(release, to="zenodo", creators=WHO)
        zenodo = Zenodo(Access(url, TOKEN))
        with pytest.raises(HubError, match="failed to take notes"):
            zenodo.upload(Deposition(1, "10.5281/zenodo.1", url, url, is_submitted=False), "notes", b"x")


def test_refusals_say_what_is_needed_and_never_the_token(
    release: Path, server: HubServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    for to, changes, says in (
        (NAME, {"final": True}, "final=True has an effect on Zenodo only"),
        ("zenodo", {"private": True}, "private=True has an effect on the Hugging Face Hub only"),
        ("ftp://example.org", {}, "Write hf:OWNER/NAME, zenodo, or a folder"),
        ("zenod", {}, r"Did you mean zenodo\? If not, write \./zenod"),
        ("Zenodo", {}, "Did you mean zenodo"),
        ("hf:ada/slices@v1", {}, "names a revision"),
        ("zenodo", {}, "who made the release"),
        (str(tmp_path), {}, "already exists"),
    ):
        with pytest.raises((ConfigError, ReleaseExistsError), match=says):
            publish(release, to=to, **changes)
    with pytest.raises(ConfigError, match=r"refused to take the metadata \(status 400: .*Invalid license"):
        publish(release, to="zenodo", creators=WHO, licence="cc-by")
    assert server.arrived == []
    before = len(server.requests)
    plan = publish(release, to="zenodo", creators=WHO, dry_run=True)
    assert (plan.is_final, len(server.requests)) == (False, before)
    assert sum(plan.files.values()) > 10_000
    server.token = "another"
    for to in (NAME, "zenodo"):
        with pytest.raises(ConfigError, match=r"refused to .*401") as refused:
            publish(release, to=to, creators=WHO)
        assert TOKEN not in str(refused.value)
    monkeypatch.setenv("ZENODO_URL", "http://example.org")
    with pytest.raises(ConfigError, match="ZENODO_TOKEN would be sent there unencrypted"):
        publish(release, to="zenodo", creators=WHO)
    monkeypatch.delenv("HF_TOKEN")
    with pytest.raises(ConfigError, match="HF_TOKEN is not set"):
        publish(release, to=NAME)
    assert main(["publish", str(release), "--to", "zenod"]) == 1
    assert "error: --to zenod is a folder" in capfd.readouterr().err
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
