"""Sample from a Tinker server with ``top_p``, which the cookbook's completer does not pass on."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import tinker
from tinker_cookbook.completers import TinkerTokenCompleter, TokenCompleter

from sciscirl.errors import SciSciRLError


class _NucleusClient:
    """Samples as its client does, from the most probable tokens that together have the share ``top_p``."""

    def __init__(self, client: tinker.SamplingClient, top_p: float) -> None:
        self._client = client
        self._top_p = top_p

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401
        found = getattr(self._client, name)
        if name not in {"sample", "sample_async"}:
            return found

        def sample(*, sampling_params: tinker.SamplingParams, **more: Any) -> Any:  # noqa: ANN401
            return found(sampling_params=sampling_params.model_copy(update={"top_p": self._top_p}), **more)

        return sample


def limit_tokens(policy: TokenCompleter, top_p: float) -> TokenCompleter:
    """Return a completer of a Tinker server that samples with ``top_p``; 1 leaves it as it is."""
    if top_p == 1:
        return policy
    if not isinstance(policy, TinkerTokenCompleter):
        msg = f"top_p is {top_p}, and a {type(policy).__name__} takes none. Leave it out."
        raise SciSciRLError(msg)
    client = cast("tinker.SamplingClient", _NucleusClient(policy.sampling_client, top_p))
    return replace(policy, sampling_client=client)
