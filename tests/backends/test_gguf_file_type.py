"""Numbers as llama.cpp's `enum llama_ftype` has them."""

from __future__ import annotations

import pytest

from backends.gguf_file_type import file_type_name


@pytest.mark.parametrize(
    ("number", "name"),
    [(0, "f32"), (1, "f16"), (7, "q8_0"), (15, "q4_k_m"), (32, "bf16"), (9999, None)],
)
def test_a_file_type_has_its_usual_name(number, name):
    assert file_type_name(number) == name
