"""The published rates that come with tokenroof, as rows: known machines to set one's own beside.

They are marked as published, each with its address. Where the workload was not published, a row stands for one step at
the context that `published.csv` supposes, and says so. Their prompts' lengths were not collected, so a prompt rate is
told in `unavailable` only.
"""

from __future__ import annotations

import csv
import hashlib
import re
from importlib import resources
from typing import Any

from results.published import PublishedRate, load_published
from results.schema import SCHEMA_VERSION

_NATIVE = "N over N intervals"
_OLLAMA = "llama.cpp/Ollama"


def published_rows() -> list[dict[str, Any]]:
    """One row a usable published rate.

    Raises:
        ResultsError: the file is damaged.
    """
    text = resources.files("results").joinpath("published.csv").read_text(encoding="utf-8")
    used = [row for row in csv.DictReader(text.splitlines()) if row["used"] == "yes"]
    return [_row(rate, row) for rate, row in zip(load_published(), used, strict=True)]


def _row(rate: PublishedRate, told: dict[str, str]) -> dict[str, Any]:
    depth, n_gen, workload = _workload(told)
    derived = {"streamed_bytes_per_token": told["note"], **workload}
    if rate.decode_tok_s != float(told["tok_s"]):
        derived["decode_tok_s"] = f"{told['tok_s']}, {told['rate_definition']}"
    elif told["rate_definition"] != _NATIVE:
        derived["decode_tok_s"] = f"as published; {told['rate_definition']}"
    unavailable = {"ttft_s": "not published"}
    if told["pp_tok_s"]:
        unavailable["prefill_tok_s"] = f"{told['pp_tok_s']} tok/s was published, for a prompt of unknown length"
    return {
        "schema_version": SCHEMA_VERSION,
        "run_id": _id(f"{rate.source} {rate.device_id}"),
        "launch": 1,
        "provenance": "published",
        "source": rate.source,
        "derived": {name: how for name, how in derived.items() if how},
        "machine": f"{rate.device_id} (published)",
        "device_name": rate.device_id,
        "backend": _backend(rate.engine),
        "engine_build": rate.engine,
        "model": rate.model,
        "weight_format": re.sub(r"^ud-", "", rate.quant.lower()),
        "n_depth": depth,
        "n_prompt": 0,
        "n_gen": n_gen,
        "decode_start": depth,
        "kv_cache": "on",
        "batch": 1,
        "repetition": 1,
        "status": "ok",
        "unavailable": unavailable,
        "decode_tok_s": rate.decode_tok_s,
        "streamed_bytes_per_token": rate.streamed_bytes,
        "kv_read_bytes": rate.kv_bytes,
        "row_id": _id(repr(sorted(told.items()))),
    }


def _workload(told: dict[str, str]) -> tuple[int, int, dict[str, str]]:
    """Depth and generated tokens, and what was supposed of them."""
    context = int(told["context_tokens"])
    if told["n_gen"]:
        n_gen = int(told["n_gen"])
        return context - n_gen // 2, n_gen, {}
    return (
        context,
        1,
        {
            "n_gen": "not published; 1 stands for a step at n_depth",
            "n_depth": "published" if told["depth"] else "supposed",
        },
    )


def _backend(engine: str) -> str:
    """Our name of an engine where it is one of ours, else its own."""
    if engine == _OLLAMA or engine.startswith(("llama.cpp", "Ollama")):
        return "llama.cpp"
    return "mlx" if "mlx" in engine.lower() else engine


def _id(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:12]
