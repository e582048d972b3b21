"""Measure parts of a benchmark in processes of their own, and set what they took side by side.

A script whose figures ``all.py`` gathers ends in ``show``: a table to read or, with ``--json``, rows as JSON.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import os
import re
import resource
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypedDict

if TYPE_CHECKING:
    import polars as pl

#: Linux counts peak memory in KiB, macOS in bytes.
_MAXRSS_BYTES = 1 if sys.platform == "darwin" else 1024
#: Help of an option that only a part of the script itself is given.
HIDDEN = argparse.SUPPRESS
#: Works of the graphs that tasks begin with: "S: CD_5 alone" grows to "M: CD_5 alone".
WORKS = {"S": 1e5, "M": 1e6, "L": 5e6}
ONE_THREAD = dict.fromkeys(("POLARS_MAX_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")


class Row(TypedDict, total=False):
    """One line of the table: what a tool took for a task."""

    task: str
    tool: str
    cpu_s: float
    wall_s: float
    peak_gb: float
    note: str


class Failed(Exception):
    """A process ended with an error; the message is the line that names it, ``said`` is all."""

    def __init__(self, message: str, said: str) -> None:
        super().__init__(message)
        self.said = said


class Process(NamedTuple):
    """What a process took, with the workers that it waited for."""

    cpu_s: float
    wall_s: float
    peak_gb: float
    output: str


def run(command: Sequence[str], cwd: Path | None = None, **environment: str) -> Process:
    """Run a command to its end."""
    with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
        start = time.perf_counter()
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=errors, cwd=cwd, env=os.environ | environment
        )
        try:
            _, status, usage = os.wait4(process.pid, 0)
        except BaseException:
            process.kill()
            raise
        wall_s = time.perf_counter() - start
        process.returncode = os.waitstatus_to_exitcode(status)
        texts = []
        for file in (output, errors):
            file.seek(0)
            texts.append(file.read().decode(errors="replace"))
    if process.returncode:
        said = texts[1].strip() or texts[0].strip()
        print(said[-4_000:], file=sys.stderr)
        lines = said.splitlines() or ["no message"]
        named = [line for line in lines if re.match(r"[\w.]*(error|exception)\b.*:", line, re.IGNORECASE)]
        killed = f"signal {-process.returncode}, perhaps for memory"
        raise Failed([*lines, *named][-1] if process.returncode > 0 else killed, said)
    return Process(usage.ru_utime + usage.ru_stime, wall_s, usage.ru_maxrss * _MAXRSS_BYTES / 1e9, texts[0])


def in_own_process(script: str, *arguments: str, python: str = sys.executable, **environment: str) -> dict[str, Any]:
    """Run ``script`` with arguments; return the JSON object that it prints last, with its peak memory in GB."""
    done = run([python, str(Path(script).resolve()), *arguments], **environment)
    return json.loads(done.output.splitlines()[-1]) | {"peak_gb": round(done.peak_gb, 3)}


def report(**figures: Any) -> None:
    """Print figures as the last line of a measured process."""
    print(json.dumps(figures))


def cpu_seconds() -> float:
    """Return the processor seconds of this process and of the children that it waited for."""
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def timed(work: Callable[[], Any], repeats: int = 1) -> tuple[dict[str, float], Any]:
    """Return processor and wall seconds, each the least of ``repeats`` calls, and the last result."""
    taken, result = [], None
    for _ in range(repeats):
        start, cpu = time.perf_counter(), cpu_seconds()
        result = work()
        taken.append((cpu_seconds() - cpu, time.perf_counter() - start))
    return {"cpu_s": min(cpu for cpu, _ in taken), "wall_s": min(wall for _, wall in taken)}, result


def fingerprint(frame: pl.DataFrame) -> str:
    """Return twelve digits of the SHA-256 of all values, in the order of the first column."""
    frame, digest = frame.sort(frame.columns[0]), hashlib.sha256()
    for column in frame.iter_columns():
        digest.update(column.to_numpy().tobytes())
    return digest.hexdigest()[:12]


def try_process(task: str, tool: str, *command: str, **options: str) -> Row:
    """Return what a script took for a task, or a row that says why it did not run."""
    try:
        return {"task": task, "tool": tool, **in_own_process(*command, **options)}
    except Failed as error:
        return {"task": task, "tool": tool, "note": f"did not run: {error}"}


def fingerprint(*values: Any) -> str:
    """Return 12 hex digits over all values of frames, arrays and files, so that two runs can be told to agree.

    The order of a frame's rows is left out, for it is not kept; that of columns counts, and so does each bit. A folder
    stands for all files in it with their names.
    """
    digest = hashlib.sha256()
    for value in values:
        if isinstance(value, str | Path):
            path = Path(value)
            for file in sorted(path.rglob("*")) if path.is_dir() else [path]:
                if file.is_file():
                    digest.update(str(file.relative_to(path)).encode() + b"\0" + file.read_bytes())
        elif hasattr(value, "lazy"):
            frame = value.lazy().collect()
            plain = [name for name, dtype in frame.schema.items() if not dtype.is_nested()]
            for column in frame.sort(plain).get_columns() if plain else frame.get_columns():
                _add_column(digest, column)
        else:
            digest.update(f"{value.dtype} {value.shape}".encode() + value.tobytes())
    return digest.hexdigest()[:12]


def _add_column(digest: Any, column: pl.Series) -> None:
    digest.update(f"{column.name} {column.dtype}".encode() + column.is_null().to_numpy().tobytes())
    plain = column.to_physical()
    if column.dtype.is_numeric() or column.dtype.is_temporal():
        digest.update(plain.fill_null(0).to_numpy().tobytes())
    else:
        digest.update(repr(column.to_list()).encode())


def table(rows: Iterable[Row]) -> str:
    """Set rows side by side; a ratio is that of processor seconds to those of the first tool of the task.

    Where a tool did the same on a smaller graph, the last column says with which power of the works its seconds grow.
    """
    rows = [*rows]
    growths = find_growths(rows)
    lines = ["| | | CPU, s | wall, s | peak, GB | times the first | |", "|---|---|---|---|---|---|---|"]
    task, first = "", None
    for row, growth in zip(rows, growths, strict=True):
        cpu = row.get("cpu_s")
        if (shown := row["task"]) == task:
            shown = ""
        else:
            task, first = row["task"], cpu
        figures = [_shown(row.get(name)) for name in ("cpu_s", "wall_s", "peak_gb")]
        ratio = _shown(cpu / first if cpu is not None and first else None)
        note = "; ".join(filter(None, [row.get("note", ""), growth]))
        lines.append("| " + " | ".join([shown, row["tool"], *figures, ratio, note]) + " |")
    return "\n".join(lines)


def find_growths(rows: Sequence[Row]) -> list[str]:
    """Say for each row how its processor seconds grow from the next smaller graph on, or nothing."""
    taken: dict[tuple[str, str, int], dict[str, float]] = {}
    seen: Counter[tuple[str, str]] = Counter()
    places = []
    for row in rows:
        size, _, rest = row["task"].partition(": ")
        key = (rest, row["tool"], seen[row["task"], row["tool"]])
        seen[row["task"], row["tool"]] += 1
        places.append((size, key))
        if size in WORKS and row.get("cpu_s"):
            taken.setdefault(key, {})[size] = row["cpu_s"]
    growths = []
    for size, key in places:
        known = taken.get(key, {})
        smaller = [other for other in known if size in known and WORKS[other] < WORKS[size]]
        if smaller:
            start = max(smaller, key=WORKS.__getitem__)
            power = math.log(known[size] / known[start]) / math.log(WORKS[size] / WORKS[start])
            growths.append(f"grows as n^{power:.2f} from {start}")
        else:
            growths.append("")
    return growths


def _shown(figure: float | None) -> str:
    if figure is None:
        return ""
    return f"{figure:,.0f}" if figure >= 100 else f"{figure:.3g}"


def parser(doc: str | None) -> argparse.ArgumentParser:
    """Return a parser with the options of every script that ends in ``show``."""
    made = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--peers", metavar="PYTHON", default=sys.executable, help="the interpreter that has the peers")
    made.add_argument("--json", action="store_true", help="print rows as JSON, for all.py")
    made.add_argument("--part", help=HIDDEN)
    return made


def show(rows: Sequence[Row], options: argparse.Namespace) -> None:
    """Print rows as a table or, for ``all.py``, as JSON."""
    print(json.dumps({"rows": rows}) if options.json else table(rows))
