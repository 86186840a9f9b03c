"""Rows of 131,072 keys: float32 statistics against float64, and memory that grows with the keys and not their square.

Heads have width 1 and queries are 1, so that keys are logits, exactly.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import oracle
import pytest
from implementations import compiled

from adatemp import PAPER, dot_product_attention
from adatemp.attention import ChunkedConfig

n = 131_072
FORMS = {
    "dense": {"implementation": "dense"},
    "queries": {"implementation": "chunked", "config": ChunkedConfig(block_q=1)},
    "keys": {"implementation": "chunked", "config": ChunkedConfig(block_q=1, block_k=1024)},
    "few keys": {"implementation": "chunked", "config": ChunkedConfig(block_q=1, block_k=128)},
    "splits": {"implementation": "chunked"},
}


def rows():
    """(names, logits [rows, n], masks [rows, n]) in float32."""
    rng = np.random.default_rng(0)
    flat = np.zeros(n)

    def spike(height, at):
        row = flat.copy()
        row[at] = height
        return row

    made = {
        "constant": flat + 1.7,
        "N(0, 1)": rng.normal(size=n),
        "N(0, 3)": 3 * rng.normal(size=n),
        "N(0, 8)": 8 * rng.normal(size=n),
        "spike of 30": spike(30, n // 3),
        "early spike of 8": spike(8, 0),
        "early spike of 12.5": spike(12.5, 0),
        "late spike of 12.5": spike(12.5, n - 1),
        "ramp from 0 to 40": np.linspace(0, 40, n),
        "N(0, 1) + 1000": rng.normal(size=n) + 1e3,
        "N(0, 3) - 10000": 3 * rng.normal(size=n) - 1e4,
        "half hidden": 2 * rng.normal(size=n),
        "one live": rng.normal(size=n),
        "none live": rng.normal(size=n),
    }
    masks = np.ones((len(made), n), bool)
    masks[-3] = rng.random(n) < 0.5
    masks[-2] = np.arange(n) == 777
    masks[-1] = False
    return list(made), np.stack(list(made.values())).astype(np.float32), masks


NAMES, LOGITS, MASKS = rows()


@pytest.fixture(scope="module")
def want():
    """Entropy, beta, lse, lse_scaled and the mean of the logits under the tempered weights, in float64."""
    table = []
    for logits, mask in zip(LOGITS.astype(np.float64), MASKS):
        z = logits[mask]
        if not len(z):
            table.append((0, 1, -np.inf, -np.inf, 0))
            continue
        lse = oracle.log_sum_exp(z)
        p = np.exp(z - lse)
        entropy = -np.sum(p[p > 0] * np.log(p[p > 0]))
        beta = oracle.published_beta(entropy)
        lse_scaled = oracle.log_sum_exp(beta * z)
        table.append((entropy, beta, lse, lse_scaled, np.exp(beta * z - lse_scaled) @ (z - z.max())))
    return np.array(table).T


@pytest.fixture(scope="module", params=FORMS)
def got(request):
    """The same by attention, one batch item a row; values are the logits less the row's largest."""
    where = FORMS[request.param]
    live = np.where(MASKS, LOGITS, -np.inf).max(1, keepdims=True)
    values = LOGITS - np.where(np.isfinite(live), live, 0)
    key, value = (jnp.asarray(x)[:, :, None, None] for x in (LOGITS, values))
    output, stats = dot_product_attention(
        jnp.ones((len(NAMES), 1, 1, 1)),
        key,
        value,
        mask=jnp.asarray(MASKS)[:, None, None],
        scale=1.0,
        temperature=PAPER,
        return_stats=True,
        **where,
    )
    fields = (stats.entropy, stats.beta, stats.lse, stats.lse_scaled, output)
    return np.array([np.asarray(x, np.float64).reshape(-1) for x in fields])


@pytest.mark.parametrize("row", NAMES)
def test_statistics_of_a_long_row(got, want, row):
    i = NAMES.index(row)
    (entropy, beta, lse, lse_scaled, output), of_row = got[:, i], want[:, i]
    assert abs(entropy - of_row[0]) <= 2e-5
    assert abs(beta - of_row[1]) <= 5e-5
    for value, exact in ((lse, of_row[2]), (lse_scaled, of_row[3])):
        assert value == exact or abs(value - exact) <= 1e-5 * (1 + abs(exact))
    # The product with the values is XLA's own sum of 131,072 terms, which at JAX 0.7.2 is taken one by one: 6e-4 of
    # the result where nearly all terms are equal. Later versions stay below 1e-6.
    assert abs(output - of_row[4]) <= 2e-3 * max(1, abs(of_row[4]))


OPERAND = n * 64 * 4  # query, key or value of one head of width 64: 32 MiB


def temporary_bytes(function, *arguments) -> int:
    return compiled(function, *arguments).memory_analysis().temp_size_in_bytes


def attend(query, key, value):
    return dot_product_attention(query, key, value, is_causal=True, return_stats=True, implementation="chunked")


def test_memory_of_the_chunked_form_grows_with_the_keys_and_not_with_their_square():
    """Compiled, not run. The logits alone would be 64 GiB.

    Measured: forward 5.2 operands (the blocks' outputs, and copies of keys and values with the heads in front), with
    the gradient 10.7 (cotangents, their sums over blocks and copies of these). Room for half as much again.
    """
    array = jax.ShapeDtypeStruct((1, n, 1, 64), jnp.float32)
    assert temporary_bytes(attend, array, array, array) <= 8 * OPERAND
    cotangents = jax.eval_shape(attend, array, array, array)
    gradient = temporary_bytes(lambda ct, *arrays: jax.vjp(attend, *arrays)[1](ct), cotangents, array, array, array)
    assert gradient <= 16 * OPERAND


def test_memory_of_the_key_blocks_is_that_of_the_blocks():
    config = ChunkedConfig(block_q=256, block_k=4096)
    array = jax.ShapeDtypeStruct((1, n, 1, 64), jnp.float32)

    def attend(query, key, value):
        return dot_product_attention(query, key, value, implementation="chunked", config=config)

    # Measured 6.5 operands, of which blocks of 256 by 4,096 logits are 4 MiB each.
    assert temporary_bytes(attend, array, array, array) <= 10 * OPERAND
