"""Attention with a temperature, in three implementations that agree: dense, chunked, and a Pallas kernel for GPUs."""

from adatemp.attention.api import attention_entropy, dot_product_attention
from adatemp.attention.chunked import ChunkedConfig

__all__ = ["ChunkedConfig", "attention_entropy", "dot_product_attention"]
