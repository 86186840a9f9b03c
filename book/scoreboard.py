"""The claims of the papers beside what was measured here, and the rule that turns the two into a verdict.

Nothing here is typed as a verdict: `judge` computes it from the stored runs, and a claim without runs is "not tried".
The page scoreboard.md shows the result.
"""

from __future__ import annotations

import math
import re
from html import escape
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

REPRODUCED, PARTLY, NOT, NOT_TRIED = "reproduced", "partly", "not reproduced", "not tried yet"
CLOSE, NEAR = 5.0, 10.0  # points of accuracy
FEWEST_SEEDS = 5
ROUNDING = 1e-12  # of float64 sums of a few hundred terms of order one
FEWEST_ROWS, FEWEST_ASCENTS = 1000, 100

_NUMBERS = re.compile(r"(−?[\d.,]+( to [\d.,]+| × 10[⁻⁰¹²³⁴⁵⁶⁷⁸⁹]+)?)?")  # 53.8, 27.9 to 50.0, 4.1 × 10⁻⁴, or nothing


class Verdict(NamedTuple):
    """A verdict with the numbers it was computed from."""

    word: str
    ours: float = math.nan
    low: float = math.nan
    high: float = math.nan


def accuracies(table1: Mapping[str, Any], read_out: str, size: int) -> list[float]:
    """The accuracy of every stored run at one size, in per cent.

    Args:
      table1: the data of the stored result of that name; tools/stored_results/table1.py says what it holds.
      read_out: "plain", "adaptive", "argmax" or "mass".
      size: a number of items that was measured.
    """
    column = table1["sizes"].index(size)
    return [100 * row["read_outs"][read_out]["accuracy"][column] for row in table1["rows"]]


def prediction_interval(values: Sequence[float], coverage: float = 0.95) -> tuple[float, float]:
    """Where one further run of ours would fall, if runs scatter normally: mean ± t s √(1 + 1/k).

    Args:
      values: the results of k ≥ 2 runs that differ in their seed only.
      coverage: the share of further runs that the interval is to hold.
    """
    from scipy.stats import t

    runs = np.asarray(values, np.float64)
    half = t.ppf((1 + coverage) / 2, runs.size - 1) * runs.std(ddof=1) * math.sqrt(1 + 1 / runs.size)
    return float(runs.mean() - half), float(runs.mean() + half)


def judge(published: float, values: Sequence[float]) -> Verdict:
    """Compares a published accuracy with our runs, both in per cent.

    Reproduced: the published value lies where one further run of ours would fall, and within 5 points of our mean. The
    second condition keeps runs that scatter widely from agreeing with everything. Partly: one of the two holds, or the
    published value is within 10 points of our mean. Not reproduced: none of this. With fewer than five seeds there is
    no verdict.
    """
    runs = np.asarray(values, np.float64)
    if runs.size < FEWEST_SEEDS:
        return Verdict(NOT_TRIED)
    if not np.isfinite(runs).all():
        raise ValueError(f"values holds a number that is not finite: {values!r}. A failed run must not be stored.")
    mean = float(runs.mean())
    low, high = prediction_interval(runs)
    inside, distance = low <= published <= high, abs(published - mean)
    if inside and distance <= CLOSE:
        word = REPRODUCED
    elif inside or distance <= NEAR:
        word = PARTLY
    else:
        word = NOT
    return Verdict(word, mean, low, high)


def table1_row(published: float, size: int, values: Sequence[float]) -> list[str]:
    """One line of the page's table for Table 1: a size, what was published and what was measured, in per cent."""
    verdict = judge(published, values)
    tried = verdict.word != NOT_TRIED
    ours = [f"{verdict.ours:.1f}", f"{verdict.low:.1f} to {verdict.high:.1f}"] if tried else ["", ""]
    return [f"{size:,}", f"{published:.1f}", *ours, str(len(values)), verdict.word]


def judge_bound(attack: Mapping[str, Any]) -> str:
    """The verdict on an inequality that is proved in a chapter, from an attack on it.

    Reproduced: no row of the attack exceeds the bound by more than rounding. Not reproduced: some row does. With fewer
    than 1,000 random rows or 100 ascents there is no verdict.

    Args:
      attack: one row of the stored result dispersion_bounds; its module in tools/stored_results says what it holds.
    """
    if attack["rows"] < FEWEST_ROWS or attack["ascents"] < FEWEST_ASCENTS:
        return NOT_TRIED
    excess = max(attack["random"], attack["ascent"], attack["two_levels"])
    return REPRODUCED if excess <= ROUNDING else NOT  # a NaN is no success


#: The bounds of chapter 3 in words, by what the stored attack calls them, and who states them.
BOUNDS = {
    ("largest weight", "simple"): ("p ≤ κ/n", "Lemma 2.1"),
    ("smallest weight", "simple"): ("p ≥ 1/(κn)", "Lemma 2.1"),
    ("largest weight", "tight"): ("p ≤ κ/(κ + n − 1)", "ours"),
    ("smallest weight", "tight"): ("p ≥ 1/(1 + (n − 1)κ)", "ours"),
    ("entropy", "linear"): ("H ≥ log n − δ/θ", "ours"),
    ("entropy", "quadratic"): ("H ≥ log n − (δ/θ)²/8", "ours"),
    ("entropy", "exact"): ("H ≥ log n − (ζ − 1 − log ζ)", "ours"),
    ("distance from uniform", "exact"): ("distance ≤ tanh(δ/4θ)", "ours"),
}


def bound_row(attack: Mapping[str, Any]) -> list[str]:
    """One line of the page's table of bounds: what is claimed, by whom, how near a row came, and the verdict."""
    said, where = BOUNDS[attack["quantity"], attack["bound"]]
    excess = max(attack["random"], attack["ascent"], attack["two_levels"])
    return [said, where, _gap(-excess), _gap(-attack["furthest"]), judge_bound(attack)]


def _gap(distance: float) -> str:
    """How far the nearest row stays below a bound: two digits, and 0 for what is rounding."""
    if abs(distance) <= ROUNDING:
        return "0"
    exponent = math.floor(math.log10(abs(distance)))
    if exponent >= -3:
        return f"{distance:.{max(1 - exponent, 0)}f}".replace("-", "−")
    power = str(exponent).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))
    return f"{distance / 10.0**exponent:.1f} × 10{power}".replace("-", "−")


CLAIMED_TOKENS = 131_072
FEWEST_SHAPES, NATS, SHARE = 10, 1e-3, 0.01


def judge_stream(run: Mapping[str, Any]) -> str:
    """The verdict on the claim that one stream over the keys gives the entropy, in memory that grows like n at most.

    Two parts. The entropy: every row of the run is within a thousandth of a nat of float64. The memory: at the size of
    which the authors report it is at most a hundredth of what all logits take, and it has not grown faster than the
    number of tokens. Reproduced: both. Partly: one. With fewer than ten shapes of row, or shorter ones, no verdict.

    Args:
      run: the data of the stored result streaming; its module in tools/stored_results says what it holds.
    """
    fewest, most = (str(n) for n in (min(run["tokens"]), max(run["tokens"])))
    if len(run["rows"]) < FEWEST_SHAPES or min(run["keys"], int(most)) < CLAIMED_TOKENS:
        return NOT_TRIED
    memory = {row["way"]: row["bytes"] for row in run["memory"]}
    stream, dense = memory["one stream"], memory["all logits"]
    exact = all(abs(row["error"]) <= NATS for row in run["rows"])
    small = stream[most] <= SHARE * dense[most] and stream[most] * int(fewest) <= stream[fewest] * int(most)
    return (NOT, PARTLY, REPRODUCED)[exact + small]


FEWEST_READ_OUTS, FEWEST_PAIRS, FACTOR, MARGINS = 1000, 100, 2.0, 1e-6
FORMATS = 5


def judge_margin(found: Mapping[str, Any]) -> str:
    """The verdict on Corollary B.1 with a margin: read-outs answer B from the certified size on.

    Reproduced: at the certified weight no rival leads B, in any of at least 1,000 random read-outs nor at the end of
    any of 100 ascents. Not reproduced: some rival does. With fewer of either there is no verdict.

    Args:
      found: "read_outs" of the stored result failures; its module in tools/stored_results says what it holds.
    """
    if found["random"] < FEWEST_READ_OUTS or found["ascents"] < FEWEST_ASCENTS:
        return NOT_TRIED
    return REPRODUCED if max(found["worst_random"], found["worst_ascent"]) <= MARGINS else NOT


def judge_collisions(rows: Sequence[Mapping[str, Any]]) -> str:
    """The verdict on two sizes for each of five formats, measured and predicted: all, some, or none within a factor 2.

    Args:
      rows: one for each format, with lists or numbers "predicted" and "measured"; None means that they never collide.
    """
    if len(rows) < FORMATS:
        return NOT_TRIED
    pairs = [
        (p, m)
        for row in rows
        for p, m in zip(np.atleast_1d(row["predicted"]), np.atleast_1d(row["measured"]), strict=True)
    ]
    held = [p is not None and m is not None and 1 / FACTOR <= m / p <= FACTOR for p, m in pairs]
    return REPRODUCED if all(held) else PARTLY if any(held) else NOT


def judge_pairs(rows: Sequence[Mapping[str, Any]]) -> str:
    """The verdict on Remark B.2 for one trained head: every pair of sets is lost, at or before the certified size.

    Reproduced: all are. Partly: all are lost, not all of them in time, or most are lost. Fewer than 100 pairs: none.

    Args:
      rows: "head" of the stored result failures.
    """
    pairs, failed, certified = (sum(row[key] for row in rows) for key in ("pairs", "failed", "certified"))
    if pairs < FEWEST_PAIRS:
        return NOT_TRIED
    if failed == certified == pairs:
        return REPRODUCED
    return PARTLY if failed > pairs / 2 else NOT


#: The bounds of chapter 5 on a head's spread in words, by what the stored attack calls them, and who states them.
SPECTRAL = {
    ("norms", False): ("δ ≤ 2c σ(W_Q) σ(W_K) ‖y‖ max‖x‖", "Proposition 3.1"),
    ("norms", True): ("The same, with rotary positions", "Proposition 3.1"),
    ("tight", False): ("δ ≤ c σ(W_Q W_Kᵀ) ‖y‖ max‖x − x′‖", "ours"),
    ("tight", True): ("The same, with rotary positions", "nobody"),
    ("keys", True): ("δ ≤ c ‖q‖ max‖k − k′‖, rotated", "ours"),
    ("ceiling", False): ("QK-norm: δ ≤ 2√d max|g_Q g_K|", "ours"),
}


def spectral_row(attack: Mapping[str, Any]) -> list[str]:
    """One line of the page's table of bounds on a head's spread, as `bound_row`; gaps are shares of the norm form."""
    said, where = SPECTRAL[attack["form"], attack["rotated"]]
    excess = max(attack["random"], attack["ascent"], attack["built"])
    verdict = judge_bound({**attack, "two_levels": attack["built"]})
    return [said, where, _gap(-excess), _gap(-attack["furthest"]), verdict]


FEWEST_LOOKS = 10
SINGLE = 1e-4  # relative rounding of a spread of up to 10⁵ nats from products in float32


def judge_training(rows: Sequence[Mapping[str, Any]]) -> str:
    """The verdict on the claim that the bound holds while a model is trained.

    Reproduced: at every look at every run, no spread exceeds the norm form by more than rounding. Not reproduced: one
    does. With fewer than five runs, or fewer than ten looks at one of them, there is no verdict.

    Args:
      rows: the rows of the stored result training_arms; its module in tools/stored_results says what they hold.
    """
    if len(rows) < FEWEST_SEEDS or min(len(row["step"]) for row in rows) < FEWEST_LOOKS:
        return NOT_TRIED
    return REPRODUCED if all(share <= 1 + SINGLE for row in rows for share in row["worst_norms"]) else NOT


GROWING, SOME_GROWING, FEWEST_SIZES = 0.9, 0.5, 5


def growing_heads(found: Mapping[str, Any]) -> tuple[int, int]:
    """How many heads of a language model have more entropy at the longest prompt than at the shortest, and of how many.

    Args:
      found: the data of the stored result language_model.
    """
    first, last = (np.array(found["rows"][end]["entropy"]) for end in (0, -1))
    return int((last > first).sum()), first.size


def judge_growth(found: Mapping[str, Any]) -> str:
    """The verdict on Figure 3, that the entropy of a language model's heads grows with the number of items.

    Reproduced: nine heads in ten have more entropy at the longest prompt than at the shortest, of at least five.
    Partly: more than half have. Not reproduced: half or fewer.

    Args:
      found: the data of the stored result language_model; its module in tools/stored_results says what it holds.
    """
    if len(found["rows"]) < FEWEST_SIZES:
        return NOT_TRIED
    growing, heads = growing_heads(found)
    if growing >= GROWING * heads:
        return REPRODUCED
    return PARTLY if growing > SOME_GROWING * heads else NOT


FEWEST_PRESETS, FEWEST_TOYS = 5, 3


def judge_transformers(found: Mapping[str, Any]) -> str:
    """The verdict on Theorem 2.2, from certificates of Transformers that do not know the number of tokens.

    Reproduced: in at least five presets, each attacked by 1,000 rows and 100 ascents, and in at least three trained
    models at every size, no radius and no spread exceeds its certificate by more than rounding, and no weight the tight
    bound of its row. Not reproduced: one does. With fewer of any of these there is no verdict.

    Args:
      found: the data of the stored result transformer_spread; its module in tools/stored_results says what it holds.
    """
    attacks, toys = found["attacks"], [row for row in found["toys"] if "excess_at" in row]
    if len(attacks) < FEWEST_PRESETS or len(toys) < FEWEST_TOYS:
        return NOT_TRIED
    if any(row["rows"] < FEWEST_ROWS or row["ascents"] < FEWEST_ASCENTS for row in attacks):
        return NOT_TRIED
    logs = [row[name] for row in attacks for name in ("random", "ascent", "own", "certified")]
    logs += [one[by] for row in toys for one in row["excess_at"] for by in ("own", "certified")]
    for row in found["toys"]:
        measured = [*row["spread_at"], row["worst"]] if "worst" in row else row["spread_at"]
        logs.append(np.log(np.max(np.array(measured) / np.array(row["certified_spread"]))))
        logs.append(np.log(np.max(np.array(row["radius_at"]) / np.array(row["certified_radius"]))))
    return REPRODUCED if all(excess <= SINGLE for excess in logs) else NOT  # a NaN is no success


RATE, LIMIT = 1e-4, 1e-9  # of central differences in float64; of an entropy at a temperature near a limit


def judge_temperature(found: Mapping[str, Any]) -> str:
    """The verdict on Proposition 3.2, an entropy that never falls as the temperature rises, with its rate and limits.

    Reproduced: no row of the attack falls by more than rounding, the rate is that of differences and the limits are
    met. Not reproduced: some row falls. Partly: none falls, and the rate or a limit is off.

    Args:
      found: the data of the stored result temperature_entropy; its module in tools/stored_results says what it holds.
    """
    verdict = judge_bound(found["attack"])
    if verdict == REPRODUCED and not (found["rate"] <= RATE and max(found["limits"].values()) <= LIMIT):
        return PARTLY
    return verdict


def judge_sharper(table1: Mapping[str, Any]) -> str:
    """The verdict on a figure that shows sharper attention with the map: the top weight, with it and without.

    Reproduced: at every size beyond those of training the 95% interval over heads of the paired difference of the mean
    top weight lies above 0. Partly: at some. Not reproduced: at none. With fewer than five heads there is no verdict.

    Args:
      table1: the data of the stored result of that name.
    """
    from scipy.stats import t

    rows = table1["rows"]
    if len(rows) < FEWEST_SEEDS:
        return NOT_TRIED
    beyond = [column for column, size in enumerate(table1["sizes"]) if size > TRAINED_TO]
    tops = [np.array([row["read_outs"][name]["top_weight"] for row in rows]) for name in ("plain", "adaptive")]
    risen = (tops[1] - tops[0])[:, beyond]
    half = t.ppf(0.975, len(rows) - 1) * risen.std(0, ddof=1) / math.sqrt(len(rows))
    above = risen.mean(0) - half > 0
    return REPRODUCED if above.all() else PARTLY if above.any() else NOT


def judge_fit(curves: Sequence[Mapping[str, Any]]) -> str:
    """The verdict on a fitted curve like the published one, from fits by several procedures to several heads.

    A curve is near if its root mean square distance from the published map is at most a quarter, on a grid of at least
    two nats. Reproduced: one procedure, the same choice of sets and the same way to fit, gives near curves for every
    head. Partly: some curve of some head is near. Not reproduced: none is. With fewer than three heads: no verdict.

    Args:
      curves: those of the stored result map_fit; its module in tools/stored_results says what they hold.
    """
    heads = {curve["head"] for curve in curves}
    if len(heads) < FEWEST_HEADS:
        return NOT_TRIED
    near = [c for c in curves if c["points"] >= WIDE and c["distance"] is not None and c["distance"] <= NEAR_CURVE]
    procedures = {(c["sets"], c["way"]) for c in near}
    if any({c["head"] for c in near if (c["sets"], c["way"]) == one} == heads for one in procedures):
        return REPRODUCED
    return PARTLY if near else NOT


TRAINED_TO = 16
FEWEST_HEADS, WIDE, NEAR_CURVE = 3, 16, 0.25  # grid points of an eighth of a nat; in beta


FLAT = 1e-4  # nats: a spread that is the rounding of a float32 forward pass


def judge_cascade(rows: Sequence[Mapping[str, Any]]) -> str:
    """The verdict on Remark C.1 for one architecture: after a uniform layer every later one is uniform.

    Reproduced: in each of at least five models, no later layer has a row of any spread. Not reproduced: one has.

    Args:
      rows: those of one kind in "cascade" of the stored result depth_by_layer; its module says what they hold.
    """
    if len(rows) < FEWEST_SEEDS:
        return NOT_TRIED
    return REPRODUCED if all(spread <= FLAT for row in rows for spread in row["uniform"][1:]) else NOT


HASTENED = 0.01  # of top weight


def judge_hastening(pairs: Sequence[tuple[float, float]]) -> str:
    """The verdict on the claim that dispersion in one layer hastens it in the next, in trained models.

    Reproduced: in each of at least five models the next layer's top weight is lower, by a hundredth, with the first
    layer as trained than with the first layer made hard. Partly: in most of them. Not reproduced: otherwise.

    Args:
      pairs: for each model the top weight of its second layer, with the first as trained and with the first made hard.
    """
    if len(pairs) < FEWEST_SEEDS:
        return NOT_TRIED
    lower = [soft < hard - HASTENED for soft, hard in pairs]
    return REPRODUCED if all(lower) else PARTLY if sum(lower) > len(lower) / 2 else NOT


def overall(words: Sequence[str]) -> str:
    """One verdict for a claim that has several parts.

    Reproduced if every part is; not tried if no part was; not reproduced if no part was even partly; else partly.
    """
    tried = [word for word in words if word != NOT_TRIED]
    if not tried:
        return NOT_TRIED
    if all(word == REPRODUCED for word in words):
        return REPRODUCED
    return NOT if all(word == NOT for word in tried) else PARTLY


class Claim(NamedTuple):
    """Something a paper says, in our words, where it says it, and the chapters that will try it."""

    said: str
    where: str
    chapters: str


#: What has no measurement of ours yet. A claim leaves this list when a stored run of its own exists.
UNTRIED = {
    "softmax is not enough": (
        Claim("Heads of a language model disperse as items are added.", "Figure 3", "4, 14"),
        Claim("Adaptive temperature helps a Gemma model fine-tuned on CLRS-Text.", "CLRS-Text experiments", "16"),
    ),
    "active-dormant attention heads": (
        Claim("Small Transformers trained on the bigram-backcopy task form attention sinks.", "bigram-backcopy", "12"),
        Claim("The value state of the sink is drained.", "bigram-backcopy", "12"),
        Claim("Sinks and drained values reinforce each other in training.", "training dynamics", "13"),
        Claim("ReLU in the place of softmax, SGD in the place of Adam, take extreme tokens away.", "ablations", "13"),
        Claim("Heads of language models are active on some inputs and dormant on others.", "language models", "14"),
    ),
}


def html_table(caption: str, header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table for the page; the first cell of a row names it, and columns of numbers are set to the right."""
    columns = list(zip(*rows, strict=True))
    kinds = [' class="number"' if all(map(_NUMBERS.fullmatch, column)) else "" for column in columns]
    kinds[0] = ""
    head = "".join(f'<th scope="col"{kind}>{escape(name)}</th>' for kind, name in zip(kinds, header, strict=True))

    def line(cells: Sequence[str]) -> str:
        others = zip(kinds[1:], cells[1:], strict=True)
        data = "".join(f"<td{kind}>{escape(cell)}</td>" for kind, cell in others)
        return f'<tr><th scope="row">{escape(cells[0])}</th>{data}</tr>'

    return (
        f'<table class="adatemp-table"><caption>{escape(caption)}</caption><thead><tr>{head}</tr></thead>'
        f"<tbody>{''.join(map(line, rows))}</tbody></table>"
    )
