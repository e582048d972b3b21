"""Write the task for other harnesses: papers, rules, and the files of one tool, which call ``score`` here."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple

from sciscidata.release.release import check_target
from sciscidata.storage import atomic_folder, real_path
from sciscidata.storage.small_files import read_json
from sciscirl.errors import SciSciRLError
from sciscirl.lab.answer_length import check_max_tokens
from sciscirl.options import AskedOptions, PresetName, partial_of_preset
from sciscirl.presets import describe_rules, find_preset, recall_rules
from sciscirl.task.papers import Context, Paper
from sciscirl.task.release import Part, SplitName, open_release
from sciscirl.task.rewards import score_answer
from sciscirl.task.rules import TaskRules
from sciscirl.task.targets import choose_target, narrow_target

#: In the folder of an exported task: its rules, and where they come from.
FACTS: Final = "task.json"
Tool = Literal["inspect", "verifiers", "lm-eval"]


@partial_of_preset(preset="exp4")
class ExportConfig(AskedOptions, PresetName):
    """What to export, and where to.

    Attributes:
        out: the new folder.
        to: the tool that is to run it.
        preset: prompt, contract and reward; not an adversarial one.
        target: disruption, novelty, joint, pairs, or an own label of the release; None: the preset's.
        show: what the papers built on, of a release with context: references, at_publication; None: as the preset.
    """

    out: Path
    to: Tool = "inspect"
    target: str | None = None
    show: tuple[Context, ...] | None = None


def export_task(config: ExportConfig) -> Path:
    """Write a folder that a tool can run, whole or not at all; abstracts are whole, since no tokenizer is known.

    The tool samples as the preset's evaluations do, and is judged as training judges. ``read_rules`` reads prompt and
    reward from it.

    Returns:
        The folder.

    Raises:
        ReleaseError: the release is missing or was altered.
        SciSciRLError: the preset is adversarial, weighs papers, or its reward is a function. Or the folder is there.
    """
    preset = find_preset(config.preset)
    if preset.adversarial is not None:
        raise SciSciRLError(
            f"preset {preset.name} is adversarial, and other harnesses have no challenger. Choose another preset."
        )
    out = real_path(config.out)
    check_target(out, can_replace=False)
    rules = preset.rules if config.show is None else replace(preset.rules, show=config.show)
    if rules.is_weighed:
        raise SciSciRLError(
            f"preset {preset.name} weighs papers by {rules.weight}, and other harnesses do not. Choose another preset."
        )
    if (function := rules.table.function) is not None:
        raise SciSciRLError(
            f"reward {rules.reward!r} is the function {function.name}, which sees papers with their scores, and an "
            "exported task holds none. Choose a preset with a reward in numbers, or judge here: sciscirl evaluate."
        )
    target = rules.target if config.target is None else choose_target(config.target, config.release)
    rules = replace(rules, target=narrow_target(target, config.release))
    check_max_tokens(preset.max_tokens, rules)
    release = open_release(config.release)
    splits: dict[SplitName, list[Paper]] = {
        split: Part(config.release, split, n_papers=config.n_papers).read(rules.target)
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
        "temperature": preset.judging.eval_temperature,
        "top_p": preset.judging.eval_top_p,
        "release": {
            "name": real_path(config.release).name,
            "seed": release.manifest["split"]["seed"],
            "manifest_sha256": release.manifest["manifest_sha256"],
        },
        "papers": {split: len(papers) for split, papers in splits.items()},
    }
    name = re.sub("[^a-z0-9]+", "_", f"sciscirl {preset.name}".lower()).strip("_")  # of a package, too
    with atomic_folder(out) as folder:
        package = folder / name
        package.mkdir()
        _write(package / FACTS, json.dumps(facts, indent=1, sort_keys=True, ensure_ascii=False))
        for split, papers in splits.items():
            rows = [json.dumps(_make_row(paper, rules), ensure_ascii=False) for paper in papers]
            _write(package / f"{split}.jsonl", "\n".join(rows))
        for path, text in _render_files(config.to, name, facts).items():
            _write(folder / path, text)
    return out


def _make_row(paper: Paper, rules: TaskRules) -> dict[str, Any]:
    labels = paper.labels(rules.target)
    messages = rules.render(rules.see(paper.view))
    return {"id": paper.openalex_id, "messages": messages, "labels": labels, "target": ", ".join(labels.values())}


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"{text.strip()}\n", "utf-8")


def _render_files(tool: Tool, name: str, facts: Mapping[str, Any]) -> dict[str, str]:
    """Write what the tool and people read, by path."""
    here = Path(__file__).parent
    texts = {path.stem: path.read_text("utf-8") for path in (here / tool.replace("-", "_")).glob("*.template")}
    texts["README.md"] = (here / "README.md.template").read_text("utf-8").replace("@USE@", texts.pop("use").strip())
    splits = sorted(facts["papers"], key=("test", "dev", "train").index)
    if tool == "verifiers":
        texts |= {f"{name}/{path}": texts.pop(path) for path in ("__init__.py", "taskset.py")}
    elif tool == "lm-eval":
        task = texts.pop("task.yaml")
        texts |= {f"{name}_{split}.yaml": task.replace("@SPLIT@", split) for split in splits}
    words = {
        "NAME": name,
        "ID": name.replace("_", "-"),
        "PRESET": facts["preset"],
        "RELEASE": facts["release"]["name"],
        "SEED": facts["release"]["seed"],
        "MANIFEST": facts["release"]["manifest_sha256"],
        "PROMPT": facts["rules"]["prompt_sha256"],
        "MAX_TOKENS": facts["max_tokens"],
        "TEMPERATURE": facts["temperature"],
        "TOP_P": facts["top_p"],
        "SAMPLES": str(facts["temperature"] > 0).lower(),
        "SPLIT": splits[0],
        "SPLITS": json.dumps(splits)[1:-1],
    }
    for word, value in words.items():
        texts = {path: text.replace(f"@{word}@", str(value)) for path, text in texts.items()}
    return texts


class Score(NamedTuple):
    """What an answer is worth. ``correct`` and ``valid`` are 0 or 1; an answer that is not valid is wrong."""

    reward: float
    correct: float
    valid: float


def read_rules(folder: str | Path) -> TaskRules:
    """Read prompt, contract and reward as a folder froze them: of an exported task, a run or an evaluation.

    ``rules.render(paper.view)`` writes the messages, ``rules.parse(text)`` reads an answer, and ``rules.score(answer,
    paper)`` pays it. Presets may have changed since: what is read here has not.

    Raises:
        SciSciRLError: the folder is no task, run or evaluation, or is damaged. Or its reward is a function, and is not
            registered here.
    """
    folder = real_path(Path(folder))
    exported = [path for path in (folder / FACTS, *sorted(folder.glob(f"*/{FACTS}"))) if path.is_file()]
    if not exported:
        from sciscirl.runs.record import read_facts

        return recall_rules(read_facts(folder)["settings"])
    return _read_exported(exported[0], exported[0].stat().st_mtime_ns)


@cache  # a harness asks for each answer
def _read_exported(file: Path, _: int) -> TaskRules:
    try:
        facts: Any = read_json(file)
        counts = tuple((str(label), int(n)) for label, n in facts["class_counts"])
        return replace(recall_rules(facts["rules"]), class_counts=counts)
    except (OSError, KeyError, TypeError, ValueError) as error:
        raise SciSciRLError(f"{file} cannot be read ({error}). Export the task again: sciscirl export-task.") from error


def score(text: str, labels: Mapping[str, str], rules: TaskRules, stop_reason: str | None = None) -> Score:
    """Score one whole answer, as it was sampled; ``labels`` has the gold label of each label column.

    ``stop_reason`` says why it ended. An answer that was cut off is not valid.

    Example:
        >>> from sciscirl.presets import PRESETS
        >>> rules, labels = PRESETS["exp4"].rules, {"disruption_label": "neutral"}
        >>> score('{"disruption_label": "neutral", "confidence": 0.6}', labels, rules)
        Score(reward=1.05, correct=1.0, valid=1.0)
        >>> score("neutral", labels, rules)
        Score(reward=-1.0, correct=0.0, valid=0.0)
        >>> score('{"disruption_label": "neutral", "confidence": 0.6}', labels, rules, "length")
        Score(reward=-0.75, correct=0.0, valid=0.0)
    """
    answer = rules.parse(text, stop_reason)
    total = score_answer(answer, labels, rules.table).total
    return Score(total, float(answer.is_valid and answer.labels == dict(labels)), float(answer.is_valid))


def score_parts(
    text: str, labels: Mapping[str, str], rules: TaskRules, stop_reason: str | None = None
) -> dict[str, float]:
    """Score one answer as ``score``, and name the parts of its reward.

    Example:
        >>> from sciscirl.presets import PRESETS
        >>> score_parts("neutral", {"disruption_label": "neutral"}, PRESETS["exp4"].rules)
        {'reward': -1.0, 'correct': 0.0, 'valid': 0.0, 'parse': -1.0, 'contract': 0.0, 'task': 0.0, 'think': 0.0}
    """
    parts = score_answer(rules.parse(text, stop_reason), labels, rules.table).named()
    del parts["total"]
    return {**score(text, labels, rules, stop_reason)._asdict(), **parts}
