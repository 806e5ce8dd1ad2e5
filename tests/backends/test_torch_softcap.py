"""Capped scores, against the attention that transformers has for Gemma 2."""

from types import SimpleNamespace

import pytest
import torch
from transformers.models.gemma2.modeling_gemma2 import eager_attention_forward

from backends.torch import softcap
from backends.torch.attention import attend

CAP, SCALE = 0.7, 0.3
MODULE = SimpleNamespace(num_key_value_groups=2, training=False)


def draw(n, context):
    generator = torch.Generator().manual_seed(4)
    query = 3 * torch.randn(2, 4, n, 8, generator=generator)
    key, value = (3 * torch.randn(2, 2, context, 8, generator=generator) for _ in range(2))
    return query, key, value


def expected(query, key, value, seen):
    mask = torch.zeros(seen.shape).masked_fill(~seen, -torch.inf)
    return eager_attention_forward(MODULE, query, key, value, mask[None, None], scaling=SCALE, softcap=CAP)[0]


@pytest.mark.parametrize("window", [None, 3, 20])
@pytest.mark.parametrize("n", [1, 5, 9])
def test_the_last_tokens_of_a_context(n, window, monkeypatch):
    monkeypatch.setattr(softcap, "_SCORES_BYTES", 4 * 2 * 4 * 9 * 2)  # two rows of queries at once
    query, key, value = draw(n, 9)
    ages = torch.arange(9)[-n:, None] - torch.arange(9)
    got, _ = attend(None, query, key, value, None, scaling=SCALE, sliding_window=window, softcap=CAP)
    seen = (ages >= 0) & (ages < (window or 9))
    torch.testing.assert_close(got, expected(query, key, value, seen))
    uncapped, _ = attend(None, query, key, value, None, scaling=SCALE, sliding_window=window)
    assert (got - uncapped).abs().max() > 0.1


@pytest.mark.parametrize("window", [None, 7])
def test_a_step_over_a_whole_buffer(window):
    query, key, value = draw(1, 128)
    slots = torch.arange(128)
    seen = (slots < 20) & (slots >= 20 - (window or 20))
    mask = (slots < 20)[None, None, None]
    got, _ = attend(None, query, key, value, mask, scaling=SCALE, sliding_window=window, softcap=CAP)
    torch.testing.assert_close(got, expected(query, key, value, seen[None]))
