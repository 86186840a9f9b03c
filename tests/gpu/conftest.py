"""Tests that need an NVIDIA GPU: `python -m pytest tests/gpu`. Elsewhere every one is skipped, and says why."""

from __future__ import annotations

from pathlib import Path

import jax
import pytest

HERE = Path(__file__).parent


def capability() -> float:
    """Compute capability of the first device, 0 without a CUDA device."""
    device = jax.devices()[0]
    return float(getattr(device, "compute_capability", 0) or 0) if device.platform == "gpu" else 0.0


def pytest_collection_modifyitems(items):
    here = [item for item in items if HERE in item.path.parents]
    found = capability() if here else 0.0
    for item in here:
        item.add_marker(pytest.mark.gpu)
        if found == 0:
            item.add_marker(pytest.mark.skip(reason=f"needs an NVIDIA GPU, JAX has {jax.devices()[0].platform} only"))
        elif found < 8.0 and "older" not in item.keywords:
            item.add_marker(pytest.mark.skip(reason=f"needs compute capability 8.0 for Triton, this GPU has {found}"))


@pytest.fixture
def gigabytes():
    """Skips a test that would not fit: call it with what the test needs."""

    def need(amount: float) -> None:
        limit = (jax.devices()[0].memory_stats() or {}).get("bytes_limit", 0) / 1e9
        if limit < amount:
            pytest.skip(f"needs {amount:.0f} GB of device memory, JAX has {limit:.0f}")

    return need
