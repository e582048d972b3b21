"""Show what a training run would send and cost, before it runs."""

from __future__ import annotations

import json
import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from tinker_cookbook.utils.ml_log import dump_config

from sciscidata.terminal.messages import counted
from sciscirl.envs.dataset import LabelDatasetBuilder, check_fit
from sciscirl.envs.env import build_messages, count_tokens
from sciscirl.errors import SciSciRLError
from sciscirl.evaluation.evaluator import make_evaluator
from sciscirl.lab_parts import load_part
from sciscirl.metrics.metrics import FEWEST
from sciscirl.options import Run, TrainOptions
from sciscirl.rl.train import builder_of, list_settings, make_config
from sciscirl.runs.chat_format import dry_run, say_estimate
from sciscirl.runs.folder import plan_run
from sciscirl.runs.prices import Usage, say_price
from sciscirl.task.contracts import render_answer
from sciscirl.task.papers import PairTarget, Paper, Target, class_of, list_labels
from sciscirl.task.rules import TaskRules, find_shortest_answers

_N_SHOWN: Final = 3
_N_PROMPTS_COUNTED: Final = 256


@dry_run()
def render_dry_run(run: Run[TrainOptions]) -> str:
    """Describe a run without a server: its settings, prompts as the model sees them, and facts with its cost."""
    config = make_config(run)
    builder, resolved = builder_of(config), dump_config(config)
    del resolved["evaluator_builders"]
    return render_plan(run, builder, resolved, list_settings(run, builder))


def render_plan(
    run: Run[TrainOptions],
    builder: LabelDatasetBuilder,
    resolved: Mapping[str, Any],
    settings: Mapping[str, Any],
    *,
    has_price: bool = True,
) -> str:
    """Describe a run that its ``resolved`` settings lay down; ``has_price``: on a server, which costs money."""
    options, preset = run.options, run.preset
    evaluator, papers = make_evaluator(run, builder), builder.train_papers()
    rules, renderer = evaluator.rules, evaluator.renderer
    check_fit(papers, rules, renderer)
    plan_run(run.folder, Path(options.release), settings, resume=options.resume)
    n_test = len(evaluator.papers) * preset.eval_group_size
    n_steps = min(options.max_steps, len(papers) // preset.batch_size)
    shown = papers.first(n_steps * preset.batch_size)
    n_counted = min(len(shown), _N_PROMPTS_COUNTED)
    sample = [shown[place * len(shown) // n_counted] for place in range(n_counted)]
    messages = [build_messages(paper, rules, renderer) for paper in sample]
    prompts = [renderer.build_generation_prompt(one).to_ints() for one in messages]
    lengths = [len(prompt) for prompt in prompts]
    labels = {column: words[1] for column, words in list_labels(rules.target).items()}
    short = count_tokens(renderer, render_answer(labels, rules.contract, rules.target))
    n_evaluations = -(-n_steps // options.eval_every) + 1
    mean, n_turns = statistics.fmean(lengths), 1
    prompt_tokens = mean
    if preset.adversarial is not None:
        n_turns = 2
        prompt_tokens += mean + preset.max_tokens + load_part("count_second_turn")(rules, renderer)
    n_trained = n_steps * preset.batch_size * preset.group_size
    one = _name_one(rules.target)
    n_answers = n_trained * (1 + preset.dynamic_sampling) + n_evaluations * n_test
    usage = Usage(
        prefill=round(n_answers * prompt_tokens),
        sample=n_answers * preset.max_tokens * n_turns,
        train=round(n_trained * (prompt_tokens + preset.max_tokens * n_turns)),
    )
    examples = {
        f"prompt {number} of {paper.openalex_id}, {len(prompt):,} tokens": str(renderer.tokenizer.decode(prompt))
        for number, (paper, prompt) in enumerate(zip(sample[:_N_SHOWN], prompts, strict=False), 1)
    }
    facts = [
        f"preset {preset.name}{f' (from {preset.base})' if preset.base else ''}, model {preset.model}",
        f"steps: {n_steps:,} of {counted(preset.batch_size, one)} x {counted(preset.group_size, 'answer')}; "
        f"{counted(n_evaluations, 'evaluation')} of {counted(n_test, 'answer')}; each of {len(papers.papers):,} "
        f"training {one}s is shown {len(shown) / len(papers.papers):.1f} times",
        f"tokens: a prompt has {min(lengths):,} to {max(lengths):,}, mean {mean:,.0f} ({len(lengths):,} prompts "
        f"counted); a short valid answer about {short:,}, at most {preset.max_tokens:,} are sampled",
        *say_judges(run, builder.eval_split, len(evaluator.papers)),
        *([] if preset.adversarial is not None else say_rewards(builder, evaluator.papers, rules)),
        f"in all, if every answer is as long as it may be: {usage.prefill:,} tokens read, {usage.sample:,} sampled, "
        f"{usage.train:,} trained on",
        *([f"cost: {say_price(usage, preset.model)}"] if has_price else []),
        *say_estimate(renderer),
    ]
    return show_plan(resolved, messages[0][0]["content"], examples, facts)


def show_plan(resolved: Mapping[str, Any], system: object, examples: Mapping[str, str], facts: Sequence[str]) -> str:
    """Write facts, examples with their common system message once, and settings without what is not set."""
    shown = [*facts]
    for number, (title, text) in enumerate(examples.items()):
        _, is_common, rest = text.partition(str(system))
        shown.append(f"--- {title}{', after the same system message' if number and is_common else ''} ---")
        shown.append(rest.lstrip() if number and is_common else text)
    rest = _set_ones({name: value for name, value in resolved.items() if name != "prompt"})  # which stands above
    settings = json.dumps(rest, indent=2, ensure_ascii=False, default=str)
    return "\n".join([*shown, "--- settings ---", settings])


def say_judges(run: Run[Any], split: str, n_papers: int) -> list[str]:
    """Say by which papers a run is judged, and why."""
    why = {
        "test": f"as preset {run.preset.name} is by default; eval_split=dev or held_out keeps test for the end",
        "dev": "the development split of the release",
        "held_out": "training papers that are kept out, because the release has no development split",
    }
    reason = f"as eval_split={split} says" if run.options.eval_split else why[split]
    judges = f"judged by: {counted(n_papers, _name_one(run.preset.rules.target))} of {split}, {reason}"
    remedy = "a larger release" + (", --n-dev, or eval_split=test" if split != "test" else "")
    return [judges, *([f"too few to tell: take {remedy}"] if n_papers < FEWEST else [])]


def _name_one(target: Target) -> str:
    return "pair" if isinstance(target, PairTarget) else "paper"


def _set_ones(settings: object) -> object:
    if not isinstance(settings, Mapping):
        return settings
    kept: Mapping[str, object] = settings
    return {name: _set_ones(value) for name, value in kept.items() if value not in (None, [], {})}


def say_rewards(builder: LabelDatasetBuilder, papers: Sequence[Paper], rules: TaskRules) -> list[str]:
    """Say what an answer earns, and what trees on metadata and the best constant answer do on the papers that judge."""
    right, wrong = list[float](), list[float]()
    for labels, rewards in score_constants(papers, rules).items():
        for paper, reward in zip(papers, rewards, strict=True):
            (right if labels == class_of(paper, rules.target) else wrong).append(reward)
    best, constant = find_best_constant(papers, rules)
    try:
        judged = load_part("run_baseline")("metadata_boosting", builder.read("train"), papers, rules=rules)
        trees = f"boosted trees on the metadata in a prompt {judged['reward'].mean():.2f}"
    except ImportError:
        trees = "boosted trees on metadata with scikit-learn and threadpoolctl (pip install)"
    except SciSciRLError as error:
        trees = f"nothing boosted trees ({error})"
    costs = ", without the cost of labels said too often" if rules.table.share_penalty else ""
    certain = "a certain answer" if rules.contract == "probabilities" or rules.table.function else "an answer"
    return [
        f"{certain} earns{costs}: {_range(right)} if right, {_range(wrong)} if wrong, {rules.table.broken:.2f} in "
        f"another form, {rules.table.not_json:.2f} without JSON",
        f"on average, right answers to these papers earn {statistics.fmean(right):.2f}, the best constant answer "
        f"({constant}) {best:.2f}, {trees}",
    ]


def _range(rewards: Sequence[float]) -> str:
    return " to ".join(dict.fromkeys(f"{end:.2f}" for end in (min(rewards), max(rewards))))


def score_constants(papers: Sequence[Paper], rules: TaskRules) -> dict[tuple[str, ...], list[float]]:
    """Score each constant answer, by its labels, on every paper."""
    answers = map(rules.parse, find_shortest_answers(rules))
    return {tuple(answer.labels.values()): [rules.score(answer, paper).total for paper in papers] for answer in answers}


def find_best_constant(papers: Sequence[Paper], rules: TaskRules) -> tuple[float, str]:
    """Return the mean reward of the best constant answer, and what it says."""
    if rules.contract == "probabilities" and rules.table.function is None:
        # The quadratic score pays a constant forecast most if each label has its share of what can be earned.
        stakes: dict[str, float] = defaultdict(float)
        for labels, weights in ((paper.labels(rules.target), rules.weigh(paper)) for paper in papers):
            for label, weight in (weights or dict.fromkeys(labels.values(), 1.0)).items():
                stakes[label] += weight * (rules.table.task_part(label, 1.0) - rules.table.task_part(label, 0.0))
        columns = list_labels(rules.target).values()
        totals = {label: sum(stakes[one] for one in words) for words in columns for label in words}
        forecast = {label: stakes[label] / total for label, total in totals.items()}
        said = ", ".join(f"{label} {share:.2f}" for label, share in forecast.items())
        answer = replace(rules.parse(find_shortest_answers(rules)[0]), forecast=forecast)
        return statistics.fmean(rules.score(answer, paper).total for paper in papers), said
    means = {labels: statistics.fmean(rewards) for labels, rewards in score_constants(papers, rules).items()}
    best = max(means, key=lambda labels: means[labels])
    return means[best], ", ".join(best)
