"""The sizes of a tile. Apart from the kernels, so that a config can be checked without loading Pallas."""

from __future__ import annotations

from typing import NamedTuple


class Tile(NamedTuple):
    """Sizes and launch parameters of one kernel."""

    block_q: int
    block_k: int
    num_warps: int
    num_stages: int


def padded_width(width: int) -> int:
    """The power of two a head width is padded to; the tensor cores take 16 at least."""
    return max(16, 1 << (width - 1).bit_length())
