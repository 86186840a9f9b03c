"""The report of a tempered softmax counts its rows by where the map's range leaves them."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from adatemp import PAPER, AttentionStats, StatsReport, adaptive_temperature_softmax, constant

NAN, INF = np.nan, np.inf


def stats(entropy, beta, lse, range=PAPER.range):
    fields = (np.float32(x) for x in (entropy, beta, lse, lse))
    return AttentionStats(*fields, range)


def test_every_row_is_counted_once_and_dead_and_undefined_rows_enter_no_mean():
    report = stats(
        [[0.3, 1.0, 4.0], [6.0, 11.0, 0.0], [NAN, 2.0, 0.8]],
        [[1.0, 1.27, 2.4], [1.0, 1.0, 1.0], [NAN, NAN, 1.0]],
        [[1.0, 1.0, 1.0], [1.0, 1.0, -INF], [NAN, 1.0, 1.0]],
    ).report()
    counts = (report.rows, report.below, report.inside, report.above, report.unchanged, report.dead, report.undefined)
    assert counts == (6, 2, 2, 2, 4, 1, 2)
    assert report.mean_entropy == pytest.approx((0.3 + 1 + 4 + 6 + 11 + 0.8) / 6)
    assert report.mean_beta == pytest.approx((4 + 1.27 + 2.4) / 6)
    assert str(report) == (
        "6 rows, mean entropy 3.850 nats, mean beta 1.278, beta exactly 1 in 4\n"
        "2 below, 2 inside, 2 above the range of the temperature rule, 0.849 to 5.945 nats\n"
        "not counted: 1 rows without live keys, 2 with NaN"
    )


def test_the_edges_of_the_range_are_inside():
    low, high = PAPER.range
    with np.errstate(all="ignore"):
        report = AttentionStats(*(np.array([low, high]),) * 4, PAPER.range).report()
    assert (report.below, report.inside, report.above) == (0, 2, 0)


def test_a_rule_without_a_range_has_nothing_outside():
    _, got = adaptive_temperature_softmax(jnp.zeros((3, 5)), temperature=constant(2.0), return_stats=True)
    assert got.report().inside == 3
    assert "no range" in str(got.report())


def test_no_rows_make_a_report_without_a_mean():
    report = stats([], [], []).report()
    assert isinstance(report, StatsReport) and report.rows == 0 and np.isnan(report.mean_entropy)


@pytest.mark.parametrize("transform", [jax.jit, jax.vmap, jax.grad], ids=["jit", "vmap", "grad"])
def test_traced_rows_are_refused_with_the_way_out(transform):
    def f(z):
        _, traced = adaptive_temperature_softmax(jnp.ones(3) * z, return_stats=True)
        traced.report()
        return z

    argument = jnp.ones(2) if transform is jax.vmap else 1.0
    with pytest.raises(TypeError, match="return the stats from the traced function and call report"):
        transform(f)(argument)
