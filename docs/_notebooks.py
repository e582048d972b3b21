"""Run the notebooks and keep what they print and draw: python docs/_notebooks.py [NAME ...].

The outputs are kept in the notebooks, so that a reader sees them without running anything. The site makes its pages
from them (``docs/_generate.py``). Each notebook runs twice: its pictures for phones are metadata of the others.
"""

from __future__ import annotations

import argparse
import base64
import io
import json
from collections.abc import Generator
from contextlib import ExitStack, chdir, contextmanager, redirect_stdout
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest import mock

import matplotlib as mpl
from IPython.core.displayhook import DisplayHook
from IPython.core.interactiveshell import InteractiveShell
from matplotlib.figure import Figure
from PIL import Image, ImageOps

mpl.use("agg")
from matplotlib import pyplot as plt

from sciscidata import plots
from sciscidata.plots.figure import take_words

HOME = Path(__file__).resolve().parent.parent
NOTEBOOKS = sorted((HOME / "notebooks").glob("*.ipynb"))
_DPI, _COLOURS = 120, 64  # enough for the screen
_MARGIN = 6  # pixels
_PHONE_INCHES = 85 / 25.4


class _Silent(DisplayHook):
    """Notes the value of a cell, and prints nothing."""

    def write_output_prompt(self) -> None:
        """Print no number."""

    def write_format_data(self, format_dict: dict[str, Any], md_dict: dict[str, Any] | None = None) -> None:
        """Print no value."""


@mpl.rc_context()
def run_notebook(path: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """Run all cells as Jupyter does, in the working folder.

    Returns:
        The notebook with its outputs: what each cell printed, its figures, and its last value; and the names that the
        cells define. The sentence of a figure stands below it, where a phone can read it.

    Raises:
        Exception: of the first cell that fails.
    """
    notebook = json.loads(path.read_text("utf-8"))
    shell = InteractiveShell(displayhook_class=_Silent, warn_venv=False)
    plt.close("all")  # what an earlier program left open
    number = 0
    for cell in notebook["cells"]:
        if cell["cell_type"] != "code":
            continue
        number += 1
        printed = io.StringIO()
        with redirect_stdout(printed):
            done = shell.run_cell("".join(cell["source"]))
        done.raise_error()
        cell["execution_count"] = number
        text, result = printed.getvalue(), done.result
        said = [{"output_type": "stream", "name": "stdout", "text": text.splitlines(keepends=True)}] if text else []
        figures = [*map(plt.figure, plt.get_fignums()), *[result] * isinstance(result, Figure)]
        shown = [data for figure in figures for data in _show(figure)]
        drawn = [{"output_type": "display_data", "metadata": {}, "data": data} for data in shown]
        if result is not None and not isinstance(result, Figure):
            data = {"text/plain": repr(result).splitlines(keepends=True)}
            drawn.append({"output_type": "execute_result", "execution_count": number, "metadata": {}, "data": data})
        cell["outputs"] = [*said, *drawn]
        plt.close("all")
    return notebook, shell.user_ns


@contextmanager
def drawing_for_phones() -> Generator[None]:
    """Draw pictures one column wide, with their panels one below the other."""
    subplots = plt.subplots

    def stack(
        rows: int = 1, columns: int = 1, *, figsize: tuple[float, float], **options: object
    ) -> tuple[Figure, Any]:
        return subplots(rows * columns, 1, figsize=(_PHONE_INCHES, figsize[1] * rows * columns), **options)

    with ExitStack() as changed:
        changed.enter_context(mock.patch.object(plt, "subplots", stack))
        for name in plots.__all__:
            if name.startswith("plot_"):
                narrow = partial(getattr(plots, name), width="one")
                changed.enter_context(mock.patch.object(plots, name, narrow))
        yield


def keep_narrow(notebook: dict[str, Any], narrow: dict[str, Any]) -> None:
    """Keep the pictures of one run as those for phones of another."""
    for cell, other in zip(notebook["cells"], narrow["cells"], strict=True):
        for output, twin in zip(cell.get("outputs", []), other.get("outputs", []), strict=True):
            if "image/png" in output.get("data", {}):
                output["metadata"] = {"narrow": twin["data"]["image/png"]}


def _show(figure: Figure) -> list[dict[str, Any]]:
    title, caption = take_words(figure)
    said = f"**{title}.** *{caption}*" if title and caption else f"**{title}.**" if title else f"*{caption}*"
    whole = f"{title}. {caption}" if title else caption
    return [{"image/png": _draw(figure), "text/plain": [whole]}, {"text/markdown": [said]}]


def _draw(figure: Figure) -> str:
    drawn, small = io.BytesIO(), io.BytesIO()
    figure.savefig(drawn, dpi=_DPI, format="png")
    with Image.open(drawn) as picture:
        shown = picture.convert("RGB")
    _, top, _, bottom = ImageOps.invert(shown).getbbox() or (0, 0, 0, shown.height)  # where the words were is white
    whole = shown.crop((0, max(top - _MARGIN, 0), shown.width, min(bottom + _MARGIN, shown.height)))
    whole.quantize(_COLOURS).save(small, format="png", optimize=True)
    return base64.b64encode(small.getvalue()).decode()


def main() -> None:
    """Run the notebooks that are named, or all of them, and write them with their outputs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help="without .ipynb [all]")
    names = parser.parse_args().names
    for path in [HOME / "notebooks" / f"{name}.ipynb" for name in names] or NOTEBOOKS:
        with TemporaryDirectory() as folder, chdir(folder):  # without files of an earlier run
            notebook, _ = run_notebook(path)
        with TemporaryDirectory() as folder, chdir(folder), drawing_for_phones():
            keep_narrow(notebook, run_notebook(path)[0])
        path.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n", "utf-8")


if __name__ == "__main__":
    main()
