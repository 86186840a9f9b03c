"""The variants for the tests, each with its definition written again: float64 numpy, one row of live keys at a time."""

from __future__ import annotations

from functools import cache, partial

import jax
import numpy as np

from adatemp import variants


def softmax(z):
    e = np.exp(z - z.max())
    return e / e.sum()


def logistic(z):
    return np.where(z > 0, 1 / (1 + np.exp(-np.abs(z))), np.exp(-np.abs(z)) / (1 + np.exp(-np.abs(z))))


def entmax(z, alpha):
    """The threshold by halving a bracket until it cannot be halved, from the sum of the weights alone."""
    x = (alpha - 1) * z
    low, high = x.max() - 1, x.max()
    for _ in range(200):
        tau = (low + high) / 2
        total = (np.maximum(0, x - tau) ** (1 / (alpha - 1))).sum()
        low, high = (tau, high) if total > 1 else (low, tau)
    return np.maximum(0, x - (low + high) / 2) ** (1 / (alpha - 1))


def with_sink(z, sink):
    return softmax(np.append(z, sink))[:-1]


def softpick(z, epsilon=1e-8):
    # All over the largest exponential, in long double, which has the digits to subtract 1.
    e = np.expm1(z.astype(np.longdouble))
    return (np.maximum(e, 0) / (np.abs(e).sum() + epsilon)).astype(np.float64)


def stick_breaking(z):
    weights, left = np.zeros(z.shape), 1.0
    for i in reversed(range(len(z))):
        weights[i] = left * logistic(z[i])
        left = left * logistic(-z[i])
    return weights


def top_k(z, k):
    kept = np.argsort(-z, kind="stable")[:k]
    weights = np.zeros(z.shape)
    weights[kept] = softmax(z[kept])
    return weights


def hard(z):
    return (np.arange(len(z)) == np.argmax(z)).astype(float)


def by_length(z, beta):
    return softmax((beta if len(z) > 1 else 1.0) * z)


# name: (the library's function, its definition)
VARIANTS = {
    "sparsemax": (variants.sparsemax, partial(entmax, alpha=2.0)),
    "entmax15": (variants.entmax15, partial(entmax, alpha=1.5)),
    "null slot": (variants.sink_softmax, partial(with_sink, sink=0.0)),
    "sink": (partial(variants.sink_softmax, sink=1.3), partial(with_sink, sink=1.3)),
    "sigmoid": (variants.sigmoid, lambda z: logistic(z - np.log(len(z)))),
    "sigmoid with bias": (partial(variants.sigmoid, bias=-0.7), lambda z: logistic(z - 0.7)),
    "softpick": (variants.softpick, softpick),
    "relu": (variants.relu, lambda z: np.maximum(0, z) / len(z)),
    "stick_breaking": (variants.stick_breaking, stick_breaking),
    "top_k": (partial(variants.top_k, k=3), partial(top_k, k=3)),
    "hard": (variants.hard, hard),
    "log_length": (
        partial(variants.log_length_softmax, reference_count=4.0),
        lambda z: by_length(z, np.log(len(z)) / np.log(4.0)),
    ),
    "scalable": (
        partial(variants.scalable_softmax, scale=0.6, offset=0.2),
        lambda z: by_length(z, 0.6 * np.log(len(z)) + 0.2),
    ),
    "yarn": (partial(variants.yarn_softmax, factor=4.0), lambda z: softmax((0.1 * np.log(4.0) + 1) ** 2 * z)),
    "llama4": (
        partial(variants.llama4_softmax, coefficient=0.7, floor_scale=3),
        lambda z: softmax((1 + 0.7 * np.log(1 + len(z) // 3)) * z),
    ),
}
# Those whose weights a number added to every logit leaves alone, and those whose weights sum to 1.
SHIFT_INVARIANT = ("sparsemax", "entmax15", "top_k", "hard", "log_length", "scalable", "yarn", "llama4")
# Those in which a permutation of the keys permutes the weights, ties aside.
SYMMETRIC = tuple(name for name in VARIANTS if name not in ("stick_breaking", "top_k", "hard"))


def every(z, where=None, axis=-1, names=tuple(VARIANTS)):
    """(name, weights) of all variants, compiled once a shape, without optimisations, which takes half as long."""
    z = np.asarray(z)
    where = np.broadcast_to(True if where is None else where, z.shape)
    return jax.device_get(_program(z.shape, z.dtype, axis, names)(z, where)).items()


@cache
def _program(shape, dtype, axis, names):
    def program(z, where):
        return {name: VARIANTS[name][0](z, axis=axis, where=where) for name in names}

    return compiled(program, jax.ShapeDtypeStruct(shape, dtype), jax.ShapeDtypeStruct(shape, bool))


def compiled(function, *arguments):
    return jax.jit(function).lower(*arguments).compile({"xla_backend_optimization_level": 0})


def definition(name, z, where=None):
    """Weights [*rows, n] by definition; dead keys are removed before any arithmetic."""
    z = np.asarray(z, np.float64)
    keep = np.broadcast_to(True if where is None else where, z.shape) & (z != -np.inf)
    weights = np.zeros(z.shape)
    for row in np.ndindex(z.shape[:-1]):
        if keep[row].any():
            weights[row][keep[row]] = VARIANTS[name][1](z[row][keep[row]])
    return weights
