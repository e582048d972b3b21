"""What a notebook shows of objects: small tables, escaped, in the colours of the page."""

from __future__ import annotations

import dataclasses
import re

import pytest

import sciscidata as ssd
from sciscidata.cli.settings import SECTIONS
from sciscidata.graph.graph import build_graph
from sciscidata.novelty.background import read_background, write_null_model


@pytest.mark.parametrize("kind", [*SECTIONS.values(), ssd.BuildConfig, ssd.CommonnessConfig, ssd.WangConfig])
def test_every_configuration_has_a_table(kind):
    assert kind._repr_html_


def test_a_configuration_shows_all_options_and_what_was_changed_in_bold():
    table = ssd.CDConfig(window_years=10)._repr_html_()
    assert re.findall(r"<b>(.*?)</b>", table) == ["CDConfig", "10"]
    assert table.count("<tr>") == len(dataclasses.fields(ssd.CDConfig))
    vile = ssd.RecordsConfig(inputs=("<script>.jsonl",))._repr_html_()
    assert "<script>" not in vile
    assert "&lt;script&gt;.jsonl" in vile


def test_a_key_is_not_shown():
    assert "hunter2" not in ssd.ApiConfig(api_key="hunter2hunter2")._repr_html_()


def test_a_graph_a_background_and_a_release_show_their_counts(tmp_path):
    works, citations, _ = ssd.scan_synthetic(ssd.SyntheticConfig(n_works=1_000))
    graph = build_graph(works, citations)
    assert f">{graph.n_citations:,}<" in graph._repr_html_()
    background = read_background(write_null_model(works, citations, tmp_path / "<b>pairs.parquet"))
    assert "&lt;b&gt;pairs.parquet" in background._repr_html_()
    assert f">{int(background.counts['n_pairs'].sum()):,}<" in background._repr_html_()
    release = ssd.read_release.__globals__["Release"](tmp_path / "<i>", {"sides": {}})
    assert "<i>" not in release._repr_html_()
    for shown in (graph, background, release):
        assert not re.search(r"#[0-9a-f]{3}", shown._repr_html_().replace("&#x", ""))  # no colour of its own
