"""Bigram-backcopy: a Markov chain of characters in which a trigger is followed by the character before it.

The smallest language on which an attention head has something to do at some tokens and nothing at the others: after a
trigger it must look one token back, after any other character the last token alone says what may follow.

A sequence begins with a token <bos> that occurs nowhere else. The first character is drawn by frequency from those that
are no triggers. After that

    x[n + 1] = x[n − 1]             if x[n] is a trigger,
    x[n + 1] ~ P(· | x[n])          if not.

No trigger follows a trigger, since what stands before one never is a trigger. Were the first character allowed to be
one, a sequence could go on as a b a b for ever.

References:
    Guo, Pai, Bai, Jiao, Jordan, Mei: Active-Dormant Attention Heads, 2024. https://arxiv.org/abs/2410.13835
"""

from __future__ import annotations

import csv
import dataclasses
from collections.abc import Sequence
from importlib import resources
from typing import TYPE_CHECKING, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

if TYPE_CHECKING:
    from jaxtyping import Array, ArrayLike, Float, Int, Key


class Ideal(NamedTuple):
    """What is best possible on sequences of a length, in nats; see `BigramBackcopy.ideal`.

    Attributes:
        bigram: mean entropy of P(· | x) over characters that are no triggers: the bigram risk of a perfect model.
        blind_backcopy: lowest back-copy risk of a model that sees the last token alone and must guess the one before.
        trigger_share: share of positions, <bos> apart, with a trigger.
    """

    bigram: float
    blind_backcopy: float
    trigger_share: float


class Risks(NamedTuple):
    """Cross-entropy of a model's predictions with the truth, in nats; the back-copy risk of a perfect one is 0."""

    bigram: Float[Array, ""]
    backcopy: Float[Array, ""]


@dataclasses.dataclass(frozen=True, eq=False)
class BigramBackcopy:
    """The task; `shakespeare`, `from_text`, `from_counts` and `synthetic` make one.

    Attributes:
        symbols: the V characters; token i is symbols[i], and <bos> is token V.
        transitions: P, a row for the character that is followed, [V, V] float64.
        frequencies: how often each character occurs where P was counted, [V] float64, adding up to 1.
        triggers: tokens of the triggers.
    """

    symbols: tuple[str, ...]
    transitions: Float[np.ndarray, "V V"]
    frequencies: Float[np.ndarray, " V"]
    triggers: tuple[int, ...]

    @property
    def vocabulary(self) -> int:
        """Number of tokens, <bos> included."""
        return len(self.symbols) + 1

    @property
    def bos(self) -> int:
        """The token that begins every sequence."""
        return len(self.symbols)

    @property
    def is_trigger(self) -> np.ndarray:
        """For each token whether it is a trigger, <bos> included."""
        return np.isin(np.arange(self.vocabulary), self.triggers)

    @property
    def first(self) -> Float[np.ndarray, " V"]:
        """Probabilities of the first character."""
        weights = np.where(self.is_trigger[:-1], 0, self.frequencies)
        return weights / weights.sum()

    def encode(self, text: str) -> Int[np.ndarray, " T"]:
        """Tokens of a text, <bos> in front."""
        number = {symbol: token for token, symbol in enumerate(self.symbols)}
        if unknown := sorted(set(text) - set(number)):
            raise ValueError(f"text: {unknown} are not among the task's {len(self.symbols)} characters")
        return np.array([self.bos, *(number[character] for character in text)], np.int32)

    def decode(self, tokens: Sequence[int]) -> str:
        """The text of tokens; <bos> is ⟨."""
        return "".join("⟨" if token == self.bos else self.symbols[token] for token in np.asarray(tokens).tolist())

    def sample(self, key: Key[Array, ""], batch: int, length: int) -> Int[Array, "batch length"]:
        """Draws sequences; can be traced.

        Args:
            key: a JAX random key.
            batch: number of sequences.
            length: of each, <bos> included, at least 2. For training draw one more than the model reads.
        """
        if length < 2:
            raise ValueError(f"length must be at least 2, <bos> and one character, got {length}")
        rows = jnp.asarray(_cumulative(self.transitions))
        trigger = jnp.asarray(self.is_trigger)
        uniform = jax.random.uniform(key, (length - 1, batch))

        def draw(cumulative, u):
            return jnp.sum(cumulative <= u[:, None], axis=-1)

        def step(last_two, u):
            before, last = last_two
            new = jnp.where(trigger[last], before, draw(rows[last], u))
            return (last, new), new

        start = jnp.full(batch, self.bos)
        first = draw(jnp.broadcast_to(_cumulative(self.first), (batch, len(self.symbols))), uniform[0])
        _, others = jax.lax.scan(step, (start, first), uniform[1:])
        return jnp.concatenate([start[None], first[None], others]).T.astype(jnp.int32)

    def risks(self, logits: Float[Array, "B T vocabulary"], tokens: Int[Array, "B T"]) -> Risks:
        """How far predictions are from the truth: P(· | x) after other characters, a certainty after triggers.

        The position of <bos> is left out: what follows it is neither.

        Args:
            logits: for the token after each.
            tokens: what the model read, <bos> first.

        Returns:
            Two means, over the positions without and with a trigger; 0 where there is no such position.
        """
        wanted = (*tokens.shape, self.vocabulary)
        if logits.shape != wanted:
            raise ValueError(f"logits must have shape {wanted}, tokens and vocabulary, got {logits.shape}")
        log_q = jax.nn.log_softmax(logits.astype(jnp.promote_types(logits.dtype, jnp.float32)), axis=-1)[:, 1:]
        last, before = tokens[:, 1:], tokens[:, :-1]
        trigger = jnp.asarray(self.is_trigger)[last]
        truth = jnp.asarray(self.transitions, log_q.dtype)[jnp.minimum(last, self.bos - 1)]
        # Where P is 0 the product is 0, whatever the model thinks of it.
        bigram = -jnp.sum(jnp.where(truth > 0, truth * log_q[..., :-1], 0), axis=-1)
        backcopy = -jnp.take_along_axis(log_q, before[..., None], axis=-1)[..., 0]
        return Risks(_mean(bigram, ~trigger), _mean(backcopy, trigger))

    def ideal(self, length: int) -> Ideal:
        """Exact expectations over sequences of a length, <bos> included, by following the chain's distribution.

        The state is the last character or, at a trigger, the pair of it and what stood before.
        """
        if length < 3:
            raise ValueError(f"length must be at least 3, so that a trigger can occur, got {length}")
        P, triggers = self.transitions, list(self.triggers)
        entropy = -np.sum(np.where(P > 0, P * np.log(np.where(P > 0, P, 1)), 0), axis=1)
        at, pairs = self.first, np.zeros((len(P), len(triggers)))
        bigram = plain = 0.0
        joint = np.zeros_like(pairs)
        for _ in range(length - 1):
            bigram, plain, joint = bigram + at @ entropy, plain + at.sum(), joint + pairs
            following = at @ P
            following[triggers] = 0
            at, pairs = following + pairs.sum(1), at[:, None] * P[:, triggers]
        share = joint / joint.sum()
        given = share.sum(0)
        guessing = -np.sum(np.where(share > 0, share * np.log(np.where(share > 0, share / given, 1)), 0))
        return Ideal(float(bigram / plain), float(guessing), float(joint.sum() / (length - 1)))


def shakespeare(triggers: int | Sequence[str] = 3) -> BigramBackcopy:
    """The task on the 65 characters of Shakespeare's plays, from a table of counts that the package ships.

    Args:
        triggers: how many of the most frequent characters are triggers, or which characters.

    Example:
        >>> task = shakespeare()
        >>> [task.symbols[token] for token in task.triggers]
        [' ', 'e', 't']
        >>> print(f"{task.ideal(256).bigram:.4f} nats")
        2.2165 nats
    """
    table = resources.files("adatemp.data").joinpath("tinyshakespeare_bigram_counts.csv").read_text("utf-8")
    head, *rows = csv.reader(table.splitlines())
    symbols = [chr(int(code.removeprefix("U+"), 16)) for code in head[1:]]
    return from_counts(symbols, np.array([row[1:] for row in rows], np.float64), triggers)


def from_text(text: str, triggers: int | Sequence[str] = 3) -> BigramBackcopy:
    """The task on the characters of a text, which follow each other as they do there.

    The last character of the text is taken to be followed by the first, so that every one is followed by something.

    Args:
        text: at least two different characters.
        triggers: as in `shakespeare`.
    """
    symbols = sorted(set(text))
    if len(symbols) < 2:
        raise ValueError(f"text must have at least two different characters, got {symbols}")
    number = {symbol: token for token, symbol in enumerate(symbols)}
    tokens = np.array([number[character] for character in text])
    counts = np.zeros((len(symbols), len(symbols)))
    np.add.at(counts, (tokens, np.roll(tokens, -1)), 1)
    return from_counts(symbols, counts, triggers)


def synthetic(
    symbols: int = 64, triggers: int = 3, *, seed: int = 0, concentration: float = 0.1, decay: float = 1.0
) -> BigramBackcopy:
    """The task on a random chain: rows are Dirichlet draws around frequencies that fall as a power of the rank.

    Args:
        symbols: number of characters.
        triggers: how many of the most frequent are triggers.
        seed: of the draw.
        concentration: of the Dirichlet distribution; small makes rows of few possible successors.
        decay: the power; 1 is Zipf's law.
    """
    if symbols < 2:
        raise ValueError(f"symbols must be at least 2, got {symbols}")
    for name, value in {"concentration": concentration, "decay": decay}.items():
        if not value > 0:
            raise ValueError(f"{name} must be positive, got {value}")
    frequencies = np.arange(1, symbols + 1.0) ** -decay
    frequencies /= frequencies.sum()
    rows = np.random.default_rng(seed).dirichlet(concentration * symbols * frequencies, symbols)
    return from_counts([chr(0x4E00 + token) for token in range(symbols)], frequencies[:, None] * rows, triggers)


def from_counts(
    symbols: Sequence[str], counts: Float[ArrayLike, "V V"], triggers: int | Sequence[str] = 3
) -> BigramBackcopy:
    """The task from counts of pairs.

    Args:
        symbols: V different characters.
        counts: how often the character of a row is followed by that of a column; weights of any scale.
        triggers: as in `shakespeare`.

    Raises:
        ValueError: counts of another shape, negative, not finite, or a character that nothing follows; triggers that
            are not among the symbols, none, or all of them.
    """
    symbols, counts = tuple(symbols), np.asarray(counts, np.float64)
    V = len(symbols)
    if len(set(symbols)) != V:
        raise ValueError("symbols must be different from each other")
    if counts.shape != (V, V):
        raise ValueError(f"counts must have a row and a column for each of the {V} symbols, got {counts.shape}")
    if not np.all(np.isfinite(counts) & (counts >= 0)):
        raise ValueError("counts must be finite and not negative")
    totals = counts.sum(1)
    if not np.all(totals > 0):
        ends = [symbol for symbol, total in zip(symbols, totals) if not total > 0]
        raise ValueError(f"counts: nothing follows {ends}; leave these symbols out or count some successor")
    if isinstance(triggers, int):
        chosen = np.argsort(-totals, kind="stable")[:triggers].tolist() if triggers > 0 else []
    else:
        if unknown := [trigger for trigger in triggers if trigger not in symbols]:
            raise ValueError(f"triggers: {unknown} are not among the symbols")
        chosen = [symbols.index(trigger) for trigger in dict.fromkeys(triggers)]
    if not 0 < len(chosen) < V:
        raise ValueError(f"triggers: at least one and not all {V} symbols can be triggers, got {triggers!r}")
    return BigramBackcopy(symbols, counts / totals[:, None], totals / totals.sum(), tuple(chosen))


def _cumulative(weights: Float[np.ndarray, "*rows V"]) -> Float[np.ndarray, "*rows V"]:
    """Running sums in float32 that end at exactly 1, so that a uniform number below 1 never meets a weight of 0."""
    sums = np.cumsum(weights, axis=-1)
    sums = sums / sums[..., -1:]
    return np.where(sums == sums[..., -1:], 1, np.minimum(sums, 1 - 2.0**-24)).astype(np.float32)


def _mean(values, where):
    return jnp.sum(jnp.where(where, values, 0)) / jnp.maximum(jnp.sum(where), 1)
