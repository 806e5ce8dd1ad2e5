"""The page in a real browser, opened from disk: Debian's Chromium, headless."""

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from selenium import webdriver
from selenium.webdriver.common.by import By

from reports.gather import gather
from reports.report import write_report

CHROMIUM = shutil.which("chromium")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no chromium here: apt-get install chromium chromium-driver")

SCHEMES = ("light", "dark")
HOSTILE = [
    "<script>window.pwned = 1</script>",
    '"><img src=https://example.org/x onerror="window.pwned = 1">',
    "</script><script>window.pwned = 1</script>",
    "=cmd|' /C calc'!A1",
    "long " + "x" * 10_000,
    "\u202e\u05e9\u05dc\u05d5\u05dd \u0645\u0631\u062d\u0628\u0627",  # Hebrew and Arabic, after a mark that reorders
    "{{ 7 * 7 }}",
]

CONTRAST = """
const number = (text) => text.match(/[\\d.]+/g).map(Number);
const light = ([r, g, b]) => {
  const [x, y, z] = [r, g, b].map((v) => v / 255).map((v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4));
  return 0.2126 * x + 0.7152 * y + 0.0722 * z;
};
const ground = (element) => {
  for (; element; element = element.parentElement) {
    const [r, g, b, a = 1] = number(getComputedStyle(element).backgroundColor);
    if (a === 1) return [r, g, b];
  }
  return null;  // nobody paints it: the test must fail
};
const found = [];
for (const element of document.querySelectorAll("body *:not(svg, svg *, script)")) {
  const speaks = [...element.childNodes].some((node) => node.nodeType === 3 && node.data.trim());
  if (!speaks || !element.getClientRects().length) continue;
  const [a, b] = [light(number(getComputedStyle(element).color)), light(ground(element))];
  found.push([(Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05), element.tagName]);
}
return found;
"""


@pytest.fixture(scope="module")
def browser() -> Iterator[webdriver.Chrome]:
    driver = shutil.which("chromedriver")
    assert driver, "chromium is here and its driver is not: apt-get install chromium-driver"
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM or ""
    for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    with webdriver.Chrome(options, webdriver.ChromeService(driver)) as chromium:
        yield chromium


@pytest.fixture(scope="module")
def report_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[[list[dict[str, Any]], Path, str], Path]:
    """Writes the report of some rows into a folder, once for those that differ in their ids alone."""
    written: dict[str, Path] = {}

    def report(rows: list[dict[str, Any]], csv: Path, lang: str) -> Path:
        key = json.dumps([lang, *(cells | {"row_id": None} for cells in rows)])
        if key not in written:
            written[key] = tmp_path_factory.mktemp("report")
            write_report(gather([csv]), written[key], ("html",), lang)
        return written[key]

    return report


@pytest.fixture
def opened(browser: webdriver.Chrome, write_rows: Any, report_of: Any) -> Iterator[Callable[..., webdriver.Chrome]]:
    """Opens the report of some rows; afterwards nothing may have gone wrong, nor anything been loaded."""

    def open_report(*rows: dict[str, Any], lang: str = "en", scheme: str = "light", width: int = 1280) -> Any:
        folder = report_of(rows, write_rows(*rows), lang)
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
        size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 800}
        browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        browser.get_log("performance"), browser.get_log("browser")  # of the page before
        address = (folder / "index.html").as_uri()
        browser.get(address)
        events = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
        requests = [e["params"]["request"]["url"] for e in events if e["method"] == "Network.requestWillBeSent"]
        assert requests == [address]
        assert browser.get_log("browser") == []
        return browser

    yield open_report
    assert browser.get_log("browser") == []


@pytest.fixture
def rows(make_row: Any) -> list[dict[str, Any]]:
    """Two machines and engines, three depths, a failure, a contradiction, a published rate."""
    rates = {(m, b, d): 45.0 - i for i, (m, b, d) in enumerate(_cases())}
    measured = [
        make_row(machine=m, backend=b, n_depth=d, decode_start=d + 512, decode_tok_s=rate, tpot_s=1 / rate)
        for (m, b, d), rate in rates.items()
    ]
    return [
        *measured,
        make_row(status="failed", error="out of memory", n_depth=65536, decode_tok_s=None),
        make_row(machine="ultra", comparable="no", comparable_why="other weights"),
        make_row(provenance="published", source="https://example.org", device_name="RTX 5090"),
    ]


def _cases() -> list[tuple[str, str, int]]:
    return [
        (machine, backend, depth)
        for machine in ("spark", "ultra")
        for backend in ("torch", "mlx")
        for depth in (0, 64, 1024)
    ]


def _column(browser: webdriver.Chrome, table: str, heading: str) -> list[str]:
    """The texts of a column's visible cells, from top to bottom."""
    headings = [cell.text.split()[0] for cell in browser.find_elements(By.CSS_SELECTOR, f"#{table} th")]
    cells = browser.find_elements(By.CSS_SELECTOR, f"#{table} tbody td:nth-child({headings.index(heading) + 1})")
    return [cell.text for cell in cells if cell.is_displayed()]


def _click(browser: webdriver.Chrome, heading: str) -> None:
    buttons = browser.find_elements(By.CSS_SELECTOR, "#results-table th button")
    (button,) = [one for one in buttons if one.text.startswith(heading)]
    browser.execute_script("arguments[0].click()", button)


def test_tables_sort(opened: Any, rows: Any) -> None:
    browser = opened(*rows)
    _click(browser, "Decode")
    rates = [45.0 - i for i in range(12)]
    assert _column(browser, "results-table", "Decode") == [*(f"{rate:.2f}" for rate in sorted(rates)), "-"]
    _click(browser, "Decode")
    assert _column(browser, "results-table", "Decode") == [*(f"{rate:.2f}" for rate in rates), "-"]
    _click(browser, "Case")
    depths = [int(case.split("d")[-1]) for case in _column(browser, "results-table", "Case")]
    assert depths == sorted(depths)
    sorted_by = browser.find_elements(By.CSS_SELECTOR, "#results-table th[aria-sort]")
    assert [(heading.text.split()[0], heading.get_attribute("aria-sort")) for heading in sorted_by] == [
        ("Case", "ascending")
    ]


def test_tables_filter(opened: Any, rows: Any) -> None:
    browser = opened(*rows)
    field = browser.find_element(By.ID, "results-table-filter")
    field.send_keys("MLX ultra")
    assert _column(browser, "results-table", "Engine") == ["mlx"] * 3
    assert _column(browser, "results-table", "Machine") == ["ultra"] * 3
    assert browser.find_element(By.CSS_SELECTOR, "output[for=results-table-filter]").text == "3 / 13 rows shown"
    field.clear()
    field.send_keys(" ")
    assert len(_column(browser, "results-table", "Engine")) == 13


def test_everything_is_there_without_scripts(browser: webdriver.Chrome, opened: Any, rows: Any) -> None:
    browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
    try:
        opened(*rows)
        cells = browser.find_elements(By.CSS_SELECTOR, "#results-table tbody td:first-child")
        fields = browser.find_elements(By.CSS_SELECTOR, ".filter")
        assert [len(cells), len(fields)] == [13, 4]
        assert all(cell.is_displayed() for cell in cells)
        assert not any(field.is_displayed() for field in fields)
    finally:
        browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})


@pytest.mark.parametrize("scheme", SCHEMES)
def test_text_stands_out_from_its_ground(opened: Any, rows: Any, scheme: str) -> None:
    browser = opened(*rows, scheme=scheme)
    page = browser.execute_script("return getComputedStyle(document.body).backgroundColor")
    assert page == {"light": "rgb(255, 255, 255)", "dark": "rgb(20, 22, 26)"}[scheme]
    found = browser.execute_script(CONTRAST)
    assert {"P", "H1", "TD", "TH", "BUTTON", "CODE", "A", "FIGCAPTION"} - {tag for _, tag in found} <= {"TH"}
    assert min(found)[0] >= 4.5, min(found)  # WCAG 2.2, 1.4.3


@pytest.mark.parametrize("width", [400, 1280])
@pytest.mark.parametrize("lang", ["en", "ja"])
def test_the_page_is_no_wider_than_the_window(opened: Any, rows: Any, width: int, lang: str) -> None:
    browser = opened(*rows, lang=lang, width=width)
    assert browser.execute_script("return document.documentElement.scrollWidth") <= width
    assert browser.execute_script("return document.documentElement.lang") == lang


def test_every_figure_has_a_text_in_its_place(opened: Any, rows: Any) -> None:
    browser = opened(*rows)
    figures = browser.find_elements(By.TAG_NAME, "svg")
    assert len(figures) >= 2
    for figure in figures:
        holder = figure.find_element(By.XPATH, "./..")
        assert holder.aria_role in {"img", "image"}
        assert len(holder.accessible_name) > 20
        assert figure.size["width"] > 300
    assert browser.find_elements(By.TAG_NAME, "img") == []


def test_what_is_folded_is_printed_whole(opened: Any, make_row: Any) -> None:
    browser = opened(make_row(unavailable={"energy_j": "no counter " * 80}))
    shown = "return getComputedStyle(document.querySelector('details'), '::details-content').contentVisibility"
    assert browser.execute_script(shown) == "hidden"
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    printed = browser.execute_script(shown)
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": ""})
    assert printed == "visible"


def _hostile(make_row: Any, text: str) -> list[dict[str, Any]]:
    names = {"machine": text, "backend": text, "model": text, "weight_format": text, "cpu": text, "device_name": text}
    return [
        make_row(**names, engine_settings={"asked": {"weights": text}, text: text}, unavailable={text: text}),
        make_row(**names, n_depth=64, decode_start=576),
        make_row(**names, status="failed", error=text),
        make_row(**names, decode_tok_s=float("inf")),
        make_row(**names, ttft_s=float("nan"), comparable="no", comparable_why=text),
        make_row(**names, provenance="published", source=text),
    ]


def test_hostile_files_are_shown_as_text(opened: Any, make_row: Any) -> None:
    browser = opened(*(row for text in HOSTILE for row in _hostile(make_row, text)), width=400)
    assert browser.execute_script("return window.pwned") is None
    assert browser.execute_script("return document.documentElement.scrollWidth") <= 400
    table = browser.find_element(By.ID, "doubts-table").get_attribute("textContent")
    assert [text for text in HOSTILE if text not in table] == []
    assert table.count("inf is above 1e+08") == len(HOSTILE)
