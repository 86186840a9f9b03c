"""Radii and spreads of Transformers beside their certificates, which do not know n: trained toys, and presets attacked.

toys                        one row for each toy and seed: kind, seed, seconds; final_accuracy (last 50 training steps);
                            certified_radius [L+1], certified_spread [L, N]; sizes, the numbers of items n that it is
                            measured at; and for every size, one number or list in
                            accuracy_at; radius_at [L+1], the longest hidden state; spread_at [L, N], the largest of any
                            row; query_spread_at, query_entropy_at [L, N], means over the sequences at the query, which
                            stands last; for a "set" toy also top_at [L, N], the largest weight of any row,
                            query_top_at [L, N], its mean at the query, and excess_at, the largest of log(weight / tight
                            bound), by the spread of its own row ("own") and by the certificate ("certified"). "worst",
                            for a set toy, is the largest spread that an ascent over histograms found, [L, N]
attacks                     one row for each preset, small and with weights moved at random: preset, seconds; rows, the
                            number of rows of attention looked at, and ascents; random and ascent: the largest of
                            log(spread / certified) and log(radius / certified) found by random tokens, among them
                            sequences of two symbols, and by ascent on embeddings in their ball; own and certified:
                            the largest of log(weight / tight bound) as above
"""

from __future__ import annotations

import time
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from adatemp import dispersion
from adatemp.attention.api import dot_product_attention
from adatemp.models import histograms, presets
from adatemp.models.certificate import certify
from adatemp.models.transformer import Transformer
from adatemp.tasks import token_maximum

SMALL = dict(vocabulary=13, layers=2, width=12, heads=4, head_width=6, key_heads=2, mlp_width=10)
PRESETS = {
    "gpt": presets.gpt(**SMALL, context=520),
    "bert": presets.bert(**SMALL, context=520),
    "llama": presets.llama(**SMALL),
    "gemma 3": presets.gemma(3, **SMALL),
    "layer norm without epsilon": presets.toy(**SMALL, positions="none", context=None, norm_epsilon=0.0),
}
SET_SEEDS, CAUSAL_SEEDS = 3, 2
CELLS = (
    *(f"set, seed {seed}" for seed in range(SET_SEEDS)),
    *(f"attack, {name}" for name in PRESETS),
    *(f"causal, seed {seed}" for seed in range(CAUSAL_SEEDS)),
)
SECONDS = 60
DATA = ()

SIZES = {"set": tuple(2**power for power in range(3, 15)), "causal": tuple(2**power for power in range(3, 13))}
SEQUENCES = 256  # at each size, of a causal toy no more than have TOKENS in all
TOKENS = 8_192
ASCENTS, STEPS = 128, 150


def run(cell: str) -> dict:
    """Measure one toy, or attack one preset."""
    start = time.perf_counter()
    what, which = cell.split(", ", 1)
    found = attack(PRESETS[which]) if what == "attack" else follow(what, int(which.removeprefix("seed ")))
    name = {"preset": which} if what == "attack" else {"kind": what, "seed": int(which.removeprefix("seed "))}
    return name | found | {"seconds": round(time.perf_counter() - start, 1)}


def follow(kind: str, seed: int, steps: int = token_maximum.STEPS, sizes: tuple[int, ...] | None = None) -> dict:
    """Train a toy and look at it at every size."""
    sizes = SIZES[kind] if sizes is None else sizes
    model, history = token_maximum.train_toy(kind, seed, steps=steps)
    certificate = certify(model)
    look = _look_at_set if kind == "set" else _look_at_causal
    looks = []
    for n in sizes:
        batch = SEQUENCES if kind == "set" else max(TOKENS // n, 1)
        sequences = token_maximum.sample(jax.random.fold_in(jax.random.key(seed), n), min(batch, SEQUENCES), n)
        looks.append(_lists(look(model, certificate, sequences)))
    worst = {"worst": _lists(worst_spreads(model))} if kind == "set" else {}
    return {
        "final_accuracy": float(history.metrics["accuracy"][-50:].mean()),
        "certified_radius": _lists(certificate.hidden),
        "certified_spread": _lists(certificate.spread),
        "sizes": list(sizes),
        **{f"{name}_at": [one[name] for one in looks] for name in looks[0]},
        **worst,
    }


def _look_at_set(model, certificate, sequences) -> dict:
    counts = token_maximum.histogram(sequences.tokens)
    rows = _on_histograms(*nnx.split(model), counts)
    seen = counts > 0  # [B, V]; a symbol that does not occur has no row
    of_rows = seen[None, :, :, None]
    top = jnp.where(of_rows, rows.weight.max(-1), 0)
    size = sequences.tokens.shape[1]
    excess = {
        "own": _excess(top, size, rows.spread),
        "certified": _excess(top, size, certificate.spread[:, None, None]),
    }
    return {
        "accuracy": _accuracy(rows.logits[:, -1], sequences.target),
        "radius": jnp.where(seen, jnp.linalg.norm(rows.hidden, axis=-1), 0).max((1, 2)),
        "spread": jnp.where(of_rows, rows.spread, 0).max((1, 2)),
        "query_spread": rows.spread[:, :, -1].mean(1),
        "query_entropy": rows.entropy[:, :, -1].mean(1),
        "top": top.max((1, 2)),
        "query_top": top[:, :, -1].mean(1),
        "excess": excess,
    }


def _look_at_causal(model, certificate, sequences) -> dict:
    answer, captured = _on_tokens(*nnx.split(model), sequences.tokens)
    return {
        "accuracy": _accuracy(answer[:, -1], sequences.target),
        "radius": jnp.linalg.norm(captured.hidden, axis=-1).max((1, 2)),
        "spread": captured.spread.max((1, 2)),
        "query_spread": captured.spread[:, :, -1].mean(1),
        "query_entropy": captured.stats.entropy[:, :, -1].mean(1),
    }


_on_histograms = jax.jit(lambda graph, state, counts: histograms.run(nnx.merge(graph, state), counts), static_argnums=0)
_on_tokens = jax.jit(lambda graph, state, tokens: nnx.merge(graph, state)(tokens, capture=True), static_argnums=0)


def _accuracy(answer, target) -> float:
    return float(jnp.mean(answer[:, : token_maximum.SYMBOLS].argmax(-1) == target))


def _excess(weight, n, spread) -> float:
    """The largest of log(weight / tight bound) over rows of two keys or more; n and the spread broadcast."""
    bound = dispersion.weight_bounds(np.asarray(n, np.float64), np.asarray(spread, np.float64))[1]
    with np.errstate(divide="ignore"):
        return float(np.log(np.where(np.asarray(n) > 1, np.asarray(weight, np.float64), 0) / bound).max())


def worst_spreads(model: Transformer, ascents: int = ASCENTS, steps: int = STEPS) -> jax.Array:
    """The largest spread of each head, [L, N], that an ascent over histograms finds: any shares of any symbols."""
    graph, state = nnx.split(model)
    shape = model.config.layers, model.config.heads
    heads = [divmod(head, shape[1]) for head in range(shape[0] * shape[1])]

    @jax.jit
    def climb(log_shares, target):
        def spread(log_shares):
            # the largest row, smoothly: every row of the head takes part a little
            rows = histograms.run(nnx.merge(graph, state), jax.nn.softmax(log_shares)).spread
            of_head = jnp.einsum("lbvn,ln->bv", rows, target)
            return jnp.sum(jax.nn.logsumexp(of_head, axis=-1)), of_head.max()

        def step(x, _):
            gradient, found = jax.grad(spread, has_aux=True)(x)
            return x + 0.3 * gradient / (1e-9 + jnp.linalg.norm(gradient, axis=-1, keepdims=True)), found

        return jax.lax.scan(step, log_shares, length=steps)[1].max()

    starts = 4 * jax.random.normal(jax.random.key(0), (ascents // len(heads), model.config.vocabulary))
    found = [climb(starts, jnp.zeros(shape).at[head].set(1.0)) for head in heads]
    return jnp.array(found).reshape(shape)


def attack(config, sizes: tuple[int, ...] = (8, 64, 512), ascents: int = ASCENTS, steps: int = STEPS) -> dict:
    """Attack the certificate of a small model whose weights are moved away from their initial ones."""
    model = Transformer(config, rngs=nnx.Rngs(0))
    draw = np.random.default_rng(1)
    nnx.update(model, jax.tree.map(lambda x: x + 0.3 * draw.normal(size=x.shape).astype("f4"), nnx.state(model)))
    certificate = certify(model)
    look = jax.jit(lambda tokens: model(tokens, capture=True, attention=_with_top_weight)[1])
    rows, random, own, certified = 0, [], [], []
    for n in sizes:
        tokens = draw.integers(0, config.vocabulary, (16, n))
        pairs = draw.integers(0, config.vocabulary, (8, 2))
        tokens[8:] = np.take_along_axis(pairs, draw.integers(0, 2, (8, n)), axis=1)
        captured = look(jnp.asarray(tokens))
        _, top = captured.stats
        seen = np.arange(1, n + 1)[:, None] if config.causal else n
        if any(window is not None for window in config.windows):
            windows = [config.window(layer) or n for layer in range(config.layers)]
            seen = np.minimum(np.arange(1, n + 1)[:, None], np.array(windows)[:, None, None, None])
        rows += top.size
        random.append(_shares(captured, certificate))
        own.append(_excess(top, seen, captured.spread))
        certified.append(_excess(top, seen, certificate.spread[:, None, None]))
    return {
        "rows": rows,
        "ascents": ascents,
        "random": max(random),
        "ascent": _climb_embeddings(model, certificate, ascents, steps),
        "own": max(own),
        "certified": max(certified),
    }


def _shares(captured, certificate) -> float:
    """The largest logarithm of a radius or a spread over its certificate."""
    radius = jnp.linalg.norm(captured.hidden, axis=-1).max((1, 2)) / certificate.hidden
    spread = captured.spread.max((1, 2)) / certificate.spread
    return float(np.log(max(radius[1:].max(), spread.max())))


def _with_top_weight(query, key, value, *arguments, return_stats, **options):
    """Attention whose statistics are joined by the largest weight of each row."""
    unit = jnp.broadcast_to(jnp.eye(key.shape[1], dtype=value.dtype)[:, None], (*key.shape[:3], key.shape[1]))
    call = partial(dot_product_attention, query, key)
    output, stats = call(value, *arguments, return_stats=True, **options)
    return output, (stats, call(unit, *arguments, **options).max(-1))


def _climb_embeddings(model, certificate, ascents: int, steps: int) -> float:
    """Any vectors in the ball of the embeddings, five a sequence, moved to enlarge every norm and spread."""
    radius = certificate.hidden[0]
    attend = partial(dot_product_attention, temperature=None)

    def shares(x):
        x = x * radius / jnp.maximum(radius, jnp.linalg.norm(x, axis=-1, keepdims=True))
        captured = model.run(x, attend=attend, capture=True)[2]
        hidden = jnp.linalg.norm(captured.hidden, axis=-1).max(2) / certificate.hidden[:, None]
        return jnp.concatenate([hidden[1:].ravel(), (captured.spread.max(2) / certificate.spread[:, None]).ravel()])

    def step(x, _):
        gradient = jax.grad(lambda x: jnp.sum(jnp.log(shares(x) + 1e-9)))(x)
        return x + 0.1 * radius * gradient / (1e-9 + jnp.linalg.norm(gradient, axis=-1, keepdims=True)), shares(x).max()

    start = jax.random.normal(jax.random.key(0), (ascents, 5, model.config.width))
    return float(jnp.log(jax.jit(lambda x: jax.lax.scan(step, x, length=steps)[1].max())(start)))


def _lists(value):
    """Arrays as lists, for JSON."""
    if isinstance(value, dict):
        return {name: _lists(entry) for name, entry in value.items()}
    return value if isinstance(value, float) else np.asarray(value, np.float64).tolist()


def assemble(rows: list[dict]) -> dict:
    """The data of the result from its rows."""
    return {
        "toys": [row for row in rows if "kind" in row],
        "attacks": [row for row in rows if "preset" in row],
    }
