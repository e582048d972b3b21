"""Show what a training run would send, earn and cost, before it runs."""

from __future__ import annotations

import json
import re
import statistics
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from itertools import groupby
from pathlib import Path
from typing import Any, Final

from tinker_cookbook.tokenizer_utils import Tokenizer
from tinker_cookbook.utils.ml_log import dump_config

from sciscidata.terminal.messages import counted
from sciscirl.envs.dataset import Epochs, LabelDatasetBuilder, check_fit
from sciscirl.envs.env import build_messages, count_tokens
from sciscirl.envs.tokenizer import estimating_tokenizers
from sciscirl.errors import SciSciRLError
from sciscirl.lab.adversarial.env import count_second_turn
from sciscirl.lab.analysis.seen import say_seen
from sciscirl.lab.evaluator import LabelEvaluator
from sciscirl.lab.hardware_options import LocalTrainOptions, PeftSftOptions
from sciscirl.lab.sft import examples as sft
from sciscirl.lab.sft import tinker_backend
from sciscirl.lab.sft.examples import Example
from sciscirl.lab.training.rl import list_settings, make_config, make_evaluator, make_run_builder
from sciscirl.metrics.metrics import FEWEST
from sciscirl.options import NO_EFFECT, Run, SftOptions, TinkerSftOptions, TrainOptions
from sciscirl.runs.prices import Usage, say_price
from sciscirl.runs.record import plan_run
from sciscirl.task.contracts import render_answer
from sciscirl.task.papers import PairTarget, Paper, Target, class_of, list_labels
from sciscirl.task.rules import TaskRules, find_shortest_answers

#: Marks around the tokens that are trained on, where an example is shown.
MARKS: Final = ("⟦", "⟧")
_N_SHOWN: Final = 3
_N_PROMPTS_COUNTED: Final = 256
_N_EXAMPLES_COUNTED: Final = 64


class EstimatedTokenizer:
    """Stands for a tokenizer that is not on this machine: a token is a mark, a sign, or some letters of a word.

    Example:
        >>> tokenizer = EstimatedTokenizer("Qwen/Qwen3-8B")
        >>> tokens = tokenizer.encode("<|im_start|>The assay is new.")
        >>> len(tokens), tokenizer.decode(tokens[:3])
        (6, '<|im_start|>The assay')
    """

    is_estimate: Final = True
    chat_template = bos_token = eos_token_id = None
    _PIECES: Final = re.compile(r"<[^<>\s]{1,40}>| ?[^\W\d_]{1,9}|\d| ?[^\w\s]{1,3}|\s+|.", re.DOTALL)

    def __init__(self, name: str) -> None:
        self.name_or_path = name
        self._numbers: dict[str, int] = {}
        self._words: list[str] = []

    def encode(self, text: str, **_: object) -> list[int]:
        """Divide a text."""
        pieces = self._PIECES.findall(text)
        for piece in pieces:
            if piece not in self._numbers:
                self._numbers[piece] = len(self._words)
                self._words.append(piece)
        return [self._numbers[piece] for piece in pieces]

    def convert_tokens_to_ids(self, token: str) -> int:
        """Return the number of a mark."""
        return self.encode(token)[0]

    def decode(self, tokens: Sequence[int] | int, **_: object) -> str:
        """Put a text together again."""
        return "".join(self._words[token] for token in ([tokens] if isinstance(tokens, int) else tokens))


@estimating_tokenizers(EstimatedTokenizer)
def describe_server_training(run: Run[TrainOptions]) -> str:
    """Describe reinforcement learning on a server, without asking it."""
    builder, resolved = make_run_builder(run), dump_config(make_config(run))
    del resolved["evaluator_builders"], resolved["dataset_builder"]["min_steps"]
    resolved["dataset_builder"]["choice"]["n_epochs"] = builder.n_epochs  # which follows from it
    return render_plan(run, builder, resolved, list_settings(run, builder))


@estimating_tokenizers(EstimatedTokenizer)
def describe_server_sft(run: Run[TinkerSftOptions]) -> str:
    """Describe supervised fine-tuning on a server, without asking it."""
    builder = sft.make_papers_builder(run)
    resolved = dump_config(tinker_backend.make_config(run, builder))
    del resolved["evaluator_builders"], resolved["infrequent_evaluator_builders"]
    del resolved["dataset_builder"]["papers"]["min_steps"]  # which n_epochs decides
    resolved["save_every"] = resolved.pop("infrequent_eval_every")  # see CheckpointSaver
    return render_sft_plan(run, builder, resolved, sft.list_settings(run, builder))


@estimating_tokenizers(EstimatedTokenizer)
def describe_local_training(run: Run[LocalTrainOptions]) -> str:
    """Describe reinforcement learning on this machine; needs the release and the tokenizer, and no model."""
    from sciscirl.lab import grpo

    grpo.refuse_options(run)
    grpo.check_start(run)
    builder = make_run_builder(run)
    settings = grpo.list_own_settings(run, builder)
    return render_plan(run, builder, asdict(run.options) | settings, settings, has_price=False)


@estimating_tokenizers(EstimatedTokenizer)
def describe_peft_training(run: Run[PeftSftOptions]) -> str:
    """Describe supervised fine-tuning on this machine; needs the release and the tokenizer, and no model."""
    from sciscirl.lab.sft import peft_backend

    peft_backend.refuse_options(run)
    builder = sft.make_papers_builder(run)
    settings = peft_backend.list_own_settings(run, builder)
    return render_sft_plan(run, builder, asdict(run.options) | settings, settings)


def describe_run(run: Run[Any]) -> str:
    """Describe the run that options of any kind ask for."""
    ways: dict[type, Callable[[Run[Any]], str]] = {
        TrainOptions: describe_server_training,
        LocalTrainOptions: describe_local_training,
        TinkerSftOptions: describe_server_sft,
        PeftSftOptions: describe_peft_training,
    }
    return ways[type(run.options)](run)


def render_plan(
    run: Run[TrainOptions],
    builder: LabelDatasetBuilder,
    resolved: Mapping[str, Any],
    settings: Mapping[str, Any],
    *,
    has_price: bool = True,
) -> str:
    """Describe reinforcement learning by its ``resolved`` settings; ``has_price``: on a server, which costs money."""
    options, preset = run.options, run.preset
    batch_size, group_size = preset.order.batch_size, preset.sampling.group_size
    evaluator, papers = make_evaluator(run, builder), builder.train_papers()
    rules, renderer = evaluator.rules, evaluator.renderer
    check_fit(papers, rules, renderer)
    plan_run(run.folder, Path(options.release), settings, options.behavior_if_log_dir_exists)
    n_test = len(evaluator.papers) * preset.judging.eval_group_size
    n_steps = run.count_steps(len(papers) // batch_size)
    shown = papers.first(n_steps * batch_size)
    sample = _draw(shown)
    messages = [build_messages(paper, rules, renderer) for paper in sample]
    prompts = [renderer.build_generation_prompt(one).to_ints() for one in messages]
    lengths = [len(prompt) for prompt in prompts]
    labels = {column: words[1] for column, words in list_labels(rules.target).items()}
    short = count_tokens(renderer, render_answer(labels, rules.contract, rules.target))
    n_evaluations, mean, one = _count_evaluations(run, n_steps), statistics.fmean(lengths), _name_one(rules.target)
    usage = _count_training(run, evaluator, n_steps, mean)
    examples = {
        f"prompt {number} of {paper.openalex_id}, {len(prompt):,} tokens": str(renderer.tokenizer.decode(prompt))
        for number, (paper, prompt) in enumerate(zip(sample[:_N_SHOWN], prompts, strict=False), 1)
    }
    facts = [
        f"preset {preset.name}{f' (from {preset.base})' if preset.base else ''}, model {preset.model}",
        f"steps: {n_steps:,} of {counted(batch_size, one)} x {counted(group_size, 'answer')}; "
        f"{counted(n_evaluations, 'evaluation')} of {counted(n_test, 'answer')}; {_say_shown(shown, rules.target)}",
        f"tokens: a prompt has {min(lengths):,} to {max(lengths):,}, mean {mean:,.0f} ({len(lengths):,} prompts "
        f"counted); a short valid answer about {short:,}, at most {preset.max_tokens:,} are sampled",
        *_say_judged(run, builder, evaluator),
        f"in all, if every answer is as long as it may be: {usage.prefill:,} tokens read, {usage.sample:,} sampled, "
        f"{usage.train:,} trained on",
        *([f"cost: {say_price(usage, preset.model)}"] if has_price else []),
    ]
    return _show_plan(resolved, evaluator, messages[0][0]["content"], examples, facts)


def _draw(shown: Sequence[Paper]) -> list[Paper]:
    n_counted = min(len(shown), _N_PROMPTS_COUNTED)
    return [shown[place * len(shown) // n_counted] for place in range(n_counted)]


def _count_evaluations(run: Run[Any], n_steps: int) -> int:
    return -(-n_steps // run.options.eval_every) + 1


def _count_answers(run: Run[Any], evaluator: LabelEvaluator, n_answers: int, prompt_tokens: float) -> Usage:
    """Count the tokens of so many answers, each as long as it may be."""
    most, n_turns, read = run.preset.max_tokens, 1, prompt_tokens
    if run.preset.adversarial is not None:
        n_turns = 2
        read += prompt_tokens + most + count_second_turn(evaluator.rules, evaluator.renderer)
    return Usage(prefill=round(n_answers * read), sample=n_answers * most * n_turns, train=0)


def _count_judging(run: Run[Any], evaluator: LabelEvaluator, n_steps: int, prompt_tokens: float) -> Usage:
    """Count the tokens of all evaluations; of benchmarks the answers, as their questions may not be here."""
    n_evaluations = _count_evaluations(run, n_steps)
    n_answers = n_evaluations * len(evaluator.papers) * run.preset.judging.eval_group_size
    usage = _count_answers(run, evaluator, n_answers, prompt_tokens)
    n_each = sum((guard.config.max_examples or 0) * guard.config.max_tokens for guard in evaluator.guards)
    return replace(usage, sample=usage.sample + n_evaluations * n_each)


def _count_training(run: Run[TrainOptions], evaluator: LabelEvaluator, n_steps: int, prompt_tokens: float) -> Usage:
    preset = run.preset
    n_trained = n_steps * preset.order.batch_size * preset.sampling.group_size
    learned = _count_answers(run, evaluator, n_trained, prompt_tokens)
    asked = _count_answers(run, evaluator, n_trained * (1 + preset.sampling.dynamic_sampling), prompt_tokens)
    asked += _count_judging(run, evaluator, n_steps, prompt_tokens)
    return replace(asked, train=learned.prefill + learned.sample)


@estimating_tokenizers(EstimatedTokenizer)
def estimate_usage(run: Run[Any], n_test: int) -> tuple[Usage, Usage]:
    """Estimate the tokens of a run on a server with its evaluations, and those of a look at ``n_test`` papers."""
    is_gold = isinstance(run.options, TinkerSftOptions)
    builder = sft.make_papers_builder(run) if is_gold else make_run_builder(run)
    evaluator, preset = make_evaluator(run, builder), run.preset
    papers, rules, renderer = builder.train_papers(), evaluator.rules, evaluator.renderer
    check_fit(papers, rules, renderer)
    n_steps = run.count_steps(len(papers) // preset.order.batch_size)
    sample = _draw(papers.first(n_steps * preset.order.batch_size))
    mean = statistics.fmean(
        renderer.build_generation_prompt(build_messages(paper, rules, renderer)).length for paper in sample
    )
    look = _count_answers(run, evaluator, n_test * preset.judging.eval_group_size, mean)
    if not is_gold:
        return _count_training(run, evaluator, n_steps, mean), look
    examples = sft.make_examples(builder, run.options)
    n_read = round(statistics.fmean(_list_lengths(examples)) * len(examples))
    return replace(_count_judging(run, evaluator, n_steps, mean), train=n_read), look


def _list_lengths(examples: sft.GoldExamples) -> list[int]:
    places = [place * len(examples) // _N_EXAMPLES_COUNTED for place in range(_N_EXAMPLES_COUNTED)]
    return [len(examples[place].tokens) for place in places]


def render_sft_plan(
    run: Run[SftOptions], builder: LabelDatasetBuilder, resolved: Mapping[str, Any], settings: Mapping[str, Any]
) -> str:
    """Describe supervised fine-tuning by its ``resolved`` settings; in examples, marks enclose the trained tokens."""
    options = run.options
    examples, batch_size = sft.make_examples(builder, options), builder.order.batch_size
    evaluator = make_evaluator(run, builder)
    plan_run(run.folder, Path(options.release), settings, options.behavior_if_log_dir_exists)
    shown = [examples[number] for number in range(min(_N_SHOWN, len(examples)))]
    lengths = _list_lengths(examples)
    n_trained, mean = statistics.fmean(len(example.learned) for example in shown), statistics.fmean(lengths)
    n_read = round(mean * len(examples))
    price = say_price(Usage(prefill=0, sample=0, train=n_read), run.preset.model)
    texts = {
        f"example {number} of {example.openalex_id}, {len(example.tokens):,} tokens, {len(example.learned):,} trained "
        f"on, between {MARKS[0]} and {MARKS[1]}": show_example(example, examples.renderer.tokenizer)
        for number, example in enumerate(shown, 1)
    }
    facts = [
        f"steps: {len(examples.papers) // batch_size:,} of {batch_size} papers"
        + (f", {examples.n_each} answers to each" if examples.n_each > 1 else "")
        + f"; {_say_shown(examples.papers, examples.rules.target)}",
        f"tokens: an example has about {mean:,.0f} (of {_N_EXAMPLES_COUNTED} counted), at most {max(lengths):,} among "
        f"these, about {n_trained:.0f} of them trained on",
        *_say_judged(run, builder, evaluator),
        f"in all, with their prompts: about {n_read:,} tokens",
        *([f"cost: {price}, without evaluations"] if isinstance(options, TinkerSftOptions) else []),
    ]
    system = build_messages(examples.papers[0], examples.rules, examples.renderer)[0]["content"]
    kept = {name: value for name, value in resolved.items() if name not in NO_EFFECT["sft"]}
    return _show_plan(kept, evaluator, system, texts, facts)


def show_example(example: Example, tokenizer: Tokenizer) -> str:
    """Decode an example, with what is trained on between ⟦ and ⟧."""
    learned, shown = set(example.learned), ""
    for is_learned, places in groupby(range(len(example.tokens)), learned.__contains__):
        text = str(tokenizer.decode([example.tokens[place] for place in places]))
        shown += f"{MARKS[0]}{text}{MARKS[1]}" if is_learned else text
    return shown


def _show_plan(
    resolved: Mapping[str, Any],
    evaluator: LabelEvaluator,
    system: object,
    examples: Mapping[str, str],
    facts: Sequence[str],
) -> str:
    """Write facts, examples with their common system message once, and settings without what is not set."""
    tokenizer, shown = evaluator.renderer.tokenizer, [*facts]
    if getattr(tokenizer, "is_estimate", False):
        shown.append(f"all numbers of tokens are estimates: the tokenizer of {tokenizer.name_or_path} is not here yet")
    for number, (title, text) in enumerate(examples.items()):
        _, is_common, rest = text.partition(str(system))
        shown.append(f"--- {title}{', after the same system message' if number and is_common else ''} ---")
        shown.append(rest.lstrip() if number and is_common else text)
    rest = _set_ones({name: value for name, value in resolved.items() if name != "prompt"})  # which stands above
    settings = json.dumps(rest, indent=2, ensure_ascii=False, default=str)
    return "\n".join([*shown, "--- settings ---", settings])


def _set_ones(settings: object) -> object:
    if not isinstance(settings, Mapping):
        return settings
    kept: Mapping[str, object] = settings
    return {name: _set_ones(value) for name, value in kept.items() if value not in (None, [], {})}


def _name_one(target: Target) -> str:
    return "pair" if isinstance(target, PairTarget) else "paper"


def _say_shown(shown: Epochs, target: Target) -> str:
    n_papers = len(shown.papers)
    return f"each of {n_papers:,} training {_name_one(target)}s is shown {len(shown) / n_papers:.1f} times"


def _say_judged(run: Run[Any], builder: LabelDatasetBuilder, evaluator: LabelEvaluator) -> list[str]:
    """Say by which papers a run is judged, and why, and what cheap answers to them earn."""
    split, papers, rules = builder.eval_split, evaluator.papers, evaluator.rules
    why = {
        "test": f"as preset {run.preset.name} is without a development split; eval_split=held_out keeps test for the "
        "end",
        "dev": "the development split of the release",
        "held_out": "training papers that are kept out, because the release has no development split",
    }
    reason = f"as eval_split={split} says" if run.options.eval_split else why[split]
    remedy = "a larger release" + (", --n-dev, or eval_split=test" if split != "test" else "")
    return [
        f"judged by: {counted(len(papers), _name_one(rules.target))} of {split}, {reason}",
        *([f"too few to tell: take {remedy}"] if len(papers) < FEWEST else []),
        *([] if run.preset.adversarial is not None else _say_rewards(builder, papers, rules)),
        *(
            f"and by {guard.benchmark_name}: {counted(guard.config.max_examples or 0, 'question')} at each evaluation, "
            f"with answers of at most {guard.config.max_tokens:,} tokens; the tokens of the questions are not counted"
            for guard in evaluator.guards
        ),
    ]


def _say_rewards(builder: LabelDatasetBuilder, papers: Sequence[Paper], rules: TaskRules) -> list[str]:
    """Say what an answer earns, and what cheap answers to the papers that judge do: a baseline and a constant."""
    answers = map(rules.parse, find_shortest_answers(rules))
    earned = {tuple(one.labels.values()): [rules.score(one, paper).total for paper in papers] for one in answers}
    right, wrong = list[float](), list[float]()
    for labels, rewards in earned.items():
        for paper, reward in zip(papers, rewards, strict=True):
            (right if labels == class_of(paper, rules.target) else wrong).append(reward)
    if rules.contract == "probabilities" and rules.table.function is None:
        best, constant = find_best_forecast(papers, rules)
    else:
        means = {", ".join(labels): statistics.fmean(rewards) for labels, rewards in earned.items()}
        best, constant = max(means.values()), max(means, key=lambda said: means[said])
    try:
        from sciscirl.lab.analysis.baselines import run_baseline
        from sciscirl.lab.analysis.features import read_counts

        counts = read_counts(builder.release, rules.target)
        judged = run_baseline("at_publication", builder.read("train"), papers, rules=rules, counts=counts)
        cheap = f", a regression on {say_seen(judged.settings)} {judged.predictions['reward'].mean():.2f}"
    except ImportError:
        cheap = ", a regression on what was known at publication with scikit-learn and threadpoolctl (pip install)"
    except SciSciRLError as error:
        cheap = f". The baseline at_publication was left out: {str(error).rstrip('.')}"
    costs = ", without the cost of labels said too often" if rules.table.share_penalty else ""
    certain = "a certain answer" if rules.contract == "probabilities" or rules.table.function else "an answer"
    return [
        f"{certain} earns{costs}: {_range(right)} if right, {_range(wrong)} if wrong, {rules.table.broken:.2f} in "
        f"another form, {rules.table.not_json:.2f} without JSON",
        f"on average, right answers to these papers earn {statistics.fmean(right):.2f}, the best constant answer "
        f"({constant}) {best:.2f}{cheap}",
    ]


def _range(rewards: Sequence[float]) -> str:
    return " to ".join(dict.fromkeys(f"{end:.2f}" for end in (min(rewards), max(rewards))))


def find_best_forecast(papers: Sequence[Paper], rules: TaskRules) -> tuple[float, str]:
    """Return the mean reward of the best constant forecast, and what it says.

    The quadratic score pays most if each label has its share of what can be earned.
    """
    stakes: dict[str, float] = defaultdict(float)
    for labels, weights in ((paper.labels(rules.target), rules.weigh(paper)) for paper in papers):
        for label, weight in (weights or dict.fromkeys(labels.values(), 1.0)).items():
            stakes[label] += weight * (rules.table.task_part(label, 1.0) - rules.table.task_part(label, 0.0))
    columns = list_labels(rules.target).values()
    totals = {label: sum(stakes[one] for one in words) for words in columns for label in words}
    forecast = {label: stakes[label] / total for label, total in totals.items()}
    answer = replace(rules.parse(find_shortest_answers(rules)[0]), forecast=forecast)
    said = ", ".join(f"{label} {share:.2f}" for label, share in forecast.items())
    return statistics.fmean(rules.score(answer, paper).total for paper in papers), said
