"""What is written is what is read."""

import tomllib

from hypothesis import given
from hypothesis import strategies as st

from holdfast.train.experiments.schema import to_toml

# Text as TOML can hold it: every character but lone surrogates.
texts = st.text(st.characters(exclude_categories=["Cs"]))
scalars = st.one_of(st.booleans(), st.integers(), st.floats(allow_nan=False), texts)
values = st.one_of(scalars, st.lists(scalars, max_size=3), st.lists(st.lists(scalars, max_size=2), max_size=2))
tables = st.recursive(
    st.dictionaries(texts, values, max_size=4),
    lambda inner: st.dictionaries(texts, st.one_of(values, inner), max_size=4),
    max_leaves=8,
)


@given(tables)
def test_round_trip(table):
    found = tomllib.loads(to_toml(table))
    assert found == table
    assert _types(found) == _types(table)


def _types(value):
    """True is 1 and 1 is 1.0 to ``==``, but not in a recipe."""
    if isinstance(value, dict):
        return {key: _types(item) for key, item in value.items()}
    return [_types(item) for item in value] if isinstance(value, list) else type(value)


def test_none_is_left_out_and_tuples_are_lists():
    assert tomllib.loads(to_toml({"a": None, "b": {"c": None}, "d": (1, 2)})) == {"b": {}, "d": [1, 2]}


def test_it_reads_well():
    text = to_toml({"seed": 0, "data": {"train": {"name": "glyphs", "split": "train"}}, "train": {"lr": 0.1}})
    assert text == 'seed = 0\n\n[data.train]\nname = "glyphs"\nsplit = "train"\n\n[train]\nlr = 0.1\n'
