"""The table of variants lists what the module offers, with sources that the bibliography has."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import jax
import pytest

from adatemp import adaptive_temperature_softmax, variants

BOOK = Path(__file__).resolve().parents[2] / "book"


def test_it_lists_every_variant_once_under_its_name():
    functions = [v.function for v in variants.VARIANTS.values()]
    assert len(set(functions)) == len(functions)
    offered = {name for name in variants.__all__ if name not in ("VARIANTS", "Variant", "attention_fn")}
    assert set(variants.VARIANTS) == offered | {"softmax", "adaptive_temperature_softmax"}
    for name, variant in variants.VARIANTS.items():
        assert variant.function is getattr(variants, name, {"softmax": jax.nn.softmax}.get(name)) or (
            variant.function is adaptive_temperature_softmax
        )


@pytest.mark.parametrize("name", variants.VARIANTS)
def test_its_words_are_known_and_its_source_is_in_the_bibliography(name):
    variant = variants.VARIANTS[name]
    assert variant.streams in ("query-side", "one pass", "two passes", "dense")
    assert set(variant.treats) <= {"reference", "dispersion", "sinks", "sparsity", "stability", "speed"}
    assert re.search(rf"^@\w+{{{variant.source},$", (BOOK / "references.bib").read_text("utf-8"), re.MULTILINE)
    if hasattr(variants, name):
        said = "streams" in inspect.getdoc(variant.function)
        assert said is (variant.streams != "dense")
        assert ("Dense" in inspect.getdoc(variant.function) or "it is dense" in inspect.getdoc(variant.function)) is (
            variant.streams == "dense"
        )


def test_it_cannot_be_changed():
    with pytest.raises(TypeError):
        variants.VARIANTS["softmax"] = None
