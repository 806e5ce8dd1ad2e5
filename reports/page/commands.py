"""The commands that measure again what rows hold, made from what their engines were asked for."""

from __future__ import annotations

import json
import shlex
from typing import TYPE_CHECKING, Any

from reports.page.boxes import boxes
from reports.summary import asked_of
from results.asked import DEFAULTS, flags_of
from results.schema import MEASURED

if TYPE_CHECKING:
    import pandas as pd

_CASE = {"-d": "n_depth", "-p": "n_prompt", "-n": "n_gen", "-B": "batch", "--kv-cache": "kv_cache"}
_TEXT = "prompt_file"
_SERVER = "--base-url"  # a server is started by its user: it has an address, and no launches
_FLAGS = (
    "-m",
    "--backend",
    _SERVER,
    *DEFAULTS,
    *_CASE,
    "--prompt-file",
    "-r",
    "--launches",
    "--seed",
)
_LISTS = (
    *("-n", "-p", "-d", "-B", "--kv-cache", "-ub", "-b", "-ctv", "-ctk", "-fa", "-t", "-nkvo", "-ncmoe", "-ngl"),
    *("--cache-kind", "-ts", "-sm", "-w", "--backend", "-m"),
)
_DEFAULTS = DEFAULTS | {"-d": "0", "-B": "1", "--kv-cache": "on", "--seed": "1"}
_DEFAULTS |= {"--prompt-file": "", _SERVER: "", "--launches": ""}
_SWITCH = "--allow-partial"  # takes no value


def commands(rows: pd.DataFrame) -> list[str]:
    """The `tokenroof run` commands that repeat one machine's rows, each case once.

    Args:
        rows: of one machine, as `results.read.read` gives them; those that tokenroof did not measure are passed over.
    """
    measured = rows[rows["provenance"] == MEASURED]
    if measured.empty:
        return []
    launch = measured["run_id"] + " " + measured["launch"].astype(str)
    measured = measured.assign(asked=asked_of(measured), one=launch)
    work = ["model", "backend", "asked"]
    counts = measured.groupby(work, sort=False).agg(launches=("one", "nunique"), repetitions=("repetition", "max"))
    measured = measured.assign(address=measured["engine_settings"].map(_address))
    cases = (
        measured[[*work, "address", *_CASE.values(), _TEXT, "seed"]]
        .drop_duplicates()
        .merge(counts.reset_index(), on=work)
    )
    points = map(_point, cases.to_dict("records"))
    label = measured["machine"].iloc[0]
    return [_command(dict(zip(_FLAGS, box, strict=True)), label) for box in boxes(points, [*map(_FLAGS.index, _LISTS)])]


def _point(row: dict[Any, Any]) -> tuple[Any, ...]:
    """The value of each flag for one row."""
    asked = json.loads(row["asked"])
    values: dict[str, Any] = dict(flags_of(asked))
    values |= {flag: row[column] for flag, column in _CASE.items()}
    values |= {"-m": row["model"], "--backend": row["backend"], "--seed": int(row["seed"])}
    values["--prompt-file"] = row[_TEXT] if isinstance(row[_TEXT], str) else ""  # pandas' empty cell is NaN
    values |= {"-r": int(row["repetitions"]), "--launches": int(row["launches"]), _SERVER: row["address"]}
    if row["address"]:
        values |= {"--launches": "", "-w": asked.get("weights", "")}
        values["--artifact"] = values["--artifact"] and f"{row['backend']}={values['--artifact']}"
    return tuple(values[flag] for flag in _FLAGS)


def _address(engine_settings: object) -> str:
    """Of the server; "" where an engine ran in a process of tokenroof's."""
    settings = json.loads(engine_settings) if isinstance(engine_settings, str) else {}
    return str(settings.get("base_url", "")) if isinstance(settings, dict) else ""


def _command(values: dict[str, tuple[Any, ...]], label: str) -> str:
    words = ["tokenroof", "run"]
    defaults = _DEFAULTS | ({} if values[_SERVER] == ("",) else {"-w": ""})  # nobody knows what a server holds
    for flag, several in values.items():
        if flag == "-m":
            words += [word for model in several for word in ("-m", model)]
        elif flag not in defaults or [*map(str, several)] not in ([defaults[flag]], [""]):
            words += [flag] if flag == _SWITCH else [flag, ",".join(map(str, several))]
    words += ["--machine", label, "-o", "again.csv"]
    return " ".join(map(shlex.quote, words))
