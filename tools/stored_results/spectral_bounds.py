"""The bounds of chapter 05 on a head's spread under attack: random heads and gradient ascent, in float64.

shapes     numbers of items, widths of the model and of the head: (n, D, H); every form is attacked at each
rows       one for each form: form; rotated, whether query and keys are rotated by their positions before the product;
           rows (random heads tried), ascents, and the largest excess of the spread over the form among the random heads
           (random), at the ends of the ascents (ascent) and on a head built to attain or to break it (built); furthest,
           the least over the shapes of the largest of these three. An excess is a share of the norm form of the same
           head, or of the ceiling: 0 is attained, positive is broken
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from adatemp._compat import enable_x64

SHAPES = ((3, 6, 4), (12, 10, 6))
RANDOM, STARTS, STEPS = 1_000, 60, 400  # random heads, ascents, steps of each, for each shape
GROUP = 20  # heads at once: larger batches of singular values have stood still on two busy cores

CELLS = ("norms", "tight", "norms, rotated", "tight, rotated", "keys, rotated", "ceiling")
SECONDS = 15
DATA = ()

Head = dict[str, jax.Array]  # query_kernel [D, H], key_kernel [D, H], y [D], items [n, D], gains [2, H]


def run(cell: str) -> dict:
    """Attack one form at every shape."""
    form, rotated = cell.split(", ")[0], cell.endswith("rotated")
    found = {"random": [], "ascent": [], "built": []}
    with enable_x64(True):
        for shape in SHAPES:
            draw = np.random.default_rng(shape)
            function = partial(excess, form=form, rotated=rotated)
            # Half of the heads have items drawn together about one centre, as a trained network's are.
            heads = random_heads(RANDOM, shape, draw)
            found["random"].append(float(jnp.max(jax.lax.map(function, heads, batch_size=GROUP))))
            found["ascent"].append(float(climb(function, random_heads(STARTS, shape, draw))))
            found["built"].append(float(function(built(form, rotated, shape))))
    return {
        "form": form,
        "rotated": rotated,
        "rows": RANDOM * len(SHAPES),
        "ascents": STARTS * len(SHAPES),
        **{how: max(values) for how, values in found.items()},
        "furthest": min(map(max, zip(*found.values(), strict=True))),
    }


def assemble(rows: list[dict]) -> dict:
    """The data of the result from its rows."""
    return {"shapes": [list(shape) for shape in SHAPES], "rows": rows}


def excess(head: Head, *, form: str, rotated: bool) -> jax.Array:
    """Spread less the form, over the norm form (over the ceiling for it). Written out here, not the library's."""
    width = head["y"].shape[-1], head["query_kernel"].shape[-1]
    c = 1 / np.sqrt(width[1])
    q, k = head["y"] @ head["query_kernel"], head["items"] @ head["key_kernel"]
    if form == "ceiling":
        q, k = head["gains"][0] * unit(q) * np.sqrt(width[1]), head["gains"][1] * unit(k) * np.sqrt(width[1])
    if rotated:
        places = jnp.arange(len(k) + 1.0)
        q, k = rotate(q, places[-1]), rotate(k, places[:-1])
    logits = c * k @ q
    spread = logits.max() - logits.min()
    top = partial(jnp.linalg.norm, ord=2)
    lengths = jnp.linalg.norm(head["y"]), jnp.linalg.norm(head["items"], axis=-1).max()
    norms = 2 * c * top(head["query_kernel"]) * top(head["key_kernel"]) * lengths[0] * lengths[1]
    if form == "ceiling":
        norms = bound = 2 * c * width[1] * jnp.max(jnp.abs(head["gains"][0] * head["gains"][1]))
    elif form == "norms":
        bound = norms
    elif form == "tight":
        bound = c * top(head["query_kernel"] @ head["key_kernel"].T) * lengths[0] * reach(head["items"])
    else:
        bound = c * jnp.linalg.norm(q) * reach(k)
    return (spread - bound) / norms


def rotate(vectors: jax.Array, positions: jax.Array) -> jax.Array:
    """Rotary positions: channel pairs (a, b), each turned by position times a frequency of its own."""
    half = vectors.shape[-1] // 2
    angle = positions[..., None] * 100.0 ** (-np.arange(half) / half)
    a, b = vectors[..., :half], vectors[..., half:]
    return jnp.concatenate([a * jnp.cos(angle) - b * jnp.sin(angle), a * jnp.sin(angle) + b * jnp.cos(angle)], -1)


def unit(vectors: jax.Array) -> jax.Array:
    """Vectors over their lengths."""
    return vectors / jnp.linalg.norm(vectors, axis=-1, keepdims=True)


def reach(points: jax.Array) -> jax.Array:
    """The largest distance of two points, with a slope where they coincide."""
    squares = jnp.sum((points[:, None] - points[None]) ** 2, -1)
    largest = jnp.max(squares)
    return jnp.where(largest > 0, jnp.sqrt(jnp.where(largest > 0, largest, 1.0)), 0.0)


def random_heads(count: int, shape: tuple[int, int, int], draw: np.random.Generator) -> Head:
    """Normal kernels and inputs; the items of every second head stand near one another."""
    n, model, width = shape
    near = np.where(np.arange(count) % 2, 0.1, 1.0)[:, None, None]
    centre, items = draw.normal(size=(count, 1, model)), draw.normal(size=(count, n, model))
    head = {
        "query_kernel": draw.normal(size=(count, model, width)),
        "key_kernel": draw.normal(size=(count, model, width)),
        "y": draw.normal(size=(count, model)),
        "items": np.where(near < 1, centre, 0) + near * items,
        "gains": draw.normal(size=(count, 2, width)),
    }
    return jax.tree.map(jnp.asarray, head)


def climb(function: Callable[[Head], jax.Array], heads: Head) -> jax.Array:
    """The largest excess met on ascents from all heads at once: every array moves by a falling share of its size."""
    value_and_slope = jax.vmap(jax.value_and_grad(function))

    def scaled(x, slope):
        lengths = (jnp.sqrt(jnp.sum(a * a, tuple(range(1, a.ndim)), keepdims=True) + 1e-300) for a in (x, slope))
        size, steepness = lengths
        return slope * jnp.where(steepness > 1e-100, size / steepness, 0.0)

    def step(i, carry):
        heads, best = carry
        values, slopes = value_and_slope(heads)
        pace = 0.1 * 0.98**i
        heads = jax.tree.map(lambda x, slope: x + pace * scaled(x, jnp.nan_to_num(slope)), heads, slopes)
        return heads, jnp.maximum(best, values)

    @jax.jit
    def ascend(heads):
        start = heads, jnp.full(heads["y"].shape[0], -jnp.inf)
        return jnp.max(jax.lax.fori_loop(0, STEPS, step, start)[1])

    groups = [slice(first, first + GROUP) for first in range(0, heads["y"].shape[0], GROUP)]
    return max(ascend({name: values[group] for name, values in heads.items()}) for group in groups)


def built(form: str, rotated: bool, shape: tuple[int, int, int]) -> Head:
    """A head that attains a form, or breaks it.

    Opposite items along the top direction of both kernels attain everything that holds without rotations. With them,
    two equal items break the tight form, and a query along the difference of two rotated keys attains the repair.
    """
    n, model, width = shape
    eye = np.eye(model, width)
    items = np.zeros((n, model))
    y = np.eye(model)[0]
    items[0], items[1] = y, -y
    gains = np.ones((2, width))
    if form == "ceiling":
        items[2:] = y  # a norm has no direction to give to nothing
    if rotated and form == "tight":
        items[:] = y
    if rotated and form == "norms":
        # The angle between items 0 and 1 is 1 in the fastest pair: turned back, the two keys are opposite.
        items[1] = -np.cos(1.0) * np.eye(model)[0] + np.sin(1.0) * np.eye(model)[width // 2]
        y = np.asarray(rotate(jnp.eye(width)[0], jnp.asarray(-float(n)))) @ eye.T
    if rotated and form == "keys":
        keys = rotate(jnp.asarray(items @ eye), jnp.arange(float(n)))
        y = np.asarray(rotate(keys[0] - keys[1], jnp.asarray(-float(n)))) @ eye.T
    head = {"query_kernel": 2 * eye, "key_kernel": 3 * eye, "y": y, "items": items, "gains": gains}
    return jax.tree.map(jnp.asarray, head)
