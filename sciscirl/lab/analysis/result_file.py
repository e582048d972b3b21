"""A result as one small file that others can check: answers without texts, what they answer to, and who gave them.

``NAME.result.json`` holds ``answers``, an object of equally long lists: ``openalex_id``, ``gold``, ``label``,
``confidence``. ``answers_sha256`` is the SHA-256 of ``json.dumps(answers, separators=(",", ":"))`` in UTF-8, of these
columns in this order.
"""

from __future__ import annotations

import hashlib
import json
import logging
import platform
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Any, Final, Literal, cast

import polars as pl

from sciscidata.frames import AnyFrame, to_lazy
from sciscidata.schemas import MANIFEST
from sciscidata.storage.small_files import read_json as read_any_json
from sciscidata.storage.sums import check_sealed
from sciscidata.terminal.messages import counted
from sciscirl.errors import PredictionsError
from sciscirl.lab.analysis.seen import say_known
from sciscirl.metrics.predictions import check_predictions, find_target
from sciscirl.runs.logs import write_json
from sciscirl.task.papers import VOCABULARIES
from sciscirl.task.predictions import TASK, column_ends
from sciscirl.task.release import open_release

logger = logging.getLogger(__name__)

RESULT_END: Final = ".result.json"
_VERSION: Final = 1
_NEEDED: Final = ("format_version", "release", "settings", "answers", "answers_sha256")
#: Settings that say where something lay on one machine.
_PLACES: Final = ("local_model", "checkpoint", "load_checkpoint", "log_path", "base_url", "weights", "prompt")
_REMEDY: Final = "Take the file as it was published, or write it again: sciscirl compare ... --out FOLDER."


def write_result(
    path: str | Path,
    release: str | Path,
    answers: AnyFrame,
    *,
    model: str,
    saw: str,
    split: Literal["test", "dev"] = "test",
    seed: int | None = None,
) -> Path:
    """Write the answers of any model to the papers of a split as a result file, which ``sciscirl compare`` reads.

    Gold labels and hashes come from the release. It is for the disruption label only.

    Args:
        path: the file, whose name ends with ``.result.json``.
        release: the folder of the release.
        answers: one row for each paper of the split: ``openalex_id`` (String), ``label`` (String; null: no valid
            answer) and ``confidence`` (Float64, 0 to 1; null beside a null label).
        model: its name.
        saw: what it knew of a paper, in words, and what of it came after publication: "title, abstract".
        split: the split that was judged.
        seed: of the model, if it has one.

    Raises:
        ReleaseError: the folder is no release, or has no such split.
        PredictionsError: a paper is missing, unknown or there twice. Or a label is unknown, or a confidence not 0 to 1.

    Example:
        >>> write_result("mine.result.json", "no-release", pl.DataFrame(), model="mine", saw="title")
        Traceback (most recent call last):
        ...
        sciscirl.errors.ReleaseError: no-release is not a release: no such folder is there. Check the path,
        or build one: sciscidata build.
    """
    opened = open_release(release)
    golds = getattr(opened, split).select("openalex_id", gold="disruption_label")
    given = to_lazy(answers, "the answers", "write_result").collect()
    columns = {"openalex_id": pl.String, "label": pl.String, "confidence": pl.Float64}
    if lacking := [name for name in columns if name not in given.columns]:
        raise PredictionsError(f"the answers have no column {lacking[0]!r}, need {', '.join(columns)}. Add it.")
    try:
        given = given.select(*columns).cast(columns)  # pyright: ignore[reportArgumentType]
    except pl.exceptions.PolarsError as error:
        raise PredictionsError(
            f"the answers hold values of another type ({str(error).splitlines()[0]}). Give texts, and numbers "
            "as confidence."
        ) from error
    _check_ids(given["openalex_id"], golds["openalex_id"], str(path))
    _check_values(given, golds, str(release))
    rows = golds.join(given, on="openalex_id", how="left", maintain_order="left")
    settings = {"model": model, "saw": saw, "split": split, "seed": seed}
    versions = {name: metadata.version(name) for name in ("sciscidata", "polars")}
    facts = {
        "settings": settings,
        "release": hashlib.sha256((Path(release) / MANIFEST).read_bytes()).hexdigest(),
        "release_folder": Path(release).name,
        "split_sha256": hash_split(release, settings),
        "ceiling": opened.manifest.get("ceiling") if split == "test" else None,
        "versions": versions | {"python": platform.python_version()},
    }
    is_valid = pl.col("label").is_not_null()
    save_result(Path(path), check_predictions(rows.with_columns(is_json=is_valid, is_valid=is_valid)), facts)
    return Path(path)


def _check_values(given: pl.DataFrame, golds: pl.DataFrame, release: str) -> None:
    if n := golds["gold"].null_count():
        raise PredictionsError(
            f"{release} has {counted(n, 'paper')} without a disruption label, and write_result is for these only. "
            "Evaluate another label with sciscirl evaluate, and write its file with sciscirl compare ... --out FOLDER."
        )
    labels = VOCABULARIES["disruption_label"]
    if len(strange := given["label"].drop_nulls().filter(~given["label"].drop_nulls().is_in(labels))):
        raise PredictionsError(
            f"the answers have the label {strange[0]!r}, need {', '.join(labels)}: write_result is for disruption "
            "only. Write these, or null where an answer is not valid."
        )
    sure = pl.col("confidence")
    wrong = (~sure.is_between(0, 1)).fill_null(value=False) | (sure.is_null() != pl.col("label").is_null())
    if not (odd := given.filter(wrong)).is_empty():
        label, chance = odd.select("label", "confidence").row(0)
        raise PredictionsError(
            f"the answers have the confidence {chance} beside the label {label} ({counted(odd.height, 'row')}), "
            "need 0 to 1, or null beside a null. Mend these rows."
        )


def save_result(path: Path, predictions: pl.DataFrame, facts: Mapping[str, Any]) -> None:
    """Write predictions as a result file; ``facts`` are those of ``run.json``, with the hash of the release."""
    if not path.name.endswith(RESULT_END):
        raise PredictionsError(f"{path} is no name of a result file. Let it end with {RESULT_END}.")
    names = _list_columns(predictions)
    answers = predictions.select(names).to_dict(as_series=False)
    settings = {
        name: Path(value).name if isinstance(value, str) and value.startswith("/") else value
        for name, value in facts.get("settings", {}).items()
        if name not in _PLACES and value is not None
    }
    known = {name: facts[name] for name in ("split_sha256", "ceiling", "date", "commit", "versions") if name in facts}
    content = {
        "format_version": _VERSION,
        "model": settings.get("model") or settings.get("baseline"),
        "saw": say_known(settings),
        "task": str(find_target(predictions)),
        "release": {"manifest_sha256": facts.get("release"), "name": facts.get("release_folder")},
        **known,
        "settings": settings,
        "answers_sha256": _hash(answers),
        "answers": answers,
    }
    write_json(path, content)


def read_result(path: Path) -> tuple[pl.DataFrame, dict[str, Any]]:
    """Read a result file: predictions, and what ``run.json`` says of an evaluation (PredictionsError: it is none)."""
    if not path.is_file():
        raise PredictionsError(f"{path} does not exist. Give a result file (NAME{RESULT_END}).")
    check_sealed(path)
    try:
        content: Any = read_any_json(path)
    except (OSError, ValueError) as error:
        raise PredictionsError(f"{path} is no JSON that can be read ({error}). {_REMEDY}") from error
    stated = cast("dict[str, Any]", content if isinstance(content, dict) else {})
    if lacking := [name for name in _NEEDED if name not in stated]:
        raise PredictionsError(f"{path} is no result file: it has no {lacking[0]!r}. {_REMEDY}")
    if stated["format_version"] != _VERSION:
        raise PredictionsError(
            f"{path} has the format {stated['format_version']!r}, needs {_VERSION}. Update the package."
        )
    answers = stated["answers"]
    if (digest := _hash(answers)) != stated["answers_sha256"]:
        raise PredictionsError(
            f"{path} was changed: its answers have the SHA-256 {digest[:12]}, and it states "
            f"{str(stated['answers_sha256'])[:12]}. {_REMEDY}"
        )
    try:
        texts = {name: pl.Float64() if name == "confidence" else pl.String() for name in answers}
        rows = pl.DataFrame(answers, schema=texts)
        settings = dict(stated["settings"])
        release = stated["release"]["manifest_sha256"]
        labels = [name for name in rows.columns if name.startswith("label")]
        is_valid = pl.all_horizontal(pl.col(labels).is_not_null()) if labels else pl.lit(value=False)
        predictions = check_predictions(rows.with_columns(is_json=is_valid, is_valid=is_valid))
    except (pl.exceptions.PolarsError, PredictionsError, TypeError, LookupError, AttributeError, ValueError) as error:
        raise PredictionsError(f"{path} cannot be judged: {str(error).splitlines()[0]}") from error
    _check_repeated(predictions["openalex_id"], str(path))
    facts = {name: stated.get(name) for name in ("ceiling", "split_sha256", "date", "commit", "versions")}
    return predictions, {"release": release, "settings": settings, "is_result": True, **facts}


def hash_split(release: str | Path, settings: Mapping[str, Any]) -> str | None:
    """Return the SHA-256 of the split that ``settings`` name, as JSON lines; None of papers that were held out."""
    file = open_release(release).manifest["files"].get(f"{name_split(settings)}.jsonl")
    return file["sha256"] if file else None


def name_split(settings: Mapping[str, Any]) -> str:
    """Return the split that an evaluation or run was judged by."""
    return str(settings.get("split") or settings.get("eval_split") or "test")


def check_against(release: str | Path, predictions: pl.DataFrame, facts: Mapping[str, Any], name: str) -> None:
    """Compare papers and gold labels of a result with the split of its release (PredictionsError: they differ)."""
    settings = facts.get("settings", {})
    split = name_split(settings)
    opened = open_release(release)
    rows: pl.DataFrame = getattr(opened, "train" if split == "held_out" else split)
    ends = column_ends(find_target(predictions))
    if not set(ends) <= set(rows.columns):
        return
    own = predictions.unique("openalex_id", keep="first", maintain_order=True)
    # A result file is published as that of all papers. Folders may be of chosen papers.
    chosen = [name for name in ("n_papers", "ids_sha256") if settings.get(name) is not None]
    is_part = "is_result" not in facts or bool(chosen) or split == "held_out"
    _check_ids(own["openalex_id"], rows["openalex_id"], name, is_part=is_part)
    if is_part and not chosen and split != "held_out" and (n := rows.height - own.height):
        logger.warning("%s has no answers to %s of %s, which has %s", name, counted(n, "paper"), split, rows.height)
    joined = own.join(rows.select("openalex_id", *ends), on="openalex_id", how="left", maintain_order="left")
    for column, end in ends.items():
        if n := int((joined[f"gold{end}"] != joined[column]).sum()):
            raise PredictionsError(f"{name} has another gold label than {release} for {counted(n, 'paper')}. {_REMEDY}")


def _check_ids(ids: pl.Series, known: pl.Series, name: str, *, is_part: bool = False) -> None:
    _check_repeated(ids, name, once=True)
    strange, missing = ids.filter(~ids.is_in(known.implode())), known.filter(~known.is_in(ids.implode()))
    if len(strange):
        raise PredictionsError(
            f"{name} answers to {counted(len(strange), 'paper')} that the split does not have, first {strange[0]}. "
            "Leave them out."
        )
    if len(missing) and not is_part:
        raise PredictionsError(
            f"{name} lacks {counted(len(missing), 'paper')} of the split, first {missing[0]}. Answer to each of them."
        )


def _check_repeated(ids: pl.Series, name: str, *, once: bool = False) -> None:
    counts = ids.value_counts().sort("count", "openalex_id", descending=[True, False])
    most, least = (int(counts["count"].max() or 0), 1 if once else int(counts["count"].min() or 0))  # pyright: ignore[reportArgumentType]
    if most != least:
        raise PredictionsError(
            f"{name} has {most} answers to {counts['openalex_id'][0]}, needs {least}. Keep one row for each answer."
        )


def _list_columns(predictions: pl.DataFrame) -> list[str]:
    target = find_target(predictions)
    ends = column_ends(target)
    own = [TASK] if TASK in predictions.columns else []
    return ["openalex_id", *(f"{name}{end}" for name in ("gold", "label") for end in ends.values()), "confidence", *own]


def _hash(answers: object) -> str:
    return hashlib.sha256(json.dumps(answers, separators=(",", ":")).encode()).hexdigest()
