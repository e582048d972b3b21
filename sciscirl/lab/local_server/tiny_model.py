"""Make a model small enough for any machine: Qwen3 with two layers, and a tokenizer made for our prompts.

It knows nothing about papers. Priming teaches it the form of an answer, so that a short reinforcement-learning run has
something to reward. It tests the machinery, not the science.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Annotated, Any, Final

import platformdirs
from msgspec import Meta

from sciscidata.options.checks import check_fields
from sciscidata.storage import cached_folder
from sciscirl.errors import SciSciRLError
from sciscirl.task.contracts import CONTRACTS, ContractName, contract_keys, render_answer
from sciscirl.task.papers import TARGETS, VOCABULARIES, PaperView
from sciscirl.task.prompts import MINI_EXAMPLES, STYLES, PromptStyle, render_prompt

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast, Qwen3ForCausalLM

#: The cookbook's renderer that writes prompts as the model's own chat template does.
TINY_RENDERER: Final = "qwen3_instruct"

_LABELS: Final = VOCABULARIES["disruption_label"]
_END_OF_TEXT, _TURN_BEGINS, _TURN_ENDS = _SPECIAL_TOKENS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
_CHAT_TEMPLATE: Final = (
    # Every newline inside an expression: Jinja drops those beside its tags.
    r"{% for message in messages %}{{ '\n' if not loop.first }}{{ '<|im_start|>' + message.role + '\n' }}"
    r"{{ message.content + '<|im_end|>' }}{% endfor %}"
    r"{% if add_generation_prompt %}{{ '\n<|im_start|>assistant\n' }}{% endif %}"
)
_BATCH_SIZE: Final = 8
_BROKEN_SHARE: Final = 0.5  # of the answers it learns from break the contract, so that a run has something to unlearn
_PROMPT_END: Final = 24  # tokens


@dataclass(frozen=True, kw_only=True, slots=True)
class TinyModelConfig:
    """Options of the tiny model.

    Attributes:
        priming_steps: steps of supervised learning on what answers look like, eight answers each; 0 leaves the
            weights random.
        style: the prompt before these answers.
        contract: the keys of these answers.
    """

    priming_steps: Annotated[int, Meta(ge=0)] = 500
    style: PromptStyle = "plain"
    contract: ContractName = "two_keys"

    def __post_init__(self) -> None:
        check_fields(self, SciSciRLError)


def get_tiny_model(
    views: Sequence[PaperView] = (), config: TinyModelConfig | None = None, *, cache: Path | None = None
) -> Path:
    """Return the folder of the tiny model, made unless it is in the cache under a hash of papers and settings."""
    config = config or TinyModelConfig()
    parts = [Path(__file__).read_bytes(), repr((config, list(views))).encode(), *map(str.encode, _texts(views))]
    made_from = hashlib.sha256(b"\0".join(parts))
    folder = (cache or platformdirs.user_cache_path("sciscirl")) / f"tiny-{made_from.hexdigest()[:12]}"
    return cached_folder(folder, lambda new: make_tiny_model(new, views, config))


def make_tiny_model(folder: Path, views: Sequence[PaperView] = (), config: TinyModelConfig | None = None) -> None:
    """Fill a folder with a model made from prompts of ``views``, by default of the three invented papers."""
    import torch
    from transformers.utils.logging import disable_progress_bar

    config = config or TinyModelConfig()
    views = views or [example.view for example in MINI_EXAMPLES]
    tokenizer = _train_tokenizer(views)
    n_threads = torch.get_num_threads()
    with torch.random.fork_rng(devices=[]):
        torch.set_num_threads(1)  # on small pieces of work, more would mostly wait for each other
        torch.manual_seed(0)
        model = _new_model(tokenizer)
        _prime(model, tokenizer, views, config)
        torch.set_num_threads(n_threads)
    disable_progress_bar()  # of writing one small file
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def invent_answers(contract: ContractName) -> Iterator[str]:
    """Yield answers without end: random labels, and half of them with a contract broken in one of three ways."""
    random = Random(0)
    while True:
        answer = render_answer(
            random.choice(_LABELS), contract, confidence=random.choice((0.4, 0.5, 0.6, 0.7, 0.8, 0.9))
        )
        if random.random() < _BROKEN_SHARE:
            one_key_less = {key: json.loads(answer)[key] for key in contract_keys(contract)[:-1]}
            answer = random.choice((f"```json\n{answer}\n```", f"Sure: {answer}", json.dumps(one_key_less)))
        yield answer


def _train_tokenizer(views: Sequence[PaperView]) -> PreTrainedTokenizerFast:
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    trainer = trainers.BpeTrainer(
        vocab_size=4096,
        special_tokens=list(_SPECIAL_TOKENS),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    bpe = Tokenizer(models.BPE())
    # Tokens may span words and clauses, so that the instructions of a prompt become few; JSON's marks stay single.
    bpe.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(r'[{}":0-9\n]'), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    bpe.decoder = decoders.ByteLevel()
    bpe.train_from_iterator(_texts(views), trainer)
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=bpe, eos_token=_TURN_ENDS, pad_token=_END_OF_TEXT, extra_special_tokens=[_TURN_BEGINS]
    )
    tokenizer.chat_template = _CHAT_TEMPLATE
    return tokenizer


def _texts(views: Sequence[PaperView]) -> Iterator[str]:
    for view, style, contract, target in product(views, STYLES, CONTRACTS, TARGETS):
        for message in render_prompt(view, style, contract, target):
            yield f"{message['role']}\n{message['content']}"
    for label, contract in product(_LABELS, CONTRACTS):
        yield from (render_answer(label, contract, confidence=tenth / 10) for tenth in range(11))


def _new_model(tokenizer: PreTrainedTokenizerFast) -> Qwen3ForCausalLM:
    import torch
    from transformers import Qwen3Config, Qwen3ForCausalLM

    shape: dict[str, Any] = {
        "vocab_size": len(tokenizer),
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 16,
        "max_position_embeddings": 4096,
        "tie_word_embeddings": False,
        "eos_token_id": _SPECIAL_TOKENS.index(_TURN_ENDS),
        "pad_token_id": _SPECIAL_TOKENS.index(_END_OF_TEXT),
        "dtype": "float32",
    }
    model = Qwen3ForCausalLM(Qwen3Config(**shape))
    # With the usual 0.02, a LoRA adapter hardly changes the output.
    torch.nn.init.normal_(model.lm_head.weight, std=0.12)
    torch.nn.init.normal_(model.model.embed_tokens.weight, std=0.5)
    return model


def _prime(
    model: Qwen3ForCausalLM, tokenizer: PreTrainedTokenizerFast, views: Sequence[PaperView], config: TinyModelConfig
) -> None:
    """Teach the form of an answer: supervised, on the tokens of the answers alone."""
    import torch

    answers, random = invent_answers(config.contract), Random(0)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    prompts = [_encode_prompt(tokenizer, view, config) for view in views]
    for step in range(config.priming_steps):
        # The form of an answer hardly depends on the prompt, so most steps see only the prompt's end, which is cheap.
        start = -_PROMPT_END if step < 0.8 * config.priming_steps else 0
        texts = [next(answers) + _TURN_ENDS for _ in range(_BATCH_SIZE)]
        rows = [(random.choice(prompts)[start:], tokenizer.encode(text, add_special_tokens=False)) for text in texts]
        longest = max(len(prompt) + len(answer) for prompt, answer in rows)
        tokens = torch.full((_BATCH_SIZE, longest), _SPECIAL_TOKENS.index(_END_OF_TEXT))
        is_answer = torch.zeros((_BATCH_SIZE, longest), dtype=torch.bool)
        for number, (prompt, answer) in enumerate(rows):
            end = len(prompt) + len(answer)
            tokens[number, :end] = torch.tensor(prompt + answer)
            is_answer[number, len(prompt) : end] = True
        # Padding is on the right, so causal attention never sees it. Logits only before tokens of an answer.
        hidden = model.model(input_ids=tokens[:, :-1]).last_hidden_state[is_answer[:, 1:]]
        loss = torch.nn.functional.cross_entropy(model.lm_head(hidden), tokens[is_answer])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def _encode_prompt(tokenizer: PreTrainedTokenizerFast, view: PaperView, config: TinyModelConfig) -> list[int]:
    messages: list[Any] = render_prompt(view, config.style, config.contract)
    text = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    return tokenizer.encode(str(text), add_special_tokens=False)
