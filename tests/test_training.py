"""The training loop: what it computes, that interruptions and chunks change no byte, that failures say where."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx

from adatemp import training

STEPS = 14


class Point(nnx.Module):
    """One parameter vector, pulled towards random targets: its whole trajectory has a closed form."""

    def __init__(self, start):
        self.x = nnx.Param(jnp.asarray(start, jnp.float32))


def pull(model, key):
    target = jax.random.normal(key, (3,))
    return 0.5 * jnp.sum((model.x[...] - target) ** 2), {"first": model.x[...][0]}


class Network(nnx.Module):
    """Everything that a loop has to carry: parameters, running means, and random numbers of the model's own."""

    def __init__(self, rngs):
        self.layers = nnx.data([nnx.Linear(2, 8, rngs=rngs), nnx.Linear(8, 3, rngs=rngs)])
        self.dropout = nnx.Dropout(0.5, rngs=rngs)
        self.norm = nnx.BatchNorm(8, rngs=rngs)

    def __call__(self, x):
        return self.layers[1](self.dropout(self.norm(jnp.tanh(self.layers[0](x)))))


def fit(model, key):
    x = jax.random.normal(key, (16, 2))
    error = model(x) - x.sum(-1, keepdims=True)
    return jnp.mean(error**2), {"error": error.mean()}


ADAM = optax.adam(1e-2)


def run(checkpoint=None, *, model=None, loss=fit, optimizer=ADAM, steps=STEPS, seed=0, chunk=4, progress=False):
    model = Network(nnx.Rngs(0)) if model is None else model
    history = training.train(
        model, loss, optimizer=optimizer, steps=steps, seed=seed, chunk=chunk, checkpoint=checkpoint, progress=progress
    )
    return model, history


def all_bytes(model, history):
    leaves = jax.tree.leaves(nnx.to_pure_dict(nnx.state(model)))
    arrays = [jax.random.key_data(x) if jnp.issubdtype(x.dtype, jax.dtypes.prng_key) else x for x in leaves]
    return [np.asarray(x).tobytes() for x in [*arrays, *history.metrics.values()]]


def test_gradient_descent_follows_its_closed_form():
    """x_{i+1} = x_i − r(x_i − t_i), t_i from fold_in(key, i), in float64; 1e-5 is a few dozen roundings of float32."""
    model, history = run(model=Point([4.0, -2.0, 1.0]), loss=pull, optimizer=optax.sgd(0.1), seed=7)
    x = np.array([4.0, -2.0, 1.0])
    losses, first = [], []
    for i in range(STEPS):
        target = np.asarray(jax.random.normal(jax.random.fold_in(jax.random.key(7), i), (3,)), np.float64)
        losses.append(0.5 * ((x - target) ** 2).sum())
        first.append(x[0])
        x = x - 0.1 * (x - target)
    np.testing.assert_allclose(model.x[...], x, rtol=1e-5)
    np.testing.assert_allclose(history.metrics["loss"], losses, rtol=1e-5)
    np.testing.assert_allclose(history.metrics["first"], first, rtol=1e-5)


@pytest.mark.parametrize("stop_after", [4, 8, 12])
def test_interrupted_and_resumed_is_byte_equal(tmp_path, stop_after):
    def interrupt(step, metrics):
        if step == stop_after:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "resumed.npz", progress=interrupt)
    assert training.read_about(tmp_path / "resumed.npz")["done"] == stop_after
    resumed = run(tmp_path / "resumed.npz")
    straight = run(tmp_path / "straight.npz")
    assert all_bytes(*resumed) == all_bytes(*straight) == all_bytes(*run())
    # The file holds the optimiser's state too, so equal files are the strongest form of the claim.
    assert (tmp_path / "resumed.npz").read_bytes() == (tmp_path / "straight.npz").read_bytes()


def test_an_interrupted_model_holds_what_was_reached(tmp_path):
    def interrupt(step, metrics):
        if step == 8:
            raise KeyboardInterrupt

    model = Point([4.0, -2.0, 1.0])
    with pytest.raises(KeyboardInterrupt):
        run(model=model, loss=pull, optimizer=optax.sgd(0.1), progress=interrupt)
    eight_steps, _ = run(model=Point([4.0, -2.0, 1.0]), loss=pull, optimizer=optax.sgd(0.1), steps=8)
    np.testing.assert_array_equal(model.x[...], eight_steps.x[...])


def test_a_finished_checkpoint_is_loaded_and_not_trained_on(tmp_path):
    first = run(tmp_path / "t.npz")
    seen = []
    again = run(tmp_path / "t.npz", progress=lambda step, metrics: seen.append(step))
    assert seen == [] and all_bytes(*first) == all_bytes(*again)


def test_chunks_do_not_change_the_numbers():
    """The same compiled step in loops of different length; only its keys could differ, and they depend on i alone."""
    _, in_fours = run(chunk=4)
    for chunk in (1, 1000):
        _, other = run(chunk=chunk)
        np.testing.assert_allclose(other.metrics["loss"], in_fours.metrics["loss"], rtol=1e-5)


def test_random_numbers_and_running_means_of_the_model_move_on():
    model, _ = run()
    untrained = Network(nnx.Rngs(0))
    assert int(model.dropout.rngs.count[...]) == int(untrained.dropout.rngs.count[...]) + STEPS
    assert float(jnp.abs(model.norm.mean[...] - untrained.norm.mean[...]).max()) > 0


def test_a_seed_or_its_key_are_the_same_and_another_differs():
    runs = [run(seed=seed)[1].metrics["loss"] for seed in (3, jax.random.key(3), 4)]
    np.testing.assert_array_equal(runs[0], runs[1])
    assert not np.array_equal(runs[0], runs[2])


def test_a_loss_that_is_not_finite_stops_at_its_step_and_keeps_the_state_before(tmp_path):
    def breaks(model, key):
        loss, metrics = pull(model, key)
        # Step 9 and it alone is the one whose key is this one.
        at_nine = jnp.all(jax.random.key_data(key) == jax.random.key_data(jax.random.fold_in(jax.random.key(0), 9)))
        return loss + jnp.where(at_nine, jnp.nan, 0.0), metrics

    model = Point([4.0, -2.0, 1.0])
    with pytest.raises(FloatingPointError, match=r"loss is nan at step 9\..*after step 8"):
        run(tmp_path / "t.npz", model=model, loss=breaks, optimizer=optax.sgd(0.1))
    assert training.read_about(tmp_path / "t.npz")["done"] == 8
    assert np.isfinite(model.x[...]).all()


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"steps": 15}, "steps=14, this run 15"),
        ({"seed": 1}, "seed="),
        ({"optimizer": optax.adam(2e-2)}, "learning rate"),
        ({"optimizer": optax.sgd(1e-2)}, "another model or optimiser"),
        ({"model": Point([1.0]), "loss": lambda model, key: (model.x[...].sum(), {})}, "another model or optimiser"),
        ({"loss": lambda model, key: (2 * fit(model, key)[0], fit(model, key)[1])}, "the loss"),
    ],
)
def test_the_checkpoint_of_another_run_is_refused(tmp_path, change, complaint):
    run(tmp_path / "t.npz")
    with pytest.raises(ValueError, match=complaint):
        run(tmp_path / "t.npz", **change)


def test_bad_arguments_are_named():
    with pytest.raises(ValueError, match="steps=0"):
        run(steps=0)
    with pytest.raises(ValueError, match="chunk=-1"):
        run(chunk=-1)
    with pytest.raises(ValueError, match=r"metric 'x' has shape \(3,\)"):
        run(model=Point([1.0, 2.0, 3.0]), loss=lambda model, key: (model.x[...].sum(), {"x": model.x[...]}))


def test_in_a_pipe_progress_is_one_line_and_on_request_none(capsys):
    run(progress=None)
    shown = capsys.readouterr()
    assert shown.err == "" and shown.out.count("\n") == 1 and "\r" not in shown.out
    assert "14/14 steps" in shown.out and "loss" in shown.out
    run(progress=False)
    assert capsys.readouterr().out == ""


def test_a_callback_sees_every_chunk_once():
    seen = []
    _, history = run(progress=lambda step, metrics: seen.append((step, metrics["loss"])))
    assert [step for step, _ in seen] == [4, 8, 12, 14]
    np.testing.assert_array_equal(np.concatenate([loss for _, loss in seen]), history.metrics["loss"])
