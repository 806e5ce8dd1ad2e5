from results.importers.published import published_rows

ROWS = published_rows()


def row(machine: str, model: str, weight_format: str) -> dict:
    return next(r for r in ROWS if (r["machine"], r["model"], r["weight_format"]) == (machine, model, weight_format))


def test_every_row_is_marked_and_has_its_address():
    assert len(ROWS) == 159
    assert {one["provenance"] for one in ROWS} == {"published"}
    assert all(one["source"].startswith("https://") for one in ROWS)
    assert all(one["machine"].endswith(" (published)") for one in ROWS)  # never taken for somebody's own
    assert len({one["row_id"] for one in ROWS}) == 159


def test_a_llama_bench_rate():
    """GPU-Benchmarks-on-LLM-Inference: tg512 of LLaMA 3 70B Q4_K_M on an A100 80 GB PCIe is 22.31."""
    one = row("a100-80gb-pcie (published)", "Llama-3-70B", "q4_k_m")
    assert (one["decode_tok_s"], one["n_depth"], one["n_prompt"], one["n_gen"]) == (22.31, 0, 0, 512)
    assert "744.12 tok/s" in one["unavailable"]["prefill_tok_s"]
    assert "ttft_s" not in one


def test_an_mlx_rate_is_corrected_and_says_so():
    """128 tokens over 127 intervals after 2048 of depth."""
    one = next(r for r in ROWS if r["machine"].startswith("apple-m4-max-40") and r["n_gen"] == 128)
    assert one["n_depth"] == 2048
    printed, definition = one["derived"]["decode_tok_s"].split(", ")
    assert definition == "N tokens over N-1 intervals"
    assert one["decode_tok_s"] == float(printed) * 127 / 128


def test_what_was_supposed_of_the_workload_is_told():
    supposed = [one for one in ROWS if "n_gen" in one["derived"]]
    assert supposed
    assert all(one["n_gen"] == 1 for one in supposed)
    assert {one["derived"]["n_depth"] for one in supposed} == {"published", "supposed"}
