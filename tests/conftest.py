"""What every test shares: property tests draw the same examples on every run, and none is timed."""

from __future__ import annotations

import hypothesis

hypothesis.settings.register_profile(
    "repeatable",
    derandomize=True,
    database=None,
    deadline=None,
    max_examples=40,
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
)
hypothesis.settings.load_profile("repeatable")
