"""Train language models to judge scientific impact by verifiable rewards, on a release of sciscidata.

``read_split(folder, "train")`` reads the papers of a release. ``find_preset("exp4")`` returns an experiment: prompt,
contract, reward and model. ``LabelEnv`` and ``LabelDatasetBuilder`` serve papers to the cookbook's training loop.
``await train_preset(TrainOptions(...))`` trains a model, ``await evaluate_model(EvaluationConfig(...))`` judges one on
held-out papers. ``measure_predictions`` and ``compare_predictions`` measure its answers, and
``write_report(ReportConfig(...))`` shows runs in one page. Everything runs when it is called.

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


def __getattr__(name: str) -> object:
    if name in __all__:
        return _load(name)
    from sciscidata.options.did_you_mean import missing_name

    raise missing_name(__name__, name, ("", ".errors"))


__version__ = "0.1.0"
