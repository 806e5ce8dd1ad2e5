"""A ceiling is that of the model that the server holds, or there is none."""

from __future__ import annotations

import pytest

from harness.options import Options
from harness.progress import ConsoleReporter
from harness.serving.ceilings import ServingCeilings
from harness.serving.plan import make_plan
from harness.serving.told import Told
from harness.workload import Case


@pytest.fixture
def plan():
    elsewhere = {"base_url": "http://192.0.2.7:8080/v1", "on": "RTX 5090"}
    return make_plan(Options(models=("llama-3.2-1b",), weights=("bf16",), backends=("openai",), **elsewhere))


def test_a_server_that_holds_other_weights_has_no_ceiling(plan):
    """1 235 814 400 parameters of 2 B are 2.47 GB; a quarter of that is 4 bits."""
    ceilings = ServingCeilings(plan, Told(weight_bytes=620_000_000), ConsoleReporter())
    values, missing = ceilings.columns(Case(0, 512, 128), {"decode_tok_s": 1.0}, None)
    assert not values
    assert missing["decode_ceiling_spec_tok_s"] == (
        "the server holds 620 MB of weights, and llama-3.2-1b in bf16 is 2.47 GB: another model or format"
    )


def test_a_server_that_holds_these_weights_has_one(plan):
    ceilings = ServingCeilings(plan, Told(weight_bytes=2_471_628_800), ConsoleReporter())
    values, _ = ceilings.columns(Case(0, 512, 128), {"decode_tok_s": 1.0}, None)
    assert values["decode_ceiling_spec_tok_s"] > 0
