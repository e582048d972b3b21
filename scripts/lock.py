"""Write the SHA-256 of every file of each pinned version: into constraints.txt, uv.lock and the local server's list.

    .venv/bin/python scripts/lock.py       needs uv, of the extra dev

The versions are those in the files, where they are changed by hand; comments and the order of lines stay. What other
platforms need besides (uv resolves for all of them) and is not pinned yet is added at the end; libraries for NVIDIA
GPUs, which only some builds of torch and JAX ask for, stand in cuda.txt, and are installed only if something asks. The
CPU build in torch_cpu.txt is not in the index: write its version and hash by hand.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

HOME = Path(__file__).resolve().parent.parent
CONSTRAINTS = HOME / "constraints.txt"
SERVER = HOME / "sciscirl" / "lab" / "local_server" / "requirements.txt"
CUDA = SERVER.with_name("cuda.txt")
_CUDA_HEADER = """\
# Libraries for NVIDIA GPUs, to the version: what torch of PyPI (on Linux), and jax[cuda13], ask for. Constraints only,
# never requirements: a CPU build asks for nothing here. Written by scripts/lock.py.
"""
_PIN = re.compile(r"(?P<name>[A-Za-z0-9][\w.-]*)==(?P<version>[^\s;\\]+)")


def canonical(name: str) -> str:
    """Return a package's name as indexes compare it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def read_pins(text: str) -> dict[str, str]:
    """Return the pinned version of each package, by its canonical name."""
    return {canonical(pin["name"]): pin["version"] for pin in map(_PIN.match, text.splitlines()) if pin}


def resolve(
    uv: str,
    *arguments: str,
    needs: Iterable[str] = (),
    pins: dict[str, str] | None = None,
    python: str = "3.11",
) -> dict[str, str]:
    """Ask uv for all packages on all platforms; return their hashes as lines of a file, by ``name==version``."""
    with tempfile.TemporaryDirectory() as folder:
        wanted, limits = Path(folder) / "needs.in", Path(folder) / "limits.txt"
        wanted.write_text("\n".join(needs), "utf-8")
        limits.write_text("\n".join(f"{name}=={version}" for name, version in (pins or {}).items()), "utf-8")
        command = [uv, "pip", "compile", "--quiet", "--universal", "--generate-hashes", "--no-annotate", "--no-header"]
        done = subprocess.run(
            [*command, "--python-version", python, "--constraints", str(limits), *arguments, str(wanted)],
            stdout=subprocess.PIPE,
            text=True,
            check=False,
            cwd=HOME,
        )
    if done.returncode:
        sys.exit(f"error: uv could not resolve the pins (it says why above); status {done.returncode}.")
    found: dict[str, str] = {}
    for block in re.split(r"^(?=\S)", done.stdout, flags=re.M):
        pin = _PIN.match(block)
        if pin:
            key = f"{canonical(pin['name'])}=={pin['version']}"
            hashes = sorted({*re.findall(r"sha256:([0-9a-f]{64})", block)})
            found[key] = "".join(f" \\\n    --hash=sha256:{value}" for value in hashes)
    return found


def write_hashes(path: Path, hashes: dict[str, str]) -> None:
    """Give each pin of a file its hashes, in place of those it has."""
    lines: list[str] = []
    for line in path.read_text("utf-8").splitlines():
        pin = _PIN.match(line)
        if pin:
            key = f"{canonical(pin['name'])}=={pin['version']}"
            lines.append(pin[0] + hashes[key])
        elif not line.startswith((" ", "\t")):  # a comment or an option; hashes are indented
            lines.append(line)
    path.write_text("\n".join(lines) + "\n", "utf-8")


def main() -> None:
    """Write the three lists anew."""
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    uv = shutil.which("uv", path=str(Path(sys.executable).parent)) or shutil.which("uv")
    if uv is None:
        sys.exit("error: uv is not installed. Install it: python3 scripts/install.py dev")
    ours, theirs = read_pins(CONSTRAINTS.read_text("utf-8")), read_pins(SERVER.read_text("utf-8"))
    shared = read_pins(CUDA.read_text("utf-8")) if CUDA.exists() else {}

    # SkyRL says that it needs 3.12; the hashes are those of all files, whatever Python they are for.
    server = resolve(uv, "--no-deps", needs=[f"{name}=={version}" for name, version in theirs.items()], python="3.12")
    gpu = resolve(uv, needs=[f"torch=={theirs['torch']}", f"jax[cuda13]=={theirs['jax']}"], pins=theirs | shared)
    cuda = {key: value for key, value in gpu.items() if key.split("==")[0] not in {*theirs, *ours}}
    CUDA.write_text(_CUDA_HEADER + "".join(f"{key}{value}\n" for key, value in sorted(cuda.items())), "utf-8")
    write_hashes(SERVER, server)

    project = ("pyproject.toml", "--all-extras")
    limits = ours | {key.split("==")[0]: key.split("==")[1] for key in cuda}
    everything = resolve(uv, *project, needs=("pip", "setuptools"), pins=limits)
    new = sorted(key for key in everything if key.split("==")[0] not in limits)
    unused = sorted(name for name, version in ours.items() if f"{name}=={version}" not in everything)
    if unused:
        sys.exit(f"error: nothing needs {', '.join(unused)} in that version. Take it out of {CONSTRAINTS.name}.")
    with CONSTRAINTS.open("a", encoding="utf-8") as file:
        file.writelines(f"{key}\n" for key in new)
    write_hashes(CONSTRAINTS, everything)
    fixed = [word for name, version in (limits | read_pins(CONSTRAINTS.read_text("utf-8"))).items()
             for word in ("--upgrade-package", f"{name}=={version}")]  # fmt: skip
    if subprocess.run([uv, "lock", "--quiet", *fixed], check=False, cwd=HOME).returncode:
        sys.exit("error: uv could not write uv.lock (it says why above).")
    print(f"{len(everything)} packages with hashes; new: {', '.join(new) or 'none'}")


if __name__ == "__main__":
    main()
