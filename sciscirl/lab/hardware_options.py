"""Options of training on your own hardware, and of merging what it trained, beside those of ``sciscirl.options``."""

from __future__ import annotations

from typing import Final, Literal

from sciscidata.options.checks import PositiveInt, check_fields
from sciscirl.errors import SciSciRLError
from sciscirl.options import (
    CheckpointOptions,
    NumberFormat,
    ServerOptions,
    SftOptions,
    TrainOptions,
    partial_of_preset,
)

#: Of the base model, under an adapter that is trained.
Quantization = Literal["nf4", "none"]
#: Options of an adapter and its base model, which a run from other weights keeps.
OF_ADAPTER: Final = ("quantize", "use_dora", "lora_alpha")


@partial_of_preset(dtype="bfloat16")
class HardwareOptions(NumberFormat):
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

    quantize: Quantization = "nf4"
    use_dora: bool = True
    lora_alpha: PositiveInt = 32
    micro_batch_size: PositiveInt = 1
    eval_batch_size: PositiveInt = 16
    gradient_checkpointing: bool = True


@partial_of_preset(eval_batch_size=32)
class LocalTrainOptions(TrainOptions, HardwareOptions):
    """Options of reinforcement learning on your own hardware.

    Attributes:
        micro_batch_size: answers in one pass of training; must divide batch_size times group_size.
        eval_batch_size: answers in one pass of sampling, in training and evaluations.
    """

    of_adapter = OF_ADAPTER


@partial_of_preset()
class PeftSftOptions(SftOptions, HardwareOptions):
    """Options of supervised fine-tuning on your own GPUs."""

    backend = "peft"


@partial_of_preset(dtype="bfloat16")
class MergeOptions(ServerOptions, CheckpointOptions, NumberFormat):
    """Options of merging an adapter into its base model.

    Attributes:
        dtype: of its weights.
        device: where to compute: cpu, cuda, cuda:1; a run on a server is merged on the CPU.
        base_url: the Tinker server with the weights of the run; None: TINKER_BASE_URL, else Tinker.
    """

    device: str = "cpu"

    def __post_init__(self) -> None:
        check_fields(self, SciSciRLError)
