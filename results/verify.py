"""Do engines that met the same model give the same answers? Said wherever their rows meet.

Every launch scores one probe sequence and writes 16 of its logits from the first 64 tokens, and 16 from past 2048
where the context allows, into its rows. Two engines agree when the relative L2 distance of these logits is at most
`MARGIN` times the floor: the distance that rounding in their formats makes by itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from results.cells import document
from results.errors import ResultsError
from results.schema import BY_NAME, CASE
from results.schema import PROBE_PLACES as PLACES

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

Verdict = tuple[str | None, str | None, str | None]

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
WORK = ["model", "weights_id", "weight_format", *CASE]
ANSWER_PAIR = ["row_id_a", "row_id_b", "argmax_a", "argmax_b"]
PROBE = ["model", *WEIGHTS, *ENGINE, *SETTINGS, *LAUNCH, "probe_logits"]  # all that a verdict follows from
VERDICT = ["verified", "verified_with", "verified_why"]

_MOST_NAMES = 3  # in a verdict; where a thousand machines meet, each row would else list them all
_BLOCK = 1 << 17  # distances that are held at once, so few that they stay in the processor's cache
_FAR = 1e300  # farther than any two probes, nearer than what is not compared


def verify(rows: pd.DataFrame) -> pd.DataFrame:
    """Judge each row's probe against those of other engines that ran the same model.

    Engines are other ones where the backend or the machine differs: an engine does not vouch for itself, but where
    its own settings disagree with each other, that is said.

    Args:
        rows: as `results.read.read` gives them, of one file or of several.

    Returns:
        The rows with three text columns filled anew: `verified`, "yes" (agrees with at least one other engine), "no"
        (met others, agrees with none) or missing; `verified_with`, the engines that it agrees with, three by name
        and the rest by number; `verified_why`, why it is not "yes", with distance and limit, and where the engine
        disagrees with itself.

    Raises:
        ResultsError: a probe is not a list of 16 or 32 numbers.
    """
    probe, first = _groups(rows, PROBE)
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
    probes = probes.assign(
        name=_engine_names(probes),
        engine=_groups(probes, ENGINE)[0],
        weights=_groups(probes, WEIGHTS)[0],
        identified=probes["weights_id"].notna(),
        quantised=probes["weight_format"].notna() & ~probes["weight_format"].isin(FLOORS),
        floor=_floors(probes),
        places=[len(probe) for probe in logits],
    )
    matrix = _matrix(logits)
    group, first = _groups(probes, ["weights", "engine", *SETTINGS, "places"])
    medians = np.array([np.median(matrix[rows], axis=0) for rows in _members(group)])
    by_name = np.argsort(probes["name"].iloc[first].to_numpy(str), kind="stable")
    facts = probes[["name", "backend", "engine", "weights", "identified", "quantised", "floor", "places"]]
    groups = facts.iloc[first[by_name]]
    # Launches of one group with equal logits fare alike, so one of them is judged for all.
    kind, distinct = _groups(probes.assign(group=group), ["group", "probe_logits"])
    height = max(1, _BLOCK // len(groups))
    verdicts: list[Verdict] = []
    for block in np.split(distinct, range(height, len(distinct), height)):
        verdicts += _verdicts(facts.iloc[block], matrix[block], groups, medians[by_name])
    return pd.DataFrame([verdicts[k] for k in kind], probes.index, VERDICT, dtype=object)


def _verdicts(probes: pd.DataFrame, logits: Floats, groups: pd.DataFrame, medians: Floats) -> list[Verdict]:
    """The verdicts on probes, `[P]`, of the models that share a name, from the groups, `[G]`, sorted by engine."""

    def pairs(column: str) -> tuple[NDArray[Any], NDArray[Any]]:
        return probes[column].to_numpy()[:, None], groups[column].to_numpy()

    places, their_places = pairs("places")
    square = _squares(logits, medians, both_far=(places > PLACES) & (their_places > PLACES))
    limit = MARGIN * np.maximum(*pairs("floor"))
    other = np.not_equal(*pairs("engine"))
    comparable = (places > 0) & (their_places > 0)
    identified = probes["identified"].to_numpy()
    met = comparable & np.equal(*pairs("weights")) & identified[:, None]
    agrees = met & (square <= limit**2)
    differs = met & ~agrees & ~np.isnan(limit)

    names = groups["name"].to_numpy(str)
    friends = _friends(agrees & other, names)
    strangers = [f"differs from {near}" if near else "" for near in _nearest(differs & other, square, limit, names)]
    itself = [
        f"its own launches disagree: {near}" if near else ""
        for near in _nearest(differs & ~other, square, limit, names)
    ]
    unjudged = np.select(
        [
            (places[:, 0] == 0) & (probes["backend"] == "openai").to_numpy(bool),
            places[:, 0] == 0,
            ~other.any(axis=1),
            ~(other & comparable).any(axis=1),
            ~identified,
            ~(other & met).any(axis=1) & probes["quantised"].to_numpy(),
            ~(other & met).any(axis=1),
        ],
        [
            "a server's protocol shows no logits to compare",
            "its probe was not scored",
            "no other engine ran this model",
            "no other engine's probe was scored",
            "its weights are not identified",
            "no other engine ran the same weights: these are quantised, and each engine quantises in its own way",
            "no other engine ran the same weights",
        ],
        "no floor is known for these formats",
    ).tolist()
    return [_verdict(*found) for found in zip(friends, strangers, itself, unjudged, strict=True)]


def _verdict(friends: str, stranger: str, itself: str, unjudged: str) -> Verdict:
    """`verified`, `verified_with` and `verified_why` of one probe; each text is empty where it does not apply."""
    if friends:
        return "yes", friends, itself or None
    if stranger:
        return "no", None, "; ".join(filter(None, [stranger, itself]))
    return None, None, "; ".join(filter(None, [unjudged, itself]))


def _friends(agrees: Flags, names: NDArray[np.str_]) -> list[str]:
    """The engines that each probe agrees with, from its groups `[P, G]` and their engines' sorted names."""
    engines, starts = np.unique(names, return_index=True)
    of_engine = np.logical_or.reduceat(agrees, starts, axis=1)
    named = of_engine & (np.cumsum(of_engine, axis=1) <= _MOST_NAMES)
    rows, columns = np.nonzero(named)
    listed = [", ".join(engines[found]) for found in np.split(columns, np.searchsorted(rows, range(1, len(agrees))))]
    more: list[int] = (of_engine & ~named).sum(axis=1).tolist()
    return [f"{text} and {n} more" if n else text for text, n in zip(listed, more, strict=True)]


def _nearest(marked: Flags, square: Floats, limit: Floats, names: NDArray[np.str_]) -> list[str]:
    """The nearest of each probe's marked groups, with distance and limit; nothing where none is marked."""
    found = [""] * len(marked)
    some = np.flatnonzero(marked.any(axis=1))
    nearest = np.where(marked[some], np.fmin(square[some], _FAR), np.inf).argmin(axis=1)
    distance = np.sqrt(np.nan_to_num(square[some, nearest], nan=np.inf))
    for i, k, far in zip(some.tolist(), nearest.tolist(), distance.tolist(), strict=True):
        found[i] = f"{names[k]} (relative L2 {far:.2g}, limit {limit[i, k]:.2g})"
    return found


def _engine_names(rows: pd.DataFrame) -> pd.Series[str]:
    return rows["backend"] + " on " + rows["machine"]


def _groups(table: pd.DataFrame, columns: list[str]) -> tuple[Indices, Indices]:
    """Which group of equal cells each row is in, and each group's first row; empty cells are equal."""
    numbers = table.groupby(columns, dropna=False, sort=False).ngroup()
    _, first, group = np.unique(numbers, return_index=True, return_inverse=True)
    return group, first


def _members(group: Indices) -> list[Indices]:
    """The rows of each group."""
    order = np.argsort(group, kind="stable")
    return np.split(order, np.cumsum(np.bincount(group))[:-1])


def _logits(cell: object) -> list[float | None]:
    """A probe's logits; none where it was not scored."""
    if not isinstance(cell, str):
        return []
    column = BY_NAME["probe_logits"]
    logits = document(column, cell)
    if not isinstance(logits, list):
        raise ResultsError(
            f"probe_logits: JSON {column.document} expected, not {cell[:60]}; `tokenroof merge` names its line"
        )
    return logits


def _matrix(probes: list[list[float | None]]) -> Floats:
    """Logits `[P, 2 · PLACES]`, NaN where there is none."""
    matrix = np.full((len(probes), 2 * PLACES), np.nan)
    for row, probe in zip(matrix, probes, strict=True):
        row[: len(probe)] = probe
    return matrix


def _squares(probes: Floats, medians: Floats, both_far: Flags) -> Floats:
    """Squared relative L2 of each probe to each group's median, the larger of near and far; NaN where a logit is none.

    Far places count where both have them.
    """
    square = _relative_squares(probes[:, :PLACES], medians[:, :PLACES])
    if both_far.any():
        far = _relative_squares(probes[:, PLACES:], medians[:, PLACES:])
        square = np.where(both_far, np.maximum(square, far), square)
    return square


def _relative_squares(a: Floats, b: Floats) -> Floats:
    """Squared distances `[A, B]` over the larger norm's square, so that each is the same seen from either side.

    |a - b|² = |a|² - 2 a·b + |b|² is one product for all pairs; what it loses is below 1e-7 of the norm.
    """
    a_square, b_square = (a**2).sum(axis=1), (b**2).sum(axis=1)
    with np.errstate(invalid="ignore", over="ignore"):
        left = np.column_stack([a, a_square, np.ones(len(a))])
        right = np.vstack([-2 * b.T, np.ones(len(b)), b_square])
        # A matrix product would share this little work among threads, and wait for them on a busy machine.
        square: Floats = np.einsum("ai,ib->ab", left, right)
        square /= np.maximum(a_square[:, None], b_square)
    return np.maximum(square, 0)


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
    work = [*WORK, "tokens_sha256"]
    answered = rows[(rows["status"] == "ok") & rows["row_id"].isin(samples["row_id"])]
    one_each = answered.dropna(subset=["weights_id", "tokens_sha256"]).drop_duplicates([*work, *ENGINE])
    answers = one_each.assign(engine=_engine_names(one_each)).merge(samples[["row_id", "argmax"]], on="row_id")
    answers = answers[[*work, "engine", "row_id", "argmax"]].dropna(subset=["argmax"])
    pairs = answers.merge(answers, on=work, suffixes=("_a", "_b"))
    pairs = pairs[pairs["engine_a"] < pairs["engine_b"]]
    counts = [_equal_ids(*pair) for pair in zip(*(pairs[c] for c in ANSWER_PAIR), strict=True)]
    pairs = pairs.assign(equal=[equal for equal, _ in counts], ids=[ids for _, ids in counts])
    of_work = pairs.groupby([*WORK, "engine_a", "engine_b"], dropna=False, sort=False)
    summed = of_work[["equal", "ids"]].sum().reset_index()
    summed["agreement"] = summed.pop("equal") / summed["ids"]
    return summed


def _equal_ids(row_a: str, row_b: str, a: Ids, b: Ids) -> tuple[int, int]:
    if len(a) != len(b):
        raise ResultsError(f"samples of rows {row_a} and {row_b}: {len(a)} and {len(b)} ids for the same work")
    return int(np.count_nonzero(a == b)), len(a)
