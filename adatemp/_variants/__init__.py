"""The normalisers that `adatemp.variants` names, one idea a module."""
