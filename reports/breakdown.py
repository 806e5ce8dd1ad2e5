"""Where the time of the decode steps went, in words: a paragraph for each engine and model, one for each machine."""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING

import pandas as pd

from harness.roofline.breakdown import fit_sizes
from reports.breakdown_sentences import sentences, size_sentence
from reports.numbers import number
from reports.page.texts import name
from reports.summary import ENGINE, asked_of, telling_settings

if TYPE_CHECKING:
    from reports.words import Words

_NEEDED = ["tpot_s", "streamed_bytes_per_token", "kv_read_bytes"]
_EXPERTS = ["experts_hit", "experts_hit_expected"]
_ENGINE = ["machine", "backend", "weight_format", "batch", "n_gen"]
_MODEL = ["model", "asked", "prompt_file"]
_LEAST_SIZES = 3


def breakdown_text(rows: pd.DataFrame, words: Words) -> str:
    """Say where the time went, from each model's depths and from a machine's model sizes; empty where no row tells.

    Args:
        rows: as `results.read.read` gives them.
        words: of the language to speak.
    """
    ok = rows[(rows["status"] == "ok") & (rows["kv_cache"] == "on") & rows[_NEEDED].notna().all(axis=1)]
    if ok.empty:
        return ""
    points = _with_settings(_launches(ok.assign(asked=asked_of(ok))))
    paragraphs = []
    machines, batches = points["machine"].nunique(), points["batch"].nunique()
    for (machine, backend, weight_format, batch, _), engine in points.groupby(_ENGINE, sort=False):
        who, form = backend, weight_format
        if machines > 1:
            who = words["breakdown.engine_on_machine"].format(engine=backend, machine=machine)
        if batches > 1:
            form = words["breakdown.format_and_batch"].format(format=weight_format, batch=batch)
        told = {"who": who, "format": form}
        models = list(engine.groupby(_MODEL, dropna=False, sort=False))
        for (model_name, _, prompt), model in models:
            said = _joined([*_model_sentences(model, words), *_experts(model, prompt, words)], words)
            named = told | {"who": ", ".join(filter(None, [str(who), model["settings"].iloc[0]]))}
            paragraphs.append(words["breakdown.of_model"].format(**named, model=model_name, text=said))
        if text := _sizes_text([model for _, model in models], words):
            paragraphs.append(words["breakdown.of_sizes"].format(**told, text=text))
    return "\n".join(paragraphs)


def _launches(rows: pd.DataFrame) -> pd.DataFrame:
    """One point a launch and case: repetitions within a launch are too alike to be points of their own.

    Its time a token is that of the median rate, which the table shows; of an even number of repetitions the median time
    would be another one's.
    """
    case = ["n_depth", "n_prompt", "run_id", "launch"]
    columns = [*_NEEDED, "bandwidth_measured_gbs", *_EXPERTS]
    points = (
        rows.assign(tpot_s=1 / rows["tpot_s"])
        .groupby([*_ENGINE, *_MODEL, *case], dropna=False, sort=False)[columns]
        .median()
        .reset_index()
        .astype(dict.fromkeys(columns, float))
    )
    return points.assign(tpot_s=1 / points["tpot_s"])


def _with_settings(points: pd.DataFrame) -> pd.DataFrame:
    """`settings`: what was asked, where it tells a paragraph from another of its engine and model."""
    unsaid = dict.fromkeys(ENGINE, pd.Series(pd.NA, points.index, dtype="str"))
    alike = [*_ENGINE, *(column for column in _MODEL if column != "asked")]
    return points.assign(settings=telling_settings(points.assign(**unsaid), alike))


def _joined(told: list[str], words: Words) -> str:
    return reduce(lambda text, more: words["breakdown.joined"].format(text=text, more=more), told)


def _model_sentences(model: pd.DataFrame, words: Words) -> list[str]:
    shallow = model.sort_values("kv_read_bytes").iloc[0]
    bandwidth = shallow["bandwidth_measured_gbs"]
    return sentences(
        model["kv_read_bytes"],
        model["tpot_s"],
        words,
        streamed_bytes=shallow["streamed_bytes_per_token"],
        bandwidth_bytes_s=bandwidth * 1e9 if bandwidth > 0 else None,
    )


def _experts(model: pd.DataFrame, prompt: object, words: Words) -> list[str]:
    """How many of a mixture's experts a step reads; of a single sequence it is known beforehand."""
    batch = int(model["batch"].iloc[0])
    hit, expected = model[_EXPERTS].median()
    if batch == 1 or not hit > 0:
        return []
    text = name(prompt) if isinstance(prompt, str) else words["breakdown.random_tokens"]
    told = {"batch": batch, "hit": number(hit), "expected": number(expected)}
    return [words["breakdown.experts"].format(text=text, **told)]


def _sizes_text(models: list[pd.DataFrame], words: Words) -> str | None:
    """What three or more sizes tell, each at its shallowest depth."""
    shallow = [model[model["kv_read_bytes"] == model["kv_read_bytes"].min()] for model in models]
    if len({model["streamed_bytes_per_token"].iloc[0] for model in shallow}) < _LEAST_SIZES:
        return None
    streamed = [size for model in shallow for size in model["streamed_bytes_per_token"] + model["kv_read_bytes"]]
    return size_sentence(fit_sizes(streamed, [time for model in shallow for time in model["tpot_s"]]), words)
