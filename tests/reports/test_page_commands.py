"""The commands that repeat rows: parsed again by tokenroof's own parser, they give the cases that were there."""

import itertools
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from harness.workload import grid, parse_ints
from reports.page.boxes import boxes
from reports.page.commands import commands

TOKENROOF = Path(sys.executable).with_name("tokenroof")
ASKED = {"device": "auto", "flash_attn": "auto", "kv_k_format": "auto", "kv_v_format": "auto", "n_batch": 0}
ASKED |= {"n_gpu_layers": -1, "n_threads": 8, "n_ubatch": 0, "weights": "bf16"}

_points = st.sets(st.tuples(*[st.integers(0, 3)] * 3), min_size=1, max_size=30)


@given(_points, st.permutations(range(3)))
@settings(max_examples=200)
def test_boxes_hold_each_point_once_and_nothing_else(points: set[tuple[int, ...]], order: list[int]) -> None:
    held = [point for box in boxes(points, order) for point in itertools.product(*box)]
    assert sorted(held) == sorted(points)


def test_a_whole_grid_is_one_box() -> None:
    points = list(itertools.product((0, 64), (128, 512), (16,)))
    assert boxes(points, (2, 1, 0)) == [((0, 64), (128, 512), (16,))]


def _cases(command: str) -> set[tuple[Any, ...]]:
    """What `tokenroof run` makes of a command."""
    _, _, *words = shlex.split(command)
    flags = dict(zip(words[::2], words[1::2], strict=True))
    lists = {flag: parse_ints(flags.get(f"-{flag}", "0" if flag == "d" else "1"), flag=flag) for flag in "dpnB"}
    cases = grid(*(lists[flag] for flag in "dpnB"), flags.get("--kv-cache", "on").split(","))
    return {
        (backend, c.n_depth, c.n_prompt, c.n_gen, c.batch, c.kv_cache)
        for backend in flags["--backend"].split(",")
        for c in cases
    }


def test_a_grid_of_engines_and_cases_is_one_command(gathered: Any, make_row: Any) -> None:
    own_asked = {"torch": ASKED, "llama.cpp": ASKED | {"n_batch": 2048, "n_ubatch": 512}}
    rows = [
        make_row(backend=b, n_depth=d, n_prompt=p, launch=launch, repetition=r, engine_settings={"asked": own_asked[b]})
        for b in own_asked
        for d in (0, 4096)
        for p in (128, 512)
        for launch in (1, 2, 3)
        for r in (1, 2)
    ]
    assert commands(gathered(*rows).own) == [
        "tokenroof run -m llama-3.2-1b --backend torch,llama.cpp -t 8 -d 0,4096 -p 128,512 -n 128 -r 2 --launches 3 "
        "--machine spark -o again.csv"
    ]


def test_what_no_grid_holds_is_several_commands(gathered: Any, make_row: Any) -> None:
    done = {
        ("torch", 0, 512, 128, 1, "on"),
        ("torch", 64, 512, 128, 1, "on"),
        ("torch", 64, 512, 128, 1, "prefix"),
        ("mlx", 0, 512, 128, 1, "on"),
        ("mlx", 0, 512, 128, 1, "off"),
        ("mlx", 0, 64, 16, 4, "on"),
    }
    names = ("backend", "n_depth", "n_prompt", "n_gen", "batch", "kv_cache")
    rows = [make_row(**dict(zip(names, case, strict=True))) for case in sorted(done)]
    found = commands(gathered(*rows).own)
    assert set().union(*map(_cases, found)) == done
    assert sum(len(_cases(command)) for command in found) == len(done)


def test_settings_that_are_not_the_defaults_are_told(gathered: Any, make_row: Any) -> None:
    sweep = [ASKED | {"n_gpu_layers": n, "flash_attn": "on", "n_ubatch": 128, "n_batch": 2048} for n in (0, 16)]
    rows = [make_row(backend="llama.cpp", seed=7, engine_settings={"asked": asked}) for asked in sweep]
    (command,) = commands(gathered(*rows).own)
    assert " -ngl 0,16 -t 8 -fa on -ub 128 " in command
    assert " --seed 7 " in command


def test_a_placement_is_asked_for_again(gathered: Any, make_row: Any) -> None:
    placed = {"n_cpu_moe": 4, "kv_offload": False, "split_mode": "row", "tensor_split": [3.0, 1.0]}
    placed |= {"rpc": ["localhost:50052", "HOST:50053"], "cache_kind": "static", "allow_partial": True}
    (command,) = commands(gathered(make_row(engine_settings={"asked": ASKED | placed})).own)
    assert " -ncmoe 4 -nkvo 1 -sm row -ts 3/1 --rpc localhost:50052,HOST:50053 --cache-kind static " in command
    assert " --allow-partial -p 512 " in command  # a switch, without a value
    understood = subprocess.run(
        [TOKENROOF, *shlex.split(command)[1:], "--dry-run", "--format", "json"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert "--dry-run prints a plan" in understood.stderr  # no flag or value was refused before this


def test_a_text_is_asked_for_again_and_random_ids_without_one(gathered: Any, make_row: Any) -> None:
    texts = [make_row(n_depth=depth, prompt_file="alice's.txt") for depth in (0, 64)]
    random, text = commands(gathered(make_row(), *texts).own)
    assert "--prompt-file" not in random
    words = shlex.split(text)
    assert words[words.index("--prompt-file") + 1] == "alice's.txt"
    assert words[words.index("-d") + 1] == "0,64"


def test_names_are_quoted_for_a_shell_and_imported_rows_make_no_command(gathered: Any, make_row: Any) -> None:
    imported = make_row(provenance="imported", source="llama-bench", engine_settings=None)
    (command,) = commands(gathered(make_row(model="x; rm -rf ~", machine="it's"), imported).own)
    words = shlex.split(command)
    assert words[words.index("-m") + 1] == "x; rm -rf ~"
    assert words[words.index("--machine") + 1] == "it's"
