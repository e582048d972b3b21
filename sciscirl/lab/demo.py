"""The demonstration: commands that take a small real model from its first answers to reinforcement learning."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from sciscidata.storage import atomic_file
from sciscidata.terminal.messages import printable
from sciscirl.errors import SciSciRLError
from sciscirl.runs.folder import locked_folder
from sciscirl.runs.record import RUN_FILE

#: The commands that were done, in the folder of the demonstration.
STEPS_FILE: Final = "steps.json"
#: The label of synthetic papers: the part of science that a paper is from. Its title shows it, and its main field,
#: which neither prompt nor baseline sees.
_PARTS: Final = {
    "health": ("Medicine", "Nursing"),
    "society": ("Social Sciences", "Psychology", "Economics, Econometrics and Finance"),
    "technology": ("Engineering", "Computer Science"),
}
#: Last digits of ids whose label is wrong: the next part, or the one after it. So a fifth of all labels are.
WRONG_DIGITS: Final = (0, 1)
#: exp4 without its long instructions: prompts have 200 to 360 tokens instead of 1,100.
_PROMPT: Final = ("--preset", "exp4", "--style", "plain")
_TITLE_ONLY: Final = ("--hide", "abstract")
#: A command that names the folder of a model of the hub. Later commands then have the variable.
BRING_MODEL: Final = '# bring the model onto this machine\neval "$(sciscirl model {})"'


@dataclass(frozen=True, slots=True)
class Step:
    """A command of the demonstration, as it is typed; ``folder`` is what it writes, again if it ``resumes``."""

    title: str
    words: tuple[str, ...]
    folder: Path
    resumes: bool = False

    @property
    def typed(self) -> str:
        """The command as a shell reads it."""
        return " ".join(f'"{word}"' if word == "$MODEL" or ("'" in word and not set(word) & set('"$`\\!'))
                        else shlex.quote(word) for word in self.words)  # fmt: skip


def plan_demo(out: Path, model: str, release: Path | None = None, *, short: bool = False) -> list[Step]:
    """List the commands: with ``short``, no reinforcement learning."""
    steps: list[Step] = []
    asked = (*_PROMPT, *(_TITLE_ONLY if short or release is None else ("--max-paper-tokens", "200")))
    # The short form sees fewer papers, in training and on the way: it is to be over in minutes.
    sft = _Sizes(14, 3, 6, "3e-4", n_evals=1) if short else _Sizes(48, 4, 12, "3e-4")
    if release is None:
        release = out / "release"
        words = list_build_words(release, *((120, 30, 30) if short else (240, 30, 90)), out / "cache")
        steps.append(Step("draw a release of synthetic papers with a label that their titles show", words, release))
        asked = (*asked, "--target", "label")
        # Prompts that begin alike are cheap together, and the label is learned only in the third showing of a paper.
        sft = sft if short else _Sizes(60, 16, 30, "1e-3")
    runs: dict[str, Path] = {}

    def evaluate(title: str, name: str, *words: str) -> None:
        runs[name] = out / name
        said = ("sciscirl", "evaluate", *words, "--release", str(release), "--split", "test", "--out", str(out / name))
        steps.append(Step(title, said, out / name))

    here, greedy = ("--local-model", model, "--dtype", _choose_dtype(), *asked), ("--temperature", "0")
    scored = ("--answers", "logprobs", "--prior-correction", "content_free")
    evaluate("ask the model as it comes", "zero_shot", *here, *greedy, "--baselines")
    if not short:
        evaluate("read its label probabilities", "zero_shot_logprobs", *here, *scored)
    steps.append(_train(out / "sft", release, model, asked, sft))
    evaluate("ask the fine-tuned model", "sft_test", "--run", str(out / "sft"), *greedy)
    if not short:
        evaluate("read its label probabilities", "sft_logprobs", "--run", str(out / "sft"), *scored)
        steps.append(_train(out / "rl", release, model, asked, _Sizes(15, 4, sft.n_test, "1e-4")))
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


def list_build_words(
    release: Path, n_train: int, n_dev: int, n_test: int, cache: Path | None = None
) -> tuple[str, ...]:
    """List the words of a command that draws synthetic papers whose best answers are known.

    Their label is the part of science that a paper is from, and wrong for a fifth of them.
    """
    fields = (", ".join(f"'{name}'" for name in names) for names in _PARTS.values())
    part = " ".join(f"WHEN primary_field IN ({names}) THEN {number}" for number, names in enumerate(fields))
    turn = " ".join(f"WHEN {digit} THEN {more}" for more, digit in enumerate(WRONG_DIGITS, 1))
    said = " ".join(f"WHEN {number} THEN '{name}'" for number, name in enumerate(_PARTS))
    sql = f"CASE (CASE {part} END + CASE work_id % 10 {turn} ELSE 0 END) % 3 {said} END"
    words = f"""sciscidata build --source synthetic --n-works 20000 --no-novelty
        --context --n-train {n_train} --n-dev {n_dev} --n-test {n_test} --balance label --label-name part_label
        --label-classes {" ".join(_PARTS)} --label-hidden primary_field"""
    asked = ("--label-question", "Which part of science is the paper from?", "--label-sql", sql)
    cached = () if cache is None else ("--cache-dir", str(cache))
    return (*words.split(), *asked, *cached, "--out", str(release))


_N_SAVES: Final = 3  # a run that was stopped goes on from the last one


@dataclass(frozen=True, slots=True)
class _Sizes:
    n_steps: int
    n_papers: int  # in a step
    n_test: int  # that judge on the way
    learning_rate: str
    n_evals: int = 3


def _train(folder: Path, release: Path, model: str, asked: Sequence[str], sizes: _Sizes) -> Step:
    every, save_every = (max(1, sizes.n_steps // n) for n in (sizes.n_evals, _N_SAVES))
    # exp4 is judged by test, as it was published. Here test is for the end.
    has_dev = release == folder.with_name("release") or (release / "dev.parquet").is_file()
    common = f"""--eval-split {"dev" if has_dev else "held_out"}
        --quantize none --no-use-dora --dtype {_choose_dtype()} --no-gradient-checkpointing
        --batch-size {sizes.n_papers} --max-steps {sizes.n_steps} --learning-rate {sizes.learning_rate}
        --n-test {sizes.n_test} --eval-temperature 0 --save-every {save_every} --eval-every {every}"""
    words = (*asked, *common.split(), "--release", str(release), "--model", model, "--log-path", str(folder))
    if folder.name == "sft":
        own = f"sciscirl sft --backend peft --n-epochs 9 --micro-batch-size {sizes.n_papers}"
        return Step("fine-tune on gold answers", (*own.split(), *words), folder, resumes=True)
    own = "sciscirl train --backend local --group-size 4 --micro-batch-size 16 --load-checkpoint"
    start = str(folder.with_name("sft"))
    return Step("reinforce what was fine-tuned", (*own.split(), start, *words), folder, resumes=True)


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
    """Run the commands that are not done yet."""
    with locked_folder(out, user="demonstration", option="folder: --out"):
        done = check_demo(steps, out)
        for number, step in enumerate(steps, 1):
            show(f"\nstep {number} of {len(steps)}: {step.title}\n$ {step.typed}")
            if number <= len(done) and step.folder.exists():
                show("(done before)")
                continue
            is_begun = step.resumes and (step.folder / RUN_FILE).exists()
            try:
                programs[step.words[0]]([*step.words[1:], *(["behavior_if_log_dir_exists=resume"] if is_begun else [])])
            except KeyboardInterrupt:
                show("\nstopped. Repeat the command to go on.")
                raise
            done = [*done[: number - 1], [*step.words]]
            with atomic_file(out / STEPS_FILE) as path:
                path.write_bytes(msgspec.json.format(msgspec.json.encode(done), indent=1))


def check_demo(steps: Sequence[Step], out: Path) -> list[list[str]]:
    """Return the commands that were done in a folder; SciSciRLError if it holds another demonstration."""
    try:
        done = msgspec.json.decode((out / STEPS_FILE).read_bytes(), type=list[list[str]])
    except FileNotFoundError:
        done = []
    except (msgspec.DecodeError, OSError) as error:
        raise SciSciRLError(
            f"{out / STEPS_FILE} cannot be read: {printable(str(error))}. Remove it, or choose another --out."
        ) from error
    if any(words != [*step.words] for words, step in zip(done, steps, strict=False)):
        raise SciSciRLError(
            f"{out} holds a demonstration with other options. Repeat its command, or choose another --out."
        )
    return done
