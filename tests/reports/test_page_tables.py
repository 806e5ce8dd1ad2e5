"""Tables and facts of the page."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reports.numbers import number
from reports.page.doubts import doubts_table, find_doubts, warnings
from reports.page.lines import results_table
from reports.page.page import build
from reports.page.parts import Table
from reports.page.published import published_table
from reports.page.quality import quality_table
from reports.page.servers import servers_table
from reports.page.texts import name
from reports.page.time_table import time_table
from reports.summary import summarise
from reports.words import words

EN = words("en")


def _column(table: Table | None, heading: str) -> list[str]:
    assert table
    return [row[[column.heading for column in table.columns].index(heading)] for row in table.rows]


def test_lines_show_rates_ceilings_and_marks(gathered: Any, make_row: Any) -> None:
    rows = [make_row(), make_row(decode_tok_s=60.0, mbu=1.2, backend="mlx"), make_row(status="failed", backend="x")]
    table = results_table(summarise(gathered(*rows).own), EN)
    assert _column(table, "TTFT ms") == ["500.0", "500.0", "-"]
    assert _column(table, "Decode tok/s") == ["40.00", "60.00", "-"]
    assert _column(table, "MBU %") == ["80", "120!", "-"]
    assert _column(table, "Peak GB") == ["3.00 host", "3.00 host", "-"]
    assert _column(table, "Launches × repetitions") == ["1 × 1", "1 × 1", "-"]
    assert _column(table, "Verified") == ["-", "-", "failed"]
    (skipped,) = _column(results_table(summarise(gathered(make_row(status="skipped")).own), EN), "Verified")
    assert skipped == "skipped"
    assert table
    assert "MFU %" not in [column.heading for column in table.columns]  # nobody has one
    assert results_table(summarise(gathered().own), EN) is None


def test_a_token_is_taken_apart(gathered: Any, make_row: Any) -> None:
    # 25 ms: 2 GB and 0.1 GB at 100 GB/s are 20 ms and 1 ms.
    lines = summarise(gathered(make_row(kv_read_bytes=10**8), make_row(model="y", bandwidth_measured_gbs=None)).own)
    table = time_table(lines, EN)
    assert table
    assert [row[5:9] for row in table.rows] == [("25.00", "20.00", "1.00", "4.00")]


def test_formats_stand_beside_each_other(gathered: Any, make_row: Any) -> None:
    cost = {"weight_format": "q4_0", "weight_bits": 4.5, "quality_kl": 0.05, "quality_top1": 0.9}
    rows = [
        make_row(weight_bits=16.0),
        make_row(**cost, decode_tok_s=100.0, decode_ceiling_tok_s=200.0),
        make_row(machine="alone", weight_bits=16.0),
        make_row(n_gen=7, weight_bits=16.0),
        make_row(weight_format="8bit", status="failed", error="out of memory"),
    ]
    table = quality_table(summarise(gathered(*rows).own), EN)
    found = zip(*(_column(table, name) for name in ("Format", "Bits a weight", "Decode tok/s", "MBU %")), strict=True)
    assert list(found) == [("bf16", "16.00", "40.00", "80"), ("q4_0", "4.50", "100.0", "50")]
    assert _column(table, "KL nats") == ["-", "0.050"]
    assert _column(table, "Same first choice %") == ["-", "90"]
    random = quality_table(summarise(gathered(make_row(weight_format="q4_0", weight_bits=4.5)).own), EN)
    assert random
    assert "KL nats" not in [column.heading for column in random.columns], "of random weights nobody knows"
    assert quality_table(summarise(gathered(make_row()).own), EN) is None


def test_servers_have_a_table_of_what_their_users_get(gathered: Any, make_row: Any) -> None:
    seen = {"backend": "openai", "ttft_s": None, "prefill_tok_s": None, "server_latency_s": 0.02}
    rows = [
        make_row(),
        make_row(**seen, ttft_client_s=0.5, request_tok_s=40.0),
        make_row(**seen, ttft_client_s=0.6, ttft_client_p99_s=0.9, request_tok_s=39.0, output_tok_s=100.0, batch=4),
    ]
    lines = summarise(gathered(*rows).own)
    table = servers_table(lines, EN)
    assert _column(table, "Case") == ["p512 n128 d0", "p512 n128 d0 B4"]
    assert _column(table, "TTFT ms") == ["500.0", "600.0"]
    assert _column(table, "TTFT 99 % ms") == ["-", "900.0"]
    assert _column(table, "Idle ms") == ["20.00", "20.00"]
    assert _column(table, "A stream tok/s") == ["40.00", "39.00"]
    assert _column(table, "Output tok/s") == ["-", "100.0"]
    assert servers_table(lines[lines["backend"] != "openai"], EN) is None


def test_below_the_servers_stands_what_they_do_not_tell(gathered: Any, make_row: Any) -> None:
    why = {"decode_ceiling_tok_s": "name it with -w", "kv_kept_tokens": "the server does not tell what it kept"}
    seen = {"backend": "openai", "ttft_s": None, "ttft_client_s": 0.5, "decode_ceiling_tok_s": None, "unavailable": why}
    rows = [make_row(**seen), make_row(**seen, n_depth=64), make_row(**seen, n_depth=64, kv_cache="prefix")]
    table = servers_table(summarise(gathered(*rows).own), EN)
    assert table
    assert table.notes[-2:] == (
        "spark, openai: no ceiling: name it with -w",
        "spark, openai, p512 n128 d64 reused: the server does not tell what it kept",
    )


def test_every_doubt_has_its_reason(gathered: Any, make_row: Any) -> None:
    probe = {"probe_logits": [1.0] * 16}
    rows = [
        make_row(status="failed", error="out of memory"),
        make_row(status="failed", error="out of memory", n_depth=64),
        make_row(status="failed", error=None, backend="mlx"),
        make_row(decode_tok_s=float("-inf")),
        make_row(comparable="no", comparable_why="two architectures"),
        make_row(backend="a", ceiling_warning="decode at 120 %", throttled="heat", **probe),
        make_row(backend="b", throttled="no", **probe),
        make_row(backend="c", probe_logits=[9.0] * 16),
        make_row(backend="d"),
    ]
    doubts = find_doubts(gathered(*rows))
    table = doubts_table(doubts, EN)
    assert table
    told = [(row[0], row[2], row[5], row[6], row[7].split(" (")[0]) for row in table.rows]
    assert told == [
        ("failed", "torch", "p512 n128 d0, p512 n128 d64", "2", "out of memory"),
        ("failed", "mlx", "p512 n128 d0", "1", "no reason was given"),
        ("left out: impossible cell", "torch", "p512 n128 d0", "1", "line 5, column decode_tok_s: -inf is below 0"),
        ("left out: not comparable", "torch", "p512 n128 d0", "1", "two architectures"),
        ("disagrees", "c", "p512 n128 d0", "1", "differs from a on spark"),
        ("above its ceiling", "a", "p512 n128 d0", "1", "decode at 120 %"),
        ("held back", "a", "p512 n128 d0", "1", "heat"),
        ("not verified", "d", "p512 n128 d0", "1", "its probe was not scored"),
    ]
    assert warnings(doubts[doubts["kind"] == "failed"], EN)[0] == "failed (rows: 2): out of memory"
    assert doubts_table(find_doubts(gathered()), EN) is None


def test_published_rows_are_a_table_of_their_own(gathered: Any, make_row: Any) -> None:
    source = "https://example.org/a?b=1"
    found = gathered(make_row(), make_row(provenance="published", source=source, device_name="RTX", decode_tok_s=7.0))
    table = published_table(found.published, EN)
    assert _column(table, "Source") == [source]
    assert _column(table, "Decode tok/s") == ["7.00"]
    assert results_table(summarise(found.own), EN).rows[0][0] == "spark"  # type: ignore[union-attr]


def test_a_machine_is_described(gathered: Any, make_row: Any) -> None:
    settings = {"asked": {"n_threads": 8, "weights": "bf16"}, "kv_cache": "views"}
    rows = [
        make_row(
            started_at=f"2026-11-{day}T12:00:00Z",
            ram_bytes=128 * 10**9,
            temp_c_max=61.5,
            throttled=held,
            cpu_busy_other_pct=busy,
            energy_j=50.0,
            unavailable={"peak_device_bytes": "no counter", "driver_device_bytes": "no counter"},
            engine_settings=settings | {"buffers": day},
        )
        for day, held, busy in ((28, "no", 1.0), (29, "heat", 3.0), (30, "no", 2.0))
    ]
    imported = make_row(
        provenance="imported", source="llama-bench", backend="llama.cpp", engine_settings=None, ram_bytes=128 * 10**9
    )
    (machine,) = build(gathered(*rows, imported), [], EN, "en").machines
    facts = {fact.label: fact.text for fact in (*machine.hardware, *machine.conditions)}
    assert facts["Memory"] == "128 GB"
    assert facts["Measured"] == "2026-11-28 to 2026-11-30"
    assert facts["Highest temperature"] == "61.50 °C"
    assert facts["Held back"] == "1 of 3 repetitions: heat"
    assert facts["Other processes"] == "at most 3.00 % of the processors' time, 2.00 % in the median"
    assert facts["Energy"] == "150.0 J in 3 repetitions"
    assert facts["Could not be read"] == "peak_device_bytes, driver_device_bytes: no counter"
    assert _column(machine.engines, "In effect") == ["kv_cache=views, buffers=28|29|30", "-"]
    assert machine.imported == ["1 row came from elsewhere: llama-bench"]
    assert "held back (rows: 1): heat" in machine.warnings


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "-"),
        (float("nan"), "-"),
        (0.0, "0"),
        (0.00123, "0.00123"),
        (9.876, "9.88"),
        (412.34, "412.3"),
        (5e4, "50000"),
    ],
)
def test_numbers_keep_four_digits(value: float | None, text: str) -> None:
    assert number(value) == text


@given(st.floats(0.01, 1e9))
def test_a_number_reads_as_what_it_is(value: float) -> None:
    assert float(number(value)) == pytest.approx(value, rel=0.01, abs=0.005)


def test_names_can_neither_flood_nor_reorder_a_sentence() -> None:
    assert name("llama") == "llama"
    assert len(name("x" * 10_000)) < 100
    assert name("\u202eevil") == "evil"
    assert name("\u05e9\u05dc") == "\u2068\u05e9\u05dc\u2069"


def test_rows_above_their_ceiling_are_one_doubt_with_the_worst_of_them(gathered: Any, make_row: Any) -> None:
    above = [make_row(mbu=share, ceiling_warning=f"decode at {100 * share:.1f} %") for share in (1.02, 1.31, 1.07)]
    doubts = find_doubts(gathered(*above, make_row(backend="mlx", mfu=1.5, ceiling_warning="prefill at 150.0 %")))
    told = doubts[doubts["kind"] == "above"][["backend", "reason", "n_rows"]].to_numpy().tolist()
    assert told == [["torch", "decode at 131.0 %", 3], ["mlx", "prefill at 150.0 %", 1]]
