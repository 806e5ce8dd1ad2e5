"""The answer in sentences: how fast each machine decodes, how close that is to its ceiling, and why not closer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from reports.headline import headlines, no_headline
from reports.numbers import number, percent
from reports.page.texts import name
from reports.page.time_table import parts
from reports.skipped import skipped_rows
from reports.summary import plain

if TYPE_CHECKING:
    import pandas as pd

    from harness.roofline.breakdown import Split
    from reports.gather import Gathered
    from reports.words import Words

Line = dict[str, Any]

_MOST_MACHINES = 12


def answer(gathered: Gathered, lines: pd.DataFrame, words: Words) -> list[str]:
    """Sentences, the most important first.

    Args:
        gathered: the rows.
        lines: `summarise` of those that count.
        words: of the page's language.
    """
    n_faulty, n_unlike = len(gathered.faulty), len(gathered.incomparable)
    n_failed, n_skipped = int((gathered.own["status"] == "failed").sum()), len(skipped_rows(gathered.own))
    n_tried = int((gathered.own["status"] != "skipped").sum())
    sentences = _rates(lines, words) or [no_headline(gathered, lines, words)]
    if 0 < n_failed < n_tried:
        sentences.append(words["answer.failed"].format(n=n_failed, all=n_tried))
    if 0 < n_skipped < len(gathered.own):
        sentences.append(words["answer.skipped"].format(n=n_skipped))
    if n_faulty + n_unlike:
        text = words["answer.left_out"]
        sentences.append(text.format(n=n_faulty + n_unlike, unlike=n_unlike, faulty=n_faulty))
    return sentences


def _rates(lines: pd.DataFrame, words: Words) -> list[str]:
    """On the workload that most machines did, then on the next one for the machines that did not do it.

    Empty where there is no decode rate to show.
    """
    sentences: list[str] = []
    told: set[str] = set()
    for group in headlines(lines):
        best = _best_of_machines(group, told)
        if not best:
            continue
        told |= {line["machine"] for line in best}
        first = best[0]
        work = {key: first[f"n_{key}"] for key in ("prompt", "depth", "gen")} | {"batch": first["batch"]}
        sentences += [_rate(line, words) for line in best[:_MOST_MACHINES]]
        if len(best) > _MOST_MACHINES:
            sentences.append(words["answer.more_machines"].format(n=len(best) - _MOST_MACHINES))
        sentences += [*_between(best, words), *_why(best, words), words["answer.work"].format(**work)]
    return [*sentences, words["answer.medians"]] if sentences else []


def _best_of_machines(group: pd.DataFrame, told: set[str]) -> list[Line]:
    """Each machine's fastest line, of those that no other engine contradicts where there are any."""
    trusted = group.assign(doubtful=group["verified"] == "no").sort_values("doubtful", kind="stable")
    best = trusted[~trusted["machine"].isin(told)].drop_duplicates("machine")
    return [plain(line) for line in best.sort_values("decode_tok_s", ascending=False).to_dict("records")]


def _rate(line: Line, words: Words) -> str:
    ceiling, kind = line["decode_ceiling_tok_s"], "rate"
    if ceiling is None:
        ceiling = line["decode_ceiling_spec_tok_s"]
        kind = "rate_alone" if ceiling is None else "rate_spec"
    elif line["decode_tok_s"] > ceiling:
        kind = "rate_above"
    elif line["decode_ceiling_bound"] == "compute":
        kind = "rate_compute"
    sentence = words[f"answer.{kind}"].format(
        machine=name(line["machine"]),
        model=name(line["model"]),
        format=name(line["weight_format"] or ""),
        engine=name(line["backend"]),
        rate=number(line["decode_tok_s"]),
        ceiling=number(ceiling),
        mbu=percent(line["decode_tok_s"] / ceiling if ceiling else None),
    )
    return f"{sentence} {words['answer.disagrees']}" if line["verified"] == "no" else sentence


def _between(best: list[Line], words: Words) -> list[str]:
    """What several machines say beside each other."""
    if len(best) < 2:
        return []
    fast, slow = best[0], best[-1]
    ratio = number(fast["decode_tok_s"] / slow["decode_tok_s"])
    sentences = [
        words["answer.ratio"].format(fast=name(fast["machine"]), slow=name(slow["machine"]), ratio=ratio),
    ]
    possible = [line for line in best if line["mbu"] is not None and line["mbu"] <= 1]
    if len(possible) > 1:
        top = max(possible, key=lambda line: line["mbu"])
        told = {"machine": name(top["machine"]), "engine": name(top["backend"]), "mbu": percent(top["mbu"])}
        sentences.append(words["answer.closest"].format(**told))
    return sentences


def _why(best: list[Line], words: Words) -> list[str]:
    """Where the time goes on the fastest machine of which it is known."""
    for line in best:
        split = parts(line)
        if split and split.rest_s > 0:
            return [_split(line, split, words)]
    return []


def _split(line: Line, split: Split, words: Words) -> str:
    return words["answer.why"].format(
        machine=name(line["machine"]),
        tpot=number(1e3 * split.tpot_s),
        weights=number(1e3 * split.weights_s),
        kv=number(1e3 * split.kv_s),
        rest=number(1e3 * split.rest_s),
        bandwidth=number(line["bandwidth_measured_gbs"]),
    )
