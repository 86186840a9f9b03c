"""`import adatemp` is cheap, complete and helpful."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

import adatemp

HEAVY = ("flax", "optax", "matplotlib", "ipywidgets", "IPython", "jax.experimental.pallas", "scipy")


def in_a_fresh_interpreter(program: str):
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=120)
    return json.loads(result.stdout)


def test_importing_the_package_and_its_core_loads_nothing_heavy():
    program = f"""
import json, sys
import jax
before = set(sys.modules)
import adatemp
package = sorted(set(sys.modules) - before)
names = [getattr(adatemp, name) for name in adatemp.__all__]
core = [name for name in {HEAVY!r} if name in sys.modules and name not in before]
from jax._src import xla_bridge
print(json.dumps([package, core, xla_bridge.backends_are_initialized()]))
"""
    package, heavy, started = in_a_fresh_interpreter(program)
    assert package == ["adatemp"]
    assert heavy == []
    assert started is False  # making the published rules must not take a GPU


def test_star_import_brings_the_public_names_and_no_submodule():
    namespace = {}
    exec("from adatemp import *", namespace)
    assert set(adatemp.__all__) <= set(namespace)
    assert not {"models", "training", "plotting"} & set(namespace)


def test_every_name_is_found_listed_and_says_where_it_lives():
    for name in adatemp.__all__:
        assert getattr(adatemp, name) is not None
        assert name in dir(adatemp)
    assert adatemp.temperature.constant is adatemp.constant
    assert adatemp.__version__[0].isdigit()


@pytest.mark.parametrize(
    ("wrong", "right"),
    [("adaptive_softmax", "adaptive_temperature_softmax"), ("log_ration", "log_ratio"), ("plot", "plotting")],
)
def test_a_misspelt_name_is_answered_with_the_nearest(wrong, right):
    with pytest.raises(AttributeError, match=f"no attribute '{wrong}'.*did you mean '{right}'"):
        getattr(adatemp, wrong)
    assert not hasattr(adatemp, "zzz")
