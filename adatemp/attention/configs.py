"""Tiles of the GPU kernels: what a caller may set, the defaults for each GPU, and what fits its shared memory.

Where the defaults come from: tiles of 16 to 128 were compiled for each GPU, and of those that keep everything in
registers the largest taken; `make compile` says what they need. None has been timed yet. Float32 in heads wider than
128 fits the registers at no tile, since in three-pass products each number takes two of them: it works, and spills.
"""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from adatemp.attention._tile import Tile, padded_width

WIDEST = 256
MOST_MASK_ELEMENTS = 2**31
OLDEST = 8.0  # Triton runs on Ampere and newer

# Most shared memory of a block, in bytes, by compute capability (CUDA C++ Programming Guide, technical specifications).
SHARED_MEMORY = {8.0: 166912, 8.6: 101376, 8.7: 166912, 8.9: 101376, 9.0: 232448, 10.0: 232448, 12.0: 101376}

_BLOCKS = tuple(f"{name}{kernel}" for kernel in ("", "_backward") for name in ("block_q", "block_k"))


@dataclasses.dataclass(frozen=True)
class PallasConfig:
    """Tiles and launch parameters; None chooses by GPU, head width and dtype.

    Attributes:
        block_q, block_k: Queries and keys in a tile of the forward kernel: powers of two, at least 16.
        num_warps: Groups of 32 threads that share a tile.
        num_stages: How many tiles may be on their way from memory at once, the one in use included.
        block_q_backward, block_k_backward, num_warps_backward, num_stages_backward: The same for both backward kernels.
        compensated: Whether sums over tiles carry their rounding error along. Without it a row of 131,072 keys can
            lose 1e-4 nats of its entropy.
        interpret: Run the kernels operation by operation on any device, to test them. Slow.

    Raises:
        ValueError: A size the kernels cannot have.
    """

    block_q: int | None = None
    block_k: int | None = None
    num_warps: int | None = None
    num_stages: int | None = None
    block_q_backward: int | None = None
    block_k_backward: int | None = None
    num_warps_backward: int | None = None
    num_stages_backward: int | None = None
    compensated: bool = True
    interpret: bool = False

    def __post_init__(self):
        for name in _BLOCKS:
            self._check(name, lambda x: 16 <= x <= 512 and x & (x - 1) == 0, "a power of two from 16 to 512")
        for name in ("num_warps", "num_warps_backward"):
            self._check(name, lambda x: x in (1, 2, 4, 8, 16), "1, 2, 4, 8 or 16")
        for name in ("num_stages", "num_stages_backward"):
            self._check(name, lambda x: 1 <= x <= 8, "from 1 to 8")

    def _check(self, name: str, allowed, rule: str) -> None:
        value = getattr(self, name)
        if value is not None and (not isinstance(value, int) or isinstance(value, bool) or not allowed(value)):
            raise ValueError(f"config: {name} must be {rule}, or None for the default, got {value!r}")


class Kernels(NamedTuple):
    """Tiles of the forward kernel, of the dq kernel and of the dk and dv kernel.

    Attributes:
        forward, dq, dkv: Sizes.
        turned: Whether the tiles of the dk and dv kernel lie on their side, which saves a turn in registers before
            Hopper, and there costs more registers than it saves.
    """

    forward: Tile
    dq: Tile
    dkv: Tile
    turned: bool = True


# By (architecture, head width up to, bytes of a number).
_DEFAULTS = {
    (8.0, 64, 2): Kernels(Tile(64, 64, 4, 2), Tile(64, 32, 4, 2), Tile(64, 32, 4, 2)),
    (8.0, 128, 2): Kernels(Tile(64, 64, 4, 2), Tile(64, 64, 8, 2), Tile(64, 64, 8, 2)),
    (8.0, 256, 2): Kernels(Tile(64, 32, 8, 2), Tile(32, 32, 8, 2), Tile(32, 32, 8, 2)),
    (8.0, 64, 4): Kernels(Tile(64, 16, 4, 2), Tile(32, 32, 8, 2), Tile(32, 32, 8, 2)),
    (8.0, 128, 4): Kernels(Tile(32, 16, 4, 2), Tile(16, 32, 8, 2), Tile(32, 16, 8, 2)),
    (8.0, 256, 4): Kernels(Tile(16, 16, 8, 2), Tile(16, 16, 8, 2), Tile(16, 16, 8, 2)),
    (8.9, 64, 2): Kernels(Tile(64, 64, 4, 2), Tile(64, 32, 4, 2), Tile(64, 32, 4, 2)),
    (8.9, 128, 2): Kernels(Tile(128, 32, 8, 2), Tile(32, 64, 8, 2), Tile(64, 64, 8, 2)),
    (8.9, 256, 2): Kernels(Tile(64, 32, 8, 2), Tile(32, 32, 8, 2), Tile(32, 32, 8, 2)),
    (8.9, 64, 4): Kernels(Tile(32, 32, 4, 2), Tile(32, 32, 8, 2), Tile(32, 32, 8, 2)),
    (8.9, 128, 4): Kernels(Tile(32, 16, 4, 2), Tile(16, 32, 8, 2), Tile(32, 16, 8, 2)),
    (8.9, 256, 4): Kernels(Tile(16, 16, 8, 2), Tile(16, 16, 8, 2), Tile(16, 16, 8, 2)),
    (9.0, 64, 2): Kernels(Tile(128, 64, 8, 2), Tile(64, 64, 8, 2), Tile(64, 64, 8, 2), False),
    (9.0, 128, 2): Kernels(Tile(128, 64, 8, 2), Tile(64, 32, 8, 2), Tile(32, 64, 8, 2), False),
    (9.0, 256, 2): Kernels(Tile(64, 32, 8, 2), Tile(32, 32, 8, 2), Tile(32, 32, 8, 2), False),
    (9.0, 64, 4): Kernels(Tile(64, 16, 4, 2), Tile(32, 32, 8, 2), Tile(16, 32, 4, 2), False),
    (9.0, 128, 4): Kernels(Tile(16, 32, 4, 2), Tile(16, 16, 8, 2), Tile(16, 16, 8, 2), False),
    (9.0, 256, 4): Kernels(Tile(16, 16, 8, 2), Tile(16, 16, 8, 2), Tile(16, 16, 8, 2), False),
}


def architecture(capability: float) -> float:
    """The architecture whose defaults a GPU takes: the newest tuned one with no more shared memory than it has."""
    if limit(capability) == SHARED_MEMORY[8.9]:
        return 8.9
    return 9.0 if capability >= 9.0 else 8.0


def limit(capability: float) -> int:
    """Most shared memory of a block on a GPU: that of the newest capability listed that is not newer."""
    return SHARED_MEMORY[max(listed for listed in SHARED_MEMORY if listed <= max(capability, OLDEST))]


def default_tiles(capability: float, dtype, width: int, value_width: int) -> Kernels:
    """The default tiles for a GPU, a dtype and head widths of at most 256."""
    widest = max(padded_width(width), padded_width(value_width))
    class_ = next(size for size in (64, 128, 256) if widest <= size)
    return _DEFAULTS[architecture(capability), class_, 4 if jnp.dtype(dtype).itemsize == 4 else 2]


def tiles(config: PallasConfig, dtype, width: int, value_width: int, capability: float | None = None) -> Kernels:
    """The tiles of a call: those set, and the defaults for the rest.

    Args:
        config: What the caller sets.
        dtype: Of query, key and value.
        width: Head width.
        value_width: Width of the values, 0 without values.
        capability: Compute capability of the GPU; None for the least able one there is, or, where there is none, the
            one with the least shared memory.

    Raises:
        ValueError: The tiles need more shared memory than the GPU has.
    """
    if capability is None:
        capability = min((found for found in compute_capabilities() if found), default=8.9)
    defaults = default_tiles(capability, dtype, width, value_width)
    fields = {"forward": "", "dq": "_backward", "dkv": "_backward"}
    chosen = {}
    for kernel, suffix in fields.items():
        set_ = (getattr(config, name + suffix) for name in Tile._fields)
        chosen[kernel] = Tile(*(d if value is None else value for value, d in zip(set_, getattr(defaults, kernel))))
    kernels = Kernels(**chosen, turned=defaults.turned)
    if not config.interpret:
        needed = shared_memory(kernels, dtype, width, value_width, capability)
        worst = max(needed, key=needed.get)
        if needed[worst] > limit(capability):
            shown = zip(Tile._fields, chosen[worst])
            given = ", ".join(f"{name}{fields[worst]}={size}" for name, size in shown if name != "num_warps")
            raise ValueError(
                f"config: the {worst} kernel with {given} needs about {needed[worst]:,} bytes of shared memory for "
                f"head width {width} in {jnp.dtype(dtype).name}, and a GPU of compute capability {capability} has "
                f"{limit(capability):,}; halve a block or leave it out for the default"
            )
    return kernels


def shared_memory(kernels: Kernels, dtype, width: int, value_width: int, capability: float) -> dict[str, int]:
    """Estimated bytes of shared memory of each kernel: the tiles it keeps, those on their way, one of weights.

    Before Hopper a 16-bit tile in use has moved to registers, and one fewer is held than there are stages. Three-pass
    products of float32 hold the weights twice, as a high and a low part, and on Hopper the keys and values too.
    """
    size = jnp.dtype(dtype).itemsize
    h, v = padded_width(width), padded_width(value_width) if value_width else 0
    hopper, wide = architecture(capability) >= 9.0, size == 4

    def held(tile: Tile) -> int:
        """How many tiles there are of what streams by."""
        return max(1, tile.num_stages - 1 + hopper + wide)

    def weights(tile: Tile) -> int:
        return (2 if wide else 1) * size * tile.block_q * tile.block_k

    f, q, k = kernels.forward, kernels.dq, kernels.dkv
    rows = 4 * 7 * k.block_q  # numbers a row that the dk and dv kernel reads
    return {
        "forward": size * (f.block_q * h + held(f) * f.block_k * (h + v)) + weights(f),
        "dq": size * (q.block_q + held(q) * q.block_k) * (h + v) + weights(q),
        "dkv": size * (k.block_k + held(k) * k.block_q) * (h + v) + weights(k) + k.num_stages * rows,
    }


def compute_capabilities() -> tuple[float, ...]:
    """The compute capability of every visible device, 0 for what is not a CUDA device."""
    return tuple(_compute_capability(device) for device in jax.devices())


def _compute_capability(device) -> float:
    try:
        return float(device.compute_capability) if device.platform == "gpu" else 0.0
    except (AttributeError, ValueError):  # AMD's have none, or a name such as gfx942
        return 0.0


def products_precision(dtype, precision, interpret: bool):
    """How the kernels multiply: products of float16 and bfloat16 are exact; float32 is as asked for, never less.

    On a GPU the default of float32 is three passes of TensorFloat-32, nearly float32 at a third of its speed; one pass
    (`Precision.DEFAULT`) has to be asked for by name.
    """
    if jnp.dtype(dtype) != jnp.float32:
        return lax.Precision.DEFAULT  # and not None, which whatever `jax.default_matmul_precision` says would fill
    if interpret:
        return lax.Precision.HIGHEST  # there the products are float32 whatever is asked
    if isinstance(precision, str):
        precision = lax.Precision(precision)
    named = {
        None: lax.DotAlgorithmPreset.TF32_TF32_F32_X3,
        lax.Precision.DEFAULT: lax.DotAlgorithmPreset.TF32_TF32_F32,
        lax.Precision.HIGH: lax.DotAlgorithmPreset.TF32_TF32_F32_X3,
    }
    return named.get(precision, precision)


def refusal_of_sizes(problem) -> str | None:
    """Why no tile serves a problem, or None."""
    dtype = jnp.dtype(problem.query.dtype)
    if dtype not in (jnp.float16, jnp.bfloat16, jnp.float32):
        return f"dtype {dtype.name}: the kernels take float16, bfloat16 and float32; use implementation='dense'"
    widths = {"query": problem.query.shape[-1], "value": 0 if problem.value is None else problem.value.shape[-1]}
    for name, width in widths.items():
        if width > WIDEST:
            return f"head width {width} of {name}: the kernels take at most {WIDEST}; use implementation='chunked'"
    for name in ("mask", "bias"):
        array = getattr(problem, name)
        if array is not None and array.size >= MOST_MASK_ELEMENTS:
            return (
                f"{name} of {array.size:,} elements: the kernels address fewer than 2^31; give lengths, segments, a "
                "window or is_causal instead, or use implementation='chunked'"
            )
    return None
