"""What holds for every figure: units, room for each text, equal bytes, plain text from hostile rows."""

import re
import subprocess
import sys
import xml.etree.ElementTree as ET
from collections.abc import Callable
from itertools import combinations, cycle
from typing import Any

import matplotlib as mpl
import pandas as pd
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.text import Text

from reports.figures import FIGURES, Drawn, Missing, to_png, to_svg
from reports.words import LANGUAGES, words
from results.errors import ResultsError

Make = Callable[..., dict[str, Any]]
Draw = Callable[..., Drawn]
Table = Callable[..., pd.DataFrame]

NAMES = list(FIGURES)
OF_VARIED_WORK = {"ttft", "quality", "offload", "kv_cache", "kv_reuse", "kv_rates", "kv_memory", "batch_sizes"}
HOSTILE = (
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    r"$\frac{1}{0}$ and \alpha _x^2 $",
    "=cmd|' /C calc'!A0",
    "\u202eevil\u202c \u05e9\u05dc\u05d5\u05dd",
    "n" * 10_000,
    "line\nbreak\x0b\x1b[31m\ufffe",
)


@pytest.fixture
def forty(make_row: Make) -> list[dict[str, Any]]:
    """40 bars with long names, near and far ceilings, and everything beside them that can be known."""
    beside = {"device_memory_bytes": 10**12, "weight_bytes": 2 * 10**9, "kv_bytes_per_token": 32768, "n_gpu_layers": -1}
    itl = {"itl_p50_s": 0.025, "itl_p90_s": 0.026, "itl_p99_s": 0.03, "itl_max_s": 0.05}
    return [
        make_row(
            machine=f"workstation-of-many-letters-{n}",
            backend=engine,
            weight_format=form,
            decode_tok_s=1234.5 / (1 + n),
            decode_ceiling_tok_s=1500.0 / (1 + n),
            decode_ceiling_spec_tok_s=1600.0 / (1 + n),
            bandwidth_spec_gbs=1000.0 / (1 + n),
            bandwidth_measured_gbs=900.0 / (1 + n),
            n_depth=depth,
            kv_read_bytes=depth * 32768,
            tpot_s=(1 + n) / 1000 + depth * 1e-7,
            n_prompt=512,
            energy_j=50.0,
            launch=launch,
            **beside,
            **itl,
        )
        for n in range(10)
        for engine in ("torch", "llama.cpp")
        for form in ("bf16", "q4_k_m")
        for depth in (0, 4096)
        for launch in (1, 2)
    ]


def _texts(drawn: Drawn) -> list[Text]:
    """All that can be seen; ticks outside of the axes are not drawn."""
    canvas = FigureCanvasAgg(drawn.figure)
    canvas.draw()
    found = [*drawn.figure.texts]
    for axes in drawn.figure.axes:
        found += [axes.xaxis.label, axes.yaxis.label]
        for axis, (low, high) in ((axes.xaxis, axes.get_xlim()), (axes.yaxis, sorted(axes.get_ylim()))):
            found += [tick.label1 for tick in axis.get_major_ticks() if low <= tick.get_loc() <= high]
    return [text for text in found if text.get_text() and text.get_visible()]


@pytest.fixture(scope="module")
def _pictures() -> dict[tuple[str, str], Drawn]:
    return {}


@pytest.fixture
def picture(drawn: Draw, every_figure: list[dict[str, Any]], _pictures: dict[tuple[str, str], Drawn]) -> Draw:
    """A figure of `every_figure` in a language, drawn once for all tests: they look at it, and save it."""

    def of(name: str, lang: str = "en") -> Drawn:
        if (name, lang) not in _pictures:
            _pictures[name, lang] = drawn(name, *every_figure, lang=lang)
        return _pictures[name, lang]

    return of


@pytest.mark.parametrize("name", NAMES)
def test_every_axis_has_its_unit(name: str, picture: Draw) -> None:
    units = {words("en")[key] for key in words("en") if key.startswith("figures.unit.")}
    for axes in picture(name).figure.axes:
        assert axes.get_xlabel() in units
        # A row's name is no quantity.
        assert axes.get_ylabel() in units or all(label.get_text() for label in axes.get_yticklabels())


@pytest.mark.parametrize("name", [name for name in NAMES if name not in OF_VARIED_WORK])
def test_no_text_lies_on_another_or_leaves_the_page(name: str, drawn: Draw, forty: list[dict[str, Any]]) -> None:
    figure = drawn(name, *forty)
    texts = _texts(figure)
    assert len(texts) > 20
    boxes = [(text.get_text(), text.get_window_extent()) for text in texts]
    width, height = figure.figure.canvas.get_width_height()
    assert [text for text, box in boxes if box.x0 < 0 or box.y0 < 0 or box.x1 > width or box.y1 > height] == []
    assert [(a, b) for (a, one), (b, other) in combinations(boxes, 2) if one.overlaps(other)] == []
    assert min(text.get_fontsize() for text in texts) >= 11


@pytest.mark.parametrize("name", NAMES)
def test_the_same_rows_give_the_same_bytes(
    name: str, drawn: Draw, picture: Draw, every_figure: list[dict[str, Any]]
) -> None:
    for lang in LANGUAGES:
        once, again = picture(name, lang), drawn(name, *every_figure, lang=lang)
        png = to_png(again)
        svg = to_svg(once)
        assert svg == to_svg(again)  # the PNG's fonts leave no trace
        assert png == to_png(once)
        assert png.startswith(b"\x89PNG")
        assert "date" not in svg.lower()


def test_a_users_matplotlibrc_changes_nothing_and_is_left_alone(
    drawn: Draw, every_figure: list[dict[str, Any]]
) -> None:
    before = to_svg(drawn("depth", *every_figure))
    with mpl.rc_context({"font.size": 30, "lines.linewidth": 9, "svg.fonttype": "path", "axes.grid": False}):
        assert to_svg(drawn("depth", *every_figure)) == before
        assert mpl.rcParams["font.size"] == 30


@pytest.mark.parametrize("name", NAMES)
def test_japanese_stays_text(name: str, picture: Draw) -> None:
    figure = picture(name, "ja")
    root = ET.fromstring(to_svg(figure))  # noqa: S314
    shown = {text.text for text in root.iter("{http://www.w3.org/2000/svg}text")}
    assert figure.figure.axes[0].get_xlabel() in shown
    assert re.search(r"[\u3040-\u30ff\u4e00-\u9fff]", figure.alt)


@pytest.mark.parametrize("name", NAMES)
def test_hostile_names_are_shown_as_text_and_shortened(
    name: str, drawn: Draw, every_figure: list[dict[str, Any]]
) -> None:
    for texts in (HOSTILE[:4], HOSTILE[3:]):  # each somewhere, in two pictures: drawing costs most
        names = dict(zip(("machine", "backend", "model", "device_name"), texts, strict=True))
        formats = [{"weight_format": texts[-1] + cells.get("weight_format", "")} for cells in every_figure]
        figure = drawn(name, *(cells | names | own for cells, own in zip(every_figure, formats, strict=True)))
        svg = to_svg(figure)
        root = ET.fromstring(svg)  # noqa: S314
        tags = {element.tag.partition("}")[2] for element in root.iter()}
        assert not tags & {"script", "img", "image", "foreignObject", "a"}
        assert not any(key.startswith("on") for element in root.iter() for key in element.attrib)
        assert "\u202e" not in svg
        assert max(len(text.get_text()) for text in figure.figure.texts) < 120
        assert len(figure.alt) < 600


def test_dollars_and_backslashes_are_no_formula(drawn: Draw, make_row: Make) -> None:
    figure = drawn(
        "ceiling",
        make_row(model=r"$\frac{1}{2}$", machine="a_$b$", backend=r"\alpha"),
        make_row(model=r"$\frac{1}{2}$"),
    )
    svg = to_svg(figure)
    assert r"$\frac{1}{2}$, bf16: context 512, 128 generated, batch 1" in svg
    assert r"\alpha, a_$b$" in svg


@pytest.mark.parametrize("name", NAMES)
def test_numbers_that_cannot_be_are_not_drawn(
    name: str, drawn: Draw, every_figure: list[dict[str, Any]], make_row: Make
) -> None:
    measured = ["decode_tok_s", "ttft_s", "tpot_s", "itl_p50_s", "itl_max_s"]
    ceilings = ["bandwidth_measured_gbs", "bandwidth_spec_gbs", "decode_ceiling_tok_s", "decode_ceiling_spec_tok_s"]
    ceilings += ["prefill_ceiling_tok_s", "energy_j"]
    numbers = [float(number) for number in ("nan", "inf", "-inf", "-1", "1e308", "0")]
    mad = [make_row(backend=f"mad {n}", **dict.fromkeys(measured + ceilings, numbers[n])) for n in range(len(numbers))]
    no_ceiling = [
        cells | dict.fromkeys(ceilings, number) for cells, number in zip(every_figure, cycle(numbers), strict=False)
    ]
    for rows in ([*every_figure, *mad], no_ceiling):
        assert not re.search(r"nan|\binf\b|e\+?308", to_svg(drawn(name, *rows)).lower())


@pytest.mark.parametrize("name", NAMES)
def test_without_rows_or_with_failed_ones_only_it_says_what_to_run(name: str, table: Table, make_row: Make) -> None:
    failed = table(
        make_row(
            status="failed", error="no such kernel", decode_tok_s=None, tpot_s=None, ttft_s=None, peak_host_bytes=None
        )
    )
    for rows in (failed, failed.iloc[:0]):
        for lang in LANGUAGES:
            found = FIGURES[name](rows, words(lang))
            assert isinstance(found, Missing)
            assert re.search("tokenroof (run|kv-cache) ?", found.reason)
            assert found.title


def test_without_matplotlib_it_says_how_to_get_it(
    monkeypatch: pytest.MonkeyPatch, table: Table, make_row: Make
) -> None:
    for module in [name for name in sys.modules if name.startswith("reports.figures.")]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ResultsError, match=r"pip install \"tokenroof\[report\]\""):
        FIGURES["ceiling"](table(make_row()), words("en"))


def test_the_names_are_known_without_matplotlib() -> None:
    code = "import sys, reports.figures; assert 'matplotlib' not in sys.modules; print(*reports.figures.FIGURES)"
    told = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert told.stdout.split() == [
        *("ceiling", "roofline", "quality", "depth", "ttft", "memory", "offload", "jitter"),
        *("kv_cache", "kv_rates", "kv_reuse", "kv_memory", "batch_sizes"),
    ]
