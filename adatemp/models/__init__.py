"""Small models in flax.nnx, one a module."""

from adatemp._compat import require

# Before any module here imports it, so that a missing or mismatched Flax is answered with what to install.
require("flax", extra="models")
