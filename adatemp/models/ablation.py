"""Models with a part taken out, to see what it did."""

from __future__ import annotations

from collections.abc import Iterable

from flax import nnx

from adatemp.models.transformer import Transformer


def without_heads(model: Transformer, heads: Iterable[tuple[int, int]]) -> Transformer:
    """A copy of a model whose given heads add nothing; the model itself stays as it is.

    The head's part of the output map is set to 0. That is removal: a head with weights made equal, or with its logits
    set to 0, still adds an average. The bias of the output map belongs to no head and stays.

    Args:
        model: whose heads to take out.
        heads: pairs of layer and head, both counted from 0.

    Raises:
        ValueError: there is no such layer or head.
    """
    copy = nnx.clone(model)
    for layer, head in heads:
        if not (0 <= layer < model.config.layers and 0 <= head < model.config.heads):
            raise ValueError(
                f"heads: there is no head {head} in a layer {layer}; the model has {model.config.layers} layers of "
                f"{model.config.heads} heads"
            )
        kernel = copy.blocks[layer].attention.out.kernel
        kernel[...] = kernel[...].at[head].set(0)
    return copy
