import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.machine.hardware import Gpu, Machine
from results.importers import import_text
from results.machine_label import machine_label


@pytest.mark.parametrize(
    ("product", "label"),
    [
        ("NVIDIA GeForce RTX 5090", "rtx-5090"),
        ("Intel(R) Core(TM) i9-14900K 24 cores", "intel-core-i9-14900k-24-cores"),
        ("Apple M4 Max", "apple-m4-max"),
        ("NVIDIA", ""),
        ("", ""),
    ],
)
def test_a_label_is_the_product_without_its_maker_s_marks(product: str, label: str) -> None:
    assert machine_label(product) == label


@given(st.text())
def test_a_label_is_plain_whatever_the_product(product: str) -> None:
    label = machine_label(product)
    assert set(label) <= set("abcdefghijklmnopqrstuvwxyz0123456789-")
    assert label == machine_label(label)


def test_a_gpu_is_called_the_same_whoever_measured_it() -> None:
    name = "NVIDIA GeForce RTX 3090 Ti"
    text = f"""  Device 0: {name}, compute capability 8.6, VMM: yes
| model         |      size |   params | backend | ngl |  test |           t/s |
| llama 7B Q4_0 |  3.56 GiB |   6.74 B | CUDA    |  99 | tg128 | 132.05 ± 0.18 |
"""
    (row,) = import_text(text, "x").rows
    gpu = Gpu("nvidia", name, 24 * 2**30)
    assert row["machine"] == Machine("Linux 6 x86_64", "a CPU", 8, 2**36, (gpu,)).label == "rtx-3090-ti"
