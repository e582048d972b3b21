"""The collapse alarm between evaluations: it reads the answers that training samples anyway."""

from __future__ import annotations

from pathlib import Path

from sciscidata.options.checks import check_value
from sciscirl.errors import SciSciRLError
from sciscirl.metrics.collapse import CollapseAction, CollapseAlarm, CollapseConfig
from sciscirl.metrics.metrics import measure_predictions
from sciscirl.metrics.predictions import tabulate_logs
from sciscirl.runs.logs import find_rollouts, read_answers, seal_new
from sciscirl.task.papers import Target
from sciscirl.task.predictions import prediction_schema


class TrainingWatch:
    """Checks the answers of a run in windows of whole batches, each once, when the batch after it is made.

    It reads the rollouts that the cookbook's loop wrote, and keeps no memory: a resumed run is judged as if it had
    never stopped. Answers that another process sampled count too.
    """

    def __init__(
        self,
        run: str,
        target: Target,
        *,
        batch_size: int,
        action: CollapseAction = "warn",
        config: CollapseConfig | None = None,
    ) -> None:
        self.run = run
        self.target: Target = target
        self.action: CollapseAction = check_value("collapse", action, CollapseAction, SciSciRLError)
        self.config = config or CollapseConfig()
        self.n_batches = -(-self.config.n_watched // batch_size)

    def __call__(self, batch: int) -> None:
        """Check the batches before this one, if they end a window; a CollapseError has the metrics of the last."""
        seal_new(find_rollouts(Path(self.run), batch - 1))
        if self.action == "off" or batch == 0 or batch % self.n_batches:
            return
        ends = range(batch, 0, -self.n_batches)[: self.config.n_evaluations]
        *earlier, last = (self._measure(end) for end in reversed(ends))
        watched = f"windows of {self.n_batches} training steps"
        CollapseAlarm(self.config, self.action, earlier, watched)(last, batch)

    def _measure(self, end: int) -> dict[str, float]:
        logs = [log for step in range(end - self.n_batches, end) for log in read_answers(Path(self.run), step)]
        measured = measure_predictions(tabulate_logs(logs, prediction_schema(self.target))) if logs else {}
        return {f"train/{name}": value for name, value in measured.items()}
