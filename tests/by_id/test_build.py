"""A release of one's own population: the works of a list, or of a filter of OpenAlex; without either, no byte moves."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import polars as pl
import pytest

from sciscidata import (
    ApiConfig,
    BuildConfig,
    CorpusConfig,
    EligibilityConfig,
    ExampleConfig,
    OpenAlexConfig,
    SplitConfig,
    build,
    ingest,
    scan_example,
    verify,
)
from sciscidata.cli.main import main
from sciscidata.errors import ConfigError, NotEnoughWorksError, SciSciDataError
from sciscidata.sources.example.source import WORKS_FILE
from tests.servers.openalex_server import OpenAlexServer

KEY = "a-secret-key-1234"
SPLIT = SplitConfig(n_train=18, n_test=6)


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    return tmp_path_factory.mktemp("home")


@pytest.fixture(scope="module")
def population(home) -> tuple[Path, set[str]]:
    """Every second work, by DOI in capitals where it has one; and two that no source has."""
    some = scan_example().works.filter(pl.col("work_id") % 2 == 0).select("work_id", "doi").collect()
    listed = [f"https://doi.org/{doi.upper()}" if doi else f"W{number}" for number, doi in some.rows()]
    path = home / "population.csv"
    path.write_text("\n".join(["paper", *listed, "10.9999/none", "W1"]))
    return path, {f"W{number}" for number in some["work_id"]}


@pytest.fixture(scope="module")
def server():
    with OpenAlexServer(WORKS_FILE, key=KEY) as server:
        yield server


def released(release) -> set[str]:
    return {*pl.concat([release.train, release.test])["openalex_id"]}


def api(server: OpenAlexServer) -> ApiConfig:
    return ApiConfig(base_url=server.base_url, api_key=KEY, requests_per_second=1e6)


def test_only_listed_works_are_drawn_and_the_manifest_names_the_list(home, population):
    path, ids = population
    config = BuildConfig(source=ExampleConfig(), ids=path, out=home / "a", cache_dir=home / "c", split=SPLIT)
    release = build(config)
    assert released(release) <= ids
    listed = release.manifest["eligibility"]["listed"]
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    assert listed == {"file": "population.csv", "sha256": digest, "ids": len(ids) + 2, "works": len(ids)}
    counts = release.manifest["counts"]["filters"]
    assert counts["unlisted"] == counts["works"] - len(ids)
    assert str(home) not in json.dumps(release.manifest)
    verify(release.folder)
    ingest(ExampleConfig(), home / "corpus", cache_dir=home / "c")
    source = CorpusConfig(folder=str(home / "corpus"))
    of_corpus = build(BuildConfig(source=source, ids=path, out=home / "b", cache_dir=home / "c", split=SPLIT))
    assert released(of_corpus) == released(release)


def test_a_repeated_build_asks_for_the_list(home, population, capsys):
    path, _ = population
    release = build(
        BuildConfig(source=ExampleConfig(), ids=path, out=home / "first", cache_dir=home / "c", split=SPLIT)
    )
    again = ["build", "--from-manifest", str(release.folder), "--cache-dir", str(home / "c"), "--out"]
    assert main([*again, str(home / "again")]) == 1
    assert "Name their file: --ids." in capsys.readouterr().err
    assert main([*again, str(home / "again"), "--ids", str(path)]) == 0
    assert "the lines of train and test are those of" in capsys.readouterr().out


def test_the_api_draws_from_a_list_without_a_sample(home, population, server):
    path, ids = population
    source = OpenAlexConfig(from_year=1960, to_year=2022)
    settings = {"source": source, "ids": path, "cache_dir": home / "c", "split": SPLIT, "api": api(server)}
    release = build(BuildConfig(out=home / "by_api", **settings))
    assert released(release) <= ids
    assert not [entry for entry in server.log if "sample=" in entry.request]
    assert release.manifest["counts"]["filters"]["unlisted"] == 0
    verify(release.folder)


@pytest.mark.parametrize(
    "text",
    ["publication_year:2000-2004", "https://api.openalex.org/works?filter=publication_year%3A2000-2004&per-page=25"],
)
def test_the_api_samples_within_a_filter_as_text_or_as_pyalex_writes_it(home, server, text):
    source = OpenAlexConfig(from_year=1960, to_year=2022, filter=text)
    assert source.filter == "publication_year:2000-2004"
    settings = {"cache_dir": home / "c", "split": SPLIT, "api": api(server)}
    release = build(BuildConfig(source=source, out=home / f"filter_{len(text)}", **settings))
    years = pl.concat([release.train, release.test])["publication_year"]
    assert 2000 <= years.min() <= years.max() <= 2004
    assert release.manifest["source"]["own_filter"] == "publication_year:2000-2004"
    assert release.manifest["source"]["filter"].endswith(",publication_year:2000-2004")


def test_a_repeated_build_has_the_filter(home, server, capsys, monkeypatch):
    monkeypatch.setenv("OPENALEX_API_KEY", KEY)
    common = ["--cache-dir", str(home / "c"), "--base-url", server.base_url]
    words = ["--from-year", "1960", "--to-year", "2022", "--n-train", "18", "--n-test", "6", *common]
    first = home / "by_flag"
    assert main(["build", "--filter", "publication_year:2000-2004", *words, "--out", str(first)]) == 0
    assert main(["build", "--from-manifest", str(first), *common, "--out", str(home / "by_flag_again")]) == 0
    assert "the lines of train and test are those of" in capsys.readouterr().out


def test_a_settings_file_names_the_list_and_the_filter(home, population, capsys):
    path, _ = population
    file = home / "settings.toml"
    file.write_text(f'source = "openalex"\nids = "{path}"\nid_column = "doi"\n[openalex]\nfilter = "type:article"\n')
    assert main(["build", "--config", str(file), "--print-config"]) == 0
    said = capsys.readouterr().out
    assert f'ids = "{path}"' in said
    assert 'id_column = "doi"' in said
    assert 'filter = "type:article"' in said


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("articles", "OpenAlexConfig.filter has 'articles', needs name:value"),
        ("", "OpenAlexConfig.filter has '', needs name:value"),
        (" ", "OpenAlexConfig.filter has '', needs name:value"),
        ("type:article,", "OpenAlexConfig.filter has '', needs name:value"),
        ("https://api.openalex.org/works?search=dams", "needs an address with one filter and no search"),
        ("https://api.openalex.org/works?sort=x&filter=type:article", "one filter and no sort"),
    ],
)
def test_a_wrong_filter_is_refused_before_anything_is_asked(text, message):
    with pytest.raises(ConfigError, match=message):
        OpenAlexConfig(filter=text)


def test_a_list_and_a_filter_are_not_both_asked_for(home, population, server):
    path, _ = population
    source = OpenAlexConfig(filter="type:article")
    with pytest.raises(ConfigError, match=r"BuildConfig\.ids names the works"):
        build(BuildConfig(source=source, ids=path, out=home / "x", cache_dir=home / "c", api=api(server)))


def test_a_list_of_unknown_works_is_one_clear_error(home, tmp_path, caplog):
    (tmp_path / "none.txt").write_text("10.9999/none\nW1\n")
    with pytest.raises(NotEnoughWorksError, match=r"BuildConfig\.ids is '.*none\.txt', of whose 2 ids .* 0 works"):
        build(BuildConfig(source=ExampleConfig(), ids=tmp_path / "none.txt", out=home / "y", cache_dir=home / "c"))
    assert "build the citation graph" not in caplog.text
    assert "disruption" not in caplog.text
    with pytest.raises(SciSciDataError, match="does not exist"):
        build(BuildConfig(source=ExampleConfig(), ids=tmp_path / "no.txt", out=home / "y", cache_dir=home / "c"))
    assert not (home / "y").exists()


def test_a_release_without_a_list_says_nothing_of_one(home):
    release = build(BuildConfig(source=ExampleConfig(), out=home / "plain", cache_dir=home / "c", split=SPLIT))
    assert "listed" not in release.manifest["eligibility"]
    assert "unlisted" not in release.manifest["counts"]["filters"]
    assert EligibilityConfig().stated()["listed"] is None


def test_the_dry_run_counts_the_works_of_the_list(home, population, capsys):
    path, ids = population
    if not (home / "corpus").exists():
        ingest(ExampleConfig(), home / "corpus", cache_dir=home / "c")
    assert main(["build", "--corpus", str(home / "corpus"), "--ids", str(path), "--dry-run"]) == 0
    assert f"from {len(ids) + 2:,} ids: {len(ids):,} works of the source" in capsys.readouterr().out


def test_a_list_that_is_too_short_is_named_at_once(home, tmp_path, capsys):
    path = tmp_path / "short.txt"
    path.write_text("W2013970299\nW1\n")
    words = ["build", "--source", "example", "--ids", str(path), "--out", str(home / "z")]
    assert main(words) == 1
    error = capsys.readouterr().err
    assert f"--ids is '{path}', of whose 2 ids the source has 1 work, and 150 are to be drawn" in error
    assert "--n-train" in error
    assert main([*words, "--dry-run"]) == 0
    assert "too few works in the list: 2 at most, 150 wanted" in capsys.readouterr().out
