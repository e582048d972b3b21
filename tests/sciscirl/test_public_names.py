"""A wrong public name."""

import pytest

import sciscirl


def test_there_are_few_public_names():
    assert len(set(sciscirl.__all__) - {"__version__"}) <= 30


@pytest.mark.parametrize(("name", "meant"), [("find_presets", "find_preset"), ("PredictionError", "errors.")])
def test_a_wrong_public_name_is_answered_with_the_right_one(name, meant):
    with pytest.raises(AttributeError, match=rf"sciscirl has no '{name}'\. Did you mean sciscirl\.{meant}"):
        getattr(sciscirl, name)
