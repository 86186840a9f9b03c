"""Synthetic tasks: each module generates its problems inside jit and measures a model on them."""

from adatemp._compat import require

# Before any module here imports it, so that a missing or mismatched Flax is answered with what to install.
require("flax", extra="models")
