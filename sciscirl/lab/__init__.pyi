"""What the core calls of the lab, by ``lab_parts.load_part``."""

from .adversarial.env import AdversarialDatasetBuilder as AdversarialDatasetBuilder
from .adversarial.env import AdversarialGroupBuilder as AdversarialGroupBuilder
from .adversarial.env import count_second_turn as count_second_turn
from .adversarial.metrics import adversarial_schema as adversarial_schema
from .adversarial.metrics import measure_flips as measure_flips
from .analysis.baselines import evaluate_baselines as evaluate_baselines
from .analysis.baselines import run_baseline as run_baseline
from .grpo import describe_local_training as describe_local_training
from .grpo import train_locally as train_locally
from .label_scoring import LabelScoring as LabelScoring
from .label_scoring import make_scoring as make_scoring
from .models.adapter_files import find_base_model as find_base_model
from .models.adapter_files import find_broken as find_broken
from .models.adapter_files import find_local_weights as find_local_weights
from .models.chat_server import evaluate_on_chat_server as evaluate_on_chat_server
from .models.chat_template import match_template as match_template
from .models.chat_template import writes_as_template as writes_as_template
from .models.fetch_model import find_model as find_model
from .models.local_completer import ask_local_model as ask_local_model
from .sft.peft_backend import describe_peft_training as describe_peft_training
from .sft.peft_backend import train_with_peft as train_with_peft
