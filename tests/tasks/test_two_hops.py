"""Two hops: rings are rings, questions see items alone, a layer can be read hard or flat, a model survives its file."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from adatemp import dot_product_attention
from adatemp.tasks import two_hops


@pytest.fixture(scope="module")
def model():
    return two_hops.Follower(layers=2, width=32, rngs=nnx.Rngs(0))


def test_every_item_carries_the_name_of_its_successor_on_one_ring():
    links = jax.tree.map(np.asarray, two_hops.sample(jax.random.key(0), 50, 9, min_items=4, questions=7))
    np.testing.assert_allclose(np.linalg.norm(links.names, axis=-1), 4.0, rtol=1e-5)
    sizes = links.where.sum(1)
    assert set(sizes) == {4, 5, 6, 7, 8, 9} and set(links.hops.ravel()) == {1, 2}
    for names, successors, size, start, path, hops, target in zip(
        links.names, links.successors, sizes, links.start, links.path, links.hops, np.asarray(links.target)
    ):
        named = [int(np.abs(names - successors[i]).max(1).argmin()) for i in range(size)]
        at = 0
        for _ in range(size):  # one ring: back at the start after all items and not before
            at = named[at]
            assert at < size
        assert at == 0 and len(set(named)) == size
        np.testing.assert_array_equal(path, [[named[s], named[named[s]]] for s in start])
        np.testing.assert_array_equal(target, path[np.arange(7), hops - 1])


def test_two_items_are_refused_because_two_hops_would_lead_back():
    with pytest.raises(ValueError, match="a ring needs 3"):
        two_hops.sample(jax.random.key(0), 1, 2)


def test_questions_see_items_alone_and_absent_items_are_not_seen(model):
    links = two_hops.sample(jax.random.key(1), 3, 8, min_items=5, questions=4)
    logits = model(links)
    fewer = links._replace(start=links.start[:, :1], hops=links.hops[:, :1], path=links.path[:, :1])
    np.testing.assert_allclose(model(fewer), logits[:, :1], atol=1e-5)
    other = links._replace(
        names=jnp.where(links.where[..., None], links.names, 9.0),
        successors=jnp.where(links.where[..., None], links.successors, -9.0),
    )
    np.testing.assert_allclose(model(other), logits, atol=1e-5)
    assert (np.isneginf(logits) == ~np.asarray(links.where)[:, None]).all()


def test_measured_rows_are_those_that_the_transformer_captures(model):
    links = two_hops.sample(jax.random.key(2), 5, 12, hops=2)
    found = two_hops.measure(model, links)
    x, keep = model.embed(links), jnp.concatenate([links.where, jnp.zeros(links.start.shape, bool)], 1)
    attend = partial(dot_product_attention, temperature=None, implementation="dense")
    _, _, captured = model.transformer.run(x, keep, attend=attend, capture=True)
    np.testing.assert_allclose(found["spread"], captured.spread[:, :, 12:].mean((1, 2, 3)), rtol=1e-4)
    np.testing.assert_allclose(found["entropy"], captured.stats.entropy[:, :, 12:].mean((1, 2, 3)), rtol=1e-4)
    assert ((found["top_weight"] > 1 / 12) & (found["top_weight"] <= 1)).all()


def test_a_reading_of_a_layer_changes_what_follows_and_not_its_own_row(model):
    links = two_hops.sample(jax.random.key(3), 5, 12, hops=2)
    soft = two_hops.measure(model, links)
    for reading in (("hard", "soft"), ("flat", "soft")):
        found = two_hops.measure(model, links, reading)
        assert found["spread"][0] == pytest.approx(soft["spread"][0], rel=1e-5)
        assert abs(found["spread"][1] / soft["spread"][1] - 1) > 1e-4
    last = two_hops.measure(model, links, ("soft", "hard"))
    np.testing.assert_allclose(last["spread"], soft["spread"], rtol=1e-5)


def test_a_flat_first_layer_gives_every_question_the_plain_average_of_the_values():
    model = two_hops.Follower(layers=1, width=32, rngs=nnx.Rngs(1))
    links = two_hops.sample(jax.random.key(4), 2, 6, questions=3)
    block, x = model.transformer.blocks[0], model.embed(links)
    values = block.attention.value(block.attention_norm(x[:, :6])).mean(1, keepdims=True)
    after = x[:, 6:] + block.attention.out(values)
    after = after + block.mlp(block.mlp_norm(after))
    names = model.answer(model.transformer.final_norm(after))
    expected = jnp.einsum("bqw,bnw->bqn", names, links.names, precision="highest")
    logits = model.layers(links, jnp.array([two_hops.READINGS["flat"]]))[0]
    np.testing.assert_allclose(logits, expected, atol=1e-4)


def test_unknown_readings_are_named(model):
    links = two_hops.sample(jax.random.key(5), 1, 5)
    with pytest.raises(ValueError, match="readings must be 2 of soft, hard, flat"):
        two_hops.measure(model, links, ("soft", "loud"))
    with pytest.raises(ValueError, match="one for each layer"):
        two_hops.measure(model, links, ("soft",))


def test_a_model_survives_its_file(model, tmp_path):
    two_hops.save_follower(tmp_path / "model.npz", model, seed=0)
    links = two_hops.sample(jax.random.key(6), 2, 5)
    np.testing.assert_array_equal(two_hops.load_follower(tmp_path / "model.npz")(links), model(links))


def test_training_lowers_the_loss_and_is_what_the_seed_says():
    runs = [two_hops.train_follower(3, layers=1, steps=60, progress=False)[1].metrics for _ in range(2)]
    np.testing.assert_array_equal(runs[0]["loss"], runs[1]["loss"])
    assert runs[0]["loss"][-5:].mean() < 0.95 * runs[0]["loss"][:5].mean()
