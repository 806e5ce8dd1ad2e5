"""The load by others: pencil arithmetic, and this machine's own counters against Python's."""

import math
import subprocess
import sys
import time
from types import SimpleNamespace

import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.machine.conditions import before, load
from harness.machine.conditions.load import ProcessorTime, busy_other_pct

TICK_S = 0.016  # the coarsest step of a system's counters
BURN = "import time\nwhile time.process_time() < 0.5: pass"


def test_what_is_ours_does_not_count() -> None:
    # Four cores for 10 s: 40 s, of which 22 s busy, of which 20 s ours.
    assert busy_other_pct(ProcessorTime(100, 500, 7), ProcessorTime(122, 518, 27)) == pytest.approx(5.0)
    assert busy_other_pct(ProcessorTime(100, 500, 7), ProcessorTime(100, 500, 7)) is None


@given(*[st.floats(0, 1e7) for _ in range(6)])
def test_it_is_a_share_whatever_the_counters_say(a: float, b: float, c: float, d: float, e: float, f: float) -> None:
    share = busy_other_pct(ProcessorTime(a, b, c), ProcessorTime(d, e, f))
    assert share is None or 0 <= share <= 100


def test_fields_that_only_some_systems_have(monkeypatch: pytest.MonkeyPatch) -> None:
    linux = SimpleNamespace(
        user=10.0, nice=1.0, system=4.0, idle=80.0, iowait=2.0, irq=0.5, softirq=0.5, steal=2.0, guest=3.0
    )
    monkeypatch.setattr(psutil, "cpu_times", lambda: linux)
    assert load.until_now([]) == ProcessorTime(busy_s=18.0, idle_s=82.0, own_s=0)
    windows = SimpleNamespace(user=10.0, system=4.0, idle=80.0, interrupt=1.0, dpc=1.0)
    monkeypatch.setattr(psutil, "cpu_times", lambda: windows)
    assert load.until_now([]) == ProcessorTime(busy_s=14.0, idle_s=80.0, own_s=0)


def test_our_own_time_is_pythons() -> None:
    ours = [psutil.Process()]
    first, start = load.until_now(ours), time.process_time()
    while time.process_time() < start + 0.2:
        math.sqrt(2.0)
    spent_s = time.process_time() - start
    assert load.until_now(ours).own_s - first.own_s == pytest.approx(spent_s, abs=2 * TICK_S)


def test_another_processs_work_is_seen() -> None:
    ours = [psutil.Process()]
    first = load.until_now(ours)
    subprocess.run([sys.executable, "-c", BURN], check=True)
    last = load.until_now(ours)
    others_s = (last.busy_s - last.own_s) - (first.busy_s - first.own_s)
    assert others_s > 0.5 - 4 * TICK_S
    share = busy_other_pct(first, last)
    assert share is not None
    assert share > 0


def test_a_process_that_has_ended_has_no_time() -> None:
    child = subprocess.Popen([sys.executable, "-c", ""])
    process = psutil.Process(child.pid)
    child.wait()
    assert load.until_now([process]).own_s == 0


def test_the_busiest_is_named() -> None:
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as burning:
        try:
            busy_pct, busiest = load.look(0.3)
        finally:
            burning.kill()
    assert busy_pct > 0
    assert busiest


def test_a_busy_machine_is_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(load, "look", lambda _: (45.4, "chrome"))
    assert any("45 % busy (most of all chrome)" in text for text in before.warnings([]))
    monkeypatch.setattr(load, "look", lambda _: (45.4, None))
    assert any("45 % busy:" in text for text in before.warnings([])), "in a virtual machine it may be another guest"
    monkeypatch.setattr(load, "look", lambda _: (9.0, "chrome"))
    assert not any("busy" in text for text in before.warnings([]))
