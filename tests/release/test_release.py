"""A release is whole or absent, repeats itself byte for byte, and every damage to it is found."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import shutil
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sciscidata.cli.repeat_run import read_old_manifest
from sciscidata.eligibility import EligibilityConfig
from sciscidata.errors import (
    ConfigError,
    InputNotFoundError,
    ReleaseExistsError,
    SchemaMismatchError,
    StorageError,
    VerificationError,
    WorkIdError,
)
from sciscidata.label_thresholds import LabelThresholds, compute_disruption_labels, compute_labels
from sciscidata.novelty.atypicality import add_scores
from sciscidata.novelty.config import NoveltyConfig
from sciscidata.release import release as writer
from sciscidata.release.manifest import DOCUMENTS, PICTURES
from sciscidata.release.read import DATA_FILES, SCORES_FILE, hash_manifest, list_data_files, read_release
from sciscidata.release.release import Target, check_target
from sciscidata.release.verify import kind_of, verify, verify_release
from sciscidata.release.write_json_lines import render_jsonl
from sciscidata.sampling.config import SplitConfig
from sciscidata.sampling.split import draw_split, split_keys
from sciscidata.schemas import EXAMPLE, WORKS
from sciscidata.storage import atomic_folder

REPOSITORY = Path(__file__).parents[2]
SPLIT = SplitConfig(n_train=60, n_test=15)
ATYPICALITY = {
    **{"config": asdict(NoveltyConfig()), "published": None, "background": None, "conventionality_cut": 2.0},
    **dict.fromkeys(("works", "scored_works", "scored_pairs"), 300),
}
PINNED = {
    "train.jsonl": "d74801b259100ddf7abb157af2bad73568de2cfecedf8a0837ab6bc5bb387e23",
    "test.jsonl": "9b177f60263d7300fefa7cb7b9faf574c93fb97d8042d700da1d0d9f9d487737",
}
ODD_TEXT = 'Séance "no. 1"\u2028two\u2029three\u0085four\x0bfive\ttab \\ back 𝔘 nul'


def make_works(n: int = 300) -> pl.DataFrame:
    ids = [(i * 2_654_435_761) % 4_999_999_937 for i in range(1, n + 1)]
    rows = [
        {
            "work_id": i,
            "publication_year": 1990 + i % 30,
            "title": f"Title {i}",
            "abstract": f"{ODD_TEXT} {i}",
            "cited_by_count": i % 100 if i % 5 else None,
            "primary_field": "Physics" if i % 3 else None,
            "concepts": ["Sleep", ODD_TEXT][: i % 3],
            "is_retracted": False,
        }
        for i in ids
    ]
    return pl.DataFrame(rows, schema=WORKS)


def draw(works: pl.DataFrame, split: SplitConfig = SPLIT) -> pl.DataFrame:
    # Thirds and sevenths have no short decimal form; minus zero has to become zero.
    scores = works.select(
        "work_id",
        cd_index=pl.when(pl.col("work_id") % 3 == 0)
        .then(-0.0)
        .otherwise((pl.col("work_id") % 7 + 1) / 21 * pl.when(pl.col("work_id") % 3 == 1).then(1).otherwise(-1)),
    )
    return draw_split(compute_disruption_labels(scores), split)


def manifest(split: SplitConfig = SPLIT) -> dict[str, Any]:
    return {
        "config": {"n": 1, "name": "Ünïcode"},
        "source": {"kind": "test", "data_date": None},
        "counts": {"works": 300},
        "split": asdict(split),
        "thresholds": asdict(LabelThresholds()),
    }


def write_release(drawn: Any, works: Any, folder: Path, *, manifest: dict[str, Any], **files: Any) -> Any:
    return writer.write_release(drawn, works, manifest, Target(folder, **files))


def write(folder: Path, **options: Any) -> Any:
    works = make_works()
    return write_release(draw(works), works, folder, **({"manifest": manifest()} | options))


def bytes_of(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir()) if path.is_file()}


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("original") / "slice"
    write(folder)
    return folder


@pytest.fixture
def copy(original: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(original, tmp_path / "copy"))


def test_readers_of_a_release_being_replaced_read_the_old_or_the_new_one(original: Path, tmp_path: Path) -> None:
    other = write(tmp_path / "other", manifest=manifest() | {"remark": "other"}).folder
    target = Path(shutil.copytree(original, tmp_path / "slice"))
    is_over = threading.Event()
    wrong: list[str] = []

    def read(act: Callable[[], object]) -> int:
        n = 0
        while not is_over.is_set():
            n += 1
            try:
                act()
            except VerificationError as error:
                if "was replaced by another release" not in str(error):
                    wrong.append(str(error))
            except InputNotFoundError as error:
                wrong.append(str(error))
        return n

    def open_and_read() -> None:
        release = read_release(target)
        assert (release.train.height, release.test.height) == (60, 15)

    def repeat() -> None:
        assert read_old_manifest(target)["counts"] == {"works": 300}

    with ThreadPoolExecutor() as pool:
        reads = [pool.submit(read, act) for act in (open_and_read, lambda: kind_of(target), repeat)]
        verified = pool.submit(read, lambda: verify(target))
        for n in range(40):
            with atomic_folder(target, overwrite=True) as new:
                shutil.copytree((original, other)[n // 2 % 2], new, dirs_exist_ok=True)
        is_over.set()
    assert wrong == []
    assert min(one.result() for one in reads) > 5
    assert verified.result() > 1


def test_a_release_that_was_replaced_after_it_was_opened_says_so(original: Path, copy: Path, tmp_path: Path) -> None:
    opened = read_release(copy)
    shutil.rmtree(copy)
    shutil.copytree(original, copy)  # the same one, built again
    assert opened.train.height == 60
    split = SplitConfig(n_train=30, n_test=9)
    works = make_works()
    other = write_release(draw(works, split), works, tmp_path / "other", manifest=manifest(split))
    shutil.rmtree(copy)
    shutil.copytree(other.folder, copy)
    with pytest.raises(VerificationError, match="was replaced by another release after it was opened"):
        _ = opened.test


def test_a_release_holds_what_was_drawn(original: Path) -> None:
    release = verify_release(original)
    assert release == read_release(original)
    assert release.train.schema == EXAMPLE
    works = make_works()
    drawn = draw(works)
    for split, frame in (("train", release.train), ("test", release.test)):
        expected = drawn.filter(split=split).join(works, on="work_id", maintain_order="left")
        assert frame["openalex_id"].to_list() == [f"W{i}" for i in expected["work_id"]]
        assert frame["abstract"].equals(expected["abstract"])
        assert frame["cd_index"].equals(expected["cd_index"])
        assert frame["novelty_label"].null_count() == frame.height


def test_the_manifest_says_what_is_there(original: Path) -> None:
    stated = read_release(original).manifest
    assert stated["class_counts"]["test"]["disruption_label"] == {"disruptive": 5, "consolidating": 5, "neutral": 5}
    assert stated["sides"]["train"]["rows"] == 60
    assert stated["novelty"]["available"] is False
    assert "are null in every row" in stated["novelty"]["note"]
    assert set(stated["versions"]) == {"sciscidata", "polars", "pyarrow", "numpy", "numba", "matplotlib", "python"}
    assert stated["source"] == {"kind": "test", "data_date": None}
    ids = "\n".join(read_release(original).test["openalex_id"])
    assert stated["sides"]["test"]["ids_sha256"] == hashlib.sha256(ids.encode()).hexdigest()
    for name in DATA_FILES:
        content = (original / name).read_bytes()
        measured = {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
        assert stated["files"][name] == measured


def test_two_runs_write_the_same_bytes_everywhere_in_the_folder(original: Path, tmp_path: Path) -> None:
    shuffled = make_works().sort("title", descending=True)
    reordered = dict(reversed(manifest().items()))
    write_release(draw(shuffled).reverse(), shuffled.lazy(), tmp_path / "again", manifest=reordered)
    assert bytes_of(tmp_path / "again") == bytes_of(original)


def test_the_json_lines_are_pinned(original: Path) -> None:
    stated = read_release(original).manifest["files"]
    assert {name: stated[name]["sha256"] for name in PINNED} == PINNED


text = st.text(st.characters(codec="utf-8"))
example = st.fixed_dictionaries(
    {
        "openalex_id": text,
        "title": st.none() | text,
        "publication_year": st.none() | st.integers(-(2**31), 2**31 - 1),
        "cited_by_count": st.none() | st.integers(-(2**63), 2**63 - 1),
        "cd_index": st.none() | st.floats(allow_nan=False, allow_infinity=False),
        "concepts": st.none() | st.lists(text),
    }
)


@given(st.lists(example))
def test_every_row_survives_the_way_through_canonical_lines(rows: list[dict[str, Any]]) -> None:
    frame = pl.DataFrame(rows, schema=EXAMPLE)
    content = render_jsonl(frame)
    assert content.count(b"\n") == len(rows) == len(content.decode().splitlines())
    back = [json.loads(line) for line in content.split(b"\n")[:-1]]
    assert pl.DataFrame(back, schema=EXAMPLE).equals(frame)


def test_a_float_that_json_lacks_is_refused() -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        render_jsonl(pl.DataFrame({"cd_index": [float("nan")]}))


def test_extra_files_are_kept_and_checked_like_the_others(tmp_path: Path) -> None:
    def picture(folder: Path) -> None:
        assert not (folder / "manifest.json").exists()
        (folder / "plots").mkdir()
        (folder / "plots" / "distribution.png").write_bytes(b"\x89PNG")

    release = write(tmp_path / "slice", extra=picture)
    assert set(release.manifest["files"]) == {*DATA_FILES, *DOCUMENTS, SCORES_FILE, "plots/distribution.png"}
    verify_release(str(release.folder))
    (release.folder / "plots" / "distribution.png").write_bytes(b"another renderer")
    with pytest.raises(VerificationError, match=r"plots/distribution\.png: sha256"):
        verify_release(release.folder)
    (release.folder / "plots" / "distribution.png").unlink()
    with pytest.raises(VerificationError, match=r"plots/distribution\.png is missing"):
        verify_release(release.folder)


def test_an_existing_release_is_replaced_only_when_asked(original: Path, copy: Path) -> None:
    with pytest.raises(ReleaseExistsError, match="overwrite=True"):
        write(copy)
    (copy / "train.jsonl").write_bytes(b"damaged")
    write(copy, overwrite=True)
    assert bytes_of(copy) == bytes_of(original)
    assert list(copy.parent.iterdir()) == [copy]


@pytest.mark.parametrize(
    "prepare", ["foreign file", "no release", "broken manifest", "a folder in place of the manifest", "a file"]
)
def test_what_is_not_a_release_is_never_replaced(copy: Path, prepare: str) -> None:
    if prepare == "foreign file":
        (copy / "thesis.tex").write_text("years of work")
    elif prepare == "no release":
        (copy / "manifest.json").unlink()
    elif prepare == "broken manifest":
        (copy / "manifest.json").write_text('{"format_version": 1}')
    elif prepare == "a folder in place of the manifest":
        (copy / "manifest.json").unlink()
        (copy / "manifest.json").mkdir()
    else:
        shutil.rmtree(copy)
        copy.write_text("years of work")
    before = bytes_of(copy) if copy.is_dir() else copy.read_bytes()
    with pytest.raises(ReleaseExistsError, match="remove it yourself"):
        write(copy, overwrite=True)
    assert (bytes_of(copy) if copy.is_dir() else copy.read_bytes()) == before


def test_what_a_manifest_lists_under_a_name_that_no_release_has_is_not_replaced(copy: Path) -> None:
    for name in ("thesis.tex", "photos/1.jpg"):
        (copy / name).parent.mkdir(exist_ok=True)
        (copy / name).write_text("years of work")
    stated = json.loads((copy / "manifest.json").read_text())
    stated["files"] |= {name: {"bytes": 13, "sha256": ""} for name in ("thesis.tex", "photos/1.jpg")}
    (copy / "manifest.json").write_text(json.dumps(stated | {"manifest_sha256": hash_manifest(stated)}))
    with pytest.raises(ReleaseExistsError, match=r"also holds what is not part .*photos/1\.jpg, thesis\.tex"):
        check_target(copy, overwrite=True)


@pytest.mark.skipif(os.name != "posix", reason="links need rights there")
@pytest.mark.parametrize("name", ["photos", "train.jsonl"])
def test_a_release_with_a_link_in_it_is_not_replaced(copy: Path, tmp_path: Path, name: str) -> None:
    (tmp_path / "elsewhere").mkdir()
    (copy / name).unlink(missing_ok=True)
    (copy / name).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ReleaseExistsError, match=rf"also holds what is not part of the release \({name}\)"):
        check_target(copy, overwrite=True)


def test_pictures_that_a_release_lists_are_replaced_with_it(tmp_path: Path) -> None:
    folder = write(
        tmp_path / "slice", extra=lambda unfinished: [(unfinished / name).touch() for name in PICTURES]
    ).folder
    check_target(folder, overwrite=True)


@pytest.mark.parametrize("overwrite", ["false", "no", 1, None])
def test_a_word_is_not_taken_for_the_wish_to_replace_a_release(copy: Path, overwrite: Any) -> None:
    with pytest.raises(ConfigError, match="overwrite is"):
        write(copy, overwrite=overwrite)
    with pytest.raises(ConfigError, match="overwrite is"):
        check_target(copy, overwrite=overwrite)


def test_a_target_can_be_checked_before_any_work_is_done(original: Path, tmp_path: Path) -> None:
    check_target(tmp_path / "new")
    check_target(original, overwrite=True)
    with pytest.raises(ReleaseExistsError, match="overwrite=True"):
        check_target(original)
    with pytest.raises(ReleaseExistsError, match="Choose another folder, or remove it yourself"):
        check_target(original, can_replace=False)


def test_a_link_to_itself_is_no_place_for_a_release(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(ReleaseExistsError, match="loop already exists"):
        check_target(tmp_path / "loop")


def test_an_empty_folder_counts_as_not_there(tmp_path: Path) -> None:
    (tmp_path / "slice").mkdir()
    verify_release(write(tmp_path / "slice").folder)


def test_a_full_disk_is_said_and_leaves_nothing_behind(small_disk: Callable[..., Path]) -> None:
    disk = small_disk(64)
    works = make_works(1500)
    split = SplitConfig(n_train=900, n_test=90)
    with pytest.raises(StorageError, match=r"No space left on device.*Free some disk space"):
        write_release(draw(works, split), works, disk / "slice", manifest=manifest(split))
    assert list(disk.iterdir()) == []


def test_texts_of_drawn_works_have_to_be_there_once(tmp_path: Path) -> None:
    works = make_works()
    drawn = draw(works)
    first = drawn["work_id"].min()
    with pytest.raises(WorkIdError, match=f"1 drawn work is not in WORKS, for example W{first}"):
        write_release(drawn, works.filter(pl.col("work_id") != first), tmp_path / "a", manifest=manifest())
    with pytest.raises(WorkIdError, match="in WORKS more than once"):
        write_release(drawn, pl.concat([works, works]), tmp_path / "a", manifest=manifest())
    with pytest.raises(WorkIdError, match="drawn more than once"):
        write_release(pl.concat([drawn, drawn]), works, tmp_path / "a", manifest=manifest())
    with pytest.raises(SchemaMismatchError, match="the drawn frame is of type str, needs a frame"):
        write_release("x", works, tmp_path / "a", manifest=manifest())  # pyright: ignore[reportArgumentType]
    with pytest.raises(SchemaMismatchError, match="split"):
        write_release(drawn.drop("split"), works, tmp_path / "a", manifest=manifest())
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"split": None}, "split cannot be read"),
        ({"thresholds": {"cut": 1}}, "LabelThresholds has no option 'cut'"),
        ({"source": Path("data")}, "cannot be written as JSON"),
        ({"source": float("nan")}, "cannot be written as JSON"),
    ],
)
def test_a_manifest_that_cannot_be_kept_is_refused_at_once(tmp_path: Path, change: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        write(tmp_path / "slice", manifest=manifest() | change)
    assert list(tmp_path.iterdir()) == []


# Verification ---------------------------------------------------------------------------------------------


def restate(folder: Path, **changes: Any) -> None:
    """Make the manifest fit the files again, so that only the rules can find the damage."""
    path = folder / "manifest.json"
    stated = json.loads(path.read_text(encoding="utf-8"))
    for name in list_data_files(stated):
        content = (folder / name).read_bytes()
        stated["files"][name] = {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    stated |= changes
    path.write_text(json.dumps(stated | {"manifest_sha256": hash_manifest(stated)}), encoding="utf-8")


def rewrite(folder: Path, split: str, change: Callable[[pl.DataFrame], pl.DataFrame]) -> None:
    frame = change(pl.read_parquet(folder / f"{split}.parquet"))
    frame.write_parquet(folder / f"{split}.parquet")
    (folder / f"{split}.jsonl").write_bytes(render_jsonl(frame))
    restate(folder)


def edit_line(folder: Path) -> None:
    path = folder / "train.jsonl"
    lines = path.read_bytes().split(b"\n")
    lines[16] = lines[16].replace(b"Title", b"Tital")
    path.write_bytes(b"\n".join(lines))


def space_out_line(folder: Path) -> None:
    path = folder / "test.jsonl"
    path.write_bytes(path.read_bytes().replace(b'":', b'": ', 1))
    restate(folder)


def leak_row(folder: Path) -> None:
    train = pl.read_parquet(folder / "train.parquet")
    rewrite(folder, "test", lambda frame: pl.concat([frame.head(14), train.head(1)]))


def leak_title(folder: Path) -> None:
    title = pl.read_parquet(folder / "train.parquet")["title"][0].upper() + "!"
    rewrite(folder, "test", lambda frame: frame.with_columns(title=pl.lit(title)))


def miscount(folder: Path) -> None:
    stated = read_release(folder).manifest["class_counts"]
    stated["train"]["disruption_label"]["neutral"] = 21
    restate(folder, class_counts=stated)


WRONG_COUNTS = {
    "last_year": 2020,
    "filters": {"works": 300, "duplicate": 3, "eligible": 296},
    "scored": {
        "disruption_label": {"disruptive": 99, "consolidating": 100, "neutral": 100},
        "novelty_label": {"novel": 1, "balanced": 0, "conventional": 0},
    },
    "eligible": {
        "disruption_label": {"disruptive": 100, "consolidating": 24, "neutral": 100},
        "novelty_label": {"novel": 2, "balanced": 0, "conventional": 0},
    },
}


def change(**columns: Any) -> Callable[[Path], None]:
    """Give columns of the test split other values."""
    return lambda folder: rewrite(folder, "test", lambda frame: frame.with_columns(**columns))


def restated(**changes: Any) -> Callable[[Path], None]:
    return lambda folder: restate(folder, **changes)


DAMAGES: dict[str, tuple[Callable[[Path], Any], list[str]]] = {
    "a file is gone": (
        lambda folder: (folder / "test.jsonl").unlink(),
        ["test.jsonl is missing", "test.jsonl cannot be compared"],
    ),
    "a file too many": (
        lambda folder: (folder / "notes.txt").write_text("?"),
        ["notes.txt is not part of the release"],
    ),
    "Parquet cut off": (
        lambda folder: os.truncate(folder / "train.parquet", 1000),
        ["train.parquet: bytes", "train.parquet: sha256", "train.parquet cannot be read"],
    ),
    "empty Parquet": (lambda folder: os.truncate(folder / "test.parquet", 0), ["test.parquet cannot be read"]),
    "a line edited": (edit_line, ["train.jsonl: sha256", "train.jsonl line 17 is not the canonical form of row 17"]),
    "a space in a line": (space_out_line, ["test.jsonl line 1 is not the canonical form"]),
    "rows swapped": (
        lambda folder: rewrite(folder, "train", pl.DataFrame.reverse),
        ["sides: train: ids_sha256", "not in the order"],
    ),
    "labels flipped": (
        change(disruption_label=pl.lit("neutral")),
        ["test: disruption_label of 10 rows contradicts", "15 rows of class neutral"],
    ),
    "a row dropped": (
        lambda folder: rewrite(folder, "test", lambda frame: frame.head(14)),
        ["sides: test: rows: the manifest says 15, found 14", "the split asks for 5"],
    ),
    "a column dropped": (
        lambda folder: rewrite(folder, "test", lambda frame: frame.drop("concepts")),
        ["test.parquet has other columns than EXAMPLE: no concepts"],
    ),
    "columns swapped": (
        lambda folder: rewrite(folder, "test", lambda frame: frame.select(reversed(frame.columns))),
        ["another order"],
    ),
    "an id invented": (change(openalex_id=pl.lit("1")), ["14 works have the id of another"]),
    "ids gone": (change(openalex_id=pl.lit(None, dtype=pl.String)), ["15 works have no id", "ids_sha256"]),
    "a row leaked": (leak_row, ["1 work lies in both splits by id", "1 row belongs to the other split"]),
    "a title leaked": (leak_title, ["1 work lies in both splits by normalised title, first 'title"]),
    "a threshold moved": (restated(thresholds=asdict(LabelThresholds(disruptive_min=0.2))), ["disruption_label of"]),
    "another seed": (
        restated(split=asdict(SPLIT) | {"seed": 1}),
        ["not in the order of their split keys", "belong to the other split"],
    ),
    "other sizes": (
        restated(split=asdict(SPLIT) | {"n_train": 63}),
        ["20 rows of class disruptive, the split asks for 21"],
    ),
    "a wrong count": (miscount, ["neutral: the manifest says 21, found 20"]),
    "no thresholds": (restated(thresholds=None), ["the manifest's thresholds and split cannot be read"]),
    "another shape": (restated(files=[], counts=7, sides=None), ["was not written by sciscidata"]),
    "wrong counts": (
        restated(eligibility=asdict(EligibilityConfig()), counts=WRONG_COUNTS),
        [
            "filters: removals and eligible add up to 299, not to 300 works",
            "eligible: the classes add up to 224, not to 296",
            "disruptive: 25 drawn of 100 eligible of 99 scored",
            "consolidating: 25 drawn of 24 eligible of 100 scored",
            "novel: 0 drawn of 2 eligible of 1 scored",
        ],
    ),
}


@pytest.mark.parametrize(("damage", "findings"), DAMAGES.values(), ids=DAMAGES)
def test_every_damage_is_found(copy: Path, damage: Callable[[Path], None], findings: list[str]) -> None:
    verify_release(copy)
    damage(copy)
    with pytest.raises(VerificationError) as caught:
        verify_release(copy)
    for finding in findings:
        assert finding in str(caught.value)


@settings(max_examples=50)
@given(st.data())
def test_a_single_changed_byte_anywhere_in_the_data_is_found(
    original: Path, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    copy = Path(shutil.copytree(original, tmp_path_factory.mktemp("flip") / "slice"))
    path = copy / data.draw(st.sampled_from([*DATA_FILES, SCORES_FILE]))
    content = bytearray(path.read_bytes())
    content[data.draw(st.integers(0, len(content) - 1))] ^= data.draw(st.integers(1, 255))
    path.write_bytes(content)
    # Once as it is, and once with a manifest that vouches for the damaged bytes: then only the rows can tell,
    # and where the damage lies in what is not a row (a statistic, a version name), nothing has to be found.
    with pytest.raises(VerificationError, match=f"{path.name}: sha256"):
        verify_release(copy)
    restate(copy)
    if path.suffix == ".jsonl":
        with pytest.raises(VerificationError, match="is not the canonical form"):
            verify_release(copy)
    else:
        with contextlib.suppress(VerificationError):
            verify_release(copy)
    shutil.rmtree(copy)


def leaves(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    if isinstance(value, dict):
        for key in value:
            yield from leaves(value[key], (*path, key))
    else:
        yield path


def test_an_edit_anywhere_in_the_manifest_is_found(original: Path, copy: Path) -> None:
    stated = read_release(original).manifest
    for *above, last in leaves(stated):
        edited = json.loads(json.dumps(stated))
        place = edited
        for key in above:
            place = place[key]
        place[last] = [place[last]]
        (copy / "manifest.json").write_text(json.dumps(edited), encoding="utf-8")
        with pytest.raises(VerificationError, match=r"manifest_sha256|format_version"):
            verify_release(copy)


@pytest.mark.parametrize(
    "content", ["", "[]", "{}", '{"format_version": 2}', '{"format_version": 1, "x": NaN}', "\xff"]
)
def test_a_manifest_of_another_kind_is_refused(copy: Path, content: str) -> None:
    (copy / "manifest.json").write_text(content, encoding="latin-1")
    with pytest.raises(VerificationError, match=r"manifest\.json"):
        read_release(copy)


def test_reading_names_what_is_missing(copy: Path) -> None:
    (copy / "test.jsonl").unlink()
    with pytest.raises(InputNotFoundError, match=r"lacks test\.jsonl"):
        read_release(copy)


def test_a_folder_in_place_of_the_manifest_is_said(copy: Path) -> None:
    (copy / "manifest.json").unlink()
    (copy / "manifest.json").mkdir()
    for read in (read_release, verify_release):
        with pytest.raises(InputNotFoundError, match="Is a directory"):
            read(copy)


def test_one_side_may_be_empty(tmp_path: Path) -> None:
    works, split = make_works(), SplitConfig(n_train=30, n_test=0)
    release = write_release(draw(works, split), works, tmp_path / "slice", manifest=manifest(split))
    assert verify_release(release.folder).test.schema == EXAMPLE
    assert (release.folder / "test.jsonl").read_bytes() == b""


def draw_novel(
    works: pl.DataFrame, split: SplitConfig, thresholds: LabelThresholds, score: Any = "sigmoid"
) -> pl.LazyFrame:
    """Draw works with z from -4 to 4 and their scores, a seventh of them without."""
    number = pl.int_range(pl.len())
    scored = (
        works.select(
            "work_id", cd_index=number % 3 - 1.0, z_p10=(number // 3 % 5 - 3.0), z_median=number // 3 % 4 * 2.0
        )
        .with_columns(pl.when(number % 7 > 0).then("z_p10").alias("z_p10"))
        .with_columns(pl.when(pl.col("z_p10").is_not_null()).then("z_median").alias("z_median"))
        .with_columns(publication_year=pl.lit(2000))
    )
    return draw_split(compute_labels(add_scores(scored, score), thresholds), split)


@pytest.mark.parametrize("rule", ["margin", "uzzi"])
@pytest.mark.parametrize("balance", ["disruption", "pool", "none", "novelty", "joint"])
def test_other_balances_and_rules_verify_too(tmp_path: Path, balance: Any, rule: Any) -> None:
    works = make_works()
    split = SplitConfig(n_train=27, n_test=9, balance=balance)
    thresholds = LabelThresholds(novelty_rule=rule)
    stated = manifest(split) | {"thresholds": asdict(thresholds)}
    stated |= {"atypicality": ATYPICALITY}
    release = write_release(draw_novel(works, split, thresholds), works, tmp_path / "slice", manifest=stated)
    assert verify_release(release.folder).manifest["novelty"] == {"available": True}
    is_balanced = balance in ("novelty", "joint")
    assert (release.train["novelty_score"].null_count() == 0) == is_balanced
    if is_balanced:
        assert set(release.manifest["class_counts"]["train"]["novelty_label"].values()) == {9}


@pytest.mark.parametrize("balance", ["disruption", "novelty"])
def test_uzzi_labels_that_contradict_the_ranks_of_their_year_are_found(tmp_path: Path, balance: Any) -> None:
    works, split = make_works(), SplitConfig(n_train=60, n_test=15, balance=balance)
    thresholds = LabelThresholds(novelty_rule="uzzi")
    stated = manifest(split) | {"thresholds": asdict(thresholds)}
    stated |= {"atypicality": ATYPICALITY | {"config": asdict(NoveltyConfig(score="rank"))}}
    drawn = draw_novel(works, split, thresholds, "rank")
    folder = write_release(drawn, works, tmp_path / "ranked", manifest=stated).folder
    verify_release(folder)
    swapped = {"novel": "conventional", "conventional": "novel"}
    rewrite(folder, "train", lambda frame: frame.with_columns(pl.col("novelty_label").replace(swapped)))
    with pytest.raises(VerificationError, match="train: novelty_label of"):
        verify_release(folder)


@pytest.mark.parametrize("was_there", [True, False])
def test_files_that_a_user_puts_into_the_folder_meanwhile_are_not_replaced(tmp_path: Path, was_there: bool) -> None:
    if was_there:
        write(tmp_path / "slice")

    def meanwhile(_: Path) -> None:
        (tmp_path / "slice").mkdir(exist_ok=True)
        (tmp_path / "slice" / "thesis.tex").write_text("years of work")

    with pytest.raises(ReleaseExistsError, match="not replaced"):
        write(tmp_path / "slice", overwrite=True, extra=meanwhile)
    assert (tmp_path / "slice" / "thesis.tex").read_text() == "years of work"
    assert [path.name for path in tmp_path.iterdir()] == ["slice"]


def test_a_development_split_is_written_read_and_verified_like_the_others(original: Path, tmp_path: Path) -> None:
    split = SplitConfig(n_train=60, n_test=15, n_dev=20)
    works = make_works()
    release = write_release(draw(works, split), works, tmp_path / "slice", manifest=manifest(split))
    assert verify_release(release.folder) == read_release(release.folder)
    assert release.dev.height == 20
    assert "dev: 20 works; 7 consolidating, 7 disruptive, 6 neutral" in repr(release)
    assert release.manifest["split"]["n_dev"] == 20
    was, now = bytes_of(original), bytes_of(release.folder)
    assert {name for name, content in was.items() if now[name] != content} == {*DOCUMENTS, "manifest.json", SCORES_FILE}
    assert "n_dev" not in read_release(original).manifest["split"]  # the bytes of before
    write_release(draw(works), works, release.folder, manifest=manifest(), overwrite=True)
    assert bytes_of(release.folder) == was
    with pytest.raises(InputNotFoundError, match=r"no development split.*SplitConfig\.n_dev"):
        _ = read_release(release.folder).dev


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda folder: (folder / "dev.jsonl").unlink(), "dev.jsonl is missing"),
        (
            lambda folder: rewrite(folder, "dev", lambda frame: frame.head(10)),
            "dev: 3 rows of class consolidating, the split asks for 7",
        ),
        (
            lambda folder: rewrite(folder, "dev", lambda _: read_release(folder).train.head(20)),
            "20 works lie in both splits by id",
        ),
        (
            lambda folder: restate(folder, split=asdict(SPLIT)),
            "counts train, test, dev, its split asks for train, test",
        ),
    ],
)
def test_damage_to_a_development_split_is_found(tmp_path: Path, change: Callable[[Path], Any], says: str) -> None:
    split = SplitConfig(n_train=60, n_test=15, n_dev=20)
    works = make_works()
    release = write_release(draw(works, split), works, tmp_path / "slice", manifest=manifest(split))
    change(release.folder)
    with pytest.raises(VerificationError, match=re.escape(says)):
        verify_release(release.folder)


@pytest.mark.parametrize("balance", ["pool", "none"])
def test_which_works_of_a_pool_are_test_works_is_verified(tmp_path: Path, balance: Any) -> None:
    split = SplitConfig(n_train=60, n_test=15, n_dev=9, balance=balance)
    works = make_works()
    release = write_release(draw(works, split), works, tmp_path / "slice", manifest=manifest(split))
    verify_release(release.folder)
    train, test = release.train, release.test
    swapped = train.filter(disruption_label="neutral").head(1), test.filter(disruption_label="neutral").head(1)
    for name, out, into in (("train", *swapped), ("test", *reversed(swapped))):
        rewrite(release.folder, name, lambda frame, out=out, into=into: in_order(frame, out, into))
    with pytest.raises(VerificationError, match="2 works belong to the other split by the order of their keys"):
        verify_release(release.folder)


def in_order(frame: pl.DataFrame, out: pl.DataFrame, into: pl.DataFrame) -> pl.DataFrame:
    frame = pl.concat([frame.join(out, on="openalex_id", how="anti"), into])
    keys = split_keys(frame["openalex_id"].str.strip_prefix("W").cast(pl.Int64))
    return frame.with_columns(keys).sort("split_key").drop("split_key")
