"""Well-known Transformers as configs. Any field can be changed: `presets.gpt(layers=2, width=64, heads=4)`."""

from __future__ import annotations

from adatemp.models.config import TransformerConfig


def toy(**changes) -> TransformerConfig:
    """Two layers of four heads, trained in seconds: pre-norm, GELU, learned positions."""
    return _config(changes, vocabulary=64, layers=2, width=64, heads=4, context=256)


def gpt(**changes) -> TransformerConfig:
    """GPT-2, 124 million parameters by default: pre-norm with biases everywhere, read-out tied to the embedding."""
    return _config(
        changes,
        vocabulary=50_257,
        layers=12,
        width=768,
        heads=12,
        context=1024,
        norm_epsilon=1e-5,
        bias=True,
        tied=True,
    )


def llama(**changes) -> TransformerConfig:
    """The Llama family: RMS norms, rotary positions, gated SiLU, grouped heads; by default SmolLM2-135M."""
    return _config(
        changes,
        vocabulary=49_152,
        layers=30,
        width=576,
        heads=9,
        key_heads=3,
        mlp_width=1536,
        positions="rotary",
        rotary_base=100_000.0,
        norm="rms",
        norm_epsilon=1e-5,
        mlp="gated",
        activation="silu",
        tied=True,
    )


def bert(**changes) -> TransformerConfig:
    """BERT base: an encoder with norms after the sums, one on the embeddings and none at the end.

    Its embedding of sentence A or B is left out: for one sentence it is a constant that the positions can hold.
    """
    return _config(
        changes,
        vocabulary=30_522,
        layers=12,
        width=768,
        heads=12,
        context=512,
        causal=False,
        norm_epsilon=1e-12,
        norm_place="post",
        embedding_norm=True,
        final_norm=False,
        activation="gelu_exact",
        bias=True,
        tied=True,
    )


def gemma(version: int = 1, **changes) -> TransformerConfig:
    """Gemma 1 2B, Gemma 2 2B or Gemma 3 270M: gated GELU, heads wider than D/N, embeddings times √D, gains from 1.

    Gemma 2 puts a norm behind each branch too, caps attention logits at 50 and the read-out's at 30, and lets every
    other layer see 4,096 tokens only. Gemma 3 has norms of queries and keys in place of the caps, and for each layer
    without a window, which alone has the long wavelengths, five with one of 512 tokens.
    """
    shared = dict(
        positions="rotary",
        norm="rms",
        norm_from_one=True,
        mlp="gated",
        activation="gelu",
        tied=True,
        scale_embedding=True,
        head_width=256,
    )
    versions = {
        1: dict(vocabulary=256_128, layers=18, width=2048, heads=8, key_heads=1, mlp_width=16_384),
        2: dict(
            vocabulary=256_128,
            layers=26,
            width=2304,
            heads=8,
            key_heads=4,
            mlp_width=9216,
            norm_place="both",
            attention_soft_cap=50.0,
            logits_soft_cap=30.0,
            windows=(4096, None),
        ),
        3: dict(
            vocabulary=262_144,
            layers=18,
            width=640,
            heads=4,
            key_heads=1,
            mlp_width=2048,
            norm_place="both",
            qk_norm="rms",
            windows=(512, 512, 512, 512, 512, None),
            rotary_base=1_000_000.0,
            local_rotary_base=10_000.0,
        ),
    }
    if version not in versions:
        raise ValueError(f"version must be 1, 2 or 3, got {version!r}")
    return _config(changes, **shared, **versions[version])


def parameter_count(config: TransformerConfig) -> int:
    """Number of parameters of a `Transformer`, in closed form.

    >>> f"{parameter_count(gpt()):,}"
    '124,439,808'
    """
    D, N, K, H, F = config.width, config.heads, config.key_heads, config.head_width, config.mlp_width
    norm = {"layer": 2, "rms": 1, "none": 0}[config.norm] * D
    attention = D * H * (N + 2 * K) + N * H * D + (H * (N + 2 * K) + D) * config.bias
    attention += 2 * H * (config.qk_norm != "none")
    ways_in = {"plain": 1, "gated": 2, "none": 0}[config.mlp]
    mlp = ways_in * (D * F + F * config.bias) + (F * D + D * config.bias if ways_in else 0)
    has_mlp, both = ways_in > 0, config.norm_place == "both"
    norms = 1 + (has_mlp and not config.parallel) + both + (both and has_mlp)
    embeddings = config.vocabulary * D * (1 if config.tied else 2)
    embeddings += config.context * D if config.positions == "learned" else 0
    outer_norms = config.embedding_norm + config.final_norm
    return config.layers * (attention + mlp + norms * norm) + embeddings + outer_norms * norm


def _config(changes: dict, **fields) -> TransformerConfig:
    return TransformerConfig(**(fields | changes))
