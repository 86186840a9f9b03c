"""Synthetic tasks: each module generates its problems inside jit and measures a model on them."""
