"""Options of a supervised run for both backends, and the examples, evaluator and settings that follow from them."""

from __future__ import annotations

import json
import statistics
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from sciscirl.envs.dataset import LabelDatasetBuilder, check_fit, name_fields
from sciscirl.evaluation.evaluator import LabelEvaluator, build_evaluator
from sciscirl.evaluation.label_probabilities import LabelScoring
from sciscirl.options import SftOptions, TinkerSftOptions
from sciscirl.options import resolve_preset as lay_options
from sciscirl.presets import Preset, describe, find_preset
from sciscirl.runs.chat_format import say_estimate
from sciscirl.runs.folder import expand_home, plan_run
from sciscirl.runs.prices import PRICES_DATE, Usage
from sciscirl.sft.examples import MARKS, GoldExamples, show_example

_N_SHOWN: Final = 3
_N_COUNTED: Final = 64


def resolve_preset(options: SftOptions) -> Preset:
    """Return the preset with the given options over it.

    Example:
        >>> resolve_preset(SftOptions(preset="baseline", contract="two_keys", model="a/b")).rules.contract
        'two_keys'
    """
    # Each paper has one answer, whatever the preset's groups.
    return replace(lay_options(options), group_size=1)


def resolve_folder(options: SftOptions, backend: str) -> Path:
    """Return the folder of the run.

    Example:
        >>> resolve_folder(SftOptions(), "peft").as_posix()
        'runs/sft-peft-exp4'
    """
    return expand_home(options.log_path or f"runs/sft-{backend}-{find_preset(options.preset).name}")


def make_papers_builder(options: SftOptions) -> LabelDatasetBuilder:
    """Return the builder that orders the papers as reinforcement learning with the same seed does."""
    preset = resolve_preset(options)
    return LabelDatasetBuilder(
        **name_fields(preset, options),
        n_epochs=options.n_epochs,
    )


def make_examples(options: SftOptions) -> GoldExamples:
    """Read the training split into ``batch_size`` examples for each step, in order: all epochs, or ``max_steps``."""
    builder, batch_size = make_papers_builder(options), resolve_preset(options).batch_size
    papers, rules, renderer = builder.train_papers(), builder.rules(), builder.renderer()
    check_fit(papers, rules, renderer)
    n_steps = min(len(papers) // batch_size, options.max_steps or len(papers))
    shown = papers.first(n_steps * batch_size)
    examples = GoldExamples(
        papers=shown, rules=rules, renderer=renderer, confidence=options.confidence, loss_on=options.loss_on
    )
    _ = examples[0]  # a renderer that does not do is said before anything is loaded
    return examples


def make_evaluator(options: SftOptions, folder: Path) -> LabelEvaluator:
    """Return the evaluator of the run, the same as in reinforcement learning."""
    scoring = LabelScoring() if options.loss_on == "label" else None
    evaluator = build_evaluator(make_papers_builder(options), resolve_preset(options), folder, scoring=scoring)
    evaluator.is_taught = True
    return evaluator


def list_settings(options: SftOptions, backend: str, **more: object) -> dict[str, Any]:
    """List the settings that stay the same on resuming; the steps too, because the learning rate falls with them."""
    own = ("confidence", "loss_on", "n_train", "n_test", "n_epochs", "max_steps")
    chosen = {name: getattr(options, name) for name in own}
    builder = make_papers_builder(options)
    chosen["answers"] = "logprobs" if options.loss_on == "label" else "sampled"
    chosen |= {"renderer": builder.renderer_name, "backend": backend} | builder.state_eval_split()
    return describe(resolve_preset(options)) | chosen | more


def render_plan(options: SftOptions, resolved: dict[str, Any], settings: dict[str, Any]) -> str:
    """Describe a run without running it: settings, and three examples with the trained tokens between marks."""
    folder = resolve_folder(options, settings["backend"])
    examples, batch_size = make_examples(options), resolve_preset(options).batch_size
    make_evaluator(options, folder)  # says what is wrong with the held-out papers or max_tokens
    plan_run(folder, Path(options.release), settings, resume=options.resume)
    shown = [examples[number] for number in range(min(_N_SHOWN, len(examples)))]
    lengths = [len(examples[place * len(examples) // _N_COUNTED].tokens) for place in range(_N_COUNTED)]
    n_trained = statistics.fmean(len(example.learned) for example in shown)
    n_read = round(statistics.fmean(lengths) * len(examples))
    cost = ""
    if isinstance(options, TinkerSftOptions):
        dollars = Usage(prefill=0, sample=0, train=n_read).dollars(resolve_preset(options).model)
        price = "no list price known" if dollars is None else f"${dollars:.2f} (list prices of {PRICES_DATE})"
        cost = f": {price}, without evaluations"
    return "\n".join(
        [
            json.dumps(resolved, indent=2, ensure_ascii=False, default=str),
            *(
                f"--- example {number} of {example.openalex_id}, {len(example.tokens):,} tokens, "
                f"{len(example.learned):,} trained on, between {MARKS[0]} and {MARKS[1]} ---\n"
                f"{show_example(example, examples.renderer.tokenizer)}"
                for number, example in enumerate(shown, 1)
            ),
            "---",
            f"steps: {len(examples) // batch_size:,} of {batch_size} papers",
            *say_estimate(examples.renderer),
            f"tokens of an example: about {statistics.fmean(lengths):,.0f} (of {_N_COUNTED} counted), "
            f"at most {max(lengths):,} among these, about {n_trained:.0f} of them trained on",
            f"tokens trained on in all, with their prompts: about {n_read:,}{cost}",
        ]
    )
