"""What a run says while it trains: a line for each step. Everything else goes into its ``logs.log``."""

from __future__ import annotations

import logging
import re
import sys
import threading
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from contextvars import copy_context
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, Final

from sciscidata.terminal.messages import printable
from sciscidata.terminal.progress import begin_step, show_steps
from sciscirl.lab.training.step_watch import StepWatch
from sciscirl.runs.checkpoints import read_judgement
from sciscirl.runs.logs import METRICS_FILE, parse_row, read_rows, seal_logs
from sciscirl.runs.prices import Usage, count_tokens, whole
from sciscirl.runs.trackers import open_trackers

#: What a run does before its first step, here and on a server.
READ, LOAD_MODEL, ASK_SERVER = "read the release and make examples", "load the model", "ask the server"
_LOAD_PACKAGES, _TRAIN_STEP = "load the packages", "train"
#: A line comes at least this often, so that a log shows that the run lives.
SILENCE_SECONDS: Final = 30.0
_POLL_SECONDS: Final = 0.5
_TRAIN: Final = "env/all/"
_SHOWN: Final = {
    f"{_TRAIN}reward/total": ("reward", "{:.3f}"),
    f"{_TRAIN}format_strict_ok": ("valid", "{:.0%}"),
    f"{_TRAIN}label_match": ("match", "{:.3f}"),
    f"{_TRAIN}reward_tie_group_rate": ("ties", "{:.0%}"),
    f"{_TRAIN}reward_uniform_group_rate": ("all equal", "{:.0%}"),
    "train_mean_nll": ("loss", "{:.4f}"),
    "label_nll": ("label", "{:.4f}"),
}
_JUDGED: Final = {
    "label_match": ("match", "{:.3f}"),
    "macro_f1": ("macro-F1", "{:.3f}"),
    "way_to_ceiling/macro_f1": ("way to its ceiling", "{:.0%}"),
    "min_class_recall": ("least recall", "{:.3f}"),
    "format_strict_ok": ("valid", "{:.0%}"),
}
_log = logging.getLogger(__name__)
_watch_log = logging.getLogger("sciscirl.lab.training.step_watch")  # not shown by the handler of the lines, too


def render_step(row: Mapping[str, Any], dollars: float | None = None) -> str | None:
    """Write the line of a training step, from its row of metrics; None if the row is of no step.

    ``ties`` is the share of groups in which a reward repeats, ``all equal`` that of groups which teach nothing.

    Example:
        >>> row = {"step": 3, "env/all/reward/total": 0.41, "env/all/format_strict_ok": 0.98, "time/total": 2.5}
        >>> render_step(row | {"progress/done_frac": 0.4}, 0.25)
        'step 3 of 10: reward 0.410, valid 98%, 2.5 s, $0.25 so far'
    """
    parts = _name(row, _SHOWN)
    if not parts:
        return None
    seconds = row.get("time/total", row.get("time/step"))
    parts += [f"{seconds:.1f} s"] if isinstance(seconds, int | float) else []
    parts += [f"${dollars:,.2f} so far"] if dollars is not None else []
    done = row.get("progress/done_frac")
    total = f" of {round((row['step'] + 1) / done):,}" if done else ""
    return f"step {row['step']:,}{total}: {', '.join(parts)}"


def render_evaluation(row: Mapping[str, Any]) -> str | None:
    """Write the line of an evaluation; None if the row has none. No way to the ceiling where the best guess is better.

    Example:
        >>> render_evaluation({"step": 50, "test/label_match": 0.396, "test/format_strict_ok": 1.0})
        'evaluated before step 50: match 0.396, valid 100%'
        >>> render_evaluation({"step": 0, "dev/label_match": 0.0, "dev/way_to_ceiling/macro_f1": -1.26})
        'evaluated before step 0: match 0.000'
    """
    judged = {name: value for name, value in read_judgement(row).items() if "way_to_ceiling/" not in name or value > 0}
    parts = _name({**judged, "step": row.get("step")}, _JUDGED)
    parts += [f"{name.split('/')[1]} {row[name]:.3f}" for name in row if re.fullmatch(r"eval/[^/]+/score", name)]
    return f"evaluated before step {row['step']:,}: {', '.join(parts)}" if parts else None


def _name(row: Mapping[str, Any], shown: Mapping[str, tuple[str, str]]) -> list[str]:
    if not isinstance(row.get("step"), int):
        return []
    named = ((word, form, row.get(name)) for name, (word, form) in shown.items())
    return [f"{word} {form.format(value)}" for word, form, value in named if isinstance(value, int | float)]


class _Follower:
    """Reads the metrics of a run as they are written, shows them, sends them on, and warns of what is wrong."""

    def __init__(self, folder: Path, model: str, send: Callable[[Mapping[str, Any]], None] | None) -> None:
        self.folder, self.model, self.send = folder, model, send
        self.watch, self.alarms = StepWatch(), set[str]()  # of the last step
        self.usage, self.place, self.step = Usage(prefill=0, sample=0, train=0), 0, -1
        self.begun = self.shown = time.monotonic()
        self.read(is_shown=False)  # what a resumed run has cost before

    def read(self, *, is_shown: bool = True) -> None:
        try:
            with (self.folder / METRICS_FILE).open("rb") as file:
                file.seek(self.place)
                whole, end, _ = file.read().rpartition(b"\n")
        except OSError:  # no step yet; what is the matter with the disk, the run itself says
            return
        self.place += len(whole) + len(end)
        for row in filter(None, (parse_row(line.decode("utf-8", "replace")) for line in whole.splitlines())):
            self.add(row, is_shown=is_shown)

    def add(self, row: Mapping[str, Any], *, is_shown: bool) -> None:
        self.usage += count_tokens(row)
        judged = render_evaluation(row)
        if judged is not None:
            for path in (self.folder / f"iteration_{row['step']:06d}").glob("eval_*_rollout_summaries.jsonl"):
                for step in chain.from_iterable(rollout.get("steps", ()) for rollout in read_rows(path)):
                    self.usage += Usage(prefill=whole(step.get("ob_len")), sample=whole(step.get("ac_len")), train=0)
        taken = render_step(row, self.usage.dollars(self.model))
        if taken is not None:
            self.step = row["step"]
        alarms = self.watch(row)
        if is_shown:
            if self.send is not None:
                self.send(row)
            for line in filter(None, (judged, taken)):
                self.say(line)
            for kind in alarms.keys() - self.alarms:
                _watch_log.warning("step %s: %s", row.get("step"), alarms[kind])
        self.alarms = {*alarms}

    def say(self, line: str) -> None:
        self.shown = time.monotonic()
        _log.info("%s", printable(line))

    def beat(self) -> None:
        """Say that the run goes on, if nothing was said for long."""
        now = time.monotonic()
        if now - self.shown >= SILENCE_SECONDS:
            where = f"after step {self.step:,}" if self.step >= 0 else "before the first step has ended"
            self.say(f"running for {now - self.begun:,.0f} s, {where}")


@contextmanager
def show_start(*, is_local: bool) -> Generator[None]:
    """Show what a run does before its first step: which part of how many, and since when."""
    with show_steps(_LOAD_PACKAGES, READ, LOAD_MODEL if is_local else ASK_SERVER, then=_TRAIN_STEP):
        begin_step(_LOAD_PACKAGES)
        yield


@contextmanager
def follow_run(folder: Path, model: str, project: str | None = None, name: str | None = None) -> Generator[None]:
    """Show a line for each step while the block runs, and one at least every half minute; warn of what is wrong.

    Only these lines and warnings are left of the cookbook's console; ``logs.log`` in the folder has all.
    """
    from tinker_cookbook.utils import ml_log

    begin_step(_TRAIN_STEP)
    handler, level = logging.StreamHandler(), _log.level
    handler.setFormatter(logging.Formatter("%(message)s"))
    _log.addHandler(handler)
    _log.setLevel(logging.INFO)
    loop: Any = sys.modules.get("tinker_cookbook.rl.train")  # None: the loop is not in use
    with ExitStack() as ending:
        ending.callback(_log.setLevel, level)
        ending.callback(_log.removeHandler, handler)
        trackers = None if project is None else open_trackers(folder, project, name)
        follower = _Follower(folder, model, trackers and ending.enter_context(trackers))
        ended = threading.Event()

        def watch() -> None:
            while not ended.wait(_POLL_SECONDS):
                follower.read()
                follower.beat()

        # trackio keeps its run in a context variable
        thread = threading.Thread(target=copy_context().run, args=(watch,), name="console", daemon=True)

        def end() -> None:
            ended.set()
            thread.join()
            follower.read()
            with suppress(OSError):  # what is the matter with the disk, the run itself says
                seal_logs(folder)

        thread.start()
        ending.callback(end)
        # the cookbook has no options for these
        ending.enter_context(_replaced(ml_log, "configure_logging_module", _log_to_file))
        if loop is not None:
            ending.enter_context(_replaced(loop, "tqdm", partial(loop.tqdm, disable=True)))
        yield


@contextmanager
def _replaced(owner: object, name: str, value: object) -> Generator[None]:
    before = getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, before)


def _log_to_file(path: str, level: int = logging.INFO) -> logging.Logger:
    """Stand in for the cookbook's own: send everything to a file, and only warnings to the console."""
    console, file = logging.StreamHandler(), logging.FileHandler(path, encoding="utf-8")
    console.setLevel(logging.WARNING)
    # Version 0.6.1 of the cookbook waits where it could await; the SDK says so at each step, with the whole stack.
    console.addFilter(lambda record: record.name != "tinker.lib.sync_only")
    console.setFormatter(logging.Formatter("%(levelname)s: %(message)s"))
    file.setFormatter(logging.Formatter("%(asctime)s %(name)s:%(lineno)d [%(levelname)s] %(message)s"))
    logging.basicConfig(level=level, handlers=[console, file], force=True)
    return logging.getLogger()
