"""The patches of SkyRL that make its engine cheap on a CPU change no result."""

from __future__ import annotations

import io
import runpy
import sqlite3
import subprocess
import tarfile
import time
from contextlib import closing

import httpx
import pytest

from sciscirl.lab.local_server import server
from sciscirl.lab.local_server.environment import set_up_environment
from sciscirl.lab.local_server.server import LocalServerConfig, serve
from sciscirl.lab.local_server.tiny_model import TinyModelConfig, get_tiny_model

#: Runs in the server's interpreter: prints how many results and gradients were compared, and the largest relative
#: difference between SkyRL's way of applying adapters and ours.
COMPARE = """
import sys

sys.path.insert(0, sys.argv[1])
import skyrl_process

skyrl_process.mend_typed_dict()
import jax
import numpy as np
from flax import nnx
from jax import numpy as jnp
from skyrl.tx.layers.lora import LoRAEmbed, LoRALinear, LoRAMixin

N_IN, N_OUT, RANK, OWN = 5, 7, 2, jnp.array([2, 0, 1, 2])
jax.set_mesh(jax.make_mesh((1,), ("tp",), axis_types=(jax.sharding.AxisType.Auto,)))
options = {"sharding": (None, None), "max_lora_adapters": 3, "max_lora_rank": RANK, "rngs": nnx.Rngs(0)}
zeros, chance = nnx.initializers.zeros_init(), np.random.default_rng(0)  # NumPy: JAX compiles each size of array


def draw(*shape):
    return jnp.asarray(chance.normal(size=shape), jnp.float32)


linear = LoRALinear(N_IN, N_OUT, use_bias=False, kernel_init=zeros, **options)
embed = LoRAEmbed(N_IN, N_OUT, embedding_init=zeros, **options)
for layer, base in ((linear, linear.kernel), (embed, embed.embedding)):
    for weight in (base, layer.lora_A, layer.lora_B, layer.lora_scaling):
        weight[...] = draw(*weight.shape)
tokens = draw(4, N_IN)  # of several sequences, as the loss has them
asked = [
    (linear, draw(4, 3, N_IN), OWN),
    (linear, tokens, OWN),
    (linear, tokens, jnp.array([2, 0, 0, 2])),
    (linear, tokens, jnp.array([1, 1, 1, 1])),
    (embed, jnp.array([[0, 4], [1, 1], [3, 2], [4, 0]]), OWN),
]


def answers():
    graphs, states = zip(*(nnx.split(layer) for layer, _, _ in asked))

    def loss(states):  # all in one, so that two programs are compiled and not twenty
        said = [nnx.merge(graph, state)(x, own) for graph, state, (_, x, own) in zip(graphs, states, asked)]
        return sum((answer**2).sum() for answer in said), said

    leaves = jax.tree.leaves(jax.jit(jax.grad(loss, allow_int=True, has_aux=True))(states))
    yield from (leaf for leaf in leaves if leaf.dtype == jnp.float32)


theirs = list(answers())
before = LoRAMixin.apply_lora
skyrl_process.apply_adapters_cheaply_on_a_cpu()
assert LoRAMixin.apply_lora is not before
ours = list(answers())
print(len(ours), max(float(jnp.abs(a - b).max() / jnp.abs(a).max()) for a, b in zip(theirs, ours, strict=True)))
"""


@pytest.mark.slow
def test_adapters_are_applied_as_skyrl_applies_them(server_environment, tmp_path):
    python = set_up_environment()
    words = [str(python), "-c", COMPARE, str(server._PROGRAM.parent)]
    environment = server._child_environment(tmp_path / "ready", python.parents[1] / "compiled")
    done = subprocess.run(
        words, env=environment | {"JAX_PLATFORMS": "cpu"}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    n_compared, largest = done.stdout.split()[-2:]
    assert int(n_compared) >= 20
    assert float(largest) < 1e-5


@pytest.mark.slow
def test_a_run_too_short_for_a_heartbeat_gives_its_slot_back_and_one_that_is_heard_keeps_it(
    server_environment, tmp_path, monkeypatch
):
    command, quick = server._command, {"--session-timeout-sec": "4", "--session-cleanup-interval-sec": "1"}

    def expire_quickly(*arguments):
        words = command(*arguments)
        return [quick.get(before, word) for before, word in zip(["", *words], words, strict=False)]

    monkeypatch.setattr(server, "_command", expire_quickly)
    tiny = get_tiny_model(config=TinyModelConfig(priming_steps=0), cache=tmp_path)
    sizes = {"max_lora_rank": 8, "max_lora_adapters": 2, "sample_batch": 8, "train_batch": 8}  # one besides the base
    config = LocalServerConfig(model=tiny, state=tmp_path / "state", port=0, **sizes)
    with serve(config, set_up_environment()) as running, httpx.Client(base_url=running.base_url, timeout=120) as client:

        def ask(path, **body):
            return client.post(f"/api/v1/{path}", json=body).raise_for_status().json()

        def begin():
            return ask("create_session", tags=[], sdk_version="0.38.0")["session_id"]

        def take_slot(session):
            lora = {"rank": 8, "seed": 0}
            asked = ask("create_model", session_id=session, base_model=running.model, lora_config=lora)
            return ask("retrieve_future", request_id=asked["request_id"])

        def status(session):
            with closing(sqlite3.connect(config.state / "server.db")) as database:
                return database.execute("SELECT status FROM sessions WHERE session_id = ?", [session]).fetchone()[0]

        short = begin()
        assert "error" not in take_slot(short)
        heard = begin()
        deadline = time.monotonic() + 60
        while status(short) == "active" and time.monotonic() < deadline:
            ask("session_heartbeat", session_id=heard)
            time.sleep(0.2)
        assert (status(short), status(heard)) == ("expired", "active")
        assert "error" not in take_slot(heard)


def test_checkpoints_are_unpacked_where_tarfile_has_no_filter_and_nothing_lands_outside(tmp_path, monkeypatch):
    extract = tarfile.TarFile.extractall
    monkeypatch.setattr(tarfile.TarFile, "extractall", lambda self, path: extract(self, path))  # as in Python 3.11.2
    monkeypatch.delattr(tarfile, "data_filter", raising=False)
    runpy.run_path(str(server._PROGRAM))["mend_tarfile"]()

    def unpack(*members: tuple[str, bytes]) -> dict[str, bytes]:
        packed, folder = io.BytesIO(), tmp_path / members[-1][0].replace("/", "_")
        with tarfile.open(fileobj=packed, mode="w") as tar:
            for name, kind in members:
                info = tarfile.TarInfo(name)
                info.type, info.linkname = kind, "/etc" if kind == tarfile.SYMTYPE else ""
                info.size = 3 if kind == tarfile.REGTYPE else 0
                tar.addfile(info, io.BytesIO(b"abc"))
        with tarfile.open(fileobj=io.BytesIO(packed.getvalue())) as tar:
            tar.extractall(folder, filter="data")
        return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}

    assert unpack(("a", tarfile.DIRTYPE), ("a/weights", tarfile.REGTYPE)) == {"a/weights": b"abc"}
    for refused in (("../out", tarfile.REGTYPE), ("/out", tarfile.REGTYPE), ("link", tarfile.SYMTYPE)):
        with pytest.raises(tarfile.ReadError, match="not a file or folder below it"):
            unpack(refused)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a_weights"]
