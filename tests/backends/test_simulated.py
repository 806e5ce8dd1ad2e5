"""The simulated backend keeps its contract, its times and its promised failures."""

import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from backends import simulated
from backends.base import BackendError, LoadRequest, OutOfMemoryError
from backends.conformance import assert_conforms

ONE_TOKEN = np.zeros((1, 1), np.int32)


def load(**options):
    return simulated.load(LoadRequest(Path(), weight_format=None, engine_options=options))


def test_it_conforms():
    assert_conforms(lambda: load(ttft_s=0, itl_s=0), tolerance=0)


def test_nothing_is_ready_before_its_time():
    # Lower bounds only: a busy machine may be late, but never early.
    start = time.perf_counter()
    session = load(load_s=0.02, ttft_s=0.03, itl_s=0.004)
    loaded = time.perf_counter()
    session.allocate(16, batch=1)
    begun = time.perf_counter()
    session.prefill(ONE_TOKEN)
    prefilled = time.perf_counter()
    steps = [time.perf_counter() for _ in session.decode(np.zeros((1, 10), np.int32))]

    assert loaded - start >= 0.02
    assert prefilled - begun >= 0.03
    for number, ready in enumerate(steps, 1):
        assert ready - prefilled >= number * 0.004
    assert all(earlier <= later for earlier, later in pairwise(steps))


class Clock:
    """Advances by one second each time it is read."""

    now = 0.0

    def read(self):
        self.now += 1
        return self.now


def test_steps_end_at_fixed_times_whatever_the_host_does_between_them(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(simulated.time, "perf_counter", clock.read)
    session = load(itl_s=100)
    session.allocate(16, batch=1)
    clock.now = 0
    ready = []
    for _ in session.decode(np.zeros((1, 6), np.int32)):
        ready.append(clock.now)
        if len(ready) == 2:
            clock.now += 230

    # The host was away from 201 to 431: by then steps 3 and 4, due at 301 and 401, had ended.
    assert ready == [101, 201, 432, 433, 501, 601]


def test_answers_depend_on_every_token_before_them():
    session = load()
    session.allocate(4, batch=1)
    tokens = np.array([[5, 6, 7, 8]], np.int32)
    first = session.logits(tokens)
    session.reset()
    tokens[0, 0] = 4
    assert not np.array_equal(session.logits(tokens)[:, -1], first[:, -1])


@pytest.mark.parametrize(("fault", "error"), [("error", BackendError), ("oom", OutOfMemoryError)])
def test_faults_that_raise(fault, error):
    with pytest.raises(error):
        load(fault=fault, fault_at="load")

    session = load(fault=fault, fault_at="prefill")
    session.allocate(16, batch=1)
    with pytest.raises(error):
        session.prefill(ONE_TOKEN)

    session = load(fault=fault, fault_at="decode", ttft_s=0, itl_s=0)
    session.allocate(16, batch=1)
    steps = session.decode(np.zeros((1, 4), np.int32))
    next(steps)
    next(steps)
    with pytest.raises(error):
        next(steps)


def test_a_fault_can_be_kept_to_one_allocated_context():
    session = load(fault="error", fault_at="prefill", fault_context=32, ttft_s=0)
    session.allocate(16, batch=1)
    session.prefill(ONE_TOKEN)
    session.allocate(32, batch=1)
    with pytest.raises(BackendError):
        session.prefill(ONE_TOKEN)


CRASH = """
from pathlib import Path
from backends import simulated
from backends.base import LoadRequest
options = {"fault": "crash", "fault_at": "load", "use_extra_bufts": %s}
simulated.load(LoadRequest(Path(), weight_format=None, engine_options=options))
"""


@pytest.mark.parametrize("use_extra_bufts", [True, False])
def test_a_crash_kills_the_process_unless_the_option_avoids_it(use_extra_bufts):
    code = CRASH % use_extra_bufts
    root = Path(simulated.__file__).parents[1]
    process = subprocess.run([sys.executable, "-c", code], cwd=root, check=False)
    assert (process.returncode != 0) == use_extra_bufts


@pytest.mark.parametrize("change", [{"device": "gpu"}, {"flash_attn": "on"}, {"kv_v_format": "q8_0"}])
def test_what_it_does_not_simulate_is_an_error(change):
    with pytest.raises(BackendError, match="simulated"):
        simulated.load(LoadRequest(Path(), weight_format=None, **change))


def test_an_unknown_option_is_an_error():
    with pytest.raises(BackendError, match="ttft"):
        load(ttft=1)
