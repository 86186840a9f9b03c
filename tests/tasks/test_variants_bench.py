"""The bench of normalisers: models compute what whole models would, runs are apart, readings share sets that grow."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from adatemp import variants
from adatemp.tasks import _bench_models, _bench_training, copying, needle, recall, variants_bench
from adatemp.tasks._bench_arms import TASKS, VARIANTS, maximum


def softmax(logits, where):
    return variants.scalable_softmax(logits, 0.0, 1.0, where=where)


@pytest.mark.parametrize("task", ["recall", "copying"])
def test_the_token_model_is_its_transformer_with_dense_attention(task):
    """The oracle computes every layer for every token with `dot_product_attention`."""
    model = TASKS[task].model({}, rngs=nnx.Rngs(0))
    rows = TASKS[task].draw(jax.random.key(0), 6, 8, min_items=2)
    got = jax.jit(lambda rows: model(rows, softmax))(rows)
    whole = jax.jit(lambda rows: model.transformer(rows.tokens, rows.where))(rows)
    whole = whole[:, -rows.target.shape[1] :, : model.answers]
    # Answers not asked for may begin before the row does, where attention to nothing has no meaning.
    np.testing.assert_allclose(got[rows.asked], whole[rows.asked], atol=2e-5)


def test_padding_changes_no_answer_and_no_count():
    for task in ("majority", "copying"):
        model = TASKS[task].model({}, rngs=nnx.Rngs(0))
        batch = TASKS[task].draw(jax.random.key(0), 3, 8)
        wide = variants_bench.pad(batch, batch.where.shape[1] + 5)
        np.testing.assert_array_equal(wide.visible, batch.visible)
        got, want = (jax.jit(lambda batch: model(batch, softmax))(batch) for batch in (wide, batch))  # noqa: B023
        np.testing.assert_allclose(got, want, atol=2e-5)


def test_the_set_head_reads_labels_weighed_by_products_of_normalised_vectors():
    """Against numpy: the weights are those of the logits, which no gain of 1 lets past √width."""
    head = _bench_models.SetHead(8, 8, 10, 32, {}, rngs=nnx.Rngs(0))
    sets, seen = needle.sample(jax.random.key(1), 4, 9, min_items=3), []

    def weigh(logits, where):
        seen.append(logits)
        return softmax(logits, where)

    got = head(sets, weigh)
    query, key = (np.asarray(x, np.float64) for x in (head.query(sets.query), head.key(sets.features)))
    np.testing.assert_allclose(np.mean(query**2, -1), 1, rtol=1e-4)
    logits = np.einsum("bw,bnw->bn", query, key) / np.sqrt(32)
    np.testing.assert_allclose(seen[0][:, 0, 0], logits, atol=1e-5)
    assert np.abs(logits).max() <= np.sqrt(32)
    weights = np.where(sets.where, np.exp(logits), 0)
    weights /= weights.sum(-1, keepdims=True)
    pooled = np.einsum("bn,bnw->bw", weights, np.asarray(head.value[...])[np.asarray(sets.label)])
    np.testing.assert_allclose(got[:, 0], head.read_out(jax.nn.gelu(head.read_in(jnp.float32(pooled)))), atol=1e-5)


def test_attention_refuses_what_it_would_compute_wrongly():
    attend = _bench_models.attention(softmax, 1)
    x = jnp.ones((1, 4, 1, 2))
    options = {"scale": None, "is_causal": True, "logits_soft_cap": None}
    with pytest.raises(ValueError, match=r"local_window_size=\(2, 0\)"):
        attend(x, x, x, None, None, **options, local_window_size=(2, 0))
    with pytest.raises(ValueError, match="causal"):
        attend(x, x, x, None, None, **options | {"is_causal": False})


@pytest.mark.parametrize("task", list(TASKS))
def test_keys_is_what_the_last_answer_sees_at_the_longest_training_length(task):
    about = TASKS[task]
    batch = about.draw(jax.random.key(0), 2, about.longest)
    assert np.max(batch.visible) == about.keys
    short = _bench_training.draw_training(task, jax.random.key(0), 64)
    assert np.min(short.where.sum(-1)) < np.max(short.where.sum(-1)) <= np.max(batch.where.sum(-1))


def test_the_maximum_is_found_by_priorities_and_labels_alone():
    sets = jax.tree.map(np.asarray, maximum(jax.random.key(3), 50, 20, min_items=5))
    best = np.where(sets.where, sets.features[..., 0], -1).argmax(-1)
    assert (sets.item == best).all() and (sets.target == sets.label[np.arange(50), best]).all()


@pytest.mark.parametrize("variant", list(VARIANTS))
def test_every_variant_weighs_live_keys_and_what_it_learns_has_a_gradient(variant):
    model = TASKS["needle"].model(VARIANTS[variant].learned, rngs=nnx.Rngs(0))
    sets = _bench_training.draw_training("needle", jax.random.key(0), 16)
    graph, state = nnx.split(model)

    def loss(state):
        return _bench_training.answer(nnx.merge(graph, state), sets, _bench_training.own("needle", variant))[1]

    gradient = nnx.merge(graph, jax.jit(jax.grad(loss))(state))
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(nnx.split(gradient)[1]))
    assert set(gradient.learned) == set(VARIANTS[variant].learned)
    assert all(np.abs(gradient.learned[name][...]).min() > 0 for name in gradient.learned)
    logits = 3 * jax.random.normal(jax.random.key(1), (16, 1, 1, 16))
    weights = _bench_training.own("needle", variant)(model)(logits, sets.where[:, None, None])
    assert (np.asarray(weights)[~np.asarray(sets.where)[:, None, None]] == 0).all() and np.min(weights) >= 0


def test_models_of_a_stack_are_trained_as_each_alone_would_be():
    both, _ = variants_bench.train_models("needle", "softmax", 2, steps=3, rates=(1e-2,), batch=8)
    alone, about = variants_bench.train_models("needle", "softmax", 1, steps=3, rates=(1e-2,), batch=8)
    for stacked, single in zip(jax.tree.leaves(nnx.split(both)[1]), jax.tree.leaves(nnx.split(alone)[1])):
        # Adam divides by the root of tiny second moments: rounding may show in the fourth digit.
        np.testing.assert_allclose(stacked[0], single[0], atol=1e-4)
        assert stacked.shape[1:] == single.shape[1:]
    assert about["rate"] == 1e-2 and len(about["losses"]) == 1


def test_the_rate_of_the_lowest_loss_is_kept_and_a_diverged_one_is_not():
    _, about = variants_bench.train_models("needle", "relu", 1, steps=20, rates=(1e-6, 1e-2, 1e30), batch=16)
    assert about["rate"] == 1e-2 and about["losses"][1] < about["losses"][0]
    assert about["losses"][2] is None or about["losses"][2] > about["losses"][1]


def test_log_n_over_log_n0_is_one_at_the_longest_training_length_and_grows():
    seen = []
    scaled = variants_bench.by_length(lambda logits, where: seen.append(logits), 16)
    for n in (16, 256):
        scaled(jnp.ones((1, 1, 1, 300)), (jnp.arange(300) < n)[None, None, None])
    np.testing.assert_allclose([x[0, 0, 0, 0] for x in seen], [1, 2], rtol=1e-6)


@pytest.fixture(scope="module")
def measured():
    models, _ = variants_bench.train_models("maximum", "softmax", 2, steps=60, rates=(1e-2,))
    return models, variants_bench.measure(models, "maximum", "softmax", 2, counted={16: 64, 128: 32}, multiples=(1, 8))


def test_readings_are_those_of_the_model_called_by_hand(measured):
    models, found = measured
    graph, state = nnx.split(models)
    for seed in range(2):
        model = nnx.merge(graph, jax.tree.map(lambda leaf: leaf[seed], state))  # noqa: B023
        for at, multiple in enumerate((1, 8)):
            sets = variants_bench.drawn_sets("maximum", seed, multiple, 64)
            right = {}
            for name, weigh in {
                "own": softmax,
                "hard": lambda logits, where: variants.hard(logits, where=where),
                "top k": lambda logits, where: variants.top_k(logits, 16, where=where),
            }.items():
                right[name] = np.asarray(model(sets, weigh)[:, 0].argmax(-1) == sets.target)
                assert found["read_outs"][name]["accuracy"][seed][at] == pytest.approx(right[name].mean(), abs=1e-6)
            got = found["read_outs"]["hard"]
            assert got["gained"][seed][at] == pytest.approx((right["hard"] & ~right["own"]).mean(), abs=1e-6)
            assert got["lost"][seed][at] == pytest.approx((right["own"] & ~right["hard"]).mean(), abs=1e-6)


def test_columns_are_whole_and_the_oracle_is_no_worse_than_any_constant(measured):
    _, found = measured
    assert found["visible"] == [16, 128]
    for name in ("entropy", "spread", "mass", "top"):
        assert np.shape(found[name]) == (2, 2)
    np.testing.assert_allclose(found["mass"], 1, atol=1e-5)
    accuracy = {name: np.array(got["accuracy"]) for name, got in found["read_outs"].items()}
    assert all(values.shape == (2, 2) for values in accuracy.values())
    assert np.shape(found["constants"]) == (len(variants_bench.CONSTANTS), 2, 2)
    np.testing.assert_array_equal(accuracy["best constant"], np.max(found["constants"], 0))
    np.testing.assert_array_equal(found["constants"][0], accuracy["own"])
    assert (accuracy["constant"] <= accuracy["best constant"]).all()
    # At the longest training length log n / log n0 is 1, so both change nothing.
    np.testing.assert_array_equal(accuracy["log ratio"][:, 0], accuracy["own"][:, 0])
    np.testing.assert_array_equal(accuracy["log ratio"], accuracy["own by length"])


def test_rules_are_fitted_to_each_head_at_training_lengths(measured):
    models, found = measured
    graph, state = nnx.split(models)
    model = nnx.merge(graph, jax.tree.map(lambda leaf: leaf[1], state))
    rules, about = variants_bench.fit_readings(model, "maximum", 1)
    assert about == found["fitted"][1]
    assert rules["exp offset"].offset.shape == rules["guarded"].level.shape == (1, 1)
    # The entropy at 16 keys by another road: the mean over sets of that size.
    sets = variants_bench.drawn_sets("maximum", 1, 1, 64)
    seen = []
    model(sets, lambda logits, where: seen.append((logits, where)) or softmax(logits, where))
    logits = np.where(seen[0][1], seen[0][0], -np.inf)[:, 0, 0, :16].astype(np.float64)
    weights = np.exp(logits - logits.max(-1, keepdims=True))
    weights /= weights.sum(-1, keepdims=True)
    entropy = -np.sum(weights * np.log(weights + 1e-300), -1)
    assert about["entropy"][0] == pytest.approx(entropy.mean(), abs=5 * entropy.std() / 8 + 0.05)


def test_sets_that_do_not_grow_are_refused(measured, monkeypatch):
    models, _ = measured
    about = TASKS["maximum"]

    def stuck(key, batch, n, **options):
        sets = about.draw(key, batch, n, **options)
        return sets._replace(where=sets.where & (jnp.arange(n) < 16))  # the array grows, the problem does not

    monkeypatch.setitem(TASKS, "stuck", about._replace(draw=stuck))
    with pytest.raises(ValueError, match=r"task='stuck': answers see \[16.0, 16.0\] keys"):
        variants_bench.measure(models, "stuck", "softmax", 2, counted={16: 8}, multiples=(1, 8), readings=False)


def test_unknown_names_are_refused_with_the_known_ones():
    with pytest.raises(ValueError, match="task='sorting': choose one of .*recall"):
        variants_bench.train_models("sorting", "softmax", 1, steps=1)
    with pytest.raises(ValueError, match="variant='hardmax': choose one of .*sparsemax"):
        variants_bench.train_models("recall", "hardmax", 1, steps=1)


def test_recall_and_copying_can_be_answered_by_one_sharp_head():
    """The ceiling is there to be reached: what stands after the first copy of the asking token is always right."""
    for rows in (recall.sample(jax.random.key(0), 20, 40), copying.sample(jax.random.key(0), 20, 40, answers=8)):
        tokens, asking = np.asarray(rows.tokens), rows.target.shape[1]
        for row, target in zip(tokens, np.asarray(rows.target)):
            for back in range(asking):
                at = len(row) - asking + back
                found = [i for i in range(1, at) if row[i - 1] == row[at]]
                assert row[found[0]] == target[back]
