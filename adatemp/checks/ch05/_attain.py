"""Exercise 05.1, attain it: both bounds on one head of a layer, and a query and items that reach them."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from adatemp.checks._report import Report
from adatemp.checks._several import in_turn
from adatemp.checks._stages import Mistake, Stage, examine

_TITLE = "05.1 Attain it"
_BOUNDS = "bounds(query_kernels, key_kernels, gain, y, items, head)"
_ATTAIN = "attain(query_kernel, key_kernel, query_norm, item_norm)"


class _Layer(NamedTuple):
    """The inputs of one call of `bounds`."""

    query_kernels: np.ndarray  # [D, N, H]
    key_kernels: np.ndarray
    gain: np.ndarray  # [D]
    y: np.ndarray  # [D]
    items: np.ndarray  # [n, D]
    head: int


class _Head(NamedTuple):
    """The inputs of one call of `attain`; `aligned` where the top directions of the kernels meet."""

    query_kernel: np.ndarray  # [D, H]
    key_kernel: np.ndarray
    query_norm: float
    item_norm: float
    aligned: bool


def ex1(bounds: Callable[..., Any], attain: Callable[..., Any]) -> Report:
    """Checks the norm form and the tight form of one head, and inputs that attain them.

    Args:
        bounds: `bounds(query_kernels, key_kernels, gain, y, items, head) -> (norm_form, tight_form)`. The kernels are
            [D, N, H], one slice a head; `y` [D] and `items` [n, D] enter an RMS norm x/√(mean x²) times `gain` [D], and
            what comes out enters the kernels. Logits are ⟨q, k⟩/√H.
        attain: `attain(query_kernel, key_kernel, query_norm, item_norm) -> (y, items)` for the kernels [D, H] of one
            head, without a norm layer. ‖y‖ is `query_norm`, the largest ‖x_i‖ is `item_norm`, there are at least two
            items, and the spread equals the tight form, and the norm form too where any input can attain that.

    Returns:
        The report. Mistakes it names: √d dropped; the kernels of all heads for one; norms taken before the
        normalisation; the product of two norms for the norm of the product; the factor 2 missing; the top direction of
        one kernel for that of the product; right for left; items on one side.
    """
    return in_turn(
        (
            lambda: examine(bounds, _TITLE, _BOUNDS, _bounds_stages()),
            lambda: examine(attain, _TITLE, _ATTAIN, _attain_stages()),
        ),
        remark="Opposite items along one direction: any other set of items leaves something of the bound unused.",
        picture=functools.partial(_draw, attain),
    )


@functools.cache
def _layers() -> list[_Layer]:
    draw = np.random.default_rng(0)
    made = []
    for n, model, heads, width, head in ((5, 12, 3, 4, 1), (9, 10, 2, 6, 0), (3, 14, 4, 5, 3)):
        kernels = draw.normal(size=(2, model, heads, width)) * np.linspace(0.5, 2.0, heads)[:, None]
        items = 4 * draw.normal(size=(n, model)) + draw.normal(size=model)
        made.append(_Layer(*kernels, draw.uniform(0.3, 2.0, model), 3 * draw.normal(size=model), items, head))
    return made


def _forms(
    layer: _Layer, *, scale: bool = True, all_heads: bool = False, normed: bool = True, of_product: bool = True
) -> tuple[float, float]:
    """Both forms by their definition; the options make the mistakes."""
    kernels = (layer.query_kernels, layer.key_kernels)
    if all_heads:
        w_q, w_k = (kernel.reshape(len(kernel), -1) for kernel in kernels)
    else:
        w_q, w_k = (kernel[:, layer.head] for kernel in kernels)

    def norm(x: np.ndarray) -> np.ndarray:
        return layer.gain * x / np.sqrt((x * x).mean(-1, keepdims=True)) if normed else x

    y, items = norm(layer.y), norm(layer.items)
    c = 1 / np.sqrt(layer.query_kernels.shape[-1]) if scale else 1.0
    product = np.linalg.norm(w_q, 2) * np.linalg.norm(w_k, 2)
    reach = max(np.linalg.norm(a - b) for a in items for b in items)
    lengths = np.linalg.norm(y), np.linalg.norm(items, axis=1).max()
    sigma = np.linalg.norm(w_q @ w_k.T, 2) if of_product else product
    return 2 * c * product * lengths[0] * lengths[1], c * sigma * lengths[0] * reach


def _bounds_stages() -> tuple[Stage, ...]:
    def all_forms(**options: bool) -> np.ndarray:
        return np.array([_forms(layer, **options) for layer in _layers()])

    right = all_forms()
    return (
        Stage(
            "two positive numbers",
            lambda bounds: np.array([[float(part) for part in bounds(*layer)] for layer in _layers()]),
            given="three layers of 2 to 4 heads",
            accept=lambda got: got.shape == right.shape and not (got <= 0).any(),
            look="Return `(norm_form, tight_form)`, two numbers.",
        ),
        Stage(
            "the norm form and the tight form",
            lambda bounds: np.array([[float(part) for part in bounds(*layer)] for layer in _layers()]),
            given="three layers of 2 to 4 heads with an RMS norm before the kernels",
            expected=right,
            rtol=1e-9,
            atol=0,
            mistakes=(
                Mistake(
                    "√d dropped",
                    "Both forms are too large by the square root of the head's width.",
                    "The published form is about the product, before the usual division.",
                    "By what are the products divided before they are logits? Which width is it?",
                    seen=all_forms(scale=False),
                ),
                Mistake(
                    "the width of the model for that of the head",
                    "The logits are divided by √D instead of √H.",
                    "Two widths are around, and in a single head of full width they are the same.",
                    "Over how many channels does the product of a query and a key run?",
                    seen=lambda got: np.allclose(
                        got * [[np.sqrt(x.y.size / x.query_kernels.shape[-1])] for x in _layers()], right, rtol=1e-9
                    ),
                ),
                Mistake(
                    "the kernels of all heads for one",
                    "The largest singular value is that of all heads side by side.",
                    "A layer stores its heads in one array, and `reshape` is the shortest way to a matrix.",
                    "Which rows and columns does this head use?",
                    seen=all_forms(all_heads=True),
                ),
                Mistake(
                    "norms before the normalisation",
                    "‖y‖ and ‖x‖ are those of the residual stream.",
                    "They are the arguments of the function, so they are what is at hand.",
                    "Which vectors do the kernels multiply?",
                    seen=all_forms(normed=False),
                ),
                Mistake(
                    "the product of two norms for the norm of the product",
                    "The tight form holds σ(W_Q)σ(W_K) where σ(W_Q W_Kᵀ) would do.",
                    "Each is an upper bound of the same logits.",
                    "Compare the two numbers for one head. When are they the same?",
                    seen=lambda got: np.allclose(got, all_forms(of_product=False), rtol=1e-9),
                ),
                Mistake(
                    "the factor 2 missing",
                    "The norm form bounds one logit, not the difference of two.",
                    "Cauchy and Schwarz give a bound on ⟨q, k⟩.",
                    "How far apart can two numbers be that are both at most B in size?",
                    seen=lambda got: np.allclose(got * [[2, 1]], right, rtol=1e-9),
                ),
                Mistake(
                    "the two forms exchanged",
                    "The first number is the tight form.",
                    "The smaller one comes first in many a pair of bounds.",
                    "The exercise asks for `(norm_form, tight_form)`.",
                    seen=right[:, ::-1],
                ),
            ),
            look="Write down, for one layer, each factor of the theorem and the array it is the norm of.",
        ),
    )


@functools.cache
def _heads() -> list[_Head]:
    draw = np.random.default_rng(1)
    made = []
    for model, width, y, x in ((7, 3, 2.0, 5.0), (6, 6, 0.5, 1.5), (9, 4, 11.0, 0.25)):
        made.append(_Head(*draw.normal(size=(2, model, width)), y, x, aligned=False))
    for model, width, y, x in ((8, 5, 3.0, 2.0), (6, 4, 1.5, 0.7)):
        # Singular values fall, and in the head's space the top directions are the same.
        inner = np.linalg.qr(draw.normal(size=(width, width)))[0]
        outer = [np.linalg.qr(draw.normal(size=(model, width)))[0] for _ in range(2)]
        values = np.array([np.geomspace(4, 0.3, width), np.geomspace(3, 0.5, width)])
        made.append(_Head(*(o * v @ inner.T for o, v in zip(outer, values)), y, x, aligned=True))
    return made


def _attain_stages() -> tuple[Stage, ...]:
    called = functools.cache(lambda attain: [_inputs(attain(*head[:4])) for head in _heads()])
    given = "five heads, D from 6 to 9, H from 3 to 6"
    share = np.array([[1.0, _aligned_share(head)] for head in _heads()])

    def reached(attain: Callable[..., Any]) -> np.ndarray:
        """Spread over tight form and over norm form."""
        shares = []
        for head, (y, items) in zip(_heads(), called(attain)):
            c = 1 / np.sqrt(head.query_kernel.shape[1])
            spread = np.ptp(c * (items @ head.key_kernel) @ (y @ head.query_kernel))
            reach = max(np.linalg.norm(a - b) for a in items for b in items)
            sigma = np.linalg.norm(head.query_kernel @ head.key_kernel.T, 2)
            product = np.linalg.norm(head.query_kernel, 2) * np.linalg.norm(head.key_kernel, 2)
            tight = c * sigma * np.linalg.norm(y) * reach
            shares.append([spread / tight, spread / (2 * c * product * head.query_norm * head.item_norm)])
        return np.array(shares)

    def separately(got: np.ndarray) -> bool:
        return got[3:, 0].min() > 1 - 1e-9 and got[:3, 0].max() < 1 - 1e-6

    return (
        Stage(
            "a query and at least two items",
            called,
            given=given,
            accept=lambda answers: all(
                y.shape == head.query_kernel.shape[:1]
                and items.ndim == 2
                and items.shape[1] == y.size
                and len(items) > 1
                for head, (y, items) in zip(_heads(), answers)
            ),
            look="Return `(y, items)` of shapes [D] and [n, D] with n at least 2.",
        ),
        Stage(
            "of the lengths that were asked for",
            lambda attain: np.array([[np.linalg.norm(y), *_longest(items)] for y, items in called(attain)]),
            given=given,
            expected=np.array([[head.query_norm, head.item_norm] for head in _heads()]),
            rtol=1e-9,
            atol=0,
            look="Scale a unit vector by the length that was asked for.",
        ),
        Stage(
            "the spread equals the tight form",
            lambda attain: reached(attain)[:, 0],
            given=given,
            expected=share[:, 0],
            rtol=1e-10,
            atol=0,
            mistakes=(
                Mistake(
                    "right for left",
                    "The query is along the singular direction that belongs to the items, and they along the query's.",
                    "`svd` returns U and Vᵀ, and which belongs to which side is soon forgotten.",
                    "In y W_Q W_Kᵀ xᵀ, which factor of the decomposition does y meet?",
                    seen=lambda got: np.allclose(got, _by(_exchanged), rtol=1e-9),
                ),
                Mistake(
                    "the top direction of one kernel for that of the product",
                    "Where the top directions of the two kernels meet, the bound is attained, and elsewhere not.",
                    "For the norm form one goes through the kernels one by one.",
                    "Which matrix stands between y and x in a logit?",
                    seen=lambda got: separately(np.stack([got, got], 1)) or np.allclose(got, _by(_kernel_by_kernel)),
                ),
                Mistake(
                    "no spread at all",
                    "All items have the same logit.",
                    "Copies of the best item, or of a vector and what is orthogonal to y, are easily made.",
                    "Which two items shall have the largest and the smallest logit?",
                    seen=lambda got: np.nanmax(np.nan_to_num(got)) < 1e-9,
                ),
            ),
            look="Both inequalities of the proof have to be equalities. Take them one at a time.",
        ),
        Stage(
            "and the norm form where that can be attained",
            lambda attain: reached(attain)[:, 1],
            given="the same heads; for two of them the top directions of both kernels meet",
            expected=share[:, 1],
            rtol=1e-10,
            atol=0,
            mistakes=(
                Mistake(
                    "items on one side",
                    "The spread is half of what it could be with items of that length.",
                    "An item and the zero vector attain the tight form already: their difference is along the right "
                    "direction.",
                    "Where must a second item stand, to be as far as possible from the first?",
                    seen=share[:, 1] / 2,
                ),
            ),
            look="The norm form also asks that the largest distance of two items is twice the largest length.",
        ),
    )


def _inputs(answer: Any) -> tuple[np.ndarray, np.ndarray]:
    y, items = answer
    return np.asarray(y).astype(np.float64), np.asarray(items).astype(np.float64)


def _longest(items: np.ndarray) -> tuple[float]:
    return (np.linalg.norm(items, axis=1).max(),)


def _aligned_share(head: _Head) -> float:
    """σ(W_Q W_Kᵀ) over σ(W_Q)σ(W_K): how much of the norm form this head can reach."""
    q, k = head.query_kernel, head.key_kernel
    return float(np.linalg.norm(q @ k.T, 2) / (np.linalg.norm(q, 2) * np.linalg.norm(k, 2)))


def _by(directions: Callable[[_Head], tuple[np.ndarray, np.ndarray]]) -> np.ndarray:
    """Share of the tight form that opposite items along these directions reach."""
    shares = []
    for head in _heads():
        y, x = directions(head)
        product = head.query_kernel @ head.key_kernel.T
        shares.append(abs(y @ product @ x) / np.linalg.norm(product, 2))
    return np.array(shares)


def _exchanged(head: _Head) -> tuple[np.ndarray, np.ndarray]:
    left, _, right = np.linalg.svd(head.query_kernel @ head.key_kernel.T)
    return right[0], left[:, 0]


def _kernel_by_kernel(head: _Head) -> tuple[np.ndarray, np.ndarray]:
    return np.linalg.svd(head.query_kernel)[0][:, 0], np.linalg.svd(head.key_kernel)[0][:, 0]


def _draw(attain: Callable[..., Any]) -> Any:
    """Logits of the returned items, and the two bounds on their spread."""
    from adatemp import plotting

    figure, axes = plotting.figure(height=2.6)
    words = []
    for place, head in enumerate(_heads()):
        y, items = _inputs(attain(*head[:4]))
        logits = (items @ head.key_kernel) @ (y @ head.query_kernel) / np.sqrt(head.query_kernel.shape[1])
        product = np.linalg.norm(head.query_kernel, 2) * np.linalg.norm(head.key_kernel, 2)
        norms = 2 * product * head.query_norm * head.item_norm / np.sqrt(head.query_kernel.shape[1])
        axes.plot([place] * len(logits), (logits - logits.min()) / norms, "o", color=plotting.palette["plain"])
        words.append(f"{np.ptp(logits) / norms:.2f}")
    axes.axhline(1.0, **plotting.role("bound"))
    axes.set(xlabel="head", ylabel="logit over the norm form", xticks=range(len(words)))
    return plotting.show(
        figure, alt="Spread of your items over the norm form, one head each: " + ", ".join(words) + "."
    )
