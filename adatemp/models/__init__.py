"""Small models in flax.nnx, one a module."""
