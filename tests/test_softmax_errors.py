"""What adaptive_temperature_softmax and entropy refuse: at trace time, naming the argument and the way out."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import adatemp
from adatemp import RowState, adaptive_temperature_softmax, constant, entropy, exp_offset
from adatemp.temperature import RowStatistics

Z = np.zeros((2, 3), np.float32)
FUNCTIONS = [adaptive_temperature_softmax, entropy, RowState.from_block]


@pytest.mark.parametrize("function", FUNCTIONS, ids=["softmax", "entropy", "row state"])
@pytest.mark.parametrize(
    ("arguments", "error", "named"),
    [
        (([1.0, 2.0],), TypeError, r"logits must be an array, got list; wrap it in jnp\.asarray"),
        ((None,), TypeError, "logits must be an array, got NoneType"),
        ((Z.astype(np.int32),), TypeError, r"logits .* got int32; cast with logits\.astype\(jnp\.float32\)"),
        ((Z.astype(bool),), TypeError, "logits .* got bool"),
        ((Z.astype(np.complex64),), TypeError, "logits .* got complex64"),
        ((jnp.zeros(3, jnp.float8_e4m3fn),), TypeError, "logits .* got float8_e4m3fn"),
        ((Z, 2), ValueError, r"axis 2 does not exist in logits of shape \(2, 3\); use -2 to 1"),
        ((Z, -3), ValueError, "axis -3 does not exist"),
        ((Z, (0, 5)), ValueError, "axis 5 does not exist"),
        ((np.float32(1.0),), ValueError, "logits need at least one axis"),
        ((Z, (0, -2)), ValueError, "twice"),
        ((Z, ()), ValueError, "axis is empty"),
        ((Z, 1.0), TypeError, r"axis must be an integer, a tuple of integers or None, got 1\.0"),
        ((Z[:, :0],), ValueError, r"axis -1 of logits of shape \(2, 0\) has no keys"),
        ((Z, -1, np.ones(3)), TypeError, r"where must be boolean.*got float.*mask\.astype\(bool\)"),
        ((Z, -1, np.ones(2, bool)), ValueError, r"where of shape \(2,\) does not broadcast .* \(2, 3\)"),
        ((Z, -1, np.ones((4, 2, 3), bool)), ValueError, r"where of shape \(4, 2, 3\) does not broadcast"),
    ],
)
def test_bad_rows_are_refused(function, arguments, error, named):
    with pytest.raises(error, match=named):
        function(*arguments)
    if arguments[0] is not None and not isinstance(arguments[0], list):
        with pytest.raises(error, match=named):
            jax.eval_shape(lambda z: function(z, *arguments[1:]), arguments[0])  # nothing is computed


def test_no_rows_is_no_error():
    weights, stats = adaptive_temperature_softmax(np.zeros((0, 3), np.float32), return_stats=True)
    assert weights.shape == (0, 3) and stats.entropy.shape == (0,)


@pytest.mark.parametrize("number", [0.5, 2, True, np.float32(2.0), np.array(2.0), jnp.array([2.0])])
def test_a_bare_number_is_not_a_temperature(number):
    with pytest.raises(TypeError, match=r"inverse temperature.*write temperature=constant\(beta=\.\.\.\)"):
        adaptive_temperature_softmax(Z, temperature=number)


@pytest.mark.parametrize(
    ("thing", "named"),
    [
        (exp_offset, r"got <function exp_offset.*call it: exp_offset\(\.\.\.\)"),
        ("paper", "a rule from adatemp.temperature, such as PAPER"),
        (type(adatemp.PAPER), r"call it: Polynomial\(\.\.\.\)"),
    ],
)
def test_what_is_not_a_rule_is_refused(thing, named):
    with pytest.raises(TypeError, match=named):
        adaptive_temperature_softmax(Z, temperature=thing)


def test_a_rule_that_needs_what_rows_do_not_have_is_refused():
    @jax.tree_util.register_static
    class Curious:
        needs = frozenset({"entropy", "kurtosis"})
        differentiate = True
        range = None

        def beta(self, stats: RowStatistics):
            return stats.entropy

    with pytest.raises(ValueError, match=r"Curious needs \['kurtosis'\]"):
        adaptive_temperature_softmax(Z, temperature=Curious())


def test_a_rule_that_jax_cannot_see_into_is_refused():
    class Opaque:
        needs = frozenset()
        differentiate = True
        range = None

        def beta(self, stats: RowStatistics):
            return 1.0

    with pytest.raises(TypeError, match="Opaque is not a pytree; decorate it with"):
        adaptive_temperature_softmax(Z, temperature=Opaque())


@pytest.mark.parametrize("shape", [(3,), (2, 3), (1, 1, 2)])
def test_a_parameter_that_does_not_fit_the_rows_is_refused(shape):
    with pytest.raises(ValueError, match=r"temperature: the rule gives beta of shape .* rows' shape \(2,\)"):
        adaptive_temperature_softmax(Z, temperature=constant(np.ones(shape) + 1))


def test_the_rest_is_keyword_only_as_in_the_documentation():
    with pytest.raises(TypeError, match="positional"):
        adaptive_temperature_softmax(Z, -1, None, adatemp.PAPER)
