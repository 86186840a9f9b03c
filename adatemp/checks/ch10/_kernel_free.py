"""Exercise 10.4: the entropy from any attention that returns its normaliser, and where that fails."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

import jax.numpy as jnp
import numpy as np

from adatemp.checks import _float64
from adatemp.checks._report import Report
from adatemp.checks._several import in_turn
from adatemp.checks._stages import Mistake, Stage, examine
from adatemp.checks._written import written

_TITLE = "10.4 Entropy without a new kernel"
_SIGNATURE = "entropy(attention, query, key, scale)"
_B, _T, _S, _N, _H = 2, 5, 7, 3, 4
_ENOUGH = 1e-3  # nats

# What can be different about an attention, as `holds` names it.
CASES = ("causal mask", "bias", "soft cap", "offset", "bfloat16 output", "shared keys")


def ex4(entropy: Callable[..., Any], holds: Mapping[str, bool]) -> Report:
    """Checks the entropy computed by an attention that knows nothing of entropies.

    Args:
        entropy: `entropy(attention, query, key, scale) -> H` of shape [B, T, N], in nats, float32. `query` is
            [B, T, N, H], `key` is [B, S, N, H], and `attention(query, key, value, scale) -> (output, lse)` gives
            [B, T, N, V] in the dtype of its inputs and the natural log-sum-exp of the logits scale·⟨q, k⟩, float32
            [B, T, N]. It may hide keys, which `entropy` is not told. It is to be called once.
        holds: for each name of `checks.ch10.CASES` whether the identity gives the entropy to 10⁻³ nats when the
            attention has a causal mask; a bias added to its logits; a soft cap; logits that share an offset of 10⁵, in
            float32; an output rounded to bfloat16; keys that several query heads share.

    Returns:
        The report. Mistakes it names: a scale that is missing, assumed or applied twice; the query for the value; the
        logits computed by hand; a sign; bits; half precision; and each wrong verdict.
    """
    return in_turn(
        (
            lambda: examine(entropy, _TITLE, _SIGNATURE, _entropy_stages(written(entropy))),
            lambda: examine(lambda: holds, _TITLE, f"holds, a dict of {len(CASES)} verdicts", (_verdicts(holds),)),
        ),
        remark="At 131,072 keys, where nothing dense fits, this is an independent test of a kernel.",
    )


def _inputs(seed: int, heads: int = _N) -> tuple[np.ndarray, np.ndarray]:
    draw = np.random.default_rng(seed)
    query, key = draw.normal(size=(_B, _T, _N, _H)), draw.normal(size=(_B, _S, heads, _H))
    return (1.5 * query).astype(np.float32), key.astype(np.float32)


def _logits(query: Any, key: Any, scale: float) -> np.ndarray:
    """scale·⟨q, k⟩ in float64, [B, N, T, S]."""
    query, key = (np.asarray(array, np.float64) for array in (query, key))
    return scale * np.einsum("btnh,bsnh->bnts", query, key)


class _NotOfTheKeys(ValueError):
    """There is not one value for every key."""


class _Attention:
    """An attention in float64 whose output is rounded to the dtype of its inputs; counts its calls."""

    def __init__(self, change: Callable[[np.ndarray], np.ndarray] = lambda logits: logits) -> None:
        self.change, self.calls = change, 0

    def __call__(self, query: Any, key: Any, value: Any, scale: float) -> tuple[Any, Any]:
        self.calls += 1
        if np.shape(value)[1] != np.shape(key)[1]:
            raise _NotOfTheKeys(f"value has {np.shape(value)[1]} positions and key has {np.shape(key)[1]}")
        logits = self.change(_logits(query, key, float(scale)))
        top = logits.max(-1, keepdims=True)
        lse = (top + np.log(np.exp(logits - top).sum(-1, keepdims=True)))[..., 0].swapaxes(1, 2)
        output = np.einsum("bnts,bsnh->btnh", _float64.softmax(logits), np.asarray(value, np.float64))
        # to float32 first: NumPy would hand JAX a float64
        return jnp.asarray(output.astype(np.float32)).astype(query.dtype), jnp.asarray(lse.astype(np.float32))


def _causal(logits: np.ndarray) -> np.ndarray:
    return np.where(np.tril(np.ones(logits.shape[-2:], bool)), logits, -np.inf)


def _entropies(logits: np.ndarray) -> np.ndarray:
    return _float64.entropy(logits).swapaxes(1, 2)


def _entropy_stages(entropy: Callable[..., Any]) -> tuple[Stage, ...]:
    usual, other = _H**-0.5, 0.3
    query, key = _inputs(401)
    plain = _logits(query, key, 1.0)

    def call(attention: _Attention, scale: float, dtype: Any = jnp.float32) -> Any:
        return entropy(attention, jnp.asarray(query, dtype), jnp.asarray(key, dtype), scale)

    def mean(scale: float) -> np.ndarray:
        """lse less the entropy: the mean logit."""
        logits = scale * plain
        return (_float64.softmax(logits) * logits).sum(-1).swapaxes(1, 2)

    right, elsewhere = _entropies(usual * plain), _entropies(other * plain)
    lse, lse_elsewhere = right + mean(usual), elsewhere + mean(other)
    hidden = _entropies(_causal(usual * plain))

    def rounded() -> tuple[np.ndarray, np.ndarray]:
        return tuple(np.asarray(jnp.asarray(array, jnp.bfloat16).astype(jnp.float32)) for array in (query, key))

    half = _entropies(_logits(*rounded(), usual))
    once: list[_Attention] = []

    def counted(_: Any) -> Any:
        once[:] = [_Attention(_causal)]
        return call(once[0], usual)

    return (
        Stage(
            "the entropy at the usual scale",
            lambda _: call(_Attention(), usual),
            given="B, T, S, N, H = 2, 5, 7, 3, 4 and scale 1/√H",
            expected=right,
            atol=2e-6,
            nats=True,
            look="Which number is the product of a query with the mean key?",
            mistakes=(
                Mistake(
                    "the scale is missing",
                    "The mean of ⟨q, k⟩ was taken from lse, which is about scale·⟨q, k⟩.",
                    "The scale has gone into the attention and seems to be dealt with.",
                    "In which units is lse?",
                    seen=lse - mean(usual) / usual,
                ),
                Mistake(
                    "the scale is applied twice",
                    "The mean logit carries the scale once too often.",
                    "If the query is scaled before the call and the result after it, both look right.",
                    "Count the scales in lse, and in what you take from it.",
                    seen=lse - usual * mean(usual),
                ),
                Mistake(
                    "the mean logit is added",
                    "The answer is lse plus the mean logit.",
                    "−Σ p log p has a minus sign, and log p = z − lse another.",
                    "Write −Σ p log p out with log p = z − lse.",
                    seen=lse + mean(usual),
                ),
                Mistake(
                    "the mean logit alone",
                    "The answer is the mean logit.",
                    "The product of a query with the output is half of the formula.",
                    "What does a row of equal logits give, and what should it?",
                    seen=mean(usual),
                ),
                Mistake(
                    "log-sum-exp alone",
                    "The answer is what the attention returned.",
                    "Log-sum-exp is a soft maximum and is easily called an entropy.",
                    "What does lse do when 1 is added to every logit?",
                    seen=lse,
                ),
                Mistake(
                    "the query for the value",
                    "The output was a mean of queries.",
                    "In self-attention at T = S nothing complains.",
                    "There has to be one value for every key. Of what should the attention take the mean?",
                    seen=lambda got: isinstance(got, _NotOfTheKeys),
                ),
            ),
        ),
        Stage(
            "another scale",
            lambda _: call(_Attention(), other),
            given="scale 0.3, where 1/√H is 0.5",
            expected=elsewhere,
            atol=2e-6,
            look="Where does `scale` enter your function?",
            mistakes=(
                Mistake(
                    "the usual scale assumed",
                    "1/√H was used where the scale is 0.3.",
                    "The usual scale is the only one most code ever sees.",
                    "Look for a square root.",
                    seen=lambda got: (
                        np.allclose(got, lse_elsewhere - usual / other * mean(other), atol=1e-4)
                        or np.allclose(got, right, atol=1e-4)
                    ),
                ),
            ),
        ),
        Stage(
            "an attention that hides keys, called once",
            counted,
            given="an attention with a causal mask, which `entropy` is not told",
            accept=lambda got: np.allclose(got, hidden, rtol=1e-5, atol=2e-6) and once[0].calls == 1,
            look="Everything that depends on which keys are visible has to come from the attention.",
            mistakes=(
                Mistake(
                    "the logits computed by hand",
                    "The answer counts keys that the attention hides.",
                    "Logits are a line of einsum away, and then there is no need for an attention.",
                    "At 131,072 keys, how large is the array of logits?",
                    seen=lambda got: not np.allclose(got, hidden, rtol=1e-5, atol=2e-6),
                ),
                Mistake(
                    "more than one call",
                    "The answer is right, and the attention was called several times.",
                    "One call for lse and one for the output is the natural way to write it down.",
                    "What does one call return?",
                    seen=lambda got: once[0].calls > 1,
                ),
            ),
        ),
        Stage(
            "bfloat16 inputs",
            lambda _: call(_Attention(), usual, jnp.bfloat16),
            given="query and key in bfloat16, and an attention that answers in the dtype of its inputs",
            expected=half,
            atol=2e-5,
            look="In which dtype is each of the two numbers that you subtract?",
            mistakes=(
                Mistake(
                    "low-precision output",
                    "The entropy is right to one or two decimals.",
                    "The attention rounds its output to the dtype of its inputs, eight bits here, and the mean logit "
                    "is made of it.",
                    "What decides the dtype of the output, and what can you do about it before the call?",
                    seen=lambda got: np.abs(np.asarray(got, np.float64) - half).max() < 0.3,
                ),
            ),
        ),
    )


@functools.cache
def _measured() -> dict[str, float]:
    """The identity's largest error in each case, in nats, with everything but the attention in float32."""
    query, key = _inputs(411)
    shared = _inputs(412, heads=1)[1]
    lifted_query, lifted_key = query.copy(), key.copy()
    lifted_query[..., 0], lifted_key[..., 0] = 1e3, 2e2  # adds 10⁵ to every logit at scale 1/2
    scale = _H**-0.5
    draw = np.random.default_rng(413)
    bias = draw.normal(size=(_B, _N, _T, _S))

    def error(
        query: np.ndarray = query, key: np.ndarray = key, change: Any = lambda z: z, dtype: Any = np.float32
    ) -> float:
        key = np.broadcast_to(key, (_B, _S, _N, _H))
        output, lse = _Attention(change)(query, key, key, scale)
        output = np.asarray(output.astype(dtype).astype(np.float32))
        found = np.asarray(lse) - np.float32(scale) * (query * output).sum(-1)
        return float(np.abs(found - _entropies(change(_logits(query, key, scale)))).max())

    return {
        "causal mask": error(change=_causal),
        "bias": error(change=lambda z: z + bias),
        "soft cap": error(change=lambda z: 2.0 * np.tanh(z / 2.0)),
        "offset": error(query=lifted_query, key=lifted_key),
        "bfloat16 output": error(dtype=jnp.bfloat16),
        "shared keys": error(key=shared),
    }


def _verdicts(holds: Mapping[str, bool]) -> Stage:
    truth = {case: error < _ENOUGH for case, error in _measured().items()}

    def call(_: Any) -> Any:
        if holds is None or holds is Ellipsis or any(holds.get(case, 0) in (None, ...) for case in CASES):
            raise NotImplementedError
        return {case: bool(holds[case]) for case in CASES if case in holds}

    def wrong(case: str) -> Callable[[Any], bool]:
        return lambda got: got[case] != truth[case]

    return Stage(
        "where the identity holds",
        call,
        given="six attentions",
        accept=lambda got: got == truth,
        look="For each case write down z, and what scale·⟨q, attention(q, k, k)⟩ is the mean of.",
        mistakes=(
            Mistake(
                "a verdict is missing",
                "Not every case has a verdict.",
                "A dict takes any keys, and a spelling of one's own goes unnoticed.",
                "The names are those of `checks.ch10.CASES`.",
                seen=lambda got: len(got) < len(CASES),
            ),
            Mistake(
                "a mask taken for a bias",
                "The verdict on the causal mask does not agree with the measurement.",
                "A mask is often written as −∞ added to the logits.",
                "Which keys enter lse, and which the mean, if a key is hidden?",
                seen=wrong("causal mask"),
            ),
            Mistake(
                "the bias is overlooked",
                "The verdict on the bias does not agree with the measurement.",
                "The attention adds it, so lse contains it.",
                "Is the bias in the mean logit that you compute from the mean key?",
                seen=wrong("bias"),
            ),
            Mistake(
                "the soft cap is overlooked",
                "The verdict on the soft cap does not agree with the measurement.",
                "A cap of large logits leaves small ones nearly alone.",
                "Is the mean of a capped logit the cap of the mean?",
                seen=wrong("soft cap"),
            ),
            Mistake(
                "the offset is overlooked",
                "The verdict on the offset does not agree with the measurement.",
                "An offset changes no entropy, on paper.",
                "How large are the two numbers that are subtracted, and how far apart are float32 numbers there?",
                seen=wrong("offset"),
            ),
            Mistake(
                "a rounded output trusted",
                "The verdict on the bfloat16 output does not agree with the measurement.",
                "A relative error of 0.2% is called small in an output.",
                "How many nats is 0.2% of a mean logit of 5?",
                seen=wrong("bfloat16 output"),
            ),
            Mistake(
                "shared keys distrusted",
                "The verdict on shared keys does not agree with the measurement.",
                "Grouped heads need care wherever something is summed over a group.",
                "Does the identity mention any head but the query's own and the key it reads?",
                seen=wrong("shared keys"),
            ),
        ),
    )
