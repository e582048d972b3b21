"""Configure TRL's loop so that a step does what the cookbook's does, and refuse options that it cannot honour."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from sciscirl.errors import SciSciRLError
from sciscirl.lab.hardware_options import LocalTrainOptions
from sciscirl.lab.sft.peft_backend import check_one_process, list_arguments
from sciscirl.options import Run
from sciscirl.presets import BASE, Preset
from sciscirl.rl.train import check_preset

if TYPE_CHECKING:
    from trl.trainer.grpo_config import GRPOConfig

#: Options of a server, and why they have no effect here.
NOT_HERE: Final[Mapping[str, str]] = MappingProxyType(
    {
        "base_url": "the model is trained in this process",
        "keep_days": "checkpoints lie in the folder of the run until you delete them",
        "max_steps_off_policy": "TRL samples and trains in turn",
        "num_minibatches": "micro_batch_size divides a step",
        "compute_post_kl": "TRL logs its own KL",
        "rolling_save_every": "checkpoints lie in the folder of the run until you delete them",
    }
)
#: No ratio of probabilities reaches these ends, so nothing is clipped.
_NO_CLIP: Final = 1e9
#: Gradients of this norm are clipped: none. TRL logs the norm only if there is a limit.
_NO_LIMIT: Final = 1e9


def refuse_options(run: Run[LocalTrainOptions]) -> None:
    """Refuse what TRL's loop does not do, by name (SciSciRLError)."""
    options, preset = run.options, run.preset
    for one in fields(options):
        if one.name in NOT_HERE and getattr(options, one.name) != one.default:
            raise SciSciRLError(f"{one.name} has no effect with backend=local: {NOT_HERE[one.name]}. Leave it out.")
    check_one_process()
    check_preset(preset)
    if preset.adversarial is not None:
        raise SciSciRLError(
            f"preset {preset.name} challenges answers, which backend=local cannot do: TRL's loop asks for one answer, "
            "without a second turn. Train on a server: backend=tinker."
        )
    no_other_reference = "TRL compares with the weights that the run begins with"
    refused = (
        ("num_substeps", 1, "a step of TRL is one update of the weights"),
        ("kl_reference", BASE, no_other_reference),
        ("kl_discount", 0.0, "TRL's KL term is a loss of each token by itself"),
        *((("kl_penalty_coef", 0.0, f"{no_other_reference}, not with the base model"),) if run.begun_from else ()),
    )
    for name, only, why in refused:
        if getattr(preset, name) != only:
            raise SciSciRLError(
                f"{name} is {getattr(preset, name)}, which backend=local cannot do: {why}. Set {name}={only}, or "
                "train on a server: backend=tinker."
            )
    if preset.loss_fn == "dro":
        raise SciSciRLError(
            "loss_fn is dro, which TRL does not have. Set loss_fn=importance_sampling, or backend=tinker."
        )
    n_answers = preset.batch_size * preset.group_size
    if n_answers % options.micro_batch_size:
        raise SciSciRLError(
            f"micro_batch_size is {options.micro_batch_size}, needs a divisor of {n_answers}: {preset.batch_size} "
            f"papers (batch_size) with {preset.group_size} answers (group_size)."
        )


def name_losses(preset: Preset) -> dict[str, Any]:
    """Name TRL's loss for that of a preset, with its clip thresholds."""
    clips = dict(preset.loss_fn_config)
    low, high = clips.get("clip_low_threshold", 0.8), clips.get("clip_high_threshold", 1.2)
    if preset.loss_fn == "cispo":
        return {"loss_type": "cispo", "epsilon_high": high}
    if preset.loss_fn == "ppo":
        return {"loss_type": "dr_grpo", "epsilon": round(1 - low, 9), "epsilon_high": round(high - 1, 9)}
    return {"loss_type": "dr_grpo", "epsilon": _NO_CLIP, "epsilon_high": _NO_CLIP}


def make_arguments(run: Run[LocalTrainOptions], n_steps: int) -> GRPOConfig:
    """Configure TRL's loop: our order of papers and steps, and advantages, loss and optimizer of the cookbook's.

    TRL divides the summed loss of a step by answers times ``max_tokens``, which only Adam's ``eps`` notices: it is
    divided likewise.
    """
    from trl.trainer.grpo_config import GRPOConfig

    options, preset = run.options, run.preset
    n_answers = preset.batch_size * preset.group_size
    return GRPOConfig(
        **list_arguments(run, n_steps),
        gradient_accumulation_steps=n_answers // options.micro_batch_size,
        num_generations=preset.group_size,
        max_completion_length=preset.max_tokens,
        shuffle_dataset=False,
        temperature=preset.temperature,
        **name_losses(preset),
        scale_rewards="none",
        beta=preset.kl_penalty_coef,
        lr_scheduler_type="constant",
        adam_epsilon=preset.adam_eps / (n_answers * preset.max_tokens),
        max_grad_norm=_NO_LIMIT,
        disable_tqdm=True,
    )
