"""Fields of a configuration are checked against their type hints, with one form of message."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
import numpy as np
import pytest

from sciscidata.disruption.config import CDConfig
from sciscidata.errors import ConfigError
from sciscidata.options.checks import Folder, Hint, Share, check_fields, convert


@dataclass(frozen=True, kw_only=True, slots=True)
class Options:
    n: Annotated[int, msgspec.Meta(ge=0, le=10_000)] = 0
    least: Annotated[int, msgspec.Meta(ge=1)] | None = None
    seed: int = 0
    share: Share = 0.5
    rate: Annotated[float, msgspec.Meta(gt=0)] = 1.0
    drop: Annotated[float, msgspec.Meta(ge=0, lt=1)] = 0.5
    cut: float | None = None
    on: bool = False
    rule: Literal["margin", "uzzi"] = "margin"
    mode: Literal["a"] | Literal["b"] | None = None
    name: str | None = None
    folder: Folder = "here"
    out: Path = Path("out")
    words: tuple[str, ...] = ()
    files: Annotated[tuple[Path, ...], msgspec.Meta(min_length=1)] = (Path("x"),)
    years: tuple[int, int] | None = None
    key: str | None = field(default=None, repr=False)
    url: str = field(default="u", metadata={"secret": True})
    store: Mapping[str, Any] | None = None
    cd: CDConfig = field(default_factory=CDConfig)
    other: CDConfig | None = None

    def __post_init__(self) -> None:
        check_fields(self)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n": -1}, "Options.n is -1, needs a whole number from 0 to 10,000."),
        ({"n": 10**5000}, "Options.n is of type int, needs a whole number"),
        ({"n": True}, "Options.n is True, needs a whole number"),
        ({"n": "\udcff"}, "Options.n is '\\udcff', needs a whole number"),
        ({"n": None}, "Options.n is None, needs a whole number"),
        ({"least": 0}, "Options.least is 0, needs a whole number from 1, or None."),
        ({"seed": 1.5}, "Options.seed is 1.5, needs a whole number."),
        ({"share": 1.5}, "Options.share is 1.5, needs a number from 0 to 1."),
        ({"share": math.nan}, "Options.share is nan, needs a finite number from 0 to 1."),
        ({"rate": math.inf}, "Options.rate is inf, needs a finite number above 0."),
        ({"drop": 1}, "Options.drop is 1, needs a number from 0, below 1."),
        ({"cut": -math.inf}, "Options.cut is -inf, needs a finite number, or None."),
        ({"on": 1}, "Options.on is 1, needs True or False."),
        ({"rule": "median"}, "Options.rule is 'median', needs one of margin, uzzi."),
        ({"mode": "c"}, "Options.mode is 'c', needs one of a, b, or None."),
        ({"name": 3}, "Options.name is 3, needs text, or None."),
        ({"folder": ""}, "Options.folder is '', needs the path of a folder."),
        ({"folder": "a\0b"}, "Options.folder is 'a\\x00b', needs text without a NUL character."),
        ({"out": 5}, "Options.out is 5, needs a path."),
        ({"words": (Path("x"),)}, "needs a list of texts."),
        ({"files": ()}, "Options.files is (), needs a list of at least one path."),
        ({"years": (2000,)}, "Options.years is (2000,), needs two whole numbers, or None."),
        ({"key": ["hush"]}, "Options.key is of type list, needs text, or None."),
        ({"url": ["hush"]}, "Options.url is of type list, needs text."),
        ({"store": [1]}, "Options.store is [1], needs a dict, or None."),
        ({"cd": {"window_years": 5}}, "Options.cd is {'window_years': 5}, needs a CDConfig."),
        ({"cd": None}, "Options.cd is None, needs a CDConfig."),
        ({"name": ["x" * 1000]}, "x..., needs text, or None."),
    ],
)
def test_a_value_that_does_not_fit_its_hint_is_named_with_what_is_needed(options, message):
    with pytest.raises(ConfigError, match=re.escape(message)) as caught:
        Options(**options)
    assert len(str(caught.value)) < 400
    assert "hush" not in str(caught.value)


def test_values_take_the_type_of_their_hint():
    made = Options(
        share=1, cut=np.float64(0.5), words=["a"], files=["a", Path("b")], folder=Path("f"), out="o", years=[1, 2],
        seed=10**30, store={"a": 1}, cd=CDConfig(window_years=3),
    )  # fmt: skip
    assert (type(made.share), type(made.cut)) == (float, float)
    assert (made.words, made.files, made.years) == (("a",), (Path("a"), Path("b")), (1, 2))
    assert (made.folder, made.out, made.seed) == ("f", Path("o"), 10**30)
    assert (made.store, made.cd.window_years) == ({"a": 1}, 3)


def test_another_error_can_be_asked_for_and_a_name_that_is_no_text_is_a_path():
    @dataclass(frozen=True)
    class Bad:
        n: int

        def __post_init__(self) -> None:
            check_fields(self, KeyError)

    with pytest.raises(KeyError, match="needs a whole number"):
        Bad("x")
    assert Options(out="slice\udcff", folder="\udcff").folder == "\udcff"
    assert convert("a", Hint(Path | None)) == Path("a")
