import csv
import io
import json

import pandas as pd
import pytest
from rich.console import Console

from reports.table import render


def line(backend: str, **cells: object) -> dict[str, object]:
    return {
        "machine": "spark",
        "backend": backend,
        "model": "llama-3.2-1b",
        "weight_format": "bf16",
        "settings": "",
        "n_depth": 4096,
        "n_prompt": 512,
        "n_gen": 128,
        "batch": 1,
        "kv_cache": "on",
        "prompt_file": None,
        "n_ok": 9,
        "n_failed": 0,
        "n_skipped": 0,
        "launches": 3,
        "ttft_s": 1.2777,
        "ttft_client_s": None,
        "prefill_tok_s": 400.72,
        "decode_tok_s": 17.034,
        "decode_sd_tok_s": 0.0537,
        "decode_sd_of": "launches",
        "decode_ceiling_tok_s": 20.04,
        "decode_ceiling_spec_tok_s": None,
        "prefill_ceiling_tok_s": None,
        "mbu": 0.85,
        "mfu": None,
        "decode_ceiling_bound": "memory",
        "ceiling_warning": None,
        "no_ceiling_why": None,
        "not_kept_why": None,
        **dict.fromkeys(("weight_bits", "quality_kl", "quality_top1", "server_latency_s", "network_latency_s")),
        "peak_device_bytes": None,
        "peak_host_bytes": 2_470_000_000,
        "verified": "yes",
        "verified_with": "mlx on spark",
        "verified_why": None,
        "error": None,
    } | cells


NOTHING = dict.fromkeys(
    [
        *("ttft_s", "prefill_tok_s", "decode_tok_s", "decode_sd_tok_s", "decode_sd_of"),
        *("decode_ceiling_tok_s", "mbu", "peak_host_bytes", "verified"),
    ]
)
FAILED = {"n_ok": 0, "n_failed": 3, "error": "out of memory: choose a smaller -d", **NOTHING}


def summary(*lines: dict[str, object]) -> pd.DataFrame:
    integers = ["peak_device_bytes", "peak_host_bytes"]
    return pd.DataFrame(list(lines)).astype(dict.fromkeys(integers, "Int64"))


def words(text: str, start: str) -> list[str]:
    (found,) = [row for row in text.splitlines() if row.startswith(start)]
    return found.split()


def test_people_read_ms_tok_s_and_gb() -> None:
    lines = summary(
        line("torch"),
        line("llama.cpp", ttft_s=0.01234, decode_tok_s=1234.5, decode_sd_tok_s=5.6, peak_device_bytes=16_123_000_000),
        line("mlx", decode_tok_s=0.8312, decode_sd_tok_s=None, verified=None, verified_why="no other engine ran it"),
    )
    text = render(lines, "table")
    assert text.startswith("llama-3.2-1b, bf16, spark")
    case = ["p512", "n128", "d4096"]
    assert words(text, "torch ") == [
        "torch",
        *case,
        "1278",
        "400.7",
        "17.03",
        "±",
        "0.05",
        "20.04",
        "85",
        "2.47",
        "host",
        "yes",
    ]
    assert words(text, "llama.cpp ") == [
        *("llama.cpp", *case, "12.34", "400.7", "1234", "±", "6", "20.04", "85", "16.1", "device", "yes")
    ]
    assert words(text, "mlx ") == ["mlx", *case, "1278", "400.7", "0.831", "20.04", "85", "2.47", "host", "-"]
    assert "mlx: no other engine ran it\n" in text


def test_failures_are_told_with_their_reason() -> None:
    text = render(summary(line("torch", n_failed=2, error="killed"), line("mlx", **FAILED, batch=4)), "table")
    assert words(text, "mlx ")[-7:] == ["-", "-", "-", "-", "-", "-", "failed"]
    assert "torch, p512 n128 d4096: 2 of 11 failed: killed\n" in text
    assert "mlx, p512 n128 d4096 B4: 3 of 3 failed: out of memory: choose a smaller -d\n" in text


def test_a_rate_above_its_ceiling_is_marked_and_explained() -> None:
    above = line("mlx", mbu=1.08, ceiling_warning="decode at 108 % of its ceiling: a fault in the accounting")
    text = render(summary(line("torch"), above), "table")
    assert "108!" in words(text, "mlx ")
    assert "! mlx, p512 n128 d4096: decode at 108 % of its ceiling: a fault in the accounting\n" in text
    assert text.count("ceiling:") == 2, "the mark's reason and the legend"


def test_a_ceiling_that_operations_set_is_marked() -> None:
    text = render(summary(line("torch", decode_ceiling_bound="compute"), line("mlx")), "table")
    assert words(text, "torch ")[8:11] == ["0.05", "20.04", "c"]
    assert "c" not in words(text, "mlx ")
    assert "c: the operations of a step" in text


def test_no_ceiling_no_legend() -> None:
    text = render(summary(line("torch", decode_ceiling_tok_s=None, mbu=None)), "table")
    assert "MBU:" not in text


def test_what_the_spread_is_of_is_said_for_what_is_shown() -> None:
    repetitions = line("mlx", decode_sd_of="repetitions")
    assert render(summary(line("torch")), "table").count("±:") == 1
    assert render(summary(line("torch"), repetitions), "table").count("±:") == 2
    assert "±" not in render(summary(line("mlx", **FAILED)), "table")


def test_machines_settings_and_models_are_shown_where_they_vary() -> None:
    lines = summary(
        line("torch", model="gpt2"),
        line("llama.cpp", settings="n_ubatch=512"),
        line("llama.cpp", settings="n_ubatch=128", machine="RTX 5090"),
    )
    text = render(lines, "table", Console(width=120, file=io.StringIO()))
    assert [row.strip() for row in text.splitlines() if "bf16" in row] == ["gpt2, bf16", "llama-3.2-1b, bf16"]
    assert "torch, spark  p512" in text
    assert "llama.cpp, spark, n_ubatch=512     p512" in text
    assert "llama.cpp, RTX 5090, n_ubatch=128  p512" in text


@pytest.mark.parametrize("width", [80, 100, 120])
def test_no_number_is_cut_in_a_terminal(width: int) -> None:
    numbers = {"ttft_s": 26.3201, "prefill_tok_s": 29137.0, "decode_tok_s": 123.4, "decode_sd_tok_s": 12.3}
    lines = summary(
        line(
            "llama.cpp", **numbers, batch=16, machine="NVIDIA GeForce RTX 5090", settings="n_ubatch=128, n_threads=16"
        ),
        line("torch", **numbers, peak_device_bytes=139_000_000_000),
    )
    text = render(lines, "table", Console(width=width, file=io.StringIO()))
    for number in ("26320", "29137", "123.4 ± 12.3", "139 device", "2.47 host", "yes", "verified"):
        assert number in text
    assert "…" not in text
    assert max(map(len, text.splitlines())) <= width


def test_text_that_looks_like_markup_is_shown_as_it_is() -> None:
    text = render(summary(line("torch", **FAILED | {"error": "[red]cuda:0[/red]"}, model="a[b]")), "table")
    assert "[red]cuda:0[/red]" in text
    assert "a[b]" in text


def test_markdown_is_a_table_of_equal_rows() -> None:
    text = render(summary(line("torch", settings="a|b=1"), line("mlx", **FAILED)), "md")
    rows = [row for row in text.splitlines() if row.startswith("|")]
    assert (
        rows[0]
        == "| engine | case | TTFT ms | prefill tok/s | decode tok/s | ceiling tok/s | MBU % | peak GB | verified |"
    )
    assert (
        rows[2] == r"| torch, a\|b=1 | p512 n128 d4096 | 1278 | 400.7 | 17.03 ± 0.05 | 20.04 | 85 | 2.47 host | yes |"
    )
    assert {row.replace(r"\|", "").count("|") for row in rows} == {10}
    assert "mlx, p512 n128 d4096: 3 of 3 failed" in text


def test_json_and_csv_hold_every_column_in_plain_units() -> None:
    lines = summary(line("torch"), line("mlx", **FAILED))
    first, second = json.loads(render(lines, "json"))
    assert first == line("torch")
    assert second["decode_tok_s"] is None
    witness = list(csv.DictReader(io.StringIO(render(lines, "csv"))))
    assert list(witness[0]) == list(lines)
    assert float(witness[0]["ttft_s"]) == 1.2777
    assert witness[0]["peak_host_bytes"] == "2470000000"
    assert witness[1]["decode_tok_s"] == ""


@pytest.mark.parametrize("form", ["table", "md", "json", "csv"])
def test_a_summary_without_lines_renders(form: str) -> None:
    assert isinstance(render(summary(line("torch")).iloc[:0], form), str)


def test_quantised_weights_tell_their_bits_and_what_they_cost() -> None:
    bits = {"weight_format": "q4_k_m", "weight_bits": 4.85}
    known = line("llama.cpp", **bits, quality_kl=0.0213, quality_top1=0.9375)
    text = " ".join(render(summary(known, known | {"n_depth": 0}), "table").split())
    told = "llama.cpp: 4.85 true bits a weight; KL divergence from unquantised 0.021 nats, same first choice 94 %"
    assert text.count(told) == 1, "once for all cases"
    assert render(summary(line("llama.cpp", **bits)), "md").count("llama.cpp: 4.85 true bits a weight\n") == 1
    assert "true bits" not in render(summary(line("torch", weight_bits=16.0)), "table"), "a plain format says it itself"


def test_an_idle_server_tells_what_a_ttft_holds() -> None:
    served = {"ttft_s": None, "ttft_client_s": 0.5, "server_latency_s": 0.0123, "network_latency_s": 0.00124}
    text = " ".join(render(summary(line("openai", **served), line("openai", batch=4, **served)), "md").split())
    told = "openai: while the server is idle, the shortest prompt has TTFT 12.30 ms, a GET 1.24 ms;"
    assert text.count(told) == 1
    assert "500.0 *" in text


def test_what_is_little_is_not_nothing() -> None:
    cells = words(render(summary(line("torch", mbu=0.0042, peak_host_bytes=49_400_000)), "table"), "torch ")
    assert cells[-4:] == ["0.4", "0.0494", "host", "yes"]


def test_failures_of_one_reason_are_one_note() -> None:
    text = render(summary(*(line("torch", n_gen=n, **FAILED) for n in (8, 16))), "md")
    assert "torch, p512 n8 d4096; torch, p512 n16 d4096: 3 of 3 failed: out of memory" in text
