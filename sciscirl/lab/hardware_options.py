"""What a training run on your own hardware is started with, beside the options of ``sciscirl.options``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Final, Literal

from sciscidata.options.checks import PositiveInt
from sciscirl.options import Precision, SftOptions, TrainOptions

#: Of the base model, under an adapter that is trained.
Quantization = Literal["nf4", "none"]
#: Options of an adapter and its base model, which a run from other weights keeps.
OF_ADAPTER: Final = ("quantize", "use_dora", "lora_alpha")


# No slots, as in GoldOptions: of the bases of a class, Python allows them to one.
@dataclass(frozen=True, kw_only=True)
class HardwareOptions:
    """Options of training on your own hardware.

    Attributes:
        quantize: the base model: nf4 has four bits, none leaves it as it is.
        use_dora: train magnitude and direction apart (DoRA); without it LoRA.
        lora_alpha: scale of the adapter times its rank; Tinker's is always 32.
        dtype: of computation, and of weights that are not quantized.
        micro_batch_size: papers in one pass of one device; must divide batch_size.
        eval_batch_size: papers in one pass in evaluations.
        gradient_checkpointing: use less memory and more time.
    """

    of_adapter: ClassVar[tuple[str, ...]] = OF_ADAPTER
    quantize: Quantization = "nf4"
    use_dora: bool = True
    lora_alpha: PositiveInt = 32
    dtype: Precision = "bfloat16"
    micro_batch_size: PositiveInt = 1
    eval_batch_size: PositiveInt = 16
    gradient_checkpointing: bool = True


@dataclass(frozen=True, kw_only=True, slots=True)
class LocalTrainOptions(HardwareOptions, TrainOptions):
    """Options of reinforcement learning on your own hardware.

    Attributes:
        micro_batch_size: answers in one pass of training; must divide batch_size times group_size.
        eval_batch_size: answers in one pass of sampling, in training and evaluations.
    """

    eval_batch_size: PositiveInt = 32


@dataclass(frozen=True, kw_only=True, slots=True)
class PeftSftOptions(HardwareOptions, SftOptions):
    """Options of supervised fine-tuning on your own GPUs."""

    backend: ClassVar[str] = "peft"
