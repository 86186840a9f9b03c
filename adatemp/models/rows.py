"""The attention rows of one token in every layer, without holding anyone else's."""

from __future__ import annotations

from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp

from adatemp._entropy import entropy
from adatemp.attention.api import dot_product_attention
from adatemp.models.transformer import Transformer

if TYPE_CHECKING:
    from jaxtyping import Array, Float, Int

    from adatemp.temperature import TemperatureRule


def last_rows(
    model: Transformer, tokens: Int[Array, "B T"], *, temperature: TemperatureRule | None = None
) -> Float[Array, "L B N T"]:
    """Attention logits of the last token, which sees all others, in every layer and head.

    The whole sequence passes through the model, since the last token's keys depend on it, in O(T) memory; one row a
    head is kept of what would be T².

    Args:
        model: a causal one with neither windows nor a cap nor ALiBi, whose part in the logits is not seen here.
        tokens: whole sequences of equal length.
        temperature: the rule that the model runs with; the logits returned are those before it.

    Returns:
        Scaled logits in float32 at least; their softmax is the row of plain weights.

    Raises:
        ValueError: the model has an option whose part in the logits is not seen here.
    """
    config = model.config
    unseen = {
        "causal": not config.causal,
        "windows": set(config.windows) != {None},
        "attention_soft_cap": config.attention_soft_cap is not None,
        "positions": config.positions == "alibi",
    }
    if any(unseen.values()):
        name = next(name for name, is_so in unseen.items() if is_so)
        raise ValueError(f"model: rows are those of causal attention by scaled products alone, and {name} adds to it")
    rows = []

    # The rows are values of the trace that runs this function, and leave it with the result.
    def attend(query, key, value, *arguments, scale=None, **options):
        grouped = query[:, -1].reshape(*key.shape[:1], key.shape[2], -1, key.shape[3])
        wide = jnp.promote_types(query.dtype, jnp.float32)
        logits = jnp.einsum("bkgh,bskh->bkgs", grouped, key, precision="highest", preferred_element_type=wide)
        logits = logits * (key.shape[3] ** -0.5 if scale is None else scale)
        rows.append(logits.reshape(key.shape[0], -1, key.shape[1]))
        return dot_product_attention(query, key, value, *arguments, scale=scale, temperature=temperature, **options)

    model.run(model.embed(tokens), attend=attend)
    return jnp.stack(rows)


def row_measures(logits: Float[Array, "*rows n"]) -> dict[str, Float[Array, "*rows"]]:
    """What a row of logits says of its softmax.

    Returns:
        "entropy" in nats; "spread", highest minus lowest logit; "top_weight", the largest weight; "first_weight", that
        of the first key, where language models keep their sinks.
    """
    weights = jax.nn.softmax(logits, axis=-1)
    return {
        "entropy": entropy(logits),
        "spread": jnp.max(logits, axis=-1) - jnp.min(logits, axis=-1),
        "top_weight": jnp.max(weights, axis=-1),
        "first_weight": weights[..., 0],
    }
