"""JSON that any reader accepts, with nothing lost."""

import json
import math

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from flowbias.apps.data_files import to_json

# What infinities are written as; no text of the program is one of these.
INFINITE = ("Infinity", "-Infinity")
TEXTS = st.text().filter(lambda text: text not in INFINITE)


@example([math.nan, [math.inf, -math.inf]])
@given(st.recursive(st.floats() | TEXTS | st.none(), st.lists))
def test_every_value_is_json_and_comes_back(value):
    def restored(entry):
        if isinstance(entry, list):
            return [restored(part) for part in entry]
        return float(entry) if entry in INFINITE else entry

    def without_nan(entry):
        if isinstance(entry, list):
            return [without_nan(part) for part in entry]
        return None if isinstance(entry, float) and math.isnan(entry) else entry

    text = to_json(value)
    assert "\n" not in text
    assert restored(json.loads(text, parse_constant=pytest.fail)) == without_nan(value)
