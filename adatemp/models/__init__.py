"""Small models in flax.nnx, one a module."""

from adatemp._compat import require

# Before any module here imports it, so that a missing or mismatched Flax is answered with what to install.
require("flax", extra="models")

from adatemp.models import presets  # noqa: E402
from adatemp.models.attention import attention_fn  # noqa: E402
from adatemp.models.cache import Cache  # noqa: E402
from adatemp.models.config import TransformerConfig  # noqa: E402
from adatemp.models.transformer import Transformer  # noqa: E402

__all__ = ["Cache", "Transformer", "TransformerConfig", "attention_fn", "presets"]
