from __future__ import annotations

import pytest


@pytest.fixture(scope="session")
def toy_slice(tmp_path_factory):
    from tests.rl.toy import make_slice

    return make_slice(tmp_path_factory.mktemp("toy") / "slice")


@pytest.fixture(scope="session")
def toy_model(tmp_path_factory) -> str:
    """A folder with a tokenizer and no weights: all that a client needs of a model."""
    from tests.rl.toy import make_tokenizer

    return str(make_tokenizer(tmp_path_factory.mktemp("toy") / "model"))


@pytest.fixture(scope="session")
def toy_renderer(toy_model):
    from sciscirl.chat_format import make_renderer
    from tests.rl.toy import RENDERER

    return make_renderer(toy_model, RENDERER)
