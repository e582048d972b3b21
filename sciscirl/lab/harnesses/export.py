"""Write the task for other harnesses: papers and rules once, and a file for each tool that reads them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from sciscidata.options.checks import PositiveInt, check_fields
from sciscidata.release.release import check_target
from sciscidata.storage import atomic_folder, real_path
from sciscirl.errors import SciSciRLError
from sciscirl.lab.harnesses.score import FACTS
from sciscirl.presets import Preset, describe_rules, find_preset
from sciscirl.task.papers import Paper, SplitName, choose_target, open_release, read_part
from sciscirl.task.rules import TaskRules, check_max_tokens


@dataclass(frozen=True, kw_only=True, slots=True)
class ExportConfig:
    """What to export, and where to.

    Attributes:
        release: the folder of a release; on the command line also hf:OWNER/NAME@REVISION.
        out: the new folder.
        preset: prompt, contract and reward; not an adversarial one.
        target: disruption, novelty, joint, pairs, or an own label of the release; None: the preset's.
        n_papers: a stratified sample of each split; None: all papers.
    """

    release: Path
    out: Path
    preset: str = "exp4"
    target: str | None = None
    n_papers: PositiveInt | None = None

    def __post_init__(self) -> None:
        check_fields(self, SciSciRLError)


def export_task(config: ExportConfig) -> Path:
    """Write a folder that Inspect and lm-evaluation-harness can run.

    Prompts are those of the preset, with whole abstracts: which tokenizer counts them is not known here. The tools
    sample as the preset's evaluations do, and ``sciscirl.lab.harnesses.score`` judges: the same contract and reward as
    in training.

    Returns:
        The folder. It appears whole or not at all.

    Raises:
        SciSciRLError: there is no such preset, it is adversarial, or the release has no such label.
        ReleaseExistsError: something lies at ``config.out``.
    """
    preset = find_preset(config.preset)
    if preset.adversarial is not None:
        msg = f"preset {preset.name} is adversarial, and other harnesses have no challenger. Choose another preset."
        raise SciSciRLError(msg)
    out = real_path(config.out)
    check_target(out, can_replace=False)
    rules = preset.rules
    if rules.is_weighed:
        msg = (
            f"preset {preset.name} weighs papers by {rules.weight}, and other harnesses do not. Choose another preset."
        )
        raise SciSciRLError(msg)
    if config.target is not None:
        rules = replace(rules, target=choose_target(config.target, config.release))
    check_max_tokens(preset.max_tokens, rules)
    release = open_release(config.release)
    splits: dict[SplitName, list[Paper]] = {
        split: read_part(config.release, split, target=rules.target, n_papers=config.n_papers)
        for split in ("train", "test", "dev")
        if split in release.splits and release.manifest["sides"][split]["rows"]
    }
    if "train" in splits:
        rules = rules.fitted(splits["train"])
    facts = {
        "preset": preset.name,
        "rules": describe_rules(rules),
        "class_counts": [[label, n] for label, n in rules.class_counts],
        "max_tokens": preset.max_tokens,
        "temperature": preset.eval_temperature,
        "top_p": preset.eval_top_p,
        "release": {"manifest_sha256": release.manifest["manifest_sha256"]},
        "papers": {split: len(papers) for split, papers in splits.items()},
    }
    name = f"sciscirl_{''.join(letter if letter.isalnum() else '_' for letter in preset.name).lower()}"
    with atomic_folder(out) as folder:
        package = folder / name
        package.mkdir()
        _write(package / FACTS, json.dumps(facts, indent=1, sort_keys=True, ensure_ascii=False))
        for split, papers in splits.items():
            rows = [json.dumps(_make_row(paper, rules), ensure_ascii=False) for paper in papers]
            _write(package / f"{split}.jsonl", "\n".join(rows))
        for path, text in _render_files(name, preset, tuple(splits)).items():
            _write(folder / path, text)
    return out


def _make_row(paper: Paper, rules: TaskRules) -> dict[str, Any]:
    labels = paper.labels(rules.target)
    messages = rules.render(rules.see(paper.view))
    return {"id": paper.openalex_id, "messages": messages, "labels": labels, "target": ", ".join(labels.values())}


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"{text.strip()}\n", "utf-8")


def _render_files(name: str, preset: Preset, splits: Sequence[str]) -> dict[str, str]:
    """Write what each tool reads, by path."""
    words = {
        "NAME": name,
        "MAX_TOKENS": str(preset.max_tokens),
        "TEMPERATURE": str(preset.eval_temperature),
        "TOP_P": str(preset.eval_top_p),
        "SAMPLES": str(preset.eval_temperature > 0).lower(),
        "SPLIT": "test" if "test" in splits else splits[0],
    }
    texts = {
        "README.md": _README,
        "inspect_task.py": _INSPECT,
        f"lm_eval/{name}.yaml": _LM_EVAL,
        "lm_eval/utils.py": _LM_EVAL_UTILS,
    }
    for word, value in words.items():
        texts = {path: text.replace(f"@{word}@", value) for path, text in texts.items()}
    return texts


_README: Final = """
# @NAME@

Predict a label of a paper from its record. Each answer is judged by sciscirl: its contract, its reward, and an answer
that is not valid is wrong. `@NAME@/task.json` has the rules, `@NAME@/*.jsonl` the prompts and labels. No score is in
them. Each tool asks once, with these messages, no tools, and the sampling of the preset's evaluations:
max_tokens @MAX_TOKENS@, temperature @TEMPERATURE@, top_p @TOP_P@.

The tools need sciscidata beside them, without its extras: `pip install FOLDER_OF_ITS_REPOSITORY`.

- Inspect: `inspect eval inspect_task.py --model MODEL`
- lm-evaluation-harness: `lm_eval --include_path lm_eval --tasks @NAME@ --model MODEL --apply_chat_template`
- others: `@NAME@/*.jsonl` has `messages`, `target` (the label) and `labels` (by column). Judge an answer as the files
  here do: `target` stands inside the JSON of a right answer, and perhaps in a wrong one.
"""
_INSPECT: Final = '''
"""The task for Inspect: inspect eval inspect_task.py --model MODEL [-T split=dev]."""

from pathlib import Path

from inspect_ai import Task, task
from inspect_ai.dataset import Sample, json_dataset
from inspect_ai.model import ChatMessageSystem, ChatMessageUser, GenerateConfig
from inspect_ai.scorer import Score, Target, mean, scorer, stderr
from inspect_ai.solver import TaskState, generate
from sciscirl.lab.harnesses.score import read_rules, score

HERE = Path(__file__).parent / "@NAME@"
METRICS = [mean(), stderr()]
SAMPLING = GenerateConfig(max_tokens=@MAX_TOKENS@, temperature=@TEMPERATURE@, top_p=@TOP_P@)


def read_row(row):
    system, user = (message["content"] for message in row["messages"])
    messages = [ChatMessageSystem(content=system), ChatMessageUser(content=user)]
    return Sample(id=row["id"], input=messages, target=row["target"], metadata={"labels": row["labels"]})


@scorer(metrics={"reward": METRICS, "correct": METRICS, "valid": METRICS})
def contract():
    async def judge(state: TaskState, target: Target) -> Score:
        text = state.output.completion
        return Score(value=score(text, state.metadata["labels"], read_rules(HERE))._asdict(), answer=text)

    return judge


@task
def @NAME@(split: str = "@SPLIT@"):
    papers = json_dataset(str(HERE / f"{split}.jsonl"), read_row)
    return Task(dataset=papers, solver=generate(), scorer=contract(), config=SAMPLING)
'''
_LM_EVAL: Final = """
task: @NAME@
custom_dataset: !function utils.load
test_split: @SPLIT@
output_type: generate_until
description: "{{messages[0].content}}"
doc_to_text: !function utils.ask
doc_to_target: "{{target}}"
process_results: !function utils.judge
generation_kwargs:
  until: []
  max_gen_toks: @MAX_TOKENS@
  do_sample: @SAMPLES@
  temperature: @TEMPERATURE@
  top_p: @TOP_P@
metric_list:
  - metric: reward
    aggregation: mean
    higher_is_better: true
  - metric: correct
    aggregation: mean
    higher_is_better: true
  - metric: valid
    aggregation: mean
    higher_is_better: true
metadata:
  version: 1.0
"""
_LM_EVAL_UTILS: Final = '''
"""What lm-evaluation-harness calls for @NAME@."""

from pathlib import Path

import datasets
from sciscirl.lab.harnesses.score import read_rules, score

HERE = Path(__file__).parent.parent / "@NAME@"


def load(**_):
    return datasets.load_dataset("json", data_files={path.stem: str(path) for path in HERE.glob("*.jsonl")})


def ask(doc):
    return doc["messages"][1]["content"]


def judge(doc, results):
    return score(results[0], doc["labels"], read_rules(HERE))._asdict()
'''
