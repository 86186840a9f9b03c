"""Attention with a temperature, in three implementations that agree: dense, chunked, and a Pallas kernel for GPUs."""

from adatemp.attention.api import attention_entropy, dot_product_attention
from adatemp.attention.chunked import ChunkedConfig
from adatemp.attention.configs import PallasConfig
from adatemp.attention.sharding import sharded_attention

__all__ = ["ChunkedConfig", "PallasConfig", "attention_entropy", "dot_product_attention", "sharded_attention"]
