"""The documents of a release: what they say, which libraries read it by them, and who may change them."""

from __future__ import annotations

import json
import shutil
from itertools import accumulate
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from sciscidata import BuildConfig, OwnLabel, SplitConfig, SyntheticConfig, build, verify
from sciscidata.errors import ReleaseExistsError, VerificationError
from sciscidata.label_thresholds import VOCABULARIES
from sciscidata.release.documents import Publication, render_documents
from sciscidata.release.findings import say_classes
from sciscidata.release.manifest import DOCUMENTS
from sciscidata.release.read import Release, read_manifest
from sciscidata.release.release import check_target
from tests.release.test_release import write

OWN = OwnLabel(
    name="early_label",
    classes=("early", "late"),
    sql="CASE WHEN publication_year < 2000 THEN 'early' ELSE 'late' END",
    question="Is it | old?",
)


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory) -> Release:
    home = tmp_path_factory.mktemp("documents")
    split = SplitConfig(n_train=60, n_test=9, n_dev=6)
    settings: dict[str, Any] = {"source": SyntheticConfig(n_works=3_000), "split": split, "label": OWN}
    return build(BuildConfig(**settings, out=home / "slice", cache_dir=home / "cache"))


@pytest.fixture
def copy(release: Release, tmp_path: Path) -> Path:
    return Path(shutil.copytree(release.folder, tmp_path / "copy"))


def header_of(card: str) -> dict[str, Any]:
    return yaml.safe_load(card.split("---\n")[1])


def test_the_documents_say_what_the_manifest_says(release: Release) -> None:
    assert {*DOCUMENTS} < {*release.manifest["files"]}
    card = (release.folder / "README.md").read_text("utf-8")
    header = header_of(card)
    assert header["license"] == "cc0-1.0"
    assert header["size_categories"] == ["n<1K"]
    assert {"synthetic", "novelty"} < {*header["tags"]}
    info = header["dataset_info"][0]
    assert [part["num_examples"] for part in info["splits"]] == [60, 9, 6]
    assert [feature["name"] for feature in info["features"]] == release.train.columns
    filters = release.manifest["counts"]["filters"]
    assert f"| read | {filters['works']:,} |" in card
    assert f"| no abstract | -{filters['no_abstract']:,} |" in card
    assert f"| may be drawn | {filters['eligible']:,} |" in card
    assert "disruptive if the index is at least 0.001" in card
    assert "n_j cite it and at least one of its references" in " ".join(card.split())
    assert r"`early_label`: early, late. Is it \| old?" in card
    classes = release.manifest["counts"]["judged"]["eligible"]["disruption_label"]
    finding = say_classes({word: classes[word] for word in VOCABULARIES["disruption_label"]}, is_synthetic=True)
    assert f"![{finding}](disruption.png)\n\n{finding}.\n" in card
    assert "novelty_by_year.png" not in card  # a trend is no finding
    assert "- The filter 'no citer in the window' removed almost only works of one class: " in card
    assert "?" not in card.partition("## Known biases")[2].partition("## Licence")[0]
    citation = yaml.safe_load((release.folder / "CITATION.cff").read_text("utf-8"))
    assert {"cff-version", "message", "title", "authors"} < {*citation}
    assert citation["references"][0]["doi"] == "10.1287/mnsc.2015.2366"
    facts = Publication(("Lovelace, Ada",), "2026-11-23", "https://example.org")
    published = render_documents(release.manifest, facts)
    cited = yaml.safe_load(published["CITATION.cff"])
    assert (cited["url"], cited["authors"]) == (facts.url, [{"family-names": "Lovelace", "given-names": "Ada"}])
    assert b"  url = {https://example.org}," in published["README.md"]
    assert "--creator" in card
    assert b"--creator" not in published["README.md"]
    assert json.loads(published["croissant.json"])["datePublished"] == facts.date


def test_a_card_shows_one_work_what_a_model_can_reach_and_what_each_column_holds(release: Release) -> None:
    card = (release.folder / "README.md").read_text("utf-8")
    work, scores = release.train.row(0, named=True), release.scores.row(0, named=True)
    assert f"| title | {work['title']} |" in card
    ratio = "({n_i:,} - {n_j:,}) / ({n_i:,} + {n_j:,} + {n_k:,}) = ".format(**scores)
    assert f"| CD index | {ratio}{work['cd_index']:.2f} |" in card
    back = 100 * release.label_confidence["label_confidence"][0]
    assert (
        f"| comes back | cited anew, {back:.0f} of 100 works like it would be {work['disruption_label']} again |"
        in card
    )
    assert f"| early\\_label | {work['early_label']} |".replace("\\", "") in card
    assert "> **Before you train.** Labels are unsure. Cited anew, " in card
    best = 100 * release.manifest["ceiling"]["accuracy"]
    assert f"The best possible model gets {best:.0f} % right here; guessing gets 33 %. With 9 test works, " in card
    listed = card.partition("| column | type |")[2].partition("\n\n")[0]
    assert [line.split("`")[1] for line in listed.splitlines()[2:]] == release.train.columns
    published = render_documents(release.manifest, Publication(repository="ada/slices"))["README.md"].decode()
    assert 'load_dataset("ada/slices", split="train")' in published


@pytest.mark.parametrize(
    ("changes", "licence", "says"),
    [
        (
            {"source": {"kind": "sciscinet", "scores": "as published, over all years"}},
            "other",
            "SciSciNet's disruption",
        ),
        ({"source": {"kind": "openalex"}, "cd": {"window_years": None}}, "cc0-1.0", "published 1 or more years later"),
        ({"source": {"kind": "labelled", "labels": "trust"}}, "unknown", "read from labelled files"),
        ({"source": {}, "eligibility": {"languages": None}}, "unknown", "Novelty fields are null"),
    ],
)
def test_a_card_follows_from_whatever_a_manifest_states(
    tmp_path: Path, changes: dict[str, Any], licence: str, says: str
) -> None:
    manifest = read_manifest(write(tmp_path / "slice").folder) | changes
    card = render_documents(manifest)["README.md"].decode()
    assert header_of(card)["license"] == licence
    assert says in card
    assert "| train |" in card


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of what mlcroissant calls
def test_five_libraries_read_the_same_rows(release: Release, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    pandas, duckdb = pytest.importorskip("pandas"), pytest.importorskip("duckdb")
    datasets, mlcroissant = pytest.importorskip("datasets"), pytest.importorskip("mlcroissant")
    for split in release.splits:
        file, expected = release.folder / f"{split}.parquet", getattr(release, split).rows(named=True)
        assert pl.read_parquet(file).rows(named=True) == expected
        assert pl.DataFrame(duckdb.read_parquet(str(file)).to_arrow_table()).rows(named=True) == expected
        frame = pl.from_pandas(pandas.read_parquet(file), schema_overrides=getattr(release, split).schema)
        assert frame.rows(named=True) == expected
        found = datasets.load_dataset(str(release.folder), split=split, cache_dir=str(tmp_path / "cache"))
        assert found.to_list() == expected
        described = mlcroissant.Dataset(jsonld=str(release.folder / "croissant.json"))
        assert not described.metadata.ctx.issues.errors
        rows = [
            {name.partition("/")[2]: plain(value) for name, value in row.items()} for row in described.records(split)
        ]
        assert rows == expected
    scores = datasets.load_dataset(str(release.folder), "scores", split="works", cache_dir=str(tmp_path / "cache"))
    assert scores.to_list() == release.scores.rows(named=True)


def plain(value: Any) -> Any:
    """Croissant gives texts as bytes, and NaN for null."""
    if isinstance(value, bytes):
        return value.decode()
    if isinstance(value, list):
        return [plain(one) for one in value]
    return None if value is None or value != value else value


def test_what_hubs_add_or_change_is_accepted_and_changed_data_are_not(copy: Path) -> None:
    for name in (".gitattributes", ".git/HEAD", ".cache/huggingface/download/train.lock"):
        (copy / name).parent.mkdir(parents=True, exist_ok=True)
        (copy / name).write_text("of a hub")
    with (copy / "README.md").open("a") as card:
        card.write("Read our paper.\n")
    assert verify(copy).changed == ("README.md",)
    with pytest.raises(ReleaseExistsError, match=r"not part of the release \(\.git\)"):
        check_target(copy, overwrite=True)
    shutil.rmtree(copy / ".git")
    check_target(copy, overwrite=True)
    (copy / ".cache" / "thesis.tex").write_text("years of work")
    with pytest.raises(VerificationError, match=r"\.cache/thesis\.tex is not part of the release"):
        verify(copy)
    with pytest.raises(ReleaseExistsError, match=r"thesis\.tex"):
        check_target(copy, overwrite=True)
    (copy / ".cache" / "thesis.tex").unlink()
    with (copy / "train.jsonl").open("a") as lines:
        lines.write("{}\n")
    with pytest.raises(VerificationError, match=r"train\.jsonl: sha256"):
        verify(copy)


@given(text=st.text(st.sampled_from('{}\\%$&_~^"#@,= ab'), max_size=12))
@example(text="1}, url = {http://a.example")
def test_no_sign_in_a_manifest_or_a_name_breaks_the_bibtex_of_a_card(release: Release, text: str) -> None:
    manifest = {**release.manifest, "versions": {"sciscidata": text}}
    publication = Publication((f"Lovelace, Ada {text}",), "2026-11-28", f"https://a.example/{text}")
    card = render_documents(manifest, publication)["README.md"].decode()
    first, *fields, last = card.partition("```bibtex\n")[2].partition("\n```")[0].splitlines()
    assert (first, last) == ("@misc{sciscidata_release,", "}")
    assert [field.split()[0] for field in fields] == ["title", "author", "year", "url", "note"]
    for field in fields:
        value = field.partition(" = {")[2].removesuffix("},")
        depths = list(accumulate({"{": 1, "}": -1}.get(sign, 0) for sign in value))
        assert min(depths, default=0) >= 0
        assert depths[-1:] in ([0], [])
        assert not value.endswith("\\")
