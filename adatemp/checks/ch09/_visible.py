"""Exercise 09.5, the visible count: one length rule under left padding, packing, chunked prefill and decode."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np

from adatemp.checks import _float64
from adatemp.checks._report import Report
from adatemp.checks._several import in_turn
from adatemp.checks._stages import Mistake, Stage, examine
from adatemp.checks._written import written
from adatemp.checks.ch09._layouts import LAYOUTS, Layout, alone, documents

_TITLE = "09.5 The visible count"
_COUNT = "visible_count(query_index, query_segments, key_segments)"
_SCALED = "scaled(query, count, rule)"


def log_rule(count: Any) -> Any:
    """β = log n / log 4, the rule that the check runs."""
    return jnp.log(count) / jnp.log(4.0)


def ex5(visible_count: Callable[..., Any], scaled: Callable[..., Any]) -> Report:
    """Checks a length rule that an engine can use: the count of keys that a query sees, and the scaled query.

    Args:
        visible_count: `visible_count(query_index, query_segments, key_segments) -> integers [B, T]`: for each query the
            number of keys it sees. `query_index` [B, T] is its place among the S key slots of the cache;
            `query_segments` [B, T] and `key_segments` [B, S] name documents by positive integers, and 0 is a slot that
            holds nothing. A query sees the slots of its own document up to its own place; a query with segment 0 sees
            none.
        scaled: `scaled(query, count, rule) -> query`, each query [B, T, N, H] multiplied by its β = `rule(count)`, in
            its own dtype; where the count is 0 or 1 the query stays as it is.

    Returns:
        The report. Mistakes it names: the place in the cache for the count; one factor per batch; a count that is
        right at the first position only; empty slots counted; other documents counted; the future counted; a query
        that does not see itself; β = 0 at one key; an identity that is not one; a changed dtype.
    """
    visible_count, scaled = written(visible_count), written(scaled)
    return in_turn(
        (
            lambda: examine(visible_count, _TITLE, _COUNT, _count_stages()),
            lambda: examine(scaled, _TITLE, _SCALED, _scale_stages()),
            lambda: examine(visible_count, _TITLE, _COUNT, (_agreement(scaled),)),
        ),
        remark="A row of one key is the same under every β: a test at the first position alone cannot fail.",
    )


def _counts(call: Callable[[Layout], Any]) -> list[np.ndarray]:
    return [np.asarray(call(layout)) for layout in LAYOUTS]


def _is(wrong: Callable[[Layout], np.ndarray]) -> Callable[[Any], bool]:
    """Whether every layout's counts are those of `wrong`, where a document's own queries stand."""

    def seen(got: list[np.ndarray]) -> bool:
        return all(
            (counts == np.broadcast_to(wrong(layout), counts.shape))[layout.query_segments > 0].all()
            for counts, layout in zip(got, LAYOUTS, strict=True)
        )

    return seen


def _same(layout: Layout) -> np.ndarray:
    return (layout.query_segments[..., None] == layout.key_segments[:, None]) & (layout.query_segments[..., None] > 0)


def _past(layout: Layout) -> np.ndarray:
    return np.arange(layout.key_segments.shape[1]) <= layout.query_index[..., None]


def _count_stages() -> tuple[Stage, ...]:
    right = [layout.counts() for layout in LAYOUTS]
    names = ", ".join(layout.name for layout in LAYOUTS)
    return (
        Stage(
            "the keys that each query sees, in four layouts",
            lambda count: _counts(lambda x: count(x.query_index, x.query_segments, x.key_segments)),
            given=f"three documents of 3, 7 and 12 tokens: {names}",
            accept=lambda got: all(
                counts.shape == wanted.shape and (counts == wanted).all() and np.issubdtype(counts.dtype, np.integer)
                for counts, wanted in zip(got, right, strict=True)
            ),
            look="Write down the row of the mask for one query of each layout, and count.",
            mistakes=(
                Mistake(
                    "the place in the cache",
                    "The count is the query's place in the array.",
                    "For a single document that starts at the first slot they are the same.",
                    "Which slots before a query does it not see, under left padding and under packing?",
                    seen=lambda got: any(_is(lambda x, more=more: x.query_index + more)(got) for more in (0, 1)),
                ),
                Mistake(
                    "one factor per batch",
                    "All queries of a batch, or of a document, have the same count.",
                    "A length belongs to a document, and engines hand it on per batch item.",
                    "How many keys does the first query of a document see, under a causal mask?",
                    seen=lambda got: any(
                        _is(wrong)(got)
                        for wrong in (
                            lambda x: x.counts().max(),
                            lambda x: x.counts().max(-1, keepdims=True),
                            lambda x: _same(x).sum(-1),
                            lambda x: (x.key_segments > 0).sum(-1)[:, None],
                            lambda x: np.asarray(x.key_segments.shape[1]),
                        )
                    ),
                ),
                Mistake(
                    "right at the first position only",
                    "Every query has a count of 1.",
                    "A test at the first position passes with any constant there, and the first row has one key.",
                    "Look at the last position.",
                    seen=_is(lambda x: np.asarray(1)),
                ),
                Mistake(
                    "other documents counted",
                    "Queries count the keys of other documents in the same row.",
                    "All slots in use before a query are at hand as one comparison.",
                    "In a packed row, does the second document see the first?",
                    seen=_is(lambda x: (_past(x) & (x.key_segments > 0)[:, None]).sum(-1)),
                ),
                Mistake(
                    "the query itself left out",
                    "Every count is one too small.",
                    "A strict comparison hides the diagonal.",
                    "Does a query see its own key?",
                    seen=_is(lambda x: x.counts() - 1),
                ),
                Mistake(
                    "empty slots counted",
                    "A query that holds nothing sees the other empty slots.",
                    "0 equals 0.",
                    "Which name of a document is not one?",
                    seen=lambda got: (
                        _is(lambda x: x.counts())(got)
                        and any(
                            (counts > 0)[x.query_segments == 0].any() for counts, x in zip(got, LAYOUTS, strict=True)
                        )
                    ),
                ),
            ),
        ),
    )


def _scale_stages() -> tuple[Stage, ...]:
    rng = np.random.default_rng(941)
    query = jnp.asarray(rng.normal(size=(2, 5, 3, 4)), jnp.float32)
    half = query.astype(jnp.bfloat16)
    counts = np.array([[0, 1, 2, 3, 9], [1, 1, 4, 16, 700]])
    beta = np.where(counts > 1, np.log(np.maximum(counts, 2)) / np.log(4.0), 1.0)[..., None, None]
    exact = np.asarray(query, np.float64)

    def identity(scaled: Callable[..., Any]) -> list[Any]:
        rules = (lambda count: jnp.ones(count.shape), lambda count: jnp.log(count) / jnp.log(count))
        return [(q, scaled(q, counts, rule)) for q in (query, half) for rule in rules]

    return (
        Stage(
            "each query by its own β",
            lambda scaled: scaled(query, counts, log_rule),
            given="counts of 0 to 700 and β = log n / log 4",
            expected=exact * beta,
            look="β has the shape [B, T]; on which axes of the query does it act?",
            mistakes=(
                Mistake(
                    "β of one key",
                    "Queries with a count of 0 or 1 are changed: log 1 is 0 and log 0 is −∞.",
                    "The rule has a value at 1, so nothing warns.",
                    "What may a temperature do to a row of one key? Keep what the definition asks for.",
                    seen=lambda got: (
                        np.allclose(np.asarray(got)[counts > 1], (exact * beta)[counts > 1], rtol=1e-5)
                        and np.asarray(got).shape == exact.shape
                    ),
                ),
                Mistake(
                    "one factor per batch",
                    "One β multiplies all queries, or all of a batch item.",
                    "A scale is a number in most code.",
                    "Each of the B × T queries has its own.",
                    seen=lambda got: any(
                        np.allclose(got, exact * b)
                        for b in (beta.max(), beta.max(1, keepdims=True), beta[:, -1:], beta[-1, -1])
                    ),
                ),
                Mistake(
                    "never applied",
                    "The query came back as it was.",
                    "A scale that is computed and not used raises no error.",
                    "Follow β to the line that uses it.",
                    seen=exact,
                ),
                Mistake(
                    "divided by β",
                    "The query was divided.",
                    "Temperatures divide, and β is the inverse of one.",
                    "Should a longer row be sharper or blunter?",
                    seen=exact / beta,
                ),
            ),
        ),
        Stage(
            "the identity rule changes no bit",
            identity,
            given="β = 1, for float32 and bfloat16 queries",
            accept=lambda pairs: all(
                q.dtype == getattr(out, "dtype", None)
                and np.asarray(q, np.float32).tobytes() == np.asarray(out, np.float32).tobytes()
                for q, out in pairs
            ),
            look="What is the dtype of β, of the product, of what you return?",
            mistakes=(
                Mistake(
                    "a changed dtype",
                    "A bfloat16 query comes back as another type.",
                    "β is float32, and the wider type wins a product.",
                    "Which dtype does the attention after it expect?",
                    seen=lambda pairs: any(q.dtype != getattr(out, "dtype", None) for q, out in pairs),
                ),
                Mistake(
                    "an identity that is not one",
                    "With β = 1 some bits differ.",
                    "A factor that is built in steps, or added and taken away again, is 1 only up to rounding.",
                    "Multiply by β once, and by nothing else.",
                    seen=lambda pairs: all(
                        np.allclose(*(np.asarray(x, np.float32) for x in pair), rtol=0.1) for pair in pairs
                    ),
                ),
            ),
        ),
    )


def _agreement(scaled: Callable[..., Any]) -> Stage:
    """Outputs of every document's queries, in each layout, against the document alone."""
    beta = lambda n: np.where(n > 1, np.log(np.maximum(n, 2)) / np.log(4.0), 1.0)  # noqa: E731
    wanted = [alone(document, beta) for document in documents()]

    def call(count: Callable[..., Any]) -> np.ndarray:
        outputs = []
        for layout in LAYOUTS:
            query, key, value = layout.arrays()
            seen = np.asarray(count(layout.query_index, layout.query_segments, layout.key_segments))
            warm = np.asarray(scaled(jnp.asarray(query, jnp.float32), seen, log_rule), np.float64)
            out = _float64.attention(warm, key, value, layout.mask()[:, None])
            outputs.append(np.concatenate([out[layout.query_segments == i + 1] for i in layout.answered]))
        return np.concatenate(outputs)

    @functools.cache
    def expected() -> np.ndarray:
        return np.concatenate(
            [np.concatenate([wanted[i][layout.tail(i)] for i in layout.answered]) for layout in LAYOUTS]
        )

    return Stage(
        "four layouts, one output",
        call,
        given="attention with your scaled queries, each document against itself alone",
        expected=expected(),
        rtol=1e-4,
        atol=1e-5,
        look="Which layout differs? Print its counts and factors beside those of the document alone.",
    )
