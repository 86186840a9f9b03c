"""Attention with a temperature that each row's own statistics decide: the public functions."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import jax

from adatemp._attention_stats import AttentionStats
from adatemp._constant import is_one
from adatemp._polynomial import PAPER
from adatemp._rule import check_rule
from adatemp.attention._arguments import build_problem, check_flag
from adatemp.attention._choice import choose, module_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jaxtyping import Array, ArrayLike, Bool, Float, Int

    from adatemp.attention.chunked import ChunkedConfig
    from adatemp.attention.configs import PallasConfig
    from adatemp.temperature import TemperatureRule


def dot_product_attention(
    query: Float[Array, "B T N H"],
    key: Float[Array, "B S K H"],
    value: Float[Array, "B S K V"],
    bias: Float[ArrayLike, "#B #N #T #S"] | None = None,
    mask: Bool[ArrayLike, "#B #N #T #S"] | None = None,
    *,
    scale: float | None = None,
    is_causal: bool = False,
    query_offset: int | Int[ArrayLike, " B"] = 0,
    query_seq_lengths: Int[ArrayLike, " B"] | None = None,
    key_value_seq_lengths: Int[ArrayLike, " B"] | None = None,
    local_window_size: int | tuple[int, int] | None = None,
    segment_ids: Int[ArrayLike, "B T"] | tuple[Int[ArrayLike, "B T"], Int[ArrayLike, "B S"]] | None = None,
    query_positions: Int[ArrayLike, "B T"] | None = None,
    logits_soft_cap: float | None = None,
    sink: Float[ArrayLike, " N"] | None = None,
    temperature: TemperatureRule | None = PAPER,
    return_stats: bool = False,
    precision=None,
    implementation: str | Sequence[str] | None = None,
    config: ChunkedConfig | PallasConfig | None = None,
) -> Float[Array, "B T N V"] | tuple[Float[Array, "B T N V"], AttentionStats]:
    """softmax(beta z) v, with the inverse temperature beta of each row a function of the row's own entropy.

    `jax.nn.dot_product_attention` with a temperature: the same layout and, where it has them, the same arguments.
    With B batch, T queries, S keys, N query heads, K key heads, H and V widths, the logits of query t of head n are

        z_s = cap tanh(scale <q_tn, k_s> / cap) + bias_s    for the keys s it sees, -inf for the others,

    beta is 1 for `temperature=None`, and the rule's otherwise: `PAPER` reads the entropy of softmax(z). The gradient
    is that of these formulas, through beta and the statistics too.

    A query without keys (all hidden, or all -inf) gets output 0, entropy 0, beta 1, lse -inf and gradient 0, where
    `jax.nn` averages the values it was told to hide. NaN or infinity in a key or value is kept from every query that
    does not see it, in values and gradients; queries that see it become NaN, except that a key whose product with the
    query is -inf may instead count as hidden.

    Statistics and logits are float32 (float64 for float64 inputs) in natural units. Products of float32 run in full
    precision, on GPU as three passes of TensorFloat-32 in the Pallas kernel, never in one unless `precision` asks.

    Args:
        query: [B, T, N, H], or [T, N, H]; float16, bfloat16, float32 or float64, key and value likewise.
        key: [B, S, K, H]. K divides N: query head n reads key head n // (N // K).
        value: [B, S, K, V]; its width may differ from the key's.
        bias: Added to the logits; broadcasts to [B, N, T, S]. -inf hides a key.
        mask: True where a key takes part; broadcasts to [B, N, T, S].
        scale: Multiplies the products; 1/sqrt(H) by default.
        is_causal: Whether query t sees keys up to its position t + query_offset only. The alignment is top left, as
            in `jax.nn`: with T < S the first query sees the first key alone. For the newest queries against a cache
            give query_offset = S - T.
        query_offset: Position of the first query among the keys, for the causal mask and the window; one integer or
            one a batch item. May be traced.
        query_seq_lengths: Queries from this index on are dead.
        key_value_seq_lengths: Keys from this index on take no part.
        local_window_size: How far (before, after) its position a query sees; one integer for both sides.
        segment_ids: A query sees keys of its own segment only; a pair (of queries, of keys) where T and S differ.
        query_positions: What a rule that reads the position is told; t + query_offset by default. It moves no mask.
        logits_soft_cap: Caps the scaled products smoothly, as in Gemma 2, before bias and mask.
        sink: A logit for each query head that joins the normaliser once and carries no value, as in gpt-oss. It is not
            multiplied by beta, and not in the entropy nor in lse; it is in lse_scaled.
        temperature: A rule from `adatemp.temperature`; None for plain attention. A rule's parameters broadcast
            against [B, T, N], so a value a head has shape [N].
        return_stats: Whether to return the rows' statistics too.
        precision: Of the products, a `jax.lax.Precision`, its name, or a `jax.lax.DotAlgorithmPreset`; None for the
            default stated above.
        implementation: "dense" (all logits at once; forward and reverse mode of any order), "chunked" (O(n) memory,
            any device), "pallas" (O(n) memory, NVIDIA GPUs from compute capability 8.0; reverse mode, first order), a
            sequence of these to try in order, or None for the fastest that can serve. "xla" means "dense".
        config: Sizes of the blocks, a `ChunkedConfig` or `PallasConfig` for the implementation that runs.

    Returns:
        [B, T, N, V] in the dtype of the inputs; with `return_stats` also `AttentionStats` of shape [B, T, N].

    Raises:
        TypeError: Arrays of the wrong kind or of different dtypes, a temperature that is not a rule, a derivative that
            the kernels do not have.
        ValueError: Shapes, lengths, a window or an offset that do not fit; an implementation that does not exist; a
            config for another implementation, or one that does not fit the GPU's shared memory.
        NotImplementedError: No implementation asked for can serve; it gives each one's reason.

    References:
        "softmax is not enough (for sharp out-of-distribution)", https://arxiv.org/abs/2410.01104, section 5 and
        appendix F.

    Example:
        >>> import jax
        >>> from adatemp import dot_product_attention
        >>> query, key, value = jax.random.normal(jax.random.key(0), (3, 1, 256, 4, 64))
        >>> output, stats = dot_product_attention(2 * query, key, value, is_causal=True, return_stats=True)
        >>> output.shape, stats.entropy.shape
        ((1, 256, 4, 64), (1, 256, 4))
        >>> print(f"{stats.entropy[0, -1, 0]:.2f} nats, beta {stats.beta[0, -1, 0]:.2f}")
        3.68 nats, beta 2.34
    """
    if value is None:
        raise TypeError("value must be an array, got None; for the entropy alone call attention_entropy(query, key)")
    return_stats = check_flag("return_stats", return_stats)
    if temperature is not None:
        check_rule(temperature)
    problem, batched = build_problem(
        query,
        key,
        value,
        bias,
        mask,
        scale=scale,
        is_causal=is_causal,
        query_offset=query_offset,
        query_seq_lengths=query_seq_lengths,
        key_value_seq_lengths=key_value_seq_lengths,
        local_window_size=local_window_size,
        segment_ids=segment_ids,
        query_positions=query_positions,
        logits_soft_cap=logits_soft_cap,
        sink=sink,
        precision=precision,
    )
    output, stats = attend(
        problem, temperature, implementation=implementation, config=config, with_output=True, with_stats=return_stats
    )
    if not batched:
        output, stats = jax.tree.map(lambda x: x[0], (output, stats))
    return (output, stats) if return_stats else output


def attention_entropy(
    query: Float[Array, "B T N H"],
    key: Float[Array, "B S K H"],
    bias: Float[ArrayLike, "#B #N #T #S"] | None = None,
    mask: Bool[ArrayLike, "#B #N #T #S"] | None = None,
    *,
    scale: float | None = None,
    is_causal: bool = False,
    query_offset: int | Int[ArrayLike, " B"] = 0,
    query_seq_lengths: Int[ArrayLike, " B"] | None = None,
    key_value_seq_lengths: Int[ArrayLike, " B"] | None = None,
    local_window_size: int | tuple[int, int] | None = None,
    segment_ids: Int[ArrayLike, "B T"] | tuple[Int[ArrayLike, "B T"], Int[ArrayLike, "B S"]] | None = None,
    logits_soft_cap: float | None = None,
    precision=None,
    implementation: str | Sequence[str] | None = None,
    config: ChunkedConfig | PallasConfig | None = None,
) -> Float[Array, "B T N"]:
    """Entropy of every attention row in nats, in O(n) memory and without values; differentiable.

    Arguments, errors and dead rows (entropy 0) are those of `dot_product_attention`.

    Example:
        >>> import jax.numpy as jnp
        >>> from adatemp import attention_entropy
        >>> query, key = jnp.zeros((1, 3, 1, 8)), jnp.zeros((1, 3, 1, 8))
        >>> print(jnp.exp(attention_entropy(query, key, is_causal=True))[0, :, 0])  # effective number of keys
        [1. 2. 3.]
    """
    problem, batched = build_problem(
        query,
        key,
        None,
        bias,
        mask,
        scale=scale,
        is_causal=is_causal,
        query_offset=query_offset,
        query_seq_lengths=query_seq_lengths,
        key_value_seq_lengths=key_value_seq_lengths,
        local_window_size=local_window_size,
        segment_ids=segment_ids,
        logits_soft_cap=logits_soft_cap,
        precision=precision,
    )
    _, stats = attend(problem, None, implementation=implementation, config=config, with_output=False, with_stats=True)
    return stats.entropy if batched else stats.entropy[0]


def attend(problem, rule, *, implementation=None, config=None, with_output: bool, with_stats: bool):
    """Output, or None, and statistics, or None, of a validated call."""
    if rule is not None and is_one(rule):
        rule = None
    name, config, otherwise = choose(problem, rule, implementation, config)
    try:
        return _compiled(name, config, otherwise, with_output, with_stats, problem, rule)
    except (TypeError, AssertionError) as error:
        # JAX's words for the first kind name neither attention nor a way out, and for the second there are none.
        if name != "pallas" or not ("custom_vjp" in str(error) or (type(error) is AssertionError and not str(error))):
            raise
        raise TypeError(
            "implementation 'pallas' has first derivatives in reverse mode (grad, vjp) alone, not forward-mode ones "
            "(jvp, jacfwd, linearize) nor second ones (hessian, grad of grad); for those give implementation='dense', "
            "or 'chunked' where memory is short"
        ) from error


@partial(jax.jit, static_argnums=(0, 1, 2, 3, 4))
def _compiled(name, config, otherwise, with_output, with_stats, problem, rule):
    def attend(name, config, problem, rule):
        return module_of(name).attend(problem, rule, with_output=with_output, with_stats=with_stats, config=config)

    if otherwise is None:
        return attend(name, config, problem, rule)
    # The host has a GPU, and this very call may still be placed on its processor.
    return jax.lax.platform_dependent(
        problem, rule, cuda=partial(attend, name, config), default=partial(attend, otherwise, None)
    )
