"""Whose machine the server's is, and what is refused before it is called."""

from __future__ import annotations

import dataclasses

import pytest

from harness.errors import UserError
from harness.machine.hardware import Gpu, inspect
from harness.options import Options
from harness.serving.plan import make_plan

LOCAL, ELSEWHERE = "http://127.0.0.1:8080/v1", "http://192.0.2.7:8080/v1"
RTX_5090 = Gpu("nvidia", "NVIDIA GeForce RTX 5090", 34_190_917_632)


@pytest.fixture
def plan(monkeypatch):
    """Of a server that is asked from a machine with these GPUs."""
    here = inspect()

    def make(base_url=LOCAL, *gpus, **options):
        monkeypatch.setattr("harness.serving.plan.inspect", lambda: dataclasses.replace(here, gpus=gpus))
        return make_plan(Options(**{"models": ("m",), "backends": ("openai",), "base_url": base_url, **options}))

    return make


def test_a_server_on_loopback_is_this_machine_whichever_of_its_memories_is_named(plan):
    plain = plan(LOCAL, RTX_5090)
    named = plan(LOCAL, RTX_5090, on="RTX 5090")
    assert named.machine
    assert named.label == plain.label, "rows of engines in process have that label, too"
    assert named.device.id == "rtx-5090"


def test_a_device_that_this_machine_lacks_is_at_the_other_end_of_a_tunnel(plan):
    found = plan(LOCAL, on="RTX 5090")
    assert found.machine is None
    assert "5090" in found.label


def test_a_server_elsewhere_needs_a_name(plan):
    with pytest.raises(UserError, match="--machine"):
        plan(ELSEWHERE)
    assert plan(ELSEWHERE, machine="lab").label == "lab"
    assert plan(ELSEWHERE, RTX_5090, on="RTX 5090").machine is None


def test_files_that_tell_no_shape_are_a_note(plan, tmp_path):
    (tmp_path / "empty.gguf").touch()
    found = plan(LOCAL, models=(str(tmp_path / "empty.gguf"),))
    assert found.source is None
    assert any("empty.gguf" in note for note in found.notes)
    assert not plan(LOCAL, models=("any name",)).notes


def test_a_case_that_the_models_context_cannot_hold_is_refused(plan):
    """gpt2-mini has 256 positions; llama_cpp.server dies of one more."""
    at_most = {"models": ("gpt2-mini",), "n_depth": (100,), "n_prompt": (100,)}
    assert plan(**at_most, n_gen=(56,)).cases
    with pytest.raises(UserError, match=r"gpt2-mini holds 256 tokens, but depth 100 .* is 257; lower"):
        plan(**at_most, n_gen=(57,))


REFUSED = {
    "one request has no rate": ({"rate": 2.0, "batch": (1, 8)}, "--concurrency"),
    "no prompt": ({"n_prompt": (0,)}, "-p 0"),
    "no cache": ({"kv_cache": ("off",)}, "--kv-cache off"),
    "a cached prefix of nothing": ({"kv_cache": ("prefix",)}, "-d"),
    "two formats": ({"weights": ("q4_0", "bf16")}, "one format"),
    "two models": ({"models": ("a", "b")}, "one -m"),
    "an address with more behind it": ({"base_url": f"{LOCAL}?api-version=1"}, r"\?"),
}


@pytest.mark.parametrize(("options", "words"), REFUSED.values(), ids=REFUSED)
def test_what_no_server_can_be_asked_is_refused(options, words):
    with pytest.raises(UserError, match=words):
        make_plan(Options(**{"models": ("m",), "backends": ("openai",), "base_url": LOCAL, **options}))
