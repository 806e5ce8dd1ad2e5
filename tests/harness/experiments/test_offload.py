"""The sweep: which points, where it stops, and one for real with a tier on loopback."""

from pathlib import Path

import pandas as pd
import pytest

from harness.errors import UserError
from harness.experiments.offload import is_faster, is_knee, offload, points
from harness.options import Options
from harness.progress import Reporter
from reports.offload import sweep_of

pytestmark = pytest.mark.usefixtures("known_bandwidth")

# Of the teaching model, in bf16 and bytes of float32 vectors: 3 layers 384 wide, and a tied embedding.
TABLE, LAYER_MATRICES = 50257 * 384 * 2, 12 * 384**2 * 2


def _options(tmp_path: Path, **more: object) -> Options:
    return Options(
        models=("gpt2-mini",), n_prompt=(8,), n_gen=(8,), n_threads=(1,), repetitions=2, launches=1,
        output=tmp_path / "rows.csv", **more,  # type: ignore[arg-type]
    )  # fmt: skip


def test_points_are_the_ends_and_quarters() -> None:
    assert points(33) == (0, 8, 16, 25, 33)
    assert points(4) == (0, 1, 2, 3, 4)
    assert points(2) == (0, 1, 2)
    assert points(1) == (0, 1)


def _rows(**rates: list[float]) -> pd.DataFrame:
    cells = [(int(name[1:]), rate) for name, each in rates.items() for rate in each]
    return pd.DataFrame(cells, columns=["n_gpu_layers", "decode_tok_s"]).assign(status="ok")


def test_faster_is_more_than_both_vary() -> None:
    # Standard deviations of 1 each: 1.41 together.
    assert is_faster(_rows(_0=[9, 10, 11], _8=[11, 12, 13]), 0, 8)
    assert not is_faster(_rows(_0=[9, 10, 11], _8=[10, 11, 12]), 0, 8)
    assert not is_faster(_rows(_0=[9, 10, 11], _8=[3, 4, 5]), 0, 8)
    assert is_faster(_rows(_0=[10], _8=[10.1]), 0, 8)
    assert not is_faster(_rows(_0=[10]), 0, 8)  # the point failed


def test_the_knee_is_where_neither_this_point_nor_the_last_is_faster() -> None:
    slow_in_between = _rows(_0=[10], _8=[10], _32=[60])
    assert not is_knee(slow_in_between, 0, 8, 32)  # noise at the second point hides no six times faster last
    over_full = _rows(_0=[10], _8=[20], _16=[20], _32=[12])
    assert not is_knee(over_full, 0, 8, 32)
    assert is_knee(over_full, 8, 16, 32)
    assert is_knee(_rows(_0=[10], _8=[9], _32=[5]), 0, 8, 32)


def test_a_real_sweep_reads_from_each_memory_what_lies_there(tier: str, tmp_path: Path) -> None:
    found = offload(_options(tmp_path, rpc=(tier,)), Reporter)
    assert found.most == 4
    assert (found.rows["status"] == "ok").all(), found.rows["error"].dropna().tolist()
    assert found.rows["n_gpu_layers"].tolist() == found.rows["gpu_layers_effective"].tolist()
    measured = sorted(set(found.rows["n_gpu_layers"]))
    assert measured[:2] == [0, 1]
    assert measured[-1] == 4
    assert sorted({*measured, *found.left_out}) == [0, 1, 2, 3, 4]
    first, second, *_, last = sweep_of(found.rows).points
    assert first.off_host_bytes == 0
    assert last.host_bytes == 0
    assert last.off_host_bytes == pytest.approx(first.host_bytes)
    # One layer is the output layer, the tied embedding; three of twelve matrices stay on the host.
    assert second.off_host_bytes == pytest.approx(TABLE, rel=1e-3)
    assert second.host_bytes == pytest.approx(3 * LAYER_MATRICES, rel=0.02)  # beside them vectors and the KV cache


def test_without_a_second_memory_it_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"nothing to offload to: .*serve-tier.*--rpc HOST:PORT"):
        offload(_options(tmp_path), Reporter)
