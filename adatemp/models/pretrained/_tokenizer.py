"""Text to token numbers and back, by the package `tokenizers`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from adatemp._compat import require

# Kinds of token in GGUF's list: plain ones are 1; those of kind 3 are never cut out of ordinary words.
_CONTROL = 3


class Tokenizer:
    """What cuts text into a model's tokens; `from_gguf` and `from_file` make one.

    Args:
        inner: a `tokenizers.Tokenizer`, for what is not offered here.
    """

    def __init__(self, inner: Any):
        self.inner = inner

    @classmethod
    def from_gguf(cls, metadata: Mapping[str, Any]) -> Tokenizer:
        """Byte-level BPE as a GGUF file describes it.

        Raises:
            ValueError: the file has another kind of vocabulary, or cuts text in a way that is not known here.
        """
        kind, cuts = metadata.get("tokenizer.ggml.model"), metadata.get("tokenizer.ggml.pre")
        if kind != "gpt2" or cuts not in ("smollm", "gpt-2"):
            raise ValueError(
                f"path: the file has a vocabulary of kind {kind!r} cut by {cuts!r}; byte-level BPE ('gpt2') cut by "
                "'smollm' or 'gpt-2' can be read"
            )
        library = require("tokenizers", extra="language-models")
        tokens, merges = metadata["tokenizer.ggml.tokens"], metadata["tokenizer.ggml.merges"]
        model = library.models.BPE(
            {token: number for number, token in enumerate(tokens)}, [tuple(merge.split(" ")) for merge in merges]
        )
        inner = library.Tokenizer(model)
        byte_level = library.pre_tokenizers.ByteLevel(add_prefix_space=False)
        digits = library.pre_tokenizers.Digits(individual_digits=True)
        steps = [digits, byte_level] if cuts == "smollm" else [byte_level]
        inner.pre_tokenizer = library.pre_tokenizers.Sequence(steps)
        inner.decoder = library.decoders.ByteLevel()
        kinds = metadata.get("tokenizer.ggml.token_type", [])
        inner.add_special_tokens([token for token, kind in zip(tokens, kinds) if kind == _CONTROL])
        return cls(inner)

    @classmethod
    def from_file(cls, path: str | Path) -> Tokenizer:
        """A tokenizer from a hub directory's `tokenizer.json`, without its limit on the length and without padding."""
        if not Path(path).is_file():
            raise FileNotFoundError(f"path: there is no {path}")
        inner = require("tokenizers", extra="language-models").Tokenizer.from_file(str(path))
        inner.no_truncation()
        inner.no_padding()
        return cls(inner)

    @property
    def size(self) -> int:
        """Number of tokens in the vocabulary."""
        return self.inner.get_vocab_size()

    def encode(self, text: str, *, special: bool = False) -> list[int]:
        """Token numbers of a text.

        Args:
            text: names of special tokens in it, such as `<|endoftext|>`, become those tokens.
            special: whether to add what the model's own format puts around a text, such as [CLS] and [SEP].
        """
        return self.inner.encode(text, add_special_tokens=special).ids

    def decode(self, tokens: Sequence[int]) -> str:
        """The text of token numbers, special tokens included."""
        return self.inner.decode([int(token) for token in tokens], skip_special_tokens=False)

    def pieces(self, tokens: Sequence[int]) -> list[str]:
        """The text of each token by itself; a character of several tokens shows as �."""
        return [self.decode([token]) for token in tokens]
