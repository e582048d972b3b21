"""Fine-tune SmolLM2 again by other code: ``recompute.py MODEL.gguf PACK OUT.jsonl``.

Transformers' Llama takes the place of ``policy.py``; padding, loss, schedule, order and judging are written anew. Only
the packed papers and the reader of weights are shared with ``ladder.py``. A slip in either shows as another accuracy.
"""

from __future__ import annotations

import argparse
import json
import lzma
from pathlib import Path

import numpy as np
import torch
from policy import read_weights
from transformers import LlamaConfig, LlamaForCausalLM, get_cosine_schedule_with_warmup

LABELS = ("disruptive", "consolidating", "neutral")
RUNS = (("three", 0), ("three", 1), ("two", 0))
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def open_model(weights: dict[str, torch.Tensor]) -> LlamaForCausalLM:
    model = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=49152, hidden_size=576, intermediate_size=1536, num_hidden_layers=30, num_attention_heads=9,
            num_key_value_heads=3, rope_theta=100_000.0, rms_norm_eps=1e-5, tie_word_embeddings=True,
            max_position_embeddings=8192,
        )
    )  # fmt: skip
    state = {"model.embed_tokens.weight": weights["embedding.weight"], "model.norm.weight": weights["norm"]}
    for number in range(30):
        own, name = (lambda key, n=number: weights[f"layers.{n}.{key}"]), f"model.layers.{number}."
        for key, part in zip("qkv", own("qkv.weight").split((576, 192, 192)), strict=True):
            state[f"{name}self_attn.{key}_proj.weight"] = part
        for key, part in zip(("gate", "up"), own("gate_up.weight").chunk(2), strict=True):
            state[f"{name}mlp.{key}_proj.weight"] = part
        state[f"{name}self_attn.o_proj.weight"] = own("out.weight")
        state[f"{name}mlp.down_proj.weight"] = own("down.weight")
        state[f"{name}input_layernorm.weight"] = own("attn_norm")
        state[f"{name}post_attention_layernorm.weight"] = own("ffn_norm")
    model.load_state_dict(state | {"lm_head.weight": state["model.embed_tokens.weight"]})
    return model.to(DEVICE)


def main(model_path: Path, pack_path: Path, out: Path) -> None:
    with lzma.open(pack_path) as file:
        held = np.load(file, allow_pickle=False)
        pack = {name: held[name] for name in held.files}
    weights = read_weights(model_path)
    answers = [pack[f"answer_{label}"].tolist() for label in LABELS]
    label_at = next(at for at in range(99) if len({answer[at] for answer in answers}) == len(LABELS))
    label_tokens = [answer[label_at] for answer in answers]

    def prompt(row: int) -> list[int]:
        begin, end = pack["text_ends"][[row, row + 1]]
        return pack["text_tokens"][begin:end].tolist()

    def predict(model, rows, said) -> tuple[torch.Tensor, torch.Tensor]:
        """Return logits and targets; -100 where no answer stands."""
        prompts = [prompt(row) for row in rows]
        width = max(len(one) + len(answer) for one, answer in zip(prompts, said, strict=True))
        tokens, targets = torch.full((2, len(rows), width), -100)
        for at, (one, answer) in enumerate(zip(prompts, said, strict=True)):
            tokens[at, : len(one) + len(answer)] = torch.tensor(one + answer)
            targets[at, len(one) : len(one) + len(answer)] = torch.tensor(answer)
        mask = (tokens >= 0).long().to(DEVICE)
        with torch.autocast(DEVICE, torch.bfloat16, enabled=DEVICE == "cuda"):
            logits = model(input_ids=tokens.clamp(min=0).to(DEVICE), attention_mask=mask).logits
        return logits[:, :-1].float(), targets[:, 1:].to(DEVICE)

    for name, seed in RUNS:
        torch.manual_seed(seed + 1000)
        rng = np.random.default_rng(seed + 1000)
        model = open_model(weights).train()
        train, test = pack[f"{name}_train"], pack[f"{name}_test"]
        n_steps = 2 * -(-len(train) // 32)
        optimizer = torch.optim.AdamW(model.parameters(), 2e-4, (0.9, 0.95), weight_decay=0.01)
        schedule = get_cosine_schedule_with_warmup(optimizer, n_steps // 10, n_steps)
        for rows in (
            order[at : at + 32]
            for order in (rng.permutation(train) for _ in range(2))
            for at in range(0, len(train), 32)
        ):
            logits, targets = predict(model, rows, [answers[label] for label in pack["label"][rows]])
            loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="sum")
            optimizer.zero_grad()
            (loss / len(rows)).backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
        model.eval()
        scores = []
        with torch.no_grad():
            for rows in (test[at : at + 64] for at in range(0, len(test), 64)):
                logits, _ = predict(model, rows, [answers[0]] * len(rows))
                at = torch.tensor([len(prompt(row)) + label_at - 1 for row in rows])
                scores.append(logits[torch.arange(len(rows)), at].log_softmax(-1)[:, label_tokens].cpu())
        score, gold = np.concatenate(scores)[:, : 3 if name == "three" else 2], pack["label"][test]
        less = (score - score.mean(0)).argmax(1)
        result = {
            "slice": name, "seed": seed, "right": float(np.mean(score.argmax(1) == gold)),
            "less_mean": float(np.mean(less == gold)), "said": score.argmax(1).tolist(),
        }  # fmt: skip
        with out.open("a") as file:
            file.write(json.dumps(result) + "\n")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model_path", type=Path)
    parser.add_argument("pack_path", type=Path)
    parser.add_argument("out", type=Path)
    main(**vars(parser.parse_args()))
