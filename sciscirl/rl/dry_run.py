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

from sciscirl.envs.dataset import LabelDatasetBuilder, check_fit
from sciscirl.envs.env import build_messages
from sciscirl.errors import SciSciRLError
from sciscirl.evaluation.evaluator import make_evaluator
from sciscirl.lab_parts import load_part
from sciscirl.options import Run, TrainOptions
from sciscirl.rl.train import builder_of, list_settings, make_config
from sciscirl.runs.chat_format import dry_run, say_estimate
from sciscirl.runs.folder import plan_run
from sciscirl.runs.prices import PRICES_DATE, Usage
from sciscirl.task.adversarial_rules import BY_RULES
from sciscirl.task.contracts import Answer, render_answer
from sciscirl.task.papers import Paper, list_labels
from sciscirl.task.rewards import score_answer
from sciscirl.task.rules import TaskRules, find_shortest_answers

_N_PROMPTS_COUNTED: Final = 256


@dry_run()
def render_dry_run(run: Run[TrainOptions]) -> str:
    """Describe a run without a server: config, three prompts as the model sees them, tokens, dollars."""
    config = make_config(run)
    builder, resolved = builder_of(config), dump_config(config)
    del resolved["evaluator_builders"]
    plan = render_plan(run, builder, resolved)
    plan_run(run.folder, Path(run.options.release), list_settings(run, builder), resume=run.options.resume)
    return plan


def render_plan(
    run: Run[TrainOptions], builder: LabelDatasetBuilder, resolved: Mapping[str, Any], *, has_price: bool = True
) -> str:
    """Describe a run that its ``resolved`` settings lay down; ``has_price``: on a server, which costs money."""
    options, preset = run.options, run.preset
    papers, rules, renderer = builder.train_papers(), builder.rules(), builder.renderer()
    check_fit(papers, rules, renderer)
    n_test = len(make_evaluator(run, builder).env_group_builders_P) * preset.eval_group_size
    n_steps = min(options.max_steps, len(papers) // preset.batch_size)
    shown = papers.first(n_steps * preset.batch_size)
    n_counted = min(len(shown), _N_PROMPTS_COUNTED)
    counted = [shown[place * len(shown) // n_counted] for place in range(n_counted)]
    prompts = [renderer.build_generation_prompt(build_messages(paper, rules, renderer)).to_ints() for paper in counted]
    lengths = [len(prompt) for prompt in prompts]
    labels = {column: words[1] for column, words in list_labels(rules.target).items()}
    shortest = render_answer(labels, rules.contract, rules.target)
    answer = len(renderer.tokenizer.encode(shortest, add_special_tokens=False))
    n_evaluations = -(-n_steps // options.eval_every) + 1
    prompt_tokens, n_turns = statistics.fmean(lengths), 1
    if preset.adversarial is not None:
        n_turns = 2
        prompt_tokens += prompt_tokens + preset.max_tokens + load_part("count_second_turn")(rules, renderer)
    n_trained = n_steps * preset.batch_size * preset.group_size
    n_answers = n_trained * (1 + preset.dynamic_sampling) + n_evaluations * n_test
    usage = Usage(
        prefill=round(n_answers * prompt_tokens),
        sample=n_answers * preset.max_tokens * n_turns,
        train=round(n_trained * (prompt_tokens + preset.max_tokens * n_turns)),
    )
    dollars = usage.dollars(preset.model)
    cost = f"${dollars:.2f} (list prices of {PRICES_DATE})" if dollars is not None else "no list price known"
    if preset.adversarial is not None and {preset.adversarial.challenger, preset.adversarial.judge} - {BY_RULES, None}:
        cost += ", without the cost of the models that challenge and judge"
    examples = [
        f"--- prompt {number} of {counted[number - 1].openalex_id}, {lengths[number - 1]:,} tokens ---\n"
        f"{renderer.tokenizer.decode(prompts[number - 1])}"
        for number in range(1, min(3, len(prompts)) + 1)
    ]
    return "\n".join(
        [
            json.dumps(resolved, indent=2, ensure_ascii=False, default=str),
            *examples,
            "---",
            f"steps: {n_steps:,} of {preset.batch_size} papers x {preset.group_size} answers; "
            f"{n_evaluations} evaluations of {n_test:,} answers",
            f"each of {len(papers.papers):,} training papers is shown {len(shown) / len(papers.papers):.1f} times",
            *([] if preset.adversarial is not None else compare_cheap_answers(builder, rules)),
            *say_estimate(renderer),
            f"prompt tokens: {min(lengths):,} to {max(lengths):,}, mean {statistics.fmean(lengths):,.0f} "
            f"({len(lengths):,} prompts counted)",
            f"answer tokens: a short valid answer has about {answer:,}, at most {preset.max_tokens:,} are sampled",
            "an estimate, as if every answer were as long as it may be: "
            f"{usage.prefill:,} tokens read, {usage.sample:,} sampled, {usage.train:,} trained on"
            f"{f': {cost}' if has_price else ''}",
        ]
    )


def compare_cheap_answers(builder: LabelDatasetBuilder, rules: TaskRules) -> list[str]:
    """Say what right answers, trees on metadata and the best constant answer earn on the papers that judge a run."""
    papers = builder.eval_papers()
    right, best, constant = find_bounds(papers, rules)
    try:
        judged = load_part("run_baseline")("metadata_boosting", builder.read("train"), papers, rules=rules)
        trees = f"{judged['reward'].mean():.2f} by boosted trees on the metadata in a prompt"
    except ImportError:
        trees = "to see what boosted trees on metadata earn: pip install scikit-learn threadpoolctl"
    except SciSciRLError as error:
        trees = f"nothing by boosted trees: {error}"
    costs = ", without the cost of labels said too often" if rules.table.share_penalty else ""
    return [
        f"mean reward on the {len(papers):,} papers of {builder.eval_split}{costs}:",
        f"  {right:.2f} if every answer is right",
        f"  {trees}",
        f"  {best:.2f} by the best constant answer: {constant}",
    ]


def find_bounds(papers: Sequence[Paper], rules: TaskRules) -> tuple[float, float, str]:
    """Return the mean reward of right answers, and that of the best constant answer with what it says."""
    golds = [(paper.labels(rules.target), rules.weigh(paper)) for paper in papers]

    def pay(answer: Answer, gold: tuple[Mapping[str, str], Mapping[str, float]]) -> float:
        return score_answer(answer, gold[0], rules.table, gold[1]).total

    constants = {tuple(answer.labels.values()): answer for answer in map(rules.parse, find_shortest_answers(rules))}
    right = statistics.fmean(pay(constants[tuple(gold[0].values())], gold) for gold in golds)
    if rules.contract == "probabilities":
        # The quadratic score pays a constant forecast most if each label has its share of what can be earned.
        stakes: dict[str, float] = defaultdict(float)
        for labels, weights in golds:
            for label, weight in (weights or dict.fromkeys(labels.values(), 1.0)).items():
                stakes[label] += weight * (rules.table.task_part(label, 1.0) - rules.table.task_part(label, 0.0))
        columns = list_labels(rules.target).values()
        totals = {label: sum(stakes[one] for one in words) for words in columns for label in words}
        forecast = {label: stakes[label] / total for label, total in totals.items()}
        said = ", ".join(f"{label} {share:.2f}" for label, share in forecast.items())
        constants = {(said,): replace(next(iter(constants.values())), forecast=forecast)}
    means = {words: statistics.fmean(pay(answer, gold) for gold in golds) for words, answer in constants.items()}
    best = max(means, key=lambda words: means[words])
    return right, means[best], ", ".join(best)
