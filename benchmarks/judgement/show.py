"""Print the ladder, and write its tables into the note, from the kept results alone: ``show.py``.

python benchmarks/judgement/show.py keep SLICES RESULT.jsonl ...    # scores and counts, no text, into results/
python benchmarks/judgement/show.py                                 # the tables of benchmarks/notes/judgement.md
python benchmarks/judgement/show.py take runs/ladder/results        # rows of ``sciscirl ladder`` in the note's form
"""

from __future__ import annotations

import argparse
import gzip
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from claims import FIELDS, find_claims, find_ends, find_gains, pool_fields, show_range
from kept import (
    RESULTS,
    WAYS,
    Runs,
    Slices,
    count_labels,
    find_gold,
    find_interval,
    find_macro_f1,
    find_shares,
    read_kept,
    read_lines,
    read_results,
    say,
    say_kept,
    share_out,
)
from slices import LABELS, SLICES

from benchmarks.pictures import Dot
from sciscirl.lab.analysis.result_file import read_result
from sciscirl.lab.analysis.seen import say_known

DOCS = Path(__file__).parents[2] / "docs"
NOTE = DOCS.parent / "benchmarks" / "notes" / "judgement.md"
TEXT, KNOWN, BOTH, LATER = "text", "at publication", "text, at publication", "**later citers**"
#: What the ways of ``ladder.jsonl.gz`` saw, in the order of the table. Those of reinforcement have their own.
SAW = {
    "majority": "",
    **dict.fromkeys(("tfidf", "minilm", "zero", "hidden", "sft", "title", "abstract", "soft", "written"), TEXT),
    **dict.fromkeys(("leaning", "expected"), TEXT),
    **dict.fromkeys(("long", "references", "numbers", "both"), BOTH),
    **dict.fromkeys(("all", "metadata"), LATER),
}
#: The rows of ``at_publication.json``, ``context.json`` and ``second.json``: what they saw, and how the page says it.
SETS = {
    "field and year": (KNOWN, "field and year"),
    "references": (KNOWN, "field, year, references"),
    "references, coupling and CD": (KNOWN, "`at_publication`: also coupling, CD index"),
    "words and titles of references": (BOTH, "`words` with titles of references"),
    "words, references, coupling and CD": (BOTH, "`words_at_publication`: `words` with `at_publication`"),
    "words, titles of references, numbers": (BOTH, "`words_at_publication` with titles of references"),
    "MiniLM of text and titles of references": (BOTH, "MiniLM with titles of references"),
    "MiniLM and numbers": (BOTH, "MiniLM with `at_publication`"),
    "MiniLM of text and titles of references, numbers": (BOTH, "MiniLM with both"),
}
#: The ways of the table of fields left out.
FIELD_WAYS = {
    "words": "`words`", "minilm": "MiniLM", "sft": "SmolLM2, SFT (1 seed)", "numbers": "`at_publication`",
    "words and numbers": "`words_at_publication`", "metadata": "trees on later citers",
}  # fmt: skip


class Row(NamedTuple):
    """A row of the ladder; ``cells`` are by slice."""

    saw: str
    name: str
    cells: dict[str, str]


def keep(slices: Path, results: list[Path]) -> None:
    """Keep what the table needs: labels and answers as numbers, in the order of the papers' hashed titles."""
    import sciscidata as ssd

    pool = pl.read_parquet(slices / "pool.parquet")
    golds: dict[str, Any] = {}
    counts: dict[str, Any] = {"labels": {label: pool.filter(disruption_label=label).height for label in LABELS}}
    counts["test_years"] = {}
    for name, (labels, least) in SLICES.items():
        drawn = pl.read_parquet(slices / f"{name}.parquet")
        test = drawn.filter(side="test")["row"].sort()
        shares: dict[str, float] = {label: 1 / len(labels) for label in labels}
        ceiling = ssd.find_label_ceiling(pool, shares=shares) if not least else None
        golds[name] = {
            "papers": {side: drawn.filter(side=side).height for side in ("train", "dev", "test")},
            "ceiling": ceiling and {"accuracy": round(ceiling.accuracy, 4), "macro_f1": round(ceiling.macro_f1, 4)},
            "least_confidence": least,
            "test": [LABELS.index(label) for label in pool[test]["disruption_label"]],
            "field": pool[test]["primary_field"].to_list(),
        }
        years = pool[test]["publication_year"]
        counts["test_years"][name] = [years.min(), years.max()]
    commit = subprocess.check_output(["git", "rev-parse", "--short", "HEAD"], text=True, cwd=DOCS).strip()
    by_name = {line["job"]["name"]: line for line in read_lines()} if (RESULTS / "ladder.jsonl.gz").exists() else {}
    for line in (json.loads(line) for path in results for line in path.read_text("utf-8").splitlines()):
        if "error" in line:
            continue  # a job that failed; a later line has it
        line.pop("paid", None)  # answers; sciscirl paid the same for each
        for judged in line["judged"]:
            if judged["side"] == "dev":
                chance = share_out(judged.pop("chances"), count_labels(line["job"]["slice"]))
                judged["prior"] = chance.mean(0).round(5).tolist()
                del judged["said"]
        by_name[line["job"]["name"]] = {"job": line["job"], "commit": commit} | line
    lines = [by_name[name] for name in sorted(by_name)]
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "slices.json").write_text(json.dumps(golds) + "\n", "utf-8")
    (RESULTS / "pool.json").write_text(json.dumps(counts) + "\n", "utf-8")
    text = "".join(json.dumps(line) + "\n" for line in lines)
    (RESULTS / "ladder.jsonl.gz").write_bytes(gzip.compress(text.encode(), mtime=0))


def find_right(slices: Slices, runs: Runs, name: str, way: str, answer: str = "said") -> np.ndarray | None:
    """Return by seed and paper whether the answer is right; None: not run."""
    seeds = runs.get((name, way))
    if not seeds or answer not in seeds[0]:
        return None
    return np.array([np.array(run[answer]) == find_gold(slices, name) for run in seeds]) * 1.0


def list_ways(slices: Slices, runs: Runs) -> Iterator[Row]:
    """Return the rows of the ladder that answered on the first test, but for those of reinforcement."""
    for way, saw in SAW.items():
        cells = {}
        if not any(way == one for _, one in runs):
            continue  # the page says what was not run
        for name in (*SLICES, "second"):
            if (right := find_right(slices, runs, name, way)) is None:
                continue
            cells[name] = say(right)
            if name != "two_sure" and (corrected := find_right(slices, runs, name, way, "corrected")) is not None:
                cells[name] += f", {corrected.mean():.2f}"
        n_seeds = max(len(seeds) for (_, one), seeds in runs.items() if one == way)
        has_seeds = runs[next(key for key in runs if key[1] == way)][0]["job"]["way"] == "sft"
        yield Row(saw, WAYS[way] + (" (1 seed)" if has_seeds and n_seeds == 1 else ""), cells)


def list_sets() -> Iterator[tuple[str, Row]]:
    """Return the rows of what is known at publication, by their set of columns; words are among them."""
    second = [{"slice": "second"} | row for row in read_kept("second")["rows"]]
    for key in ["majority", "words", *SETS]:
        saw, name = SETS.get(key, ("", ""))
        rows = [row for row in read_kept("context") + read_kept("at_publication") + second if row["set"] == key]
        if rows:
            yield key, Row(saw, name, {row["slice"]: say_kept(row["accuracy"]) for row in rows})


def list_stacked() -> Iterator[Row]:
    """Return the rows of SmolLM2 stacked on baselines."""
    names = {"numbers and model": "`at_publication`", "words and numbers, and model": "`words_at_publication`"}
    for key, name in names.items():
        rows = {row["slice"]: row["rows"][key] for row in read_kept("stack")}
        cells = {of: say_kept([row["accuracy"], *row["interval"]]) for of, row in rows.items()}
        yield Row(BOTH, f"SmolLM2, SFT, stacked on {name}", cells)


def list_rows(slices: Slices, runs: Runs) -> list[Row]:
    """Return the rows of the ladder: those that see later citers come last."""
    sets = dict(list_sets())
    ways = [*list_ways(slices, runs)]
    for row, key in ((WAYS["tfidf"], "words"), (WAYS["majority"], "majority")):
        next(way for way in ways if way.name == row).cells["second"] = sets.pop(key).cells["second"]
    order = ["", TEXT, KNOWN, BOTH, LATER]
    rows = sorted([*sets.values(), *list_stacked(), *ways], key=lambda row: order.index(row.saw))
    is_first = [at == 0 or row.saw != rows[at - 1].saw for at, row in enumerate(rows)]
    return [row if first else row._replace(saw="") for row, first in zip(rows, is_first, strict=True)]


def to_table(head: list[str], rows: list[list[str]]) -> str:
    first, *lines = (f"| {' | '.join(line)} |" for line in [head, *rows])
    return "\n".join([first, "|---" * len(head) + "|", *lines])


def write_ladder(slices: Slices, runs: Runs) -> str:
    """Return the table of all ways but reinforcement."""
    columns = ["two", "second", "three", "two_sure"]
    head = ["sees", "way", "`two`", "second test", "`three`", "`two_sure`"]
    rows = [[row.saw, row.name, *(row.cells.get(column, "") for column in columns)] for row in list_rows(slices, runs)]
    return to_table(head, rows)


def write_rl(slices: Slices, runs: Runs) -> str:
    """Return the table of reinforcement: each run against its own start, paired by paper."""
    gold, rows = find_gold(slices, "three"), []
    for way, label in WAYS.items():
        seeds = runs.get(("three", way), [])
        if not seeds or seeds[0]["job"]["way"] != "rl":
            continue
        before, after = find_ends(runs, way)
        rows.append([
            label + (" (1 seed)" if len(seeds) == 1 else ""), str(seeds[0]["tests"][-1]["step"]),
            say((after == gold) * 1.0), say(find_gains(slices, runs, way), 3, "+"),
            ", ".join(show_shares(find_shares(said)) for said in (before, after)),
            say_corrected(slices, runs, way) if "corrected" in seeds[0] else "",
        ])  # fmt: skip
    head = ["way", "steps", "accuracy", "change", "shares said: before, after", "prior-corrected, change"]
    return to_table(head, rows)


def say_corrected(slices: Slices, runs: Runs, way: str) -> str:
    """Write the accuracy after reinforcement and its change, both prior-corrected."""
    after = find_ends(runs, way, "corrected")[1] == find_gold(slices, "three")
    return f"{after.mean():.2f}, {say(find_gains(slices, runs, way, 'corrected'), 3, '+')}"


def take(folder: Path) -> str:
    """Return the rows of result files of one release, such as those of ``sciscirl ladder``, in the form of the page."""
    rows: dict[tuple[bool, str, str], list[np.ndarray]] = {}
    papers: list[tuple[str, str]] = []
    name = ""
    for path in sorted(folder.glob("*.result.json")):
        answers, facts = read_result(path)
        settings, answers = facts["settings"], answers.sort("openalex_id")
        name = json.loads(path.read_text("utf-8"))["release"]["name"]
        own = [*answers.select("openalex_id", "gold").iter_rows()]
        if papers and own != papers:
            raise SystemExit(f"{path} is of other papers than the files before it. Give results of one release.")
        papers, row = own, settings.get("row", path.name.removesuffix(".result.json"))
        way = row if "baseline" in settings else f"{Path(settings['model']).name}, {row}"
        right = answers.select((pl.col("label") == pl.col("gold")).fill_null(value=False) * 1.0).to_series()
        rows.setdefault(("baseline" not in settings, say_known(settings), way), []).append(right.to_numpy())
    if not rows:
        raise SystemExit(f"{folder} has no result files. Give the folder results of sciscirl ladder.")
    head = ["sees", "way", f"`{name}`, {len(papers):,} papers"]
    return to_table(head, [[saw, way, say(np.array(seeds))] for (_, saw, way), seeds in sorted(rows.items())])


def show_shares(shares: list[float]) -> str:
    return " ".join(f"{share:.2f}" for share in shares)


def write_fields(slices: Slices, runs: Runs) -> str:
    """Return the table of fields left out, and of the example of the package."""
    right = pool_fields(slices, runs)
    ends = np.cumsum([find_gold(slices, f"two-{field}").size for field in FIELDS])
    example = {row["way"]: row["accuracy"] for row in read_kept("fields")["example"]["rows"]}
    rows = []
    for way, label in FIELD_WAYS.items():
        by_field = [float(of.mean()) for of in np.split(right[way], ends[:-1], axis=1)]
        fair = right.get(f"{way}, corrected")
        sixth = say_kept(example[way]) if way in example else ""
        rows.append([label, say(right[way], 3), "" if fair is None else say(fair, 3), show_range(by_field), sixth])
    return to_table(["way", "fifth field", "prior-corrected", "least and most of the five", "sixth field"], rows)


def write_tables(slices: Slices, runs: Runs) -> dict[str, str]:
    """Return the tables of the page by name."""
    return {"ladder": write_ladder(slices, runs), "rl": write_rl(slices, runs), "fields": write_fields(slices, runs)}


def list_dots(slices: Slices, runs: Runs) -> list[Dot]:
    """Return the rows of the picture."""
    first = {row["set"]: row["accuracy"] for row in read_kept("at_publication") if row["slice"] == "two"}
    second = {row["set"]: row["accuracy"] for row in read_kept("second")["rows"]}
    stack = next(row for row in read_kept("stack") if row["slice"] == "two")
    stacked = stack["rows"]["numbers and model"]
    known = "references, coupling and CD"
    both = f"words, {known}"

    def own(way: str) -> tuple[float, float, float]:
        right = find_right(slices, runs, "two", way)
        assert right is not None
        return float(right.mean()), *find_interval(right)

    return [
        Dot("Words", "title, abstract", "text", (own("tfidf"), second["words"])),
        Dot("SmolLM2, fine-tuned", "title, abstract", "text", (own("sft"), None)),
        Dot("At publication", "references, their citations, year, field", "known", (first[known], second[known])),
        Dot("Words and at publication", "both", "both", (first[both], second[both])),
        Dot("SmolLM2 and at publication", "both, stacked", "both", ((stacked["accuracy"], *stacked["interval"]), None)),
        Dot(
            "Citations so far",
            "with year, field; citers make the label",
            "later",
            (own("metadata"), None),
        ),
    ]


def show() -> None:
    slices, runs = read_results()
    for (name, way), seeds in runs.items():
        gold = find_gold(slices, name) if name in SLICES else np.array([])
        if not gold.size or way not in WAYS:
            continue
        said = np.array([run["said"] for run in seeds])
        recalls = [np.mean(said[:, gold == label] == label) for label in np.unique(gold)]
        f1 = np.mean([find_macro_f1(one, gold) for one in said])
        rest = f"least recall {min(recalls):.3f}, invalid {np.mean(said < 0):.3f}"
        print(f"{name}, {WAYS[way]}: macro-F1 {f1:.3f}, {rest}")
    print("", *find_claims(slices, runs), sep="\n")
    note = NOTE.read_text("utf-8")
    for name, table in write_tables(slices, runs).items():
        begin, end = f"<!-- {name}: show.py writes this table -->", f"<!-- end of {name} -->"
        before, rest = note.split(begin)
        note = f"{before}{begin}\n{table}\n{end}{rest.split(end)[1]}"
        print(f"\n{table}")
    NOTE.write_text(note, "utf-8")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    steps = parser.add_subparsers(dest="step")
    keeping = steps.add_parser("keep")
    keeping.add_argument("slices", type=Path)
    keeping.add_argument("results", type=Path, nargs="+")
    steps.add_parser("take").add_argument("folder", type=Path)
    options = parser.parse_args()
    if options.step == "keep":
        keep(options.slices, options.results)
    elif options.step == "take":
        print(take(options.folder))
    else:
        show()
