"""Exercise 04.1, a certificate that does not know n: radii through norms, attention, MLPs and residuals."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from adatemp.checks._report import Report
from adatemp.checks._stages import Mistake, Stage, examine

_SIGNATURE = "certificate(layers, radius, n)"
_RADIUS = 3.0

Layer = dict[str, Any]


def ex1(certificate: Callable[..., Any]) -> Report:
    """Checks radii of hidden states and spreads of heads, certified from weights.

    Args:
        certificate: `certificate(layers, radius, n) -> (radii, spreads)`, L + 1 radii, that of the input first, and L
            spreads. A layer is a dictionary of arrays: "gain" [D] and "epsilon" of an RMS norm, used before both
            branches; "query", "key", "value" [D, H] and "out" [H, D] of one head, whose logits are ⟨q, k⟩/√H; "up"
            [D, F] and "down" [F, D] of an MLP with ReLU. It computes x + attention(norm(x)), then the same with the
            MLP. All tokens have a length of at most `radius`; `n` is their number.

    Returns:
        The report. Mistakes it names: an attention output bounded by a sum; a residual forgotten; a Lipschitz constant
        where a bound on bounded sets is meant; a norm left out; the factor 2, or √H, forgotten; the mean of the gains;
        a Frobenius norm; a certificate below what was reached.
    """
    return examine(certificate, "04.1 A certificate that does not know n", _SIGNATURE, _stages(), picture=_draw)


def _stages() -> tuple[Stage, ...]:
    plain, sharp, drawn = _orthogonal(1e-6), _orthogonal(0.0), _drawn()
    size = len(plain)
    found = _reached(drawn)

    def of(layers: list[Layer], n: int = 64) -> Callable[..., np.ndarray]:
        return lambda certificate: _flat(certificate(layers, _RADIUS, n))

    def variant(layers: list[Layer], **how: Any) -> np.ndarray:
        return _certify(layers, **how)

    right = variant(plain)
    lipschitz = Mistake(
        "a Lipschitz constant for a bound on bounded sets",
        "The norm is bounded by its steepest slope times the radius, which is enormous, or infinite without epsilon.",
        "A Lipschitz constant also sends balls into balls.",
        "How long can the output of a norm be, however steep it is somewhere?",
        seen=lambda got: not np.isfinite(got).all() or got[1] > 50 * right[1],
    )
    return (
        Stage(
            "L + 1 radii and L spreads",
            lambda certificate: certificate(plain, _RADIUS, 64),
            given=f"{size} layers",
            accept=lambda pair: len(pair) == 2 and np.shape(pair[0]) == (size + 1,) and np.shape(pair[1]) == (size,),
            look="Return two lists: radii, that of the input first, and one spread a layer.",
        ),
        Stage(
            "the same for every number of tokens",
            lambda certificate: np.stack([of(plain, n)(certificate) for n in (2, 64, 10**6)]),
            given="n = 2, 64 and 1,000,000",
            accept=lambda got: np.allclose(got, got[0], rtol=1e-9, equal_nan=True),
            mistakes=(
                Mistake(
                    "an attention output bounded by a sum",
                    "The certificate changes with the number of tokens.",
                    "The output of a head is written as a sum over n tokens, and a sum of n vectors can be n times as "
                    "long.",
                    "What do the n weights of that sum add up to?",
                    seen=lambda got: True,
                ),
            ),
            look="Where does n enter, and should it?",
        ),
        Stage(
            "maps whose stretch is the same in all directions",
            of(plain),
            given="kernels that are multiples of orthogonal matrices, so that every sound bound gives the same numbers",
            expected=right,
            rtol=1e-3,
            atol=0,
            mistakes=(
                Mistake(
                    "a residual forgotten",
                    "A radius is that of a branch alone.",
                    "The branch is where the work is.",
                    "What is added to the output of each branch?",
                    seen=lambda got: any(
                        np.allclose(got, variant(plain, **how), rtol=1e-3)
                        for how in (
                            dict(residual=(False, False)),
                            dict(residual=(True, False)),
                            dict(residual=(False, True)),
                        )
                    ),
                ),
                lipschitz,
                Mistake(
                    "a norm left out",
                    "The branches read the hidden states themselves.",
                    "The norm changes no shape, so it is easily lost.",
                    "What enters the projections, and how long is it?",
                    seen=lambda got: any(
                        np.allclose(got, variant(plain, norms=norms), rtol=1e-3)
                        for norms in ((False, False), (True, False), (False, True))
                    ),
                ),
                Mistake(
                    "the factor 2 forgotten",
                    "The spreads are half of what they should be.",
                    "A bound on one logit is not yet one on a difference of two.",
                    "How far apart can two numbers be that both lie between −B and B?",
                    seen=variant(plain, factor=1.0),
                ),
                Mistake(
                    "√H forgotten",
                    "The spreads are too large by the square root of the head's width.",
                    "The scale of the logits does not appear among the kernels.",
                    "What are the products divided by?",
                    seen=variant(plain, scale=lambda width: 1.0),
                ),
                Mistake(
                    "the mean of the gains",
                    "The gain enters by its mean.",
                    "One number was needed for a vector of gains.",
                    "Which channel can an adversary put all of the length into?",
                    seen=variant(plain, gain=lambda g: np.abs(g).mean()),
                ),
            ),
            look="Take one layer apart: print the radius after each of its steps.",
        ),
        Stage(
            "a norm without epsilon",
            of(sharp),
            given="epsilon = 0 in every norm",
            expected=variant(sharp),
            rtol=1e-3,
            atol=0,
            mistakes=(lipschitz,),
            look="How long is x/√(mean square of x), for any x?",
        ),
        Stage(
            "nothing that was found lies above the certificate, and it is no larger than it need be",
            of(drawn),
            given="kernels drawn at random",
            accept=lambda got: (got >= found * (1 - 1e-6)).all() and (got <= variant(drawn) * (1 + 1e-6)).all(),
            mistakes=(
                Mistake(
                    "below what was reached",
                    "Some sequence has a longer state or a larger spread than is certified.",
                    "A typical stretch of a matrix was taken for its largest, or a step was left out that does nothing "
                    "to orthogonal maps.",
                    "Which vector does a matrix stretch most, and by how much?",
                    seen=lambda got: not (got >= found * (1 - 1e-6)).all(),
                ),
                Mistake(
                    "a Frobenius norm for the largest singular value",
                    "The certificate holds and is larger than it need be.",
                    "`np.linalg.norm` of a matrix is the Frobenius norm unless told otherwise.",
                    "Which argument asks for the largest singular value?",
                    seen=lambda got: np.allclose(got, variant(drawn, size=np.linalg.norm), rtol=1e-3),
                ),
            ),
            look="Compare with the largest singular value of each kernel.",
        ),
    )


def _certify(
    layers: list[Layer],
    *,
    residual: tuple[bool, bool] = (True, True),
    norms: tuple[bool, bool] = (True, True),
    factor: float = 2.0,
    scale: Callable[[int], float] = lambda width: width**-0.5,
    gain: Callable[[np.ndarray], float] = lambda g: np.abs(g).max(),
    size: Callable[[np.ndarray], float] = lambda m: np.linalg.norm(m, 2),
) -> np.ndarray:
    """The certificate by products of single norms, or what a mistake makes of it; radii, then spreads."""

    def norm(radius: float, layer: Layer) -> float:
        width, epsilon = layer["gain"].size, layer["epsilon"]
        share = 1.0 if epsilon == 0 else radius / math.hypot(radius, math.sqrt(width * epsilon))
        return gain(layer["gain"]) * math.sqrt(width) * share

    radius, radii, spreads = _RADIUS, [_RADIUS], []
    for layer in layers:
        read = norm(radius, layer) if norms[0] else radius
        stretch = size(layer["query"]) * size(layer["key"])
        spreads.append(factor * scale(layer["query"].shape[1]) * stretch * read**2)
        radius = residual[0] * radius + size(layer["value"]) * size(layer["out"]) * read
        read = norm(radius, layer) if norms[1] else radius
        radius = residual[1] * radius + size(layer["up"]) * size(layer["down"]) * read
        radii.append(radius)
    return np.array([*radii, *spreads])


def _orthogonal(epsilon: float) -> list[Layer]:
    """Two layers of width 6 whose kernels are multiples of orthogonal matrices."""
    draw = np.random.default_rng(41)

    def kernel() -> np.ndarray:
        return draw.uniform(0.5, 2.0) * np.linalg.qr(draw.normal(size=(6, 6)))[0]

    names = ("query", "key", "value", "out", "up", "down")
    return [{"gain": draw.uniform(-2, 2, 6), "epsilon": epsilon} | {name: kernel() for name in names} for _ in range(2)]


def _drawn() -> list[Layer]:
    """Three layers of width 8, a head of width 3 whose two kernels nearly agree, an MLP of 10, gains of one size."""
    draw = np.random.default_rng(42)
    shapes = {"query": (8, 3), "value": (8, 3), "out": (3, 8), "up": (8, 10), "down": (10, 8)}
    layers = []
    for _ in range(3):
        layer = {"gain": 1.2 * draw.choice([-1.0, 1.0], 8), "epsilon": 1e-5}
        layer |= {name: draw.normal(size=shape) for name, shape in shapes.items()}
        layers.append(layer | {"key": layer["query"] + 0.1 * draw.normal(size=(8, 3))})
    return layers


def _rms(x: np.ndarray, layer: Layer) -> np.ndarray:
    return layer["gain"] * x / np.sqrt((x * x).mean(-1, keepdims=True) + layer["epsilon"])


@functools.cache
def _attacked(seed: int = 0) -> np.ndarray:
    return _search(_drawn(), seed)


def _reached(layers: list[Layer]) -> np.ndarray:
    """The longest states and largest spreads that a search over sequences of six tokens finds."""
    return _attacked()


def _search(layers: list[Layer], seed: int) -> np.ndarray:
    draw = np.random.default_rng(seed)
    best = np.zeros(2 * len(layers) + 1)
    x = draw.normal(size=(400, 6, 8))
    # One start looks for the first head's spread where it is: along the top singular directions, seen through the norm.
    left, _, right = np.linalg.svd(layers[0]["query"] @ layers[0]["key"].T)
    x[0, :3] = np.stack([left[:, 0], right[0], -right[0]]) * np.sign(layers[0]["gain"])
    for _ in range(60):
        x *= _RADIUS / np.linalg.norm(x, axis=-1, keepdims=True)
        found = _measure(layers, x)
        best = np.maximum(best, found.max(0))
        # the better half for a quantity chosen at random, moved a little
        order = np.argsort(found[:, draw.integers(1, best.size)])[-200:]
        x = np.concatenate([x[order], x[order] + draw.choice([0.1, 0.5]) * draw.normal(size=(200, 6, 8))])
    return best


def _measure(layers: list[Layer], x: np.ndarray) -> np.ndarray:
    """[B, 2L + 1]: the longest state before and after each layer, then the largest spread of each layer."""
    radii, spreads = [np.linalg.norm(x, axis=-1).max(-1)], []
    for layer in layers:
        y = _rms(x, layer)
        logits = (y @ layer["query"]) @ (y @ layer["key"]).swapaxes(-1, -2) / math.sqrt(layer["query"].shape[1])
        spreads.append(np.ptp(logits, axis=-1).max(-1))
        weights = np.exp(logits - logits.max(-1, keepdims=True))
        weights /= weights.sum(-1, keepdims=True)
        x = x + weights @ (y @ layer["value"]) @ layer["out"]
        x = x + np.maximum(_rms(x, layer) @ layer["up"], 0) @ layer["down"]
        radii.append(np.linalg.norm(x, axis=-1).max(-1))
    return np.stack([*radii, *spreads], axis=1)


def _flat(pair: Any) -> np.ndarray:
    return np.concatenate([np.asarray(part, np.float64).ravel() for part in pair])


def _draw(certificate: Callable[..., Any]) -> Any:
    """Certified radii beside those that a search reached."""
    from adatemp import plotting

    layers = _drawn()
    radii, _ = certificate(layers, _RADIUS, 6)
    found = _reached(layers)[: len(layers) + 1]
    figure, axes = plotting.figure(height=2.6)
    depth = np.arange(len(layers) + 1)
    axes.plot(depth, np.asarray(radii, float), label="certified", **plotting.role("tight"))
    axes.plot(depth, found, label="found by a search", **plotting.role("ours"))
    axes.set(xlabel="layers", ylabel="radius", yscale="log", xticks=depth)
    axes.legend()
    return plotting.show(
        figure,
        alt=f"Radius by layer: certified {float(np.asarray(radii)[-1]):.0f} at the end, reached by a search "
        f"{found[-1]:.0f}.",
    )
