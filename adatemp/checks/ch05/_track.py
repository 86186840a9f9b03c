"""Exercise 05.5, track σ cheaply: one warm-started step of a power iteration for σ_max(W_Q W_Kᵀ) a training step."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from adatemp.checks._report import Report
from adatemp.checks._stages import Mistake, Stage, examine
from adatemp.checks._trace import equations

_TITLE = "05.5 Track σ cheaply"
_SIGNATURE = "track(query_kernel, key_kernel, v)"
_D, _H = 96, 5
_RUN, _SETTLED = 240, 60  # steps of the run, and those after which the estimate must be near
_TOLERANCE = 0.02


def ex5(track: Callable[..., Any]) -> Report:
    """Checks one step of a power iteration that follows the largest singular value of M = W_Q W_Kᵀ.

    Args:
        track: `track(query_kernel, key_kernel, v) -> (sigma, v)` in JAX, called once a training step, inside jit. The
            kernels are [D, H] with H much smaller than D; v is a unit vector [D] on the items' side, a guess at the top
            right singular vector. It returns the estimate ‖Mv‖ of σ_max(M) and the next guess, again of length 1. Time
            and memory are to grow like D·H.

    Returns:
        The report. Mistakes it names: iterated M and not MᵀM; the wrong side; returned σ²; the product of two norms;
        forgot to renormalise; no warm start; the D × D product formed; a decomposition every step; NumPy inside a
        training step.
    """
    return examine(
        track,
        _TITLE,
        _SIGNATURE,
        _stages(),
        remark="One step a training step is enough because the kernels move slowly and the guess moves with them.",
        picture=_draw,
    )


@functools.cache
def _kernels() -> tuple[np.ndarray, np.ndarray]:
    draw = np.random.default_rng(2)
    return tuple(draw.normal(size=(2, _D, _H)).astype(np.float32) / 4)


@functools.cache
def _start() -> np.ndarray:
    v = np.random.default_rng(3).normal(size=_D)
    return (v / np.linalg.norm(v)).astype(np.float32)


@functools.cache
def _path() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Kernels that move along a smooth path, [steps, D, H] each, and the true norms on the way.

    The top direction turns by about a radian and its singular value grows; the second one stays well below it.
    """
    draw = np.random.default_rng(4)
    bases = [np.linalg.qr(draw.normal(size=(_D, 2 * _H)))[0] for _ in range(2)]
    made = ([], [])
    for time in np.linspace(0, 1, _RUN):
        for kernels, basis, first in zip(made, bases, (4.0, 3.0)):
            values = np.geomspace(first * (1 + 2 * time), 0.4, _H) / np.array([1, *[2] * (_H - 1)])
            turned = np.cos(time) * basis[:, :_H] + np.sin(time) * basis[:, _H:]
            kernels.append(turned * values)
    queries, keys = (np.array(kernels) for kernels in made)
    truth = np.array([np.linalg.norm(q @ k.T, 2) for q, k in zip(queries, keys)])
    return queries.astype(np.float32), keys.astype(np.float32), truth


def _stages() -> tuple[Stage, ...]:
    q, k = (kernel.astype(np.float64) for kernel in _kernels())
    product, v = q @ k.T, _start().astype(np.float64)
    top = np.linalg.svd(product)[2][0]
    sigma = np.linalg.norm(product, 2)
    at_top = functools.cache(lambda track: _once(track, top))
    from_start = functools.cache(lambda track: _once(track, v))

    def along(wanted: np.ndarray) -> Callable[[Any], bool]:
        def parallel(got: np.ndarray) -> bool:
            cosine = abs(got @ wanted) / (np.linalg.norm(got) * np.linalg.norm(wanted))
            return got.shape == wanted.shape and cosine > 1 - 1e-4

        return parallel

    return (
        Stage(
            "a number and a vector",
            from_start,
            given=f"kernels of shape [{_D}, {_H}] and a random unit vector",
            accept=lambda answer: answer[0].shape == () and answer[1].shape == (_D,) and np.isfinite(answer[1]).all(),
            look="Return `(sigma, v)`: a scalar and a vector [D].",
        ),
        Stage(
            "the estimate at the top singular vector",
            lambda track: at_top(track)[0],
            given="v the top right singular vector, where ‖Mv‖ is the norm",
            expected=np.array(sigma),
            rtol=1e-4,
            atol=0,
            mistakes=(
                Mistake(
                    "returned σ²",
                    "The estimate is the square of the largest singular value.",
                    "‖MᵀMv‖ is what a power iteration has in its hands last.",
                    "Of which matrix is that the largest eigenvalue?",
                    seen=np.array(sigma**2),
                ),
                Mistake(
                    "the product of two norms",
                    "The estimate is σ(W_Q)σ(W_K).",
                    "It is what the norm form holds.",
                    "The norm of a product is smaller than the product of norms, unless the directions meet.",
                    seen=np.array(np.linalg.norm(q, 2) * np.linalg.norm(k, 2)),
                ),
                Mistake(
                    "the estimate of one kernel",
                    "The estimate is the largest singular value of W_Q or of W_K.",
                    "There are two kernels and one number.",
                    "Which matrix stands between y and x?",
                    seen=lambda got: any(np.isclose(got, np.linalg.norm(kernel, 2), rtol=1e-4) for kernel in (q, k)),
                ),
            ),
            look="v has length 1. How long is Mv?",
        ),
        Stage(
            "the next guess is along MᵀMv",
            lambda track: from_start(track)[1],
            given="a random unit vector",
            accept=along(product.T @ (product @ v)),
            mistakes=(
                Mistake(
                    "iterated M and not MᵀM",
                    "The next guess is along Mv.",
                    "A power iteration multiplies by the matrix, again and again; for a symmetric one that is right.",
                    "To what does it converge for a matrix whose left and right singular vectors differ?",
                    seen=along(product @ v),
                ),
                Mistake(
                    "the wrong side",
                    "The next guess is along MMᵀv, which is on the side of the queries.",
                    "The order of the two factors is a matter of one transposition.",
                    "v is on the side of the items, so it meets W_Kᵀ first.",
                    seen=along(product @ (product.T @ v)),
                ),
                Mistake(
                    "no warm start",
                    "The next guess does not depend on the one that was given, or is the same again.",
                    "A fresh start in each call makes a function that stands alone.",
                    "What would you have to pay in each training step, to start anew?",
                    seen=lambda got: along(v)(got) or np.allclose(got, got.mean()),
                ),
            ),
            look="Two products forward, two products back.",
        ),
        Stage(
            "the next guess has length 1",
            lambda track: np.linalg.norm(from_start(track)[1]),
            given="a random unit vector",
            expected=np.array(1.0),
            rtol=1e-3,
            atol=0,
            mistakes=(
                Mistake(
                    "forgot to renormalise",
                    "The vector that comes back is not of length 1.",
                    "The direction is right, and over one step nothing goes wrong.",
                    "What is its length after a thousand steps?",
                    seen=lambda got: np.isfinite(got),
                ),
            ),
            look="Print the length of v.",
        ),
        Stage(
            "it stays near the norm over a run",
            _followed,
            given=f"{_RUN} steps of kernels that move, one call each; the first {_SETTLED} do not count",
            accept=lambda got: (
                got.shape == (_RUN,) and (np.abs(got[_SETTLED:] / _path()[2][_SETTLED:] - 1)).max() < _TOLERANCE
            ),
            mistakes=(
                Mistake(
                    "no warm start",
                    "The estimate does not settle: each call starts from the same vector.",
                    "A fresh start in each call makes a function that stands alone.",
                    "Where does the v that you return go?",
                    seen=lambda got: np.isfinite(got).all(),
                ),
            ),
            look="Plot the estimate and the norm against the step.",
        ),
        Stage(
            "in time and memory that grow like D·H",
            _largest_array,
            given="the traced program",
            accept=lambda found: found[0] <= 2 * _D * _H and not found[1],
            mistakes=(
                Mistake(
                    "NumPy inside a training step",
                    "The function cannot be traced.",
                    "NumPy works on numbers, and inside jit there are none yet.",
                    "Use jax.numpy, and no Python branch on a value.",
                    seen=lambda found: isinstance(found, Exception),
                ),
                Mistake(
                    "a decomposition every step",
                    "The program contains a decomposition of a matrix.",
                    "It is one line, and exact.",
                    "It costs more than the step it watches. What does a product with a vector cost?",
                    seen=lambda found: bool(found[1]),
                ),
                Mistake(
                    "the D × D product formed",
                    "The program holds an array of the size of W_Q W_Kᵀ.",
                    "It is the matrix whose norm is asked for.",
                    "A product of matrices with a vector can be taken from the right.",
                    seen=lambda found: found[0] >= _D * _D,
                ),
            ),
            look="Write the shape of each intermediate array beside its line.",
        ),
    )


def _once(track: Callable[..., Any], v: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    sigma, following = _compiled(track)(*map(jnp.asarray, _kernels()), jnp.asarray(v, jnp.float32))
    if sigma is None or following is None:
        raise NotImplementedError
    return np.asarray(sigma).astype(np.float64), np.asarray(following).astype(np.float64)


def _followed(track: Callable[..., Any]) -> np.ndarray:
    queries, keys, _ = _path()
    v, found = jnp.asarray(_start()), []
    step = _compiled(track)
    for q, k in zip(queries, keys):
        sigma, v = step(q, k, v)
        found.append(float(sigma))
    return np.array(found)


@functools.cache  # op by op, the first call of each operation compiles
def _compiled(track: Callable[..., Any]) -> Callable[..., Any]:
    """The function under jit where that is possible; the stage about cost says so where it is not."""
    step = jax.jit(track)
    try:
        step(*map(jnp.asarray, _kernels()), jnp.asarray(_start()))
    except Exception:
        return track
    return step


def _largest_array(track: Callable[..., Any]) -> tuple[int, list[str]]:
    """Entries of the largest intermediate array, and the decompositions in the program."""
    shapes = [jax.ShapeDtypeStruct(shape, jnp.float32) for shape in ((_D, _H), (_D, _H), (_D,))]
    program = list(equations(jax.make_jaxpr(track)(*shapes)))
    largest = max((int(np.prod(var.aval.shape)) for equation in program for var in equation.outvars), default=0)
    costly = {"svd", "eigh", "eig", "qr", "householder_product", "geqrf"}
    return largest, [equation.primitive.name for equation in program if equation.primitive.name in costly]


def _draw(track: Callable[..., Any]) -> Any:
    """Estimate and norm over the run."""
    from adatemp import plotting

    found, truth = _followed(track), _path()[2]
    figure, axes = plotting.figure(height=2.8)
    axes.plot(truth, label="by SVD", **plotting.role("bound") | {"marker": None})
    axes.plot(found, label="your estimate", color=plotting.palette["ours"])
    axes.set(xlabel="step", ylabel="largest singular value")
    axes.legend()
    worst = np.abs(found[_SETTLED:] / truth[_SETTLED:] - 1).max()
    return plotting.show(
        figure,
        alt=f"Largest singular value over {_RUN} steps by SVD, from {truth[0]:.1f} to {truth[-1]:.1f}, and your "
        f"estimate, which is within {100 * worst:.1f}% of it from step {_SETTLED} on.",
    )
