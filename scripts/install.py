"""Install this project and what it needs into a virtual environment, each file compared with its SHA-256.

    python3 scripts/install.py                 sciscidata
    python3 scripts/install.py test local      with extras of pyproject.toml
    python3 scripts/install.py dev --venv .venv-dev

Versions and hashes are those of constraints.txt; a file with another hash, or one that is not listed there, ends the
installation. Nothing is built from source but this project and jsonpath-rw (which mlcroissant needs, and which has no
wheel), with the setuptools of constraints.txt. The pip that comes with Python may be too old to compare hashes of what
a requirement brings along, so pip itself comes first, compared likewise. Then uv installs the rest, in a quarter of
pip's time. Where it fails, or pip's settings name an index, pip installs everything.

Standard error shows which step runs; what a tool said is shown if it fails.
"""

from __future__ import annotations

import argparse
import os
import re
import runpy
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

HOME = Path(__file__).resolve().parent.parent
CONSTRAINTS = HOME / "constraints.txt"
#: A build of torch without CUDA, for where pip finds one.
TORCH_CPU = HOME / "sciscirl" / "lab" / "local_server" / "torch_cpu.txt"
#: Pins of what a torch with CUDA needs.
CUDA = TORCH_CPU.with_name("cuda.txt")
#: What installs the rest: pip and uv, and what builds this project.
TOOLS = ("pip", "setuptools", "uv")
#: Nothing is built but what exists as source only.
WHEELS = ("--only-binary", ":all:", "--no-binary", "jsonpath-rw", "--no-build-isolation")
#: What shows progress; the package itself needs others that are not there yet.
SHOWS = HOME / "sciscidata" / "terminal" / "heartbeat.py"
#: Folders of packages that are compiled when they are imported.
SELDOM_IMPORTED = r"[/\\](tests?|testing|transformers[/\\]models|torch[/\\]_inductor|moto)[/\\]"


def requirements_of(project: dict, extras: list[str]) -> list[str]:
    """List what a project and some of its extras ask for; an extra may name others of the same project."""
    offered = project.get("optional-dependencies", {})
    wanted, found, done = list(extras), list(project["dependencies"]), set()
    while wanted:
        extra = wanted.pop()
        if extra not in offered:
            sys.exit(f"error: there is no extra {extra!r}. Choose some of: {', '.join(offered)}.")
        if extra in done:
            continue
        done.add(extra)
        for requirement in offered[extra]:
            own = re.fullmatch(rf"{re.escape(project['name'])}\[([\w, -]+)\]", requirement)
            if own:
                wanted += [name.strip() for name in own[1].split(",")]
            else:
                found.append(requirement)
    return found


def pins_of(constraints: str, names: Sequence[str]) -> str:
    """Return the lines of some packages with their hashes; names are as indexes compare them."""
    blocks = [block for block in re.split(r"^(?=\S)", constraints, flags=re.M) if "==" in block]
    pins = {re.sub("[-_.]+", "-", block.partition("==")[0]).lower(): block for block in blocks}
    missing = [name for name in names if name not in pins]
    if missing:
        sys.exit(f"error: {CONSTRAINTS} does not pin {', '.join(missing)}. Restore it: git checkout constraints.txt")
    return "".join(pins[name] for name in names)


class Steps:
    """The steps of an installation: each command is one, and shown while it runs."""

    def __init__(self, n_steps: int) -> None:
        shown = runpy.run_path(str(SHOWS))
        self.n_steps, self.number, self.follow = n_steps, 0, shown["follow"]
        self.heartbeat: Any = shown["Heartbeat"]()

    def begin(self, what: str) -> None:
        """Say that the next step begins."""
        self.number += 1
        self.heartbeat.begin(f"step {self.number}/{self.n_steps}: {what}")

    def run(self, *command: str, about: str = "") -> subprocess.CompletedProcess[str]:
        """Run a command as a part of this step, and return what it said."""
        return self.follow(list(command), lambda line: self.heartbeat.note(about + line))

    def must(self, *command: str) -> None:
        """Run a command; where it fails, show what it said and stop."""
        done = self.run(*command)
        if done.returncode:
            self.heartbeat.end()
            short = " ".join(command)[:300]
            sys.exit(f"{done.stdout}error: not installed. This failed with {done.returncode}: {short}")


def make_environment(folder: Path, steps: Steps) -> Path:
    """Make the environment if it is not there, or has no pip: uv made it, or Debian's python3-venv was missing."""
    python = folder / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    if not python.exists():
        steps.must(sys.executable, "-m", "venv", str(folder))
    elif steps.run(str(python), "-c", "import pip").returncode:
        steps.must(str(python), "-m", "ensurepip")
    return python


def main() -> None:
    """Make the environment, and install into it."""
    if sys.version_info < (3, 11):  # noqa: UP036 (whatever python3 is, it starts this)
        sys.exit(
            f"error: this is Python {sys.version.split()[0]}, needs 3.11 or newer: python3.11 {Path(__file__).name}"
        )
    import tomllib

    # The current folder may hold a stranger's pip.py, or settings of uv.
    os.environ |= {"PYTHONSAFEPATH": "1", "UV_NO_CONFIG": "1"}
    os.environ.pop("PYTHONPATH", None)
    project = tomllib.loads((HOME / "pyproject.toml").read_text("utf-8"))["project"]
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    offered = f"of pyproject.toml: {', '.join(project['optional-dependencies'])}"
    parser.add_argument("extras", nargs="*", metavar="EXTRA", help=offered)
    parser.add_argument("--venv", type=Path, default=HOME / ".venv", help="made if it is not there (.venv)")
    options = parser.parse_args()
    requirements = requirements_of(project, options.extras)
    has_torch = any(re.match(r"torch\b", requirement) for requirement in requirements)
    steps = Steps(6 if has_torch else 5)
    with steps.heartbeat:
        python = install(options.venv, requirements, steps, has_torch=has_torch)
    print(f"installed; activate: source {python.parent / 'activate'}")


def install(folder: Path, requirements: list[str], steps: Steps, *, has_torch: bool) -> Path:
    """Make the environment, and install into it. Return its interpreter."""
    steps.begin(f"make the environment {folder}")
    python = make_environment(folder, steps)
    pip = [str(python), "-m", "pip", "install", "--no-input", "--disable-pip-version-check", "--no-compile"]
    checked = [*pip, "--require-hashes", *WHEELS]
    steps.begin(f"fetch {', '.join(TOOLS)}")
    with tempfile.TemporaryDirectory() as home:
        tools = Path(home) / "tools.txt"
        tools.write_text(pins_of(CONSTRAINTS.read_text("utf-8"), TOOLS), "utf-8")
        # An old pip would warn of the names of WHEELS.
        steps.must(*pip, "--require-hashes", "--only-binary", ":all:", "--requirement", str(tools))
    if has_torch:
        steps.begin("fetch torch for CPUs (200 MB)")
        install_cpu_torch(checked, steps)
    first = compile_packages(python, n_processes=1)  # what is there, while the rest is fetched
    steps.begin("fetch and install the packages")
    if not install_by_uv(python, requirements, steps):
        steps.heartbeat.note("uv cannot; pip does")
        steps.must(*checked, "--constraint", str(CONSTRAINTS), *requirements)
    steps.begin("install this project")
    first.wait()
    rest = compile_packages(python, n_processes=0)
    os.environ["PYTHONWARNINGS"] = "ignore"  # setuptools explains what an editable installation is
    # The other mode loses to a folder named like a package, as a clone is for those who work beside it.
    mode = ["--config-settings", "editable_mode=compat"]
    steps.must(*pip, "--no-deps", "--no-build-isolation", *mode, "--editable", str(HOME))
    steps.begin("compile what is imported often")
    rest.wait()
    return python


def install_cpu_torch(pip: list[str], steps: Steps) -> None:
    """Install the CPU build if there is one; if not, the torch of PyPI comes with the rest, on Linux with CUDA."""
    done = steps.run(*pip, "--no-deps", "--requirement", str(TORCH_CPU))
    # The second where pip's own constraints pin another build.
    is_missing = any(said in done.stdout for said in ("No matching distribution found", "ResolutionImpossible"))
    if done.returncode and not is_missing:
        steps.heartbeat.end()
        sys.exit(f"{done.stdout}error: not installed: {TORCH_CPU.name}")


def install_by_uv(python: Path, requirements: list[str], steps: Steps) -> bool:
    """Install what is asked for and not there yet; return whether that is done, since pip can do it, too."""
    settings = subprocess.run([str(python), "-m", "pip", "config", "list"], capture_output=True, text=True, check=False)
    if re.search(r"\.(no-)?index(-url)?=", settings.stdout):
        return False  # uv does not read these settings
    uv = [str(python), "-m", "uv", "pip", "install", "--python", str(python), *WHEELS]
    plan = steps.run(*uv, "--dry-run", "--constraint", str(CONSTRAINTS), *requirements)
    if plan.returncode:
        return False
    names = re.findall(r"^ \+ ([\w.-]+)==", plan.stdout, re.M)
    with tempfile.TemporaryDirectory() as folder:
        pins = Path(folder) / "pins.txt"
        pins.write_text(pins_of(CONSTRAINTS.read_text("utf-8") + CUDA.read_text("utf-8"), names), "utf-8")
        command = [*uv, "--no-deps", "--require-hashes", "--requirement", str(pins)]
        done = steps.run(*command, about=f"{len(names)} packages: ")
    return done.returncode == 0


def compile_packages(python: Path, n_processes: int) -> subprocess.Popen[bytes]:
    """Begin to compile to bytecode what is likely to be imported, and is not yet; pip would compile everything.

    With 0 processes, on all cores. A template that is no Python is no failure.
    """
    where = "import sysconfig; print(sysconfig.get_path('purelib'))"
    packages = subprocess.run([str(python), "-c", where], capture_output=True, text=True, check=True).stdout.strip()
    folders = [packages, str(HOME / "sciscidata"), str(HOME / "sciscirl")]
    command = [str(python), "-m", "compileall", "-q", "-j", str(n_processes), "-x", SELDOM_IMPORTED, *folders]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


if __name__ == "__main__":
    main()
