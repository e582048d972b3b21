"""The options of the ladder."""

from __future__ import annotations

from sciscirl.lab.studies.sweep_options import SweepOptions
from sciscirl.options import partial_of_preset


@partial_of_preset(
    preset="exp4,exp6", model="Qwen/Qwen3-8B", seeds=(0, 1, 2), way=("sft", "rl", "sft_rl"), out="runs/ladder",
    as_of="publication", eval_temperature=0.0,
)  # fmt: skip
class LadderOptions(SweepOptions):
    """Options of the ladder: those of a sweep, with other defaults.

    Attributes:
        preset: the experiments, separated by commas; the untrained model is asked as the first one says.
        model: the base model, by its name on the server.
        as_of: publication: hide what came later; release: show it.
        eval_temperature: of the answers that judge; 0 is greedy.
        dry_run: list the steps and the price, and ask no server.
        out: the folder of the ladder; a ladder that is there goes on.
    """
