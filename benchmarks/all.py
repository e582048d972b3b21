"""Run every benchmark beside its peers, and write one table.

python benchmarks/all.py                                  sizes S and M; twenty minutes on two free cores
python benchmarks/all.py --resume                         go on with a run that was stopped
python benchmarks/all.py --sizes S --parts cd_index --out FOLDER

The peers get an environment of their own, once: benchmarks/.cache/peers. Each step is a process, and so is each tool in
it. Its rows go to results/STEP.json, and the table of all files to benchmarks/README.md; with --out, both go to FOLDER.
A step that fails, and a peer that cannot be installed, is a row that says so.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import time
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from benchmarks.measure import Failed, in_own_process, run, table

HERE = Path(__file__).resolve().parent
REQUIREMENTS = HERE / "requirements-peers.txt"
README = HERE / "README.md"
MARKS = "<!-- figures: made by benchmarks/all.py -->\n", "<!-- end of figures -->\n"
#: Works of each graph, and the size of benchmarks/scale.py that goes with it.
SIZES = {"XS": (2_000, ""), "S": (100_000, "1M"), "M": (1_000_000, "5M")}
#: Scripts whose rows begin with the size, so that the table can say how their cost grows.
OF_EACH_SIZE = ("cd_index", "novelty", "label_confidence", "null_models")


class Step(NamedTuple):
    """One script with its arguments."""

    part: str
    size: str
    arguments: list[str]

    @property
    def name(self) -> str:
        """Return the stem of the step's file."""
        return f"{self.part}-{self.size}" if self.size else self.part


def list_steps(sizes: list[str]) -> list[Step]:
    """List the steps; those without a size in their name take the last one."""
    n, scale = SIZES[sizes[-1]]
    ingest_once = ["--stages", "cd", "novelty"]  # a snapshot has no size
    return [
        Step("first_call", "", []),
        *(Step(part, size, ["--size", size]) for part in OF_EACH_SIZE for size in sizes),
        Step("abstracts", "", []),
        Step("snapshot", "", ["--parts", "4", "--records", "10000", "--repeats", "2"]),
        *(Step("tables", each, ["--size", each]) for each in sizes),
        Step("sciscinet", "", ["--works", str(n // 5), "--n-train", str(n // 200), "--n-test", str(n // 2_000)]),
        *(Step("engines", size, ["workers", "--size", size, *ingest_once]) for size in sizes[:-1]),
        Step("engines", sizes[-1], ["workers", "--size", sizes[-1]]),
        *(Step(part, size, ["--size", size]) for part in ("update", "questions") for size in sizes),
        *([Step("scale", "", ["--sizes", scale])] if scale else []),
    ]


#: In the order of the table.
PARTS = [*dict.fromkeys(step.part for step in list_steps([*SIZES]))]


def normal(name: str) -> str:
    """Return the name of a package as all spellings of it have it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def install_peers(folder: Path) -> tuple[str, dict[str, str]]:
    """Make the peers' environment; return its interpreter, and why some packages are not in it."""
    python, kept = folder / "bin" / "python", folder / "installed.json"
    if not python.exists():
        # Some peers pin packages that have no wheel for a later Python.
        newest = [path for name in ("python3.12", "python3.11") if (path := shutil.which(name))]
        run([sys.executable if sys.version_info < (3, 13) or not newest else newest[0], "-m", "venv", str(folder)])
    done: list[str] = json.loads(kept.read_text()) if kept.exists() else []
    lines = [line.partition("  #")[0].strip() for line in REQUIREMENTS.read_text().splitlines()]
    missing = {}
    for requirement in (line for line in lines if line and not line.startswith("#") and line not in done):
        print(f"installing {requirement}", flush=True)
        try:
            run([str(python), "-m", "pip", "install", "--disable-pip-version-check", "-q", requirement])
            done.append(requirement)
        except Failed as error:
            found = re.search(r"(?:fatal|ERROR): (.*)", error.said)
            missing[normal(re.split(r"[=@\[ ]", requirement)[0])] = found[1] if found else str(error)
    kept.write_text(json.dumps(done))
    return str(python), missing


def describe_machine(python: str) -> dict[str, str]:
    """Say what the figures depend on."""
    info = Path("/proc/cpuinfo")
    model = re.search(r"model name\s*: (.*)", info.read_text()) if info.exists() else None
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9
    script = "import importlib.metadata as m, json; print(json.dumps([[d.name, d.version] for d in m.distributions()]))"
    found = {normal(name): version for name, version in json.loads(run([python, "-c", script]).output)}
    wanted = [normal(name) for name in re.findall(r"^[\w-]+", REQUIREMENTS.read_text(), re.M)]
    theirs = [f"{name} {found[name]}" for name in wanted if name in found]
    ours = [f"{name} {version(name)}" for name in ("sciscidata", "polars", "numba", "numpy", "pyarrow")]
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=HERE, capture_output=True, text=True, check=False
    )
    return {
        "machine": f"{os.cpu_count()} cores of {model[1] if model else platform.processor()}, {memory:.0f} GB",
        "date": f"{datetime.now(UTC):%Y-%m-%d}",
        "versions": f"Python {platform.python_version()}, {', '.join(ours)}",
        "peers": ", ".join(theirs),
        "commit": commit.stdout.strip(),
    }


def run_step(step: Step, python: str) -> list[dict[str, Any]]:
    """Return the rows of a step, or one that says why it failed."""
    script = str(HERE / f"{step.part}.py")
    try:
        return in_own_process(script, *step.arguments, "--peers", python, "--json")["rows"]
    except Failed as error:
        return [{"task": step.name, "tool": "", "note": f"failed: {error}", "failed": True}]


def is_done(step: Step, file: Path) -> bool:
    """Tell whether a step has rows of these arguments, and did not fail."""
    result = json.loads(file.read_text()) if file.exists() else {}
    return result.get("arguments") == step.arguments and not any("failed" in row for row in result["rows"])


def page(folder: Path) -> str:
    """Return the table of all results in a folder, and where they come from."""
    files = [folder / f"{step.name}.json" for step in list_steps([*SIZES])]
    results = {file.stem: json.loads(file.read_text()) for file in files if file.exists()}
    by_origin: dict[str, list[str]] = {}
    for name, result in results.items():
        origin = f"{result['date']}, {result['machine']}\n  {result['versions']}\n  Peers: {result['peers']}"
        by_origin.setdefault(origin, []).append(name)
    lines = []
    for origin, names in by_origin.items():
        commits = dict.fromkeys(results[name]["commit"] or "unknown" for name in names)
        which = f"{', '.join(names)}: " if len(by_origin) > 1 else ""
        lines.append(f"- {which}{origin}\n  Commit: {', '.join(commits)}")
    load = [result["load"] for result in results.values()]
    minutes = sum(result["seconds"] for result in results.values()) / 60
    lines.append(f"- {minutes:.0f} minutes in all; load when a step began: {min(load):.1f} to {max(load):.1f}.")
    return table(row for result in results.values() for row in result["rows"]) + "\n\n" + "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", nargs="+", choices=SIZES, default=["S", "M"])
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS, help="[all]")
    parser.add_argument("--out", type=Path, metavar="FOLDER", help="[benchmarks/results, and benchmarks/README.md]")
    parser.add_argument("--resume", action="store_true", help="leave out steps that have results")
    parser.add_argument("--peers", metavar="PYTHON", help="an interpreter that has the peers [one is made]")
    options = parser.parse_args()
    if options.peers and not shutil.which(options.peers):
        parser.error(f"there is no interpreter {options.peers}. Leave --peers out, and one with the peers is made")
    folder = options.out or HERE / "results"
    folder.mkdir(parents=True, exist_ok=True)
    (HERE / ".cache").mkdir(exist_ok=True)
    steps = [step for step in list_steps(options.sizes) if step.part in options.parts]
    missing: dict[str, str] = {}
    if not (python := options.peers):
        python, missing = install_peers(HERE / ".cache" / "peers")
    origin = describe_machine(python)
    for number, step in enumerate(steps, 1):
        file = folder / f"{step.name}.json"
        if options.resume and is_done(step, file):
            continue
        print(f"step {number} of {len(steps)}: {step.name}", flush=True)
        load, start = os.getloadavg()[0], time.perf_counter()
        rows = run_step(step, python)
        for row in rows:
            if "cpu_s" not in row and (reason := missing.get(normal(row["tool"]))):
                row["note"] = f"cannot be installed: {reason}"
        result = {
            **origin,
            "arguments": step.arguments,
            "load": load,
            "seconds": round(time.perf_counter() - start, 1),
            "rows": rows,
        }
        unfinished = file.with_suffix(".part")
        unfinished.write_text(json.dumps(result, indent=1) + "\n")
        unfinished.replace(file)
    made = page(folder)
    if options.out:
        (folder / "table.md").write_text(made)
    else:
        before, _, rest = README.read_text().partition(MARKS[0])
        README.write_text(before + MARKS[0] + "\n" + made + "\n" + MARKS[1] + rest.partition(MARKS[1])[2])
    print(made)


if __name__ == "__main__":
    main()
