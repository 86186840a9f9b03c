"""The temperature rules compared on one trained head, and how each gets its numbers from that head alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from adatemp._constant import constant
from adatemp._entropy import entropy
from adatemp._exp_offset import exp_offset
from adatemp._fit import fit_inverse_temperature
from adatemp._guarded import guarded
from adatemp._guarded_fit import fit_guarded
from adatemp._log_ratio import log_ratio
from adatemp._newton import newton
from adatemp._polynomial import PAPER, PAPER_HELD
from adatemp._target_entropy import target_entropy
from adatemp.tasks._retrieval_readouts import evaluate_sizes
from adatemp.tasks._retrieval_sets import MaxRetrievalBatch, sample

if TYPE_CHECKING:
    from jaxtyping import Array, Key

    from adatemp._rule import TemperatureRule
    from adatemp.models.set_pooling import SetPooling

#: Smallest and largest set that the heads train on; what a rule holds fixed is measured on these sizes alone.
SHORTEST, LONGEST = 5, 16
#: Sets on which entropies are measured.
SETS = 4096

#: Sizes, sets of each, and degrees in order of preference, for a new map. Heads misorder a few in a hundred sets of
#: their training sizes, all of low entropy; up to eight times as many items give the curve something to rise over.
MAP_SIZES, MAP_SETS, MAP_DEGREES = (16, 32, 64, 128), 1024, (4, 3, 2, 1)

#: Inverse temperatures among which the best constant is sought, size by size; the first three are read-outs too.
GRID = (1.5, 2.0, 3.0, 4.0, 6.0, 8.0, 16.0, 32.0, 64.0, 256.0, 1024.0)


def compared_rules(
    head: SetPooling,
    key: Key[Array, ""],
    *,
    draw: Callable[..., MaxRetrievalBatch] = sample,
    refit: bool = True,
) -> tuple[dict[str, TemperatureRule | None], dict[str, Any]]:
    """Rules by name, each fitted where it has anything to fit, on sets that no test uses.

    - plain; adaptive, the published map; held, the same held at its peak;
    - constant 1.5, 2, 3; log ratio, log n / log 16;
    - refit, a map from `fit_inverse_temperature` on misordered sets of 16 to 128 items;
    - target entropy, exp offset, newton: towards h, the head's own entropy at its longest training size, 16 items;
    - guarded, `fit_guarded` on sets of 5 to 16 items; line, the same without taking the slope to 0 or 1.

    Args:
        head: a trained head.
        key: a JAX random key.
        draw: (key, batch, n, min_items=) to a batch; where the sets come from.
        refit: whether to fit a map; only where `top_item` of a batch is the item that the task asks for.

    Returns:
        The rules, and what they were made of: "entropy" (h), "slope" of the entropy in log n, "averages" (whether the
        guarded rule leaves the head alone), and under "refit" either the map's "degree", "rms", "misordered" (rows) and
        "range" or "refused", why there is none.
    """
    sets = draw(jax.random.fold_in(key, 0), SETS, LONGEST, min_items=SHORTEST)
    rows = entropy(head.logits(sets.items, sets.query), where=sets.where)
    fit = fit_guarded(rows, sets.where.sum(-1))
    h = fit.entropy
    rules = {
        "plain": None,
        "adaptive": PAPER,
        "held": PAPER_HELD,
        **{f"constant {beta:g}": constant(beta) for beta in GRID[:3]},
        "log ratio": log_ratio(LONGEST),
        "target entropy": target_entropy(h),
        "exp offset": exp_offset(h),
        "newton": newton(h),
        "guarded": fit.rule,
        "line": guarded(h - fit.slope * np.log(LONGEST).item(), fit.slope),
    }
    about = {"entropy": h, "slope": fit.slope, "averages": fit.averages}
    if refit:
        new_map, about["refit"] = fit_map(head, jax.random.fold_in(key, 1), draw=draw)
        if new_map is not None:
            rules["refit"] = new_map
    return rules, about


def fit_map(
    head: SetPooling, key: Key[Array, ""], *, draw: Callable[..., MaxRetrievalBatch] = sample
) -> tuple[TemperatureRule | None, dict[str, Any]]:
    """A rising map of the highest degree up to four that the head's misordered rows give, and what it was made of."""
    parts = [draw(jax.random.fold_in(key, n), MAP_SETS, n) for n in MAP_SIZES]
    rows = [
        jnp.pad(head.logits(sets.items, sets.query), ((0, 0), (0, MAP_SIZES[-1] - n)), constant_values=-jnp.inf)
        for n, sets in zip(MAP_SIZES, parts)
    ]
    logits, target = jnp.concatenate(rows), jnp.concatenate([sets.top_item for sets in parts])
    refused = ""
    for degree in MAP_DEGREES:
        try:
            fit = fit_inverse_temperature(logits, target, degree=degree)
        except ValueError as error:
            refused = str(error)
            continue
        about = {"degree": degree, "rms": fit.rms, "misordered": len(fit.beta), "range": list(fit.rule.range)}
        return fit.rule, about
    return None, {"refused": refused}


def compare(
    head: SetPooling,
    key: Key[Array, ""],
    sets: Mapping[int, int],
    *,
    draw: Callable[..., MaxRetrievalBatch] = sample,
    refit: bool = True,
) -> dict[str, Any]:
    """Every rule on one head at every size, all on the same sets.

    Args:
        head: a trained head.
        key: a JAX random key of the test sets, as in `evaluate_sizes`; the rules are fitted on sets of another.
        sets: number of test sets for each size.
        draw: as in `compared_rules`.
        refit: as in `compared_rules`.

    Returns:
        What `evaluate_sizes` returns, with the read-outs of `compared_rules`, argmax and mass; "rules", what the rules
        were made of; and "constants": "beta", the values of `GRID`, and "accuracy", for each its accuracies by size.
        The best of them at a size is an oracle's choice: it is made on the sets it is judged on.
    """
    rules, about = compared_rules(head, jax.random.fold_in(key, 0), draw=draw, refit=refit)
    grid = {f"constant {beta:g}": constant(beta) for beta in GRID}
    columns = evaluate_sizes(head, key, sets, rules=rules | grid, draw=draw)
    read_outs = columns["read_outs"]
    accuracy = [read_outs[name]["accuracy"] for name in grid]
    columns["read_outs"] = {name: parts for name, parts in read_outs.items() if name in rules or name not in grid}
    return columns | {"rules": about, "constants": {"beta": list(GRID), "accuracy": accuracy}}
