"""Whatever file or folder somebody names, verify and describe say what to name instead."""

from __future__ import annotations

import pytest

from sciscidata.config import BuildConfig
from sciscidata.errors import InputNotFoundError
from sciscidata.pipeline import build
from sciscidata.release.verify import verify
from sciscidata.sampling.config import SplitConfig
from sciscidata.sources.synthetic.source import SyntheticConfig


@pytest.fixture(scope="module")
def release(tmp_path_factory):
    home = tmp_path_factory.mktemp("kinds")
    split = SplitConfig(n_train=30, n_test=3)
    config = BuildConfig(source=SyntheticConfig(n_works=2_000), out=home / "slice", split=split, cache_dir=home / "c")
    return build(config).folder


@pytest.mark.parametrize("name", ["manifest.json", "train.parquet", "test.jsonl", "disruption.png"])
def test_a_file_of_a_release_leads_to_its_folder(release, name):
    with pytest.raises(InputNotFoundError) as caught:
        verify(release / name)
    assert str(caught.value) == f"{release / name} is a file of a release. Give the path of the folder: {release}."


def test_files_of_a_corpus_lead_to_its_folder(tmp_path):
    from sciscidata.stages import ingest

    ingest(SyntheticConfig(n_works=500), tmp_path / "corpus", cache_dir=tmp_path / "cache")
    parts = sorted((tmp_path / "corpus").rglob("*.parquet"))
    for file in (tmp_path / "corpus" / "corpus.json", parts[-1]):
        with pytest.raises(
            InputNotFoundError, match=f"is a file of a corpus. Give the path of the folder: {tmp_path / 'corpus'}"
        ):
            verify(file)
    assert verify(tmp_path / "corpus").kind == "corpus"
