"""The public names, in the order of the flow; what is here is all that ``import sciscirl`` shows."""

from .envs.dataset import LabelDatasetBuilder as LabelDatasetBuilder
from .envs.env import LabelEnv as LabelEnv
from .envs.env import LabelGroupBuilder as LabelGroupBuilder
from .envs.env import build_messages as build_messages
from .errors import SciSciRLError as SciSciRLError
from .lab.adversarial.play import play_episode as play_episode
from .lab.analysis.compare import compare_predictions as compare_predictions
from .lab.analysis.result_file import write_result as write_result
from .lab.evaluation.config import EvaluationConfig as EvaluationConfig
from .lab.evaluation.evaluate import evaluate_model as evaluate_model
from .lab.harnesses.export import ExportConfig as ExportConfig
from .lab.harnesses.export import export_task as export_task
from .lab.harnesses.export import read_rules as read_rules
from .lab.sft.tinker_backend import make_gold_builder as make_gold_builder
from .lab.training.rl import make_builder as make_builder
from .lab.training.rl import make_config as make_config
from .lab.training.rl import train_preset as train_preset
from .metrics.metrics import measure_predictions as measure_predictions
from .metrics.own_metrics import register_metric as register_metric
from .options import TrainOptions as TrainOptions
from .presets import PRESETS as PRESETS
from .presets import find_preset as find_preset
from .presets import register_preset as register_preset
from .task.experiment import Preset as Preset
from .task.papers import Paper as Paper
from .task.predictions import make_prediction as make_prediction
from .task.prompts import register_prompt as register_prompt
from .task.release import read_split as read_split
from .task.rewards import register_reward as register_reward
from .task.rewards import score_answer as score_answer

__version__: str
