"""`mlx_lm.generate`: three lines below the text that it generated."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from results.importers.mlx_lm_benchmark import add_run, model_of_command
from results.importers.rows import Imported
from results.importers.source import Cells, Format

if TYPE_CHECKING:
    from results.importers.source import Source

_TOOL = "mlx_lm.generate"
_STATISTICS = re.compile(
    r"^(?P<of_batch>\[batch_generate\] )?Prompt: (?P<n_prompt>\d+) tokens, (?P<prompt_tps>[\d.]+) tokens-per-sec\n"
    r"(?:\[batch_generate\] )?Generation: (?P<n_gen>\d+) tokens, (?P<generation_tps>[\d.]+) tokens-per-sec\n"
    r"(?:(?:\[batch_generate\] )?Peak memory: (?P<peak_memory>[\d.]+) GB)?",
    re.MULTILINE,
)


def _recognises(source: Source) -> bool:
    return _STATISTICS.search(source.text + "\n") is not None


def _read(source: Source) -> Imported:
    out = Imported(source, _TOOL)
    models = [name for _, line in source.lines() if (name := model_of_command(line))]
    for match in _STATISTICS.finditer(source.text + "\n"):
        line = source.text.count("\n", 0, match.start()) + 1
        if match["of_batch"]:
            out.leave_out(line, "a batch whose size is not told")
            continue
        if out.rows:  # each is a process of its own
            out.next_run()
        add_run(out, Cells(match.groupdict(), source, line), models[-1] if len(set(models)) == 1 else None)
    return out


FORMAT = Format(_TOOL, _recognises, _read)
