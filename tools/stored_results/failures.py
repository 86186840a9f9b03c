"""Corollary B.1 and its two remarks, tried: read-outs, number formats, the stored head, a weight of (log n)/n.

read_outs  networks tanh(xW + b)U + c with two values each: how many were drawn at random (random) and how many were
           pushed by gradient ascent towards breaking the theorem (ascents); the largest lead of a rival over B at the
           certified weight of A, in margins (worst_random, worst_ascent: positive means broken, 0 means attained)
formats    one row a format: accumulator, then for each spread the predicted and the measured size at which {A, B, …, B}
           and {B, …, B} give one output; null means never
never      sizes up to which the outputs still differ at a spread beyond underflow, by format
head       one row a difference of priorities: pairs of sets whose answers are right at n = 1, how many of them are
           wrong from some size on (failed), how many of these at or before the certified size (certified), medians of
           the spread, of the measured and of the certified size
log_rate   one row a format: u, and the size from which a weight of (log n)/n is lost, predicted and measured
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tools.stored_results import head as stored_head

CELLS = ("read_outs", "formats", "head", "log_rate")
SECONDS = 12
DATA = (stored_head.FILE,)

RANDOM, ASCENTS, STEPS = 1_000, 120, 300
FORMATS = {  # and what its sums are kept in
    "float8_e5m2": "float32",
    "float8_e4m3fn": "float32",
    "bfloat16": "float32",
    "float16": "float32",
    "float32": "float64",
}
SPREADS = (0.0, 2.28, 5.7, 10.0, 20.0, 30.0, 40.0, 50.0, 60.0, 70.0)
BEYOND, LARGEST = 120.0, {"float32": 2**120, "float64": 2**200}  # no sum overflows
GAPS, PAIRS = (0.02, 0.03, 0.04, 0.05), 40
VALUE_A, VALUE_B = 2.0, 1.0


def run(cell: str) -> Any:
    """One of the four parts."""
    return {"read_outs": read_outs, "formats": formats, "head": head, "log_rate": log_rate}[cell]()


def assemble(parts: list) -> dict:
    """The data of the result from its cells."""
    (found, (rows, never), pairs, rates) = parts
    return {"read_outs": found, "formats": rows, "never": never, "head": pairs, "log_rate": rates}


# Read-outs


def read_outs() -> dict:
    """Random read-outs, and read-outs that climb on the lead of a rival at the certified weight."""
    import jax
    import optax

    draw = np.random.default_rng(0)
    drawn = [_draw(draw) for _ in range(RANDOM)]
    worst_random = max(_lead_exactly(parameters) for parameters in drawn)
    stacked = [np.stack(leaves).astype(np.float32) for leaves in zip(*drawn[:ASCENTS], strict=True)]

    optimizer = optax.adam(0.02)

    def climb(parameters):
        def step(carry, _):
            parameters, state = carry
            slope = jax.grad(lambda p: -_lead(jax.numpy, p, 65))(parameters)
            updates, state = optimizer.update(slope, state)
            return (optax.apply_updates(parameters, updates), state), None

        (parameters, _), _ = jax.lax.scan(step, (parameters, optimizer.init(parameters)), length=STEPS)
        return parameters

    climbed = jax.jit(jax.vmap(climb))(tuple(stacked))
    ends = [_lead_exactly([np.asarray(leaf[i], np.float64) for leaf in climbed]) for i in range(ASCENTS)]
    return {"random": RANDOM, "ascents": ASCENTS, "worst_random": worst_random, "worst_ascent": max(ends)}


def _draw(draw: np.random.Generator) -> list[np.ndarray]:
    shapes = ((5,), (5,), (5, 24), (24,), (24, 4), (4,))
    scales = (1.0, 1.0, draw.choice([0.3, 1.0, 2.0]), 1.0, 0.3, draw.choice([0.1, 1.0]))
    return [scale * draw.normal(size=shape) for scale, shape in zip(scales, shapes, strict=True)]


def _lead(xp: Any, parameters: Any, points: int) -> Any:
    """The lead of the best rival of B's class at the certified weight of A, in margins; at most 0 by the theorem."""
    a, b, inner, bias, outer, offset = parameters
    shares = xp.linspace(0.0, 1.0, points)

    def logits(x):
        return xp.tanh(x @ inner + bias) @ outer + offset

    def slopes(x):
        steep = 1 - xp.tanh(x @ inner + bias) ** 2
        return xp.sqrt(xp.sum(xp.einsum("dh,mh,hc->mcd", inner, steep, outer) ** 2, -1) + 1e-12)

    at_b = logits(b)
    mine = xp.arange(at_b.shape[0]) == xp.argmax(at_b)
    gamma = xp.max(at_b) - xp.max(xp.where(mine, -xp.inf, at_b))
    steepest = xp.max(slopes(b + shares[:, None] * (a - b)))
    distance = xp.sqrt(xp.sum((a - b) ** 2))
    weight = xp.minimum(gamma / (2 * steepest * distance), 1.0)
    mixed = logits(b + weight * (a - b))
    return (xp.max(xp.where(mine, -xp.inf, mixed)) - xp.sum(xp.where(mine, mixed, 0.0))) / gamma


def _lead_exactly(parameters: Any) -> float:
    return float(_lead(np, parameters, 4_001))


# Number formats


def formats() -> tuple[list[dict], dict]:
    """Predicted and measured sizes of collision, output rounded."""
    rows, never = [], {}
    for name, kept in FORMATS.items():
        rows.append(
            {
                "format": name,
                "accumulator": kept,
                "spreads": list(SPREADS),
                "predicted": [_predicted(name, s) for s in SPREADS],
                "measured": [_collision(name, kept, s) for s in SPREADS],
            }
        )
        if _collision(name, kept, BEYOND) is None:
            never[name] = float(LARGEST[kept])
    return rows, never


def _unit(name: str) -> float:
    import jax.numpy as jnp

    return float(jnp.finfo(name).eps) / 2


def _predicted(name: str, s: float) -> float:
    """Written out for values 2 and 1, where half of the gap above v_B is u."""
    return 1 + math.exp(s) * (1 / _unit(name) - 1)


def _merge(x: tuple, y: tuple, kind: Any) -> tuple:
    """Two states (maximum, sum of exponentials, sum of weighted values) into one; exponentials in float32."""
    top = max(x[0], y[0])
    first, second = (kind(np.exp(np.float32(part[0] - top))) for part in (x, y))
    return top, kind(x[1] * first + y[1] * second), kind(x[2] * first + y[2] * second)


def _many(item: tuple, count: int, kind: Any) -> tuple:
    """Count copies of an item, merged in pairs."""
    total = None
    while count:
        if count % 2:
            total = item if total is None else _merge(total, item, kind)
        item, count = _merge(item, item, kind), count // 2
    return total


def _output(n: int, s: float, with_a: bool, name: str, kind: Any) -> Any:
    import jax.numpy as jnp

    item = (0.0, kind(1), kind(VALUE_B))
    state = _many(item, n - with_a, kind)
    if with_a:
        state = _merge((s, kind(1), kind(VALUE_A)), state, kind)
    return np.asarray(state[2] / state[1]).astype(jnp.dtype(name))


def _collision(name: str, kept: str, s: float) -> float | None:
    """The n, to 1 in 1,000, from which the outputs coincide; None if they do not up to the largest."""
    kind = np.dtype(kept).type

    def same(n: int) -> bool:
        return bool(_output(n, s, True, name, kind) == _output(n, s, False, name, kind))

    low, high = 2, 4
    with np.errstate(under="ignore"):
        while not same(high):
            low, high = high, 2 * high
            if high > LARGEST[kept]:
                return None
        while high - low > max(1, low // 1_000):
            middle = (low + high) // 2
            low, high = (low, middle) if same(middle) else (middle, high)
    return float(high)


# The stored head


def head() -> list[dict]:
    """Pairs of an item A and a lower item B of another class, for the head of chapter 2."""
    import jax.numpy as jnp
    from flax import nnx

    from adatemp import dispersion
    from adatemp.models import set_pooling

    model, draw, rows = set_pooling.load_head(), np.random.default_rng(0), []
    product = np.asarray(model.item_out.kernel[...] @ model.value.kernel[...], np.float64)
    steepest = dispersion.mlp_lipschitz([np.asarray(m.kernel[...]) for m in (model.read_in, model.read_out)])
    shares = np.linspace(0, 1, 2_001)
    weights = jnp.asarray(np.stack([shares, 1 - shares], -1), jnp.float32)[:, None]  # of A and of all Bs together

    @nnx.jit
    def read(model, items):
        hidden = model.hidden(items)
        logits = model.logits_from_hidden(hidden, jnp.full((1, 1), 0.5))
        return hidden[0], logits[0], model.classify_from_hidden(hidden, weights)[:, 0]

    for gap in GAPS:
        spreads, measured, certified, tried = [], [], [], 0
        for _ in range(PAIRS):
            a, b = draw.choice(10, 2, replace=False)
            low = draw.uniform(0.3, 0.9)
            items = np.concatenate([[[low + gap], [low]], np.eye(10)[[a, b]]], axis=1)
            hidden, logits, told = (
                np.asarray(part, np.float64) for part in read(model, jnp.asarray(items[None], jnp.float32))
            )
            if told[0].argmax() != b or told[-1].argmax() != a or logits[0] <= logits[1]:
                continue
            tried += 1
            first = shares[(told.argmax(-1) != b).argmax()]
            spread, values = float(logits[0] - logits[1]), hidden @ product
            bound = dispersion.log_certified_size(
                dispersion.margin(told[0], b), steepest, np.linalg.norm(values[0] - values[1]), spread
            )
            spreads.append(spread)
            measured.append(1 + math.exp(spread) * (1 / first - 1))
            certified.append(math.exp(bound))
        rows.append(
            {
                "gap": gap,
                "pairs": tried,
                "failed": int(np.isfinite(measured).sum()),
                "certified": int((np.array(measured) <= np.array(certified)).sum()),
                "spread": float(np.median(spreads)),
                "measured_size": float(np.median(measured)),
                "certified_size": float(np.median(certified)),
            }
        )
    return rows


# (log n)/n


def log_rate() -> list[dict]:
    """Where a weight of (log n)/n no longer moves the output, by iteration of the equation and by rounding."""
    import jax.numpy as jnp

    rows = []
    for name in FORMATS:
        u = _unit(name)
        predicted = 10.0 / u
        for _ in range(200):
            predicted = math.log(predicted) / u

        def lost(n: float, name: str = name) -> bool:
            value = VALUE_B + (VALUE_A - VALUE_B) * math.log(n) / n
            return float(np.asarray(value).astype(jnp.dtype(name))) == VALUE_B

        low, high = math.e, 8.0
        while not lost(high):
            low, high = high, 2 * high
        while high / low > 1.0001:
            middle = math.sqrt(low * high)
            low, high = (low, middle) if lost(middle) else (middle, high)
        rows.append({"format": name, "u": u, "predicted": predicted, "measured": high})
    return rows
