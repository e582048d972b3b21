"""Train language models to judge scientific impact by verifiable rewards, on a release of sciscidata.

``read_split(folder, "train")`` reads the papers of a release. ``find_preset("exp4")`` returns an experiment: prompt,
contract, reward and model. ``LabelEnv`` and ``LabelDatasetBuilder`` serve papers to the cookbook's training loop.
``await train_preset(TrainOptions(...))`` trains a model, ``await evaluate_model(EvaluationConfig(...))`` judges one on
held-out papers. ``measure_predictions`` and ``compare_predictions`` measure its answers. Presets, prompts, rewards and
metrics of your own are added by ``register_...``. Everything runs when it is called.

Example:
    >>> import sciscirl
    >>> rules = sciscirl.find_preset("exp4").rules
    >>> answer = rules.parse('{"disruption_label": "neutral", "confidence": 0.5}')
    >>> sciscirl.score_answer(answer, "neutral", rules.table).total
    1.05
"""

import lazy_loader

# Names are loaded on first use, because most of them load PyTorch; __init__.pyi lists them.
_load, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
#: Names that pages once taught, and what to write today.
_GONE = {
    "compare_seeds": "sciscirl.compare_predictions compares seeds, too.",
    "measure_at_thresholds": "Label the papers by sciscidata.compute_labels, and give these labels to "
    "sciscirl.measure_predictions as gold; docs/rl/evaluate.md has the lines.",
    "plan_sweep": "The command sciscirl sweep --dry-run says which runs it plans.",
    "register_benchmark": "sciscirl.evaluate_model judges a model on a split of a release.",
    "write_report": "The command sciscirl report writes the page.",
}


def __getattr__(name: str) -> object:
    if name in __all__:
        return _load(name)
    from sciscidata.options.did_you_mean import missing_name

    raise missing_name(__name__, name, ("", ".errors"), _GONE)


__version__ = "0.1.0"
