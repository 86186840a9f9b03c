"""Other normalisers than softmax, each shaped like `jax.nn.softmax`; chapter 9 compares them."""
