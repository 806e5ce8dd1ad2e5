"""Do engines that met the same model give the same answers? Said wherever their rows meet.

Every launch scores one probe sequence and writes 16 of its logits from the first 64 tokens, and 16 from past 2048
where the context allows, into its rows. Two engines agree when the relative L2 distance of these logits is at most
`MARGIN` times the floor: the distance that rounding in their formats makes by itself.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from results.errors import ResultsError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Flags = NDArray[np.bool_]
    Ids = NDArray[np.int32]
    Indices = NDArray[np.intp]

MARGIN = 3
# Relative L2 between right engines, by the element format of the weights or of the KV cache, as
# benchmarks/verification_floors.py measures it between torch and llama.cpp: f32 up to 0.0003, f16 up to 0.002, bf16 up
# to 0.02 on presets of 0.02 to 1.2 billion parameters; with depth rounding grows (bf16 against f32 at a 70 B model's 80
# layers: 0.03), so some room is left.
FLOORS = {"f32": 0.0005, "f16": 0.003, "bf16": 0.024}

PLACES = 16  # logits in each of the near and the far part of a probe

ENGINE = ["machine", "backend"]
WEIGHTS = ["weights_id", "architecture"]
FORMATS = ["weight_format", "kv_k_format", "kv_v_format"]
# What makes two sets of launches of one engine different.
SETTINGS = [
    "backend_version",
    "engine_build",
    "engine_mode",
    "device",
    "n_threads",
    "gpu_layers_effective",
    "flash_attn",
    "engine_settings",
    *FORMATS,
]
LAUNCH = ["run_id", "launch"]  # each scores its own probe
CASE = ["model", "weights_id", "weight_format", "n_depth", "n_prompt", "n_gen", "batch"]
ANSWER_PAIR = ["row_id_a", "row_id_b", "argmax_a", "argmax_b"]
VERDICT = ["verified", "verified_with", "verified_why"]


def verify(rows: pd.DataFrame) -> pd.DataFrame:
    """Judge each row's probe against those of other engines that ran the same model.

    Engines are other ones where the backend or the machine differs: an engine does not vouch for itself, but where
    its own settings disagree with each other, that is said.

    Args:
        rows: as `results.read.read` gives them, of one file or of several.

    Returns:
        The rows with three more text columns: `verified`, "yes" (agrees with at least one other engine), "no" (met
        others, agrees with none) or missing; `verified_with`, the engines that it agrees with; `verified_why`, why
        it is not "yes", with distance and limit, and where the engine disagrees with itself.

    Raises:
        ResultsError: a probe is not a list of 16 or 32 numbers.
    """
    probe, first = _groups(rows, ["model", *WEIGHTS, *ENGINE, *SETTINGS, *LAUNCH, "probe_logits"])
    distinct = rows.iloc[first].reset_index(drop=True)
    judged = [_judge(same_model) for _, same_model in distinct.groupby("model", sort=False)]
    verdicts = pd.concat([pd.DataFrame(columns=VERDICT, dtype=object), *judged]).loc[distinct.index]
    return rows.assign(**{name: verdicts[name].to_numpy()[probe] for name in VERDICT})


def _judge(probes: pd.DataFrame) -> pd.DataFrame:
    """The verdict on each launch's probe, of the models that share a name.

    A group is an engine with one choice of settings and as many places in its probes. Each probe is compared with
    each group's median probe, so that one bad launch spoils no other's verdict, and many launches stay cheap.
    """
    logits = [_logits(cell) for cell in probes["probe_logits"]]
    places = np.array([len(probe) for probe in logits])
    engine, _ = _groups(probes, ENGINE)
    weights, _ = _groups(probes, WEIGHTS)
    group, first = _groups(probes.assign(places=places), [*WEIGHTS, *ENGINE, *SETTINGS, "places"])
    floor = _floors(probes)
    identified = probes["weights_id"].notna().to_numpy()
    meeting = _Meeting(
        names=_engine_names(probes).iloc[first].tolist(),
        scored=places > 0,
        identified=identified,
        other=engine[:, None] != engine[first],
        same=(weights[:, None] == weights[first]) & identified[:, None],
        comparable=(places[:, None] > 0) & (places[first] > 0),
        distance=_distances(logits, group, first),
        limit=MARGIN * np.maximum(floor[:, None], floor[first]),
    )
    verdicts = [meeting.verdict(i) for i in range(len(probes))]
    return pd.DataFrame(verdicts, probes.index, VERDICT, dtype=object)


@dataclass(frozen=True)
class _Meeting:
    """Probes of the models that share a name, `[P]`, and the groups that they are compared with, `[G]`."""

    names: list[str]  # [G]
    scored: Flags  # [P]
    identified: Flags  # [P]: it is known which weights these are
    other: Flags  # [P, G]: the group is of another engine
    same: Flags  # [P, G]: both have the same weights
    comparable: Flags  # [P, G]: both were scored
    distance: Floats  # [P, G]
    limit: Floats  # [P, G]; NaN where a format has no floor

    def verdict(self, i: int) -> tuple[str | None, str | None, str | None]:
        """`verified`, `verified_with` and `verified_why` of probe i."""
        met = self.same[i] & self.comparable[i]
        agrees = met & (self.distance[i] <= self.limit[i])
        differs = met & (self.distance[i] > self.limit[i])
        friends = sorted({self.names[k] for k in np.flatnonzero(agrees & self.other[i])})
        itself = self._nearest(i, differs & ~self.other[i], "its own launches disagree: ")
        if friends:
            return "yes", ", ".join(friends), "; ".join(itself) or None
        stranger = self._nearest(i, differs & self.other[i], "differs from ")
        if stranger:
            return "no", None, "; ".join([*stranger, *itself])
        return None, None, "; ".join([self._why_unjudged(i), *itself])

    def _nearest(self, i: int, groups: Flags, what: str) -> list[str]:
        """What to say of the nearest of the marked groups; nothing where none is marked."""
        marked = np.flatnonzero(groups)
        nearest = marked[np.argsort(self.distance[i, marked])[:1]]
        return [
            f"{what}{self.names[k]} (relative L2 {self.distance[i, k]:.2g}, limit {self.limit[i, k]:.2g})"
            for k in nearest
        ]

    def _why_unjudged(self, i: int) -> str:
        other, comparable = self.other[i], self.other[i] & self.comparable[i]
        reasons = [
            (not self.scored[i], "its probe was not scored"),
            (not other.any(), "no other engine ran this model"),
            (not comparable.any(), "no other engine's probe was scored"),
            (not self.identified[i], "its weights are not identified"),
            (not (comparable & self.same[i]).any(), "no other engine ran the same weights"),
        ]
        return next((reason for holds, reason in reasons if holds), "no floor is known for these formats")


def _engine_names(rows: pd.DataFrame) -> pd.Series[str]:
    return rows["backend"] + " on " + rows["machine"]


def _groups(table: pd.DataFrame, columns: list[str]) -> tuple[Indices, Indices]:
    """Which group of equal cells each row is in, and each group's first row; empty cells are equal."""
    numbers = table.groupby(columns, dropna=False, sort=False).ngroup()
    _, first, group = np.unique(numbers, return_index=True, return_inverse=True)
    return group, first


def _logits(cell: object) -> list[float | None]:
    """A probe's logits; none where it was not scored."""
    if not isinstance(cell, str):
        return []
    logits = json.loads(cell)
    if not isinstance(logits, list) or len(logits) not in (PLACES, 2 * PLACES):
        raise ResultsError(f"probe_logits: {PLACES} or {2 * PLACES} numbers expected, not {cell[:60]}")
    return logits


def _distances(probes: list[list[float | None]], group: Indices, first: Indices) -> Floats:
    """Relative L2 of each probe to each group's median probe, the larger of near and far; infinite for NaN.

    Far places count where both have them.
    """
    logits = np.full((len(probes), 2 * PLACES), np.nan)
    for i, probe in enumerate(probes):
        logits[i, : len(probe)] = probe
    has_far = np.array([len(probe) > PLACES for probe in probes])
    distances = np.empty((len(probes), len(first)))
    for k in range(len(first)):
        median = np.median(logits[group == k], axis=0)
        near = _relative_l2(logits[:, :PLACES], median[:PLACES])
        far = _relative_l2(logits[:, PLACES:], median[PLACES:])
        distances[:, k] = np.where(has_far & has_far[first[k]], np.maximum(near, far), near)
    return np.nan_to_num(distances, nan=np.inf)


def _relative_l2(vectors: Floats, reference: Floats) -> Floats:
    """Distance over the larger norm, so that it is the same seen from either side."""
    norm = np.linalg.norm
    with np.errstate(invalid="ignore"):
        distance: Floats = norm(vectors - reference, axis=1) / np.maximum(norm(vectors, axis=1), norm(reference))
    return distance


def _floors(probes: pd.DataFrame) -> Floats:
    """The coarsest format's floor for each probe; NaN where one of its formats has none."""
    floors: Floats = probes[FORMATS].apply(lambda cells: cells.map(FLOORS)).max(axis=1, skipna=False).to_numpy(float)
    return floors


def argmax_agreement(samples: pd.DataFrame, rows: pd.DataFrame) -> pd.DataFrame:
    """How often two engines answered the same token, where they did the same timed work.

    Args:
        samples: as `results.samples.read_samples` gives them.
        rows: their rows.

    Returns:
        One line for each case and pair of engines: the case's columns, `engine_a`, `engine_b`, `ids` (compared) and
        `agreement` (the equal fraction of them). One repetition stands for each engine and token stream.
    """
    work = [*CASE, "tokens_sha256"]
    answered = rows[(rows["status"] == "ok") & rows["row_id"].isin(samples["row_id"])]
    one_each = answered.dropna(subset=["weights_id", "tokens_sha256"]).drop_duplicates([*work, *ENGINE])
    answers = one_each.assign(engine=_engine_names(one_each)).merge(samples[["row_id", "argmax"]], on="row_id")
    answers = answers[[*work, "engine", "row_id", "argmax"]].dropna(subset=["argmax"])
    pairs = answers.merge(answers, on=work, suffixes=("_a", "_b"))
    pairs = pairs[pairs["engine_a"] < pairs["engine_b"]]
    counts = [_equal_ids(*pair) for pair in zip(*(pairs[c] for c in ANSWER_PAIR), strict=True)]
    pairs = pairs.assign(equal=[equal for equal, _ in counts], ids=[ids for _, ids in counts])
    summed = pairs.groupby([*CASE, "engine_a", "engine_b"], sort=False)[["equal", "ids"]].sum().reset_index()
    summed["agreement"] = summed.pop("equal") / summed["ids"]
    return summed


def _equal_ids(row_a: str, row_b: str, a: Ids, b: Ids) -> tuple[int, int]:
    if len(a) != len(b):
        raise ResultsError(f"samples of rows {row_a} and {row_b}: {len(a)} and {len(b)} ids for the same work")
    return int(np.count_nonzero(a == b)), len(a)
