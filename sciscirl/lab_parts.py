"""What the lab adds to the core, by name: a part is loaded when it is first used.

No other file of the core names the lab. A part is ``module:name``.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from types import MappingProxyType
from typing import Any, Final

_COMMANDS: Final = "sciscirl.lab.commands"
#: The commands of the lab, and the options that ``--help`` shows of each; "" for all.
LAB_COMMANDS: Final[Mapping[str, tuple[str, str]]] = MappingProxyType(
    {
        "calibrate": (f"{_COMMANDS}:calibrate", ""),
        "select": (f"{_COMMANDS}:select", ""),
        "compare": (f"{_COMMANDS}:compare", ""),
        "report": (f"{_COMMANDS}:report", ""),
        "model": (f"{_COMMANDS}:model", ""),
        "serve": (f"{_COMMANDS}:serve", "tiny model release port cuda state cache priming_steps contract style"),
        "merge": (f"{_COMMANDS}:merge", ""),
        "sweep": (
            f"{_COMMANDS}:sweep",
            "preset seeds way vary release model out max_steps n_train n_test learning_rate dry_run",
        ),
        "sweep repro": (
            f"{_COMMANDS}:sweep_repro",
            "release out local_model model preset n_papers batch_sizes dtypes devices against",
        ),
        "export-task": (f"{_COMMANDS}:export_task", ""),
        "demo": (f"{_COMMANDS}:demo", "release model out short dry_run"),
    }
)
#: What the core calls by name.
PARTS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "make_opponents": "sciscirl.lab.adversarial.env:make_opponents",
        "AdversarialDatasetBuilder": "sciscirl.lab.adversarial.env:AdversarialDatasetBuilder",
        "AdversarialGroupBuilder": "sciscirl.lab.adversarial.env:AdversarialGroupBuilder",
        "play_challenge": "sciscirl.lab.adversarial.play:play_challenge",
        "adversarial_schema": "sciscirl.lab.adversarial.metrics:adversarial_schema",
        "measure_flips": "sciscirl.lab.adversarial.metrics:measure_flips",
        "count_second_turn": "sciscirl.lab.adversarial.env:count_second_turn",
        "LabelScoring": "sciscirl.lab.label_scoring.probabilities:LabelScoring",
        "make_scoring": "sciscirl.lab.label_scoring.probabilities:make_scoring",
        "evaluate_baselines": "sciscirl.lab.analysis.baselines:evaluate_baselines",
        "ask_local_model": "sciscirl.lab.ask_local_model:ask_local_model",
        "find_model": "sciscirl.lab.models.fetch_model:find_model",
        "train_locally": "sciscirl.lab.grpo.train:train_locally",
        "describe_local_training": "sciscirl.lab.grpo.train:render_dry_run",
        "train_with_peft": "sciscirl.lab.sft.peft_backend:train_with_peft",
        "describe_peft_training": "sciscirl.lab.sft.peft_backend:render_dry_run",
    }
)


def load_part(name: str) -> Any:  # noqa: ANN401
    """Load a part of the lab: a name of PARTS, or ``module:name``."""
    module, _, inner = PARTS.get(name, name).partition(":")
    return getattr(import_module(module), inner)
