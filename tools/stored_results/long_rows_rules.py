"""Rows of up to 131,072 keys under every rule that streams, through the fused attention.

    sizes       numbers of keys n
    queries     rows of each family at each size
    training    the sizes at which h, level and slope are fitted to each family
    rows        one for each family:
        family      "needle +8", "needle +12": one key that stands out of standard normal logits by a gap; "priorities":
                    logits 150 times a uniform priority, the needle being the largest; "noise": standard normal logits
                    without a needle, the first key in its place, to which no weight is due
        entropy, slope, averages   of `fit_guarded` at the training sizes: h in nats at the longest, slope in log n
        exact_entropy   at each size the mean entropy of the rows' plain softmax, in nats
        rules       plain, adaptive, held, constant 2, log ratio, scalable (scale 1), exp offset, newton, guarded; each
                    with a mean over the queries at each size: "weight", that of the needle, "beta", "entropy_after",
                    the entropy of the weights that the rule gives, computed from the logits themselves
    bytes       temporary memory in bytes that the compiled program asks for at each size with the guarded rule

The weight is what `dot_product_attention(..., implementation="chunked")` returns where the needle's value is 1 and all
others are 0: no array of n weights is made. One head; keys are one number wide, so that logits are what is said.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from adatemp._constant import constant
from adatemp._entropy import entropy
from adatemp._exp_offset import exp_offset
from adatemp._guarded_fit import fit_guarded
from adatemp._length_rules import scalable
from adatemp._log_ratio import log_ratio
from adatemp._newton import newton
from adatemp._polynomial import PAPER, PAPER_HELD
from adatemp.attention.api import dot_product_attention

SIZES = (256, 1_024, 4_096, 16_384, 65_536, 131_072)
TRAINING = (5, 8, 12, 16)
QUERIES, TRAINING_ROWS = 16, 2_048
SLOPE = 150.0


def needle(gap: float, key, rows: int, n: int):
    """Normal logits, of which the first is replaced by a gap above their mean."""
    return jax.random.normal(key, (rows, n)).at[:, 0].set(gap)


def priorities(key, rows: int, n: int):
    """Logits linear in uniform priorities, the largest of a row first."""
    logits = SLOPE * jax.random.uniform(key, (rows, n))
    first = jnp.argmax(logits, -1)
    row = jnp.arange(rows)
    return logits.at[row, first].set(logits[:, 0]).at[:, 0].set(logits[row, first])


FAMILIES: dict[str, Callable] = {
    "needle +8": partial(needle, 8.0),
    "needle +12": partial(needle, 12.0),
    "priorities": priorities,
    "noise": lambda key, rows, n: jax.random.normal(key, (rows, n)),
}
CELLS = tuple(FAMILIES)
SECONDS = 30
DATA = ()


def run(cell: str) -> dict:
    """One family at every size."""
    return measure(cell, SIZES, QUERIES)


def measure(family: str, sizes: tuple[int, ...], queries: int) -> dict:
    """One row of the result, for any sizes."""
    draw, key = FAMILIES[family], jax.random.key(list(FAMILIES).index(family))
    fit = fit_family(draw, jax.random.fold_in(key, 0))
    rules = rules_of(fit)
    found = {name: {"weight": [], "beta": [], "entropy_after": []} for name in rules}
    exact, memory = [], []
    for n in sizes:
        logits = draw(jax.random.fold_in(key, n), queries, n)
        exact.append(float(np.mean(entropy(logits))))
        for name, rule in rules.items():
            weight, beta = attend(logits, rule)
            found[name]["weight"].append(float(np.mean(weight)))
            found[name]["beta"].append(float(np.mean(beta)))
            found[name]["entropy_after"].append(float(np.mean(entropy(logits * beta[:, None]))))
        analysis = attend.lower(logits, rules["guarded"]).compile().memory_analysis()
        memory.append(int(analysis.temp_size_in_bytes))
    return {
        "family": family,
        "entropy": fit.entropy,
        "slope": fit.slope,
        "averages": fit.averages,
        "exact_entropy": exact,
        "rules": found,
        "bytes": memory,
    }


def fit_family(draw: Callable, key):
    """The guarded rule of a family at the training sizes."""
    rows = [entropy(draw(jax.random.fold_in(key, n), TRAINING_ROWS, n)) for n in TRAINING]
    return fit_guarded(np.concatenate(rows), np.repeat(TRAINING, TRAINING_ROWS))


def rules_of(fit) -> dict:
    """Rules by name, those with something to fit from the family's training sizes."""
    return {
        "plain": constant(1.0),
        "adaptive": PAPER,
        "held": PAPER_HELD,
        "constant 2": constant(2.0),
        "log ratio": log_ratio(TRAINING[-1]),
        "scalable": scalable(1.0),
        "exp offset": exp_offset(fit.entropy),
        "newton": newton(fit.entropy),
        "guarded": fit.rule,
    }


@jax.jit
def attend(logits, rule):
    """The first key's weight and beta of each row [rows, n], by chunked attention with keys of one number."""
    first = jnp.zeros_like(logits).at[:, 0].set(1)
    output, stats = dot_product_attention(
        jnp.ones((len(logits), 1, 1, 1)),
        logits[:, :, None, None],
        first[:, :, None, None],
        scale=1.0,
        temperature=rule,
        return_stats=True,
        implementation="chunked",
    )
    return output[:, 0, 0, 0], stats.beta[:, 0, 0]


def assemble(rows: list[dict]) -> dict:
    """The data of the result from its rows."""
    return {"sizes": list(SIZES), "queries": QUERIES, "training": list(TRAINING), "rows": rows}
