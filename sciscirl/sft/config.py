"""Options of a supervised run for both backends, and the examples, evaluator and settings that follow from them."""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import Any, Final

from sciscirl.envs.dataset import LabelDatasetBuilder, check_fit, name_fields
from sciscirl.envs.env import build_messages
from sciscirl.evaluation.evaluator import make_evaluator
from sciscirl.options import NO_EFFECT, Run, SftOptions, TinkerSftOptions
from sciscirl.presets import describe
from sciscirl.rl.dry_run import say_judges, show_plan
from sciscirl.runs.chat_format import say_estimate
from sciscirl.runs.folder import plan_run
from sciscirl.runs.prices import Usage, say_price
from sciscirl.sft.examples import MARKS, GoldExamples, show_example

_N_SHOWN: Final = 3
_N_COUNTED: Final = 64


def make_papers_builder(run: Run[SftOptions]) -> LabelDatasetBuilder:
    """Return the builder that orders the papers as reinforcement learning with the same seed does."""
    return LabelDatasetBuilder(**name_fields(run), n_epochs=run.options.n_epochs)


def make_examples(builder: LabelDatasetBuilder, options: SftOptions) -> GoldExamples:
    """Read the training split into ``batch_size`` examples for each step, in order: all epochs, or ``max_steps``."""
    papers, rules, renderer = builder.train_papers(), builder.rules(), builder.renderer()
    check_fit(papers, rules, renderer)
    n_steps = min(len(papers) // builder.batch_size, options.max_steps or len(papers))
    shown = papers.first(n_steps * builder.batch_size)
    examples = GoldExamples(
        papers=shown, rules=rules, renderer=renderer, confidence=options.confidence, loss_on=options.loss_on
    )
    _ = examples[0]  # a renderer that does not do is said before anything is loaded
    return examples


def list_settings(run: Run[SftOptions], builder: LabelDatasetBuilder) -> dict[str, Any]:
    """List the settings that stay the same on resuming; the steps too, because the learning rate falls with them."""
    options = run.options
    chosen = {name: getattr(options, name) for name in ("confidence", "loss_on", "n_epochs", "max_steps")}
    chosen["answers"] = "logprobs" if options.loss_on == "label" else "sampled"
    chosen |= {"renderer": builder.renderer_name, "backend": options.backend} | builder.describe_papers()
    return describe(run.preset) | chosen


def render_plan(
    run: Run[SftOptions], builder: LabelDatasetBuilder, resolved: dict[str, Any], settings: dict[str, Any]
) -> str:
    """Describe a run without running it: settings, and three examples with the trained tokens between marks."""
    options = run.options
    examples, batch_size = make_examples(builder, options), builder.batch_size
    papers = make_evaluator(run, builder).papers  # or what is wrong with them, or max_tokens
    plan_run(run.folder, Path(options.release), settings, resume=options.resume)
    shown = [examples[number] for number in range(min(_N_SHOWN, len(examples)))]
    lengths = [len(examples[place * len(examples) // _N_COUNTED].tokens) for place in range(_N_COUNTED)]
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
        + (f", {examples.n_each} answers to each" if examples.n_each > 1 else ""),
        f"tokens: an example has about {mean:,.0f} (of {_N_COUNTED} counted), at most {max(lengths):,} among these, "
        f"about {n_trained:.0f} of them trained on",
        *say_judges(run, builder.eval_split, len(papers)),
        f"in all, with their prompts: about {n_read:,} tokens",
        *([f"cost: {price}, without evaluations"] if isinstance(options, TinkerSftOptions) else []),
        *say_estimate(examples.renderer),
    ]
    system = build_messages(examples.papers[0], examples.rules, examples.renderer)[0]["content"]
    return show_plan({name: resolved[name] for name in resolved if name not in NO_EFFECT["sft"]}, system, texts, facts)
