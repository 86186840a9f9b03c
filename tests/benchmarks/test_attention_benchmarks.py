"""The benchmarks of attention: what their formulas count, what their checks catch, and that the GPU script runs."""

from __future__ import annotations

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from benchmarks import _attention_checks as checks
from benchmarks import attention
from benchmarks._attention_timing import Sizes, loop, useful_operations


def test_useful_operations_are_those_of_the_products_xla_counts():
    sizes = Sizes(B=2, n=64, N=3, d=32, causal=False)
    logits, weighted = jnp.zeros((6, 64, 32)), jnp.zeros((6, 64, 64))

    def operations(f, *arguments):
        return jax.jit(f).lower(*arguments).compile().cost_analysis()["flops"]

    forward = operations(lambda a, b: jnp.einsum("bth,bsh->bts", a, b), logits, logits)
    forward += operations(lambda a, b: jnp.einsum("bts,bsh->bth", a, b), weighted, logits)
    assert useful_operations(sizes, "forward") == pytest.approx(forward, rel=0.02)
    # With the gradient: the logits once more, and for each of the two products one for either side.
    assert useful_operations(sizes, "forward and gradient") == pytest.approx(3.5 * forward, rel=0.02)
    assert useful_operations(sizes._replace(causal=True), "forward") == useful_operations(sizes, "forward") / 2


@pytest.mark.parametrize("which", ["forward", "forward and gradient"])
def test_a_timed_loop_does_every_call_and_each_needs_the_last(which):
    calls, arrays = [], tuple(jnp.full((1, 2, 1, 2), x) for x in (1.0, 2.0, 3.0))

    def attend(query, key, value):
        jax.debug.callback(lambda q: calls.append(float(q[0, 0, 0, 0])), query)
        return query + key + value

    jax.block_until_ready(loop(attend, which, 3)(arrays, jnp.ones((1, 2, 1, 2)), jnp.float32(1.0)))
    jax.effects_barrier()
    assert len(calls) == 3 and len(set(calls)) == 3


def test_a_check_that_finds_too_much_or_nan_fails_in_words():
    assert checks.failures({"a": (1e-6, 1e-5), "b": (0.0, 0)}) == []
    found = checks.failures({"entropy": (2e-4, 2e-5), "output": (np.nan, 1e-2)})
    assert found == ["entropy: 0.0002, allowed 2e-05", "output: nan, allowed 0.01"]


def test_a_row_of_a_short_problem_is_checked_against_something_else(monkeypatch):
    monkeypatch.setattr(checks, "PAPER_COEFFICIENTS", (-0.037, 0.481, -2.3, 4.917, -1.7))
    wrong = checks.failures(checks.long_rows("bfloat16", 64, 16, tiny=True))
    assert any(what.startswith("beta") for what in wrong)


def test_bars_take_the_backward_pass_as_the_difference_of_two():
    def row(program, which, ms):
        return {"program": program, "pass": which, "n": 8192, "d": 128, "causal": False, "tiles": None, "ms": ms}

    rows = [row("plain", "forward", 6.0), row("adaptive", "forward", 9.0)]
    rows += [row("plain", "forward and gradient", 22.0), row("adaptive", "forward and gradient", 34.0)]
    rows += [row("plain", "forward", 1.0) | {"tiles": [64, 64, 4, 2]}]
    forward, backward = attention.bars(rows)
    assert (forward["pass"], forward["speed_against_plain"], forward["met"]) == ("forward", 6 / 9, True)
    assert (backward["pass"], backward["speed_against_plain"], backward["met"]) == ("backward", 16 / 25, False)


def test_the_dry_run_measures_and_stores_a_result(tmp_path, capsys):
    out = tmp_path / "attention_gpu.json"
    assert attention.main(["--dry-run", "--out", str(out)]) == 0
    printed = capsys.readouterr().out
    assert "right, worst" in printed and f"wrote {out}" in printed
    stored = json.loads(out.read_text("utf-8"))
    assert {"command", "commit", "device", "date", "versions", "seconds"} == set(stored["provenance"])
    data = stored["data"]
    programs = {(row["program"], row["pass"]) for row in data["rows"]}
    assert {("plain", "forward"), ("adaptive", "forward"), ("entropy only", "forward")} <= programs
    assert {("plain", "forward and gradient"), ("adaptive", "forward and gradient")} <= programs
    assert all(row["ms"] > 0 and row["tflops"] > 0 for row in data["rows"])
    assert data["bars"] and not data["left_out"]


def test_without_a_gpu_it_says_so_and_measures_nothing(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(attention, "measure", lambda *_: pytest.fail("measured"))
    if jax.default_backend() == "gpu":
        pytest.skip("there is a GPU")
    assert attention.main(["--out", str(tmp_path / "none.json")]) == 0
    assert "--dry-run" in capsys.readouterr().out and not list(tmp_path.iterdir())
