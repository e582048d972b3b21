"""The key for Tinker goes to https or to this machine, and no redirect takes it elsewhere."""

from __future__ import annotations

import asyncio

import pytest

from sciscidata.errors import ConfigError
from sciscirl.errors import SciSciRLError
from sciscirl.lab.evaluation.config import EvaluationConfig
from sciscirl.lab.evaluation.evaluate import evaluate_model
from sciscirl.lab.sft.tinker_backend import train_on_tinker
from sciscirl.lab.studies.repro import run_repro
from sciscirl.lab.training.rl import train_preset
from sciscirl.options import TinkerSftOptions, TrainOptions, resolve_run
from sciscirl.runs.server_checks import check_server, find_server, list_models, open_sampling, open_service
from tests.sciscirl.tinker_stub import KEY, serve_models
from tests.sciscirl.toy import RENDERER
from tests.servers.serving import Handler, Server


@pytest.fixture(autouse=True)
def key(monkeypatch):
    monkeypatch.setenv("TINKER_API_KEY", KEY)
    monkeypatch.setenv("TINKER_TELEMETRY", "0")
    monkeypatch.delenv("TINKER_BASE_URL", raising=False)


class Recorder(Server):
    """Notes every request with its headers; answers with a redirect to ``goal``, if there is one."""

    def __init__(self, goal: str = "") -> None:
        seen = self.seen = list[tuple[str, dict[str, str]]]()

        class Notes(Handler):
            def answer(self) -> None:
                self.body()
                seen.append((self.path, {name.lower(): value for name, value in self.headers.items()}))
                self.send(307 if goal else 200, {"status": "ok"}, {"Location": goal + self.path} if goal else {})

            do_GET = do_POST = answer

        super().__init__(Notes)


async def sample(url: str) -> None:
    async with open_sampling("a/b", base_url=url):
        pass


def open_with(url: str) -> None:
    with open_service(url):
        pass


@pytest.mark.parametrize(
    "ask",
    [find_server, list_models, open_with, lambda url: check_server("a/b", url), lambda url: asyncio.run(sample(url))],
    ids=["find", "list", "open", "check", "sample"],
)
def test_every_door_to_a_server_refuses_an_open_address_before_it_is_asked(ask, monkeypatch):
    with Recorder() as server:
        for host in ("2130706433", "0.0.0.0", "[::ffff:127.0.0.1]", "user:word@127.0.0.1"):
            url = f"http://{host}:{server.server_port}"
            with pytest.raises(ConfigError, match=r"^base_url is http://.*: the key would be sent") as caught:
                ask(url)
            assert KEY not in str(caught.value)
            assert "word" not in str(caught.value)
            monkeypatch.setenv("TINKER_BASE_URL", url)
            with pytest.raises(ConfigError, match=r"^TINKER_BASE_URL is http://"):
                ask(None)
            monkeypatch.delenv("TINKER_BASE_URL")
        assert server.seen == []


def test_training_judging_and_sweeping_write_nothing_for_an_open_address(options, toy_slice, toy_model, tmp_path):
    url = "http://user:pass-word@gpu.example:8000"
    known = {"release": toy_slice, "model": toy_model, "renderer": RENDERER, "base_url": url}
    asked = known | {"release": str(toy_slice), "eval_split": "test"}
    tuned = TinkerSftOptions(**asked, log_path=str(tmp_path / "sft"))
    for work in (
        lambda: asyncio.run(train_preset(TrainOptions(**options | {"base_url": url}))),
        lambda: asyncio.run(train_on_tinker(resolve_run(tuned))),
        lambda: asyncio.run(evaluate_model(EvaluationConfig(**known, out=tmp_path / "out"))),
        lambda: asyncio.run(run_repro(EvaluationConfig(**known, out=tmp_path / "sweep"))),
    ):
        with pytest.raises(ConfigError, match=r"base_url is http://\*\*\*@gpu\.example:8000") as caught:
            work()
        assert "pass-word" not in str(caught.value)
    written = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert not [path for path in written if "pass-word" in path.read_text("utf-8", errors="replace")]


def test_a_server_that_redirects_elsewhere_gets_no_key_and_neither_does_the_other_one():
    with Recorder() as other, Recorder(other.url) as server:
        with pytest.raises(SciSciRLError, match=rf"^{server.url} redirects to {other.url}; the key is not sent there"):
            check_server("a/b", server.url)
        assert [(path, "x-api-key" in headers) for path, headers in server.seen] == [("/api/v1/healthz", False)]
        assert other.seen == []


def test_a_server_on_this_machine_is_asked_with_the_key_as_before():
    with serve_models([{"model_name": "a/b"}]) as url:
        check_server("a/b", url.replace("http", "HTTP"))
        check_server("a/b", url.replace("127.0.0.1", "localhost"))
