"""Runs eight_devices.py in a process with eight devices: a process that has one cannot get more; and bad arguments."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import pytest

from adatemp.attention import sharded_attention


def test_on_eight_devices():
    environment = {
        **os.environ,
        "JAX_PLATFORMS": "cpu",
        "XLA_FLAGS": f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count=8",
    }
    cases = Path(__file__).with_name("eight_devices.py")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:xdist", "-p", "no:cacheprovider", str(cases)]
    run = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert run.returncode == 0, run.stdout[-6000:] + run.stderr[-2000:]
    assert " passed" in run.stdout and "skipped" not in run.stdout


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (dict(mesh=None), r"mesh must be a jax.sharding.Mesh, got None; make one with jax.make_mesh"),
        (dict(causal=True), r"sharded_attention has no argument 'causal'; see dot_product_attention"),
        (dict(value=None), r"value must be an array, got None"),
        (dict(return_stats=1), r"return_stats must be True or False, got 1"),
        (dict(temperature=2.0), r"temperature must be a rule, got 2.0"),
    ],
)
def test_what_is_no_argument_is_refused_by_name(changes, message):
    array = np.ones((2, 4, 2, 8), "f")
    mesh = jax.sharding.Mesh(np.array(jax.devices()[:1]), ("data",))
    arguments = dict(query=array, key=array, value=array, mesh=mesh, batch_axis="data") | changes
    with pytest.raises(TypeError, match=message):
        sharded_attention(**arguments)
