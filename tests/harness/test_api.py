"""What a notebook gets from `import harness`."""

import subprocess
import sys

import harness


def test_every_name_is_there_and_found_by_tab() -> None:
    assert all(callable(getattr(harness, name)) for name in harness.__all__)
    assert set(harness.__all__) <= set(dir(harness))
    assert issubclass(harness.UserError, harness.TokenroofError)


def test_importing_it_is_light() -> None:
    code = "import sys, harness; print(sorted({'pandas', 'pyarrow', 'torch', 'llama_cpp', 'mlx'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


def test_the_commands_functions_are_there() -> None:
    table = harness.models_table()
    assert {"llama-3.2-1b", "gpt2-mini", "qwen3-30b-a3b"} <= set(table["name"])
    assert harness.Options(models="gpt2-mini", n_prompt=64).models == ("gpt2-mini",)
