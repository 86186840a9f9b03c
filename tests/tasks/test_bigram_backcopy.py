"""Bigram-backcopy: the rule holds in every sequence, and what is ideal is counted."""

from __future__ import annotations

import math
from collections import Counter

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from adatemp.tasks import bigram_backcopy as task

SHAKESPEARE = task.shakespeare()


def follows_the_rule(made, row):
    """Whether a sequence is possible, token by token."""
    if row[0] != made.bos or row[1] in made.triggers or made.bos in row[1:]:
        return False
    for before, last, new in zip(row[:-2], row[1:-1], row[2:]):
        if last in made.triggers:
            if new != before:
                return False
        elif made.transitions[last, new] == 0:
            return False
    return True


def test_sequences_follow_the_rule_and_no_trigger_follows_a_trigger():
    tokens = np.asarray(jax.jit(lambda key: SHAKESPEARE.sample(key, 64, 129))(jax.random.key(0)))
    assert tokens.shape == (64, 129) and tokens.dtype == np.int32
    assert all(follows_the_rule(SHAKESPEARE, row.tolist()) for row in tokens)
    trigger = SHAKESPEARE.is_trigger[tokens]
    assert not np.any(trigger[:, 1:] & trigger[:, :-1])
    assert trigger.mean() > 0.2


def test_the_rule_is_seen_to_be_broken():
    space, e, t = SHAKESPEARE.triggers
    a, q, u, z = (SHAKESPEARE.symbols.index(c) for c in "aquz")
    bos = SHAKESPEARE.bos
    assert follows_the_rule(SHAKESPEARE, [bos, q, u, e, u])
    for broken in ([bos, e, a, a, a], [bos, u, e, z, z], [bos, q, z, a, a], [bos, a, bos, a, a], [a, u, u, u, u]):
        assert not follows_the_rule(SHAKESPEARE, broken)


# From an exact dynamic programme written apart from this one: three and five triggers, 255 characters.
@pytest.mark.parametrize(
    "triggers, characters, bigram, blind, share",
    [(3, " et", 2.2165, 2.6722, 0.25649), (5, " etoa", 2.1276, 2.6486, 0.32083)],
)
def test_ideal_risks_on_shakespeare(triggers, characters, bigram, blind, share):
    made = task.shakespeare(triggers)
    assert "".join(made.symbols[token] for token in made.triggers) == characters
    ideal = made.ideal(256)
    assert ideal.bigram == pytest.approx(bigram, abs=1e-4)
    assert ideal.blind_backcopy == pytest.approx(blind, abs=1e-4)
    assert ideal.trigger_share == pytest.approx(share, abs=1e-5)


def test_ideal_risks_are_the_frequencies_of_many_sequences():
    """On a small chain, where every quantity is counted directly."""
    made = task.synthetic(6, 2, seed=1, concentration=1.0)
    length = 9
    tokens = np.asarray(made.sample(jax.random.key(3), 40_000, length))[:, 1:]
    before = np.concatenate([np.full((len(tokens), 1), made.bos), tokens[:, :-1]], 1)
    trigger = np.isin(tokens, made.triggers)
    ideal = made.ideal(length)
    assert trigger.mean() == pytest.approx(ideal.trigger_share, abs=0.005)
    entropies = [-sum(p * math.log(p) for p in row if p > 0) for row in made.transitions]
    assert np.mean([entropies[token] for token in tokens[~trigger]]) == pytest.approx(ideal.bigram, abs=0.005)
    pairs = Counter(zip(tokens[trigger].tolist(), before[trigger].tolist()))
    alone = Counter(tokens[trigger].tolist())
    guessing = -sum(n * math.log(n / alone[last]) for (last, _), n in pairs.items()) / trigger.sum()
    assert guessing == pytest.approx(ideal.blind_backcopy, abs=0.01)


def test_a_perfect_model_has_the_ideal_risks_and_a_blind_one_the_blind():
    made = task.synthetic(6, 2, seed=1, concentration=1.0)
    tokens = made.sample(jax.random.key(5), 20_000, 10)
    trigger = jnp.asarray(made.is_trigger)[tokens]
    with np.errstate(divide="ignore"):
        rows = jnp.log(jnp.asarray(np.pad(made.transitions, ((0, 1), (0, 1))), jnp.float32))
    before = jnp.concatenate([tokens[:, :1], tokens[:, :-1]], 1)
    copy = jnp.where(jax.nn.one_hot(before, made.vocabulary) > 0, 0.0, -jnp.inf)
    perfect = jnp.where(trigger[..., None], copy, rows[tokens])
    perfect = perfect.at[:, 0].set(0.0)  # what follows <bos> does not count
    risks = made.risks(perfect, tokens)
    assert float(risks.backcopy) == pytest.approx(0, abs=1e-6)
    assert float(risks.bigram) == pytest.approx(made.ideal(10).bigram, abs=0.01)
    uniform = made.risks(jnp.zeros((*tokens.shape, made.vocabulary)), tokens)
    assert [float(risk) for risk in uniform] == pytest.approx([math.log(7)] * 2, rel=1e-5)


def test_a_text_gives_its_own_chain():
    made = task.from_text("abcabd", triggers="b")
    a, b, c, d = range(4)
    assert made.symbols == ("a", "b", "c", "d") and made.triggers == (b,)
    wanted = np.zeros((4, 4))
    wanted[a, b] = wanted[c, a] = wanted[d, a] = 1  # the last d is followed by the first a
    wanted[b, c] = wanted[b, d] = 0.5
    np.testing.assert_array_equal(made.transitions, wanted)
    np.testing.assert_allclose(made.frequencies, [2 / 6, 2 / 6, 1 / 6, 1 / 6])
    assert made.encode("abd").tolist() == [4, 0, 1, 3]
    assert made.decode(made.encode("abd")) == "⟨abd"


def test_symbols_of_probability_zero_are_never_drawn():
    counts = np.array([[0, 1e-9, 1, 0], [1, 0, 0, 1], [1e9, 1, 0, 0], [0, 0, 1, 1e9]])
    made = task.from_counts("abcd", counts, triggers="d")
    tokens = np.asarray(made.sample(jax.random.key(1), 512, 200))
    assert all(follows_the_rule(made, row) for row in tokens.tolist())


@pytest.mark.parametrize(
    "call, match",
    [
        (lambda: task.from_counts("ab", np.ones((2, 3))), "counts must have a row and a column"),
        (lambda: task.from_counts("ab", [[0, 0], [1, 1]], 1), r"nothing follows \['a'\]"),
        (lambda: task.from_counts("ab", [[-1, 2], [1, 1]], 1), "finite and not negative"),
        (lambda: task.from_counts("aa", np.ones((2, 2)), 1), "different from each other"),
        (lambda: task.from_counts("ab", np.ones((2, 2)), 2), "not all 2 symbols"),
        (lambda: task.from_counts("ab", np.ones((2, 2)), 0), "at least one"),
        (lambda: task.shakespeare(["é"]), r"\['é'\] are not among the symbols"),
        (lambda: task.from_text("aaa"), "two different characters"),
        (lambda: SHAKESPEARE.encode("né"), r"\['é'\] are not among the task's 65"),
        (lambda: SHAKESPEARE.sample(jax.random.key(0), 2, 1), "length must be at least 2"),
        (lambda: SHAKESPEARE.ideal(2), "length must be at least 3"),
        (lambda: SHAKESPEARE.risks(jnp.zeros((1, 4, 65)), jnp.zeros((1, 4), int)), "logits must have shape"),
        (lambda: task.synthetic(1), "symbols must be at least 2"),
        (lambda: task.synthetic(5, concentration=0), "concentration must be positive"),
    ],
)
def test_what_cannot_be_is_refused(call, match):
    with pytest.raises(ValueError, match=match):
        call()
