"""The demonstration: commands that take a small real model from its first answers to reinforcement learning."""

from __future__ import annotations

import resource
import shlex
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from sciscidata._support.terminal import align_columns, printable
from sciscidata.storage import atomic_file
from sciscirl.errors import SciSciRLError
from sciscirl.runs.folder import RUN_FILE, locked_folder

#: What was done, in which seconds, in the folder of the demonstration.
STEPS_FILE: Final = "steps.json"
_N_TRAIN: Final = 120
_N_HELD_OUT: Final = 30
#: exp4 without its long instructions. The short form hides the abstract of a paper, the long one shows its beginning.
#: So prompts have about 230 and 360 tokens instead of 1,100.
_PROMPT: Final = ("--preset", "exp4", "--style", "plain")


@dataclass(frozen=True, slots=True)
class Step:
    """A command of the demonstration.

    Attributes:
        title: what it is for.
        words: the command as it is typed, its program first.
        folder: what it writes.
        resumes: whether a started folder goes on with ``--resume``.
    """

    title: str
    words: tuple[str, ...]
    folder: Path
    resumes: bool = False


class _Done(msgspec.Struct):
    words: list[str]
    seconds: float
    cpu_seconds: float


def plan_demo(
    out: Path,
    model: str,
    release: Path | None = None,
    *,
    short: bool = False,
    sft_steps: int | None = None,
    rl_steps: int | None = None,
) -> list[Step]:
    """List the commands: with ``short``, no reinforcement learning.

    Example:
        >>> [step.folder.name for step in plan_demo(Path("demo"), "models/mine", Path("slices/mine"), short=True)]
        ['zero_shot', 'sft', 'sft_test', 'comparison', 'report.html']
    """
    steps: list[Step] = []
    if release is None:
        release = out / "release"
        build = f"""sciscidata build --source synthetic --n-works 20000 --n-train {_N_TRAIN} --n-test {_N_HELD_OUT}
            --n-dev {_N_HELD_OUT} --no-novelty --cache-dir"""
        words = (*build.split(), str(out / "cache"), "--out", str(release))
        steps.append(Step("draw a release of synthetic papers", words, release))
    runs: dict[str, Path] = {}

    def evaluate(title: str, name: str, *words: str) -> None:
        runs[name] = out / name
        said = ("sciscirl", "evaluate", *words, "--release", str(release), "--split", "test", "--out", str(out / name))
        steps.append(Step(title, said, out / name))

    asked = (*_PROMPT, *(("--hide", "abstract") if short else ("--max-paper-tokens", "200")))
    here, greedy = ("--local-model", model, "--dtype", _choose_dtype(), *asked), ("--temperature", "0")
    scored = ("--answers", "logprobs", "--prior-correction", "content_free")
    evaluate("ask the model as it comes", "zero_shot", *here, *greedy, "--baselines")
    if not short:
        evaluate("read its label probabilities", "zero_shot_logprobs", *here, *scored)
    # The short form sees fewer papers, in training and on the way: it is to be over in minutes.
    sizes = (sft_steps or 24, 3, 6) if short else (sft_steps or 48, 4, 12)
    steps.append(_train("sft", out, release, model, asked, *sizes))
    evaluate("ask the fine-tuned model", "sft_test", "--run", str(out / "sft"), *greedy)
    if not short:
        evaluate("read its label probabilities", "sft_logprobs", "--run", str(out / "sft"), *scored)
        steps.append(_train("rl", out, release, model, asked, rl_steps or 20, 4, 12))
        evaluate("ask the reinforced model", "rl_test", "--run", str(out / "rl"), *greedy)
    named = [f"{name}={folder}" for name, folder in runs.items()]
    compared = ("sciscirl", "compare", *named, "--out", str(out / "comparison"))
    steps.append(Step("compare on the same papers", compared, out / "comparison"))
    folders = [str(out / name) for name in (("sft",) if short else ("sft", "rl"))] + [
        str(path) for path in runs.values()
    ]
    page = out / "report.html"
    reported = ("sciscirl", "report", *folders, "--release", str(release), "--out", str(page))
    steps.append(Step("put all of it on one page", reported, page))
    return steps


def _train(
    kind: str, out: Path, release: Path, model: str, asked: Sequence[str], n_steps: int, n_papers: int, n_test: int
) -> Step:
    common = f"""--quantize none --no-use-dora --dtype {_choose_dtype()} --no-gradient-checkpointing
        --batch-size {n_papers} --max-steps {n_steps} --n-test {n_test} --eval-temperature 0
        --save-every {n_steps} --eval-every {n_steps}"""
    words = (*asked, *common.split(), "--release", str(release), "--model", model, "--log-path", str(out / kind))
    if kind == "sft":
        own = f"sciscirl sft --backend peft --n-epochs 9 --learning-rate 3e-4 --micro-batch-size {n_papers}"
        return Step("fine-tune on gold answers", (*own.split(), *words), out / kind, resumes=True)
    own = "sciscirl train --backend local --group-size 4 --micro-batch-size 16 --load-checkpoint"
    return Step("reinforce what was fine-tuned", (*own.split(), str(out / "sft"), *words), out / kind, resumes=True)


def _choose_dtype() -> str:
    """Return the numbers that this machine computes with fastest."""
    import torch

    has_units = torch.cuda.is_available() or bool(torch.cpu.get_capabilities().get("amx_bf16"))
    return "bfloat16" if has_units else "float32"


def run_demo(
    steps: Sequence[Step],
    out: Path,
    programs: Mapping[str, Callable[[Sequence[str]], None]],
    show: Callable[[str], None],
) -> None:
    """Run the commands that are not done yet, and note what each took.

    Raises:
        SciSciRLError: the folder holds another demonstration, or a command failed.
    """
    with locked_folder(out, user="demonstration", option="folder: --out"):
        done = _read_done(out)
        for n, step in enumerate(steps):
            if n < len(done) and done[n].words != [*step.words]:
                msg = f"{out} holds a demonstration with other options. Repeat its command, or choose another --out."
                raise SciSciRLError(msg)
        for number, step in enumerate(steps, 1):
            show(f"\nstep {number} of {len(steps)}: {step.title}\n$ {shlex.join(step.words)}")
            if number <= len(done) and step.folder.exists():
                show("(done before)")
                continue
            began, cpu = time.monotonic(), time.process_time()
            is_begun = step.resumes and (step.folder / RUN_FILE).exists()
            programs[step.words[0]]([*step.words[1:], *(["--resume"] if is_begun else [])])
            seconds, cpu_seconds = time.monotonic() - began, time.process_time() - cpu
            done = [*done[: number - 1], _Done([*step.words], round(seconds, 1), round(cpu_seconds, 1))]
            with atomic_file(out / STEPS_FILE) as path:
                path.write_bytes(msgspec.json.format(msgspec.json.encode(done), indent=1))
        show(f"\n{render_done(steps, done)}")


def _read_done(out: Path) -> list[_Done]:
    try:
        return msgspec.json.decode((out / STEPS_FILE).read_bytes(), type=list[_Done])
    except FileNotFoundError:
        return []
    except (msgspec.DecodeError, OSError) as error:
        msg = f"{out / STEPS_FILE} cannot be read: {printable(str(error))}. Remove it, or choose another --out."
        raise SciSciRLError(msg) from error


def render_done(steps: Sequence[Step], done: Sequence[_Done]) -> str:
    """Tell what each step took, and the most memory that this process held."""
    rows = [["step", "minutes", "CPU minutes"]]
    for step, one in zip(steps, done, strict=True):
        rows.append([step.title, *(f"{value / 60:.1f}" for value in (one.seconds, one.cpu_seconds))])
    both = (sum(one.seconds for one in done), sum(one.cpu_seconds for one in done))
    rows.append(["all", *(f"{value / 60:.1f}" for value in both)])
    unit = 1 if sys.platform == "darwin" else 1024
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
    return "\n".join([*align_columns(rows), f"most memory: {most / 1e9:.1f} GB"])
