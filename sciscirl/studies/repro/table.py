"""From the runs on disk to one table: a row for each setting and mode, those that could not be run among them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import polars as pl

from sciscidata._support.terminal import printable
from sciscirl.studies.repro.cells import read_cell
from sciscirl.studies.repro.divergence import DIVERGENCE, compare_answers, compare_logprobs
from sciscirl.studies.repro.settings import ELSEWHERE, Cell

#: The reference against itself: its tokens' log-probabilities while they were decoded, and in one pass afterwards.
DECODING: Final = "decoding"
#: What a sweep reports.
TABLE: Final = pl.Schema(
    {"axis": pl.String(), "value": pl.String(), "status": pl.String(), **DIVERGENCE, "reason": pl.String()}
)
_SHOWN: Final = {
    "axis": "varied",
    "value": "value",
    "mode": "mode",
    "identical_share": "identical",
    "first_divergence_median": "first divergence, median",
    "first_divergence_min": "min",
    "logprob_difference_mean": "log-prob difference, mean",
    "logprob_difference_max": "max",
    "label_flip_share": "labels flipped",
}


def make_table(folder: Path, cells: Sequence[Cell], others: Mapping[str, Path]) -> pl.DataFrame:
    """Compare every run with the reference.

    Args:
        folder: of the sweep.
        cells: in the order of the rows.
        others: folders of other sweeps, by the value of the cells that are compared with their references.

    Returns:
        TABLE: what is another than in the reference (``axis``, ``value``), ``status`` ``"measured"`` or
        ``"unsupported"`` with the ``reason``, and the columns of DIVERGENCE, null where nothing was measured. First,
        under the axis ``"decoding"``, how far the reference's own log-probabilities are apart between decoding token
        by token and one pass: what a trainer sees of what a sampler says.
    """
    rows: list[dict[str, Any]] = []
    for cell in cells:
        record, answers = read_cell(folder, cell.name)
        head = {"axis": cell.axis, "value": cell.value, "status": record["status"], "reason": record["reason"]}
        if cell.axis == "reference":
            rows += _decoding_rows(answers)
        elif answers is None:
            rows.append(head)
        else:
            source = others[cell.value] if cell.axis == ELSEWHERE else folder
            reference = read_cell(source, "reference")[1]
            if reference is None:
                msg = "whoever compares with a reference has made sure that it is there"
                raise AssertionError(msg)
            rows += [head | row for row in compare_answers(answers, reference).to_dicts()]
    return pl.DataFrame(rows, schema=TABLE)


def _decoding_rows(reference: pl.DataFrame | None) -> list[dict[str, Any]]:
    if reference is None:
        msg = "a sweep whose reference could not be run ends there"
        raise AssertionError(msg)
    head = {"axis": DECODING, "value": "token by token", "status": "measured"}
    return [
        head | {"mode": str(mode), "n": len(part)} | compare_logprobs(part["logprobs"], part["reference_logprobs"])
        for (mode,), part in reference.group_by("mode", maintain_order=True)
    ]


def render_table(table: pl.DataFrame, settings: Mapping[str, Any]) -> str:
    """Write the table as Markdown, below it what could not be run and why.

    Args:
        table: TABLE.
        settings: what all runs have in common; of ``sweep.json``.
    """
    reference = ", ".join(f"{name} {value}" for name, value in settings["reference"].items() if value is not None)
    machine = ", ".join(f"{name} {value}" for name, value in settings["machine"].items() if value is not None)
    lines = [
        f"# {settings['model']}: {settings['n_papers']} prompts, at most {settings['max_tokens']} tokens",
        "",
        f"Reference: {reference}. Machine: {machine}. Preset {settings['preset']}, temperature of the sampled runs "
        f"{settings['temperature']}, seed {settings['seed']}.",
        "",
        "Identical is the share of answers with the same tokens as the reference's; the first divergence is the place, "
        "from 0, of the first other token, among those that differ; log-prob differences are absolute, in nats, on the "
        "reference's tokens.",
        "",
        f"| {' | '.join(_SHOWN.values())} |",
        f"|{'---|' * len(_SHOWN)}",
    ]
    measured = table.filter(status="measured")
    lines += [f"| {' | '.join(_cell(row[name]) for name in _SHOWN)} |" for row in measured.iter_rows(named=True)]
    refused = table.filter(pl.col("status") != "measured")
    if len(refused):
        lines += ["", "Not supported there:", ""]
        lines += [
            printable(f"- {row['axis']} {row['value']}: {row['reason']}") for row in refused.iter_rows(named=True)
        ]
    return "\n".join(lines) + "\n"


def _cell(value: str | float | None) -> str:
    """Write a value as a reader wants it.

    Example:
        >>> _cell(0.0000012345), _cell(None), _cell(1.0)
        ('1.2e-06', '-', '1')
    """
    if value is None:
        return "-"
    return f"{value:.2g}" if isinstance(value, float) and abs(value) < 0.01 else printable(_plain(value))


def _plain(value: str | float) -> str:
    return f"{value:.3f}".rstrip("0").rstrip(".") if isinstance(value, float) else str(value)
