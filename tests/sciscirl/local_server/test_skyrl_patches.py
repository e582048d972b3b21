"""The patches of SkyRL that make its engine cheap on a CPU change no result."""

from __future__ import annotations

import subprocess

import pytest

from sciscirl.local_server import server
from sciscirl.local_server.environment import set_up_environment

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
