"""One training loop: jitted `lax.scan` chunks, metrics as arrays, resumable to the byte."""

from __future__ import annotations

import dataclasses
import hashlib
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx

from adatemp._checkpoint import load, read_about, save
from adatemp._progress import ProgressLine

if TYPE_CHECKING:
    from jaxtyping import Array, Float, Key

__all__ = ["History", "train", "save", "load"]


@dataclasses.dataclass(frozen=True)
class History:
    """What a training run recorded.

    Attributes:
        metrics: one array of length `steps` for "loss" and for each scalar the loss function reported.
    """

    metrics: dict[str, Float[np.ndarray, " steps"]]


def train(
    model: nnx.Module,
    loss_fn: Callable[[nnx.Module, Key[Array, ""]], tuple[Float[Array, ""], dict[str, Float[Array, ""]]]],
    *,
    optimizer: optax.GradientTransformation,
    steps: int,
    seed: int | Key[Array, ""],
    chunk: int = 500,
    checkpoint: str | os.PathLike | None = None,
    progress: bool | Callable[[int, dict[str, np.ndarray]], None] | None = None,
) -> History:
    """Train a model in place, one compiled chunk of steps at a time.

    Step i draws everything from fold_in(key(seed), i), so neither the chunk nor an interruption changes which numbers a
    step sees. Parameters are the variables of type nnx.Param; other variables (running means, dropout keys) are carried
    along. After each chunk the model holds the parameters reached and, if asked, the checkpoint is replaced.

    Args:
        model: any nnx module; updated in place.
        loss_fn: (model, key) to (loss, dict of scalars); makes its own data from the key; traced once.
        optimizer: an optax transformation; a schedule should be made for the same `steps`.
        steps: number of optimiser steps in all, those in the checkpoint included.
        seed: an integer or a JAX key.
        chunk: steps between two checkpoints, and between two looks at the loss.
        checkpoint: a file to resume from if it exists and to write after every chunk.
        progress: None or True shows a progress line, False nothing; a function is called after each chunk with the
            step reached and the metrics of that chunk.

    Returns:
        The metrics of every step, those before an interruption included.

    Raises:
        FloatingPointError: when a loss is not finite, naming the step. The model and the checkpoint then hold the state
            after the last finite chunk.
        ValueError: when the checkpoint was written by another run.
    """
    if steps < 1 or chunk < 1:
        raise ValueError(f"steps={steps}, chunk={chunk}: both count optimiser steps; give positive integers.")
    key = seed if isinstance(seed, jax.Array) else jax.random.key(seed)
    graph, params, others = nnx.split(model, nnx.Param, ...)
    run = partial(_run_chunk, graph, loss_fn, optimizer)
    state = {"params": params, "others": others, "optimizer": optimizer.init(params)}
    recorded = _empty_metrics(jax.eval_shape(run, state, key, jnp.arange(1))[1])
    done = 0

    if checkpoint is not None:
        checkpoint = Path(checkpoint)
        about = {
            "steps": steps,
            "seed": np.asarray(jax.random.key_data(key)).tolist(),
            "program": _program(run, state, key),
        }
        if checkpoint.exists():
            state, recorded, done = _resume(checkpoint, about, state, recorded)
            nnx.update(model, state["params"], state["others"])

    line = ProgressLine(steps, "steps") if progress in (None, True) and done < steps else None
    while done < steps:
        length = min(chunk, steps - done)
        state_after, metrics = run(state, key, jnp.arange(done, done + length))
        metrics = jax.device_get(metrics)
        _stop_if_not_finite(metrics["loss"], done)
        state, done = state_after, done + length
        recorded = {name: np.concatenate([recorded[name], metrics[name]]) for name in recorded}
        nnx.update(model, state["params"], state["others"])
        if checkpoint is not None:
            save(checkpoint, {"state": state, "metrics": recorded}, about={**about, "done": done})
        if line is not None:
            line.update(done, f"loss {metrics['loss'].mean():.4f}")
        elif callable(progress):
            progress(done, metrics)
    return History(recorded)


@partial(jax.jit, static_argnums=(0, 1, 2))
def _run_chunk(graph, loss_fn, optimizer, state, key, indices):
    """Scan the optimiser over the given step numbers; returns the state after them and the metrics of each."""

    def loss_of(params, others, step_key):
        others = jax.tree.map(lambda leaf: leaf, others)  # variables may only change at the trace level that made them
        model = nnx.merge(graph, params, others)
        loss, metrics = loss_fn(model, step_key)
        others = nnx.split(model, nnx.Param, ...)[2]  # with what the forward pass changed
        return loss, ({**metrics, "loss": loss}, others)

    def step(state, index):
        step_key = jax.random.fold_in(key, index)
        gradient, (metrics, others) = jax.grad(loss_of, has_aux=True)(state["params"], state["others"], step_key)
        updates, optimizer_state = optimizer.update(gradient, state["optimizer"], state["params"])
        params = optax.apply_updates(state["params"], updates)
        return {"params": params, "others": others, "optimizer": optimizer_state}, metrics

    return jax.lax.scan(step, state, indices)


def _program(run, state, key) -> str:
    """Fingerprint of one step as compiled: model, loss, optimiser with its constants, and the library's version.

    Two optimisers that differ in a learning rate have states of the same shape; the program tells them apart.
    """
    program = jax.jit(run).lower(state, key, jnp.arange(1)).as_text()
    return hashlib.sha256(f"{jax.__version__} {jax.default_backend()} {program}".encode()).hexdigest()


def _resume(checkpoint: Path, about: dict[str, Any], state, recorded):
    """State, metrics and number of finished steps of a checkpoint, if this run is the one that wrote it."""
    found = read_about(checkpoint)
    start_anew = f"Delete {checkpoint} to start from step 0, or name another file."
    for name in ("steps", "seed"):
        if found.get(name) != about[name]:
            raise ValueError(
                f"checkpoint={str(checkpoint)!r} has {name}={found.get(name)}, this run {about[name]}. {start_anew}"
            )
    done = found["done"]
    recorded = {name: np.empty(done, values.dtype) for name, values in recorded.items()}
    try:
        loaded = load(checkpoint, {"state": state, "metrics": recorded})
    except ValueError as error:
        raise ValueError(f"checkpoint: written with another model or optimiser. {error} {start_anew}") from error
    if found["program"] != about["program"]:
        raise ValueError(
            f"checkpoint={str(checkpoint)!r} was written by another training step: the model, the loss, the optimiser "
            f"(its learning rate, for one) or the version of jax differs. {start_anew}"
        )
    return loaded["state"], loaded["metrics"], done


def _empty_metrics(shapes: dict[str, jax.ShapeDtypeStruct]) -> dict[str, np.ndarray]:
    for name, values in shapes.items():
        if values.shape != (1,):
            raise ValueError(
                f"loss_fn: metric {name!r} has shape {values.shape[1:]} at a step; report scalars (a mean or a sum)."
            )
    return {name: np.empty(0, values.dtype) for name, values in shapes.items()}


def _stop_if_not_finite(loss: np.ndarray, done: int) -> None:
    bad = ~np.isfinite(loss)
    if bad.any():
        step = int(bad.argmax())
        raise FloatingPointError(
            f"loss is {loss[step]} at step {done + step}. The model was left as it was after step {done}; lower the "
            "learning rate, or look for a division or a logarithm in the loss that meets 0."
        )
