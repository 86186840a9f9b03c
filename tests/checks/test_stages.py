"""Stages: what is recognised in any exercise, and in which order."""

from __future__ import annotations

import warnings

import jax.numpy as jnp
import numpy as np
import pytest

from adatemp.checks import Mistake, NotApplicable, Stage, examine

ROW = np.array([[1.0, 2.0, 4.0], [0.5, 0.0, -1.0]])
DOUBLE = Stage(
    "doubles its input",
    lambda f: f(ROW),
    given="an array of shape (2, 3)",
    expected=2.0 * ROW,
    look="Try it on one number.",
    mistakes=(Mistake("squared", "It squares.", "2² is 2 · 2.", "Try 3.", seen=ROW**2),),
)


def _report(student, *stages: Stage):
    return examine(student, "00.0 Doubling", "double(x)", stages or (DOUBLE,))


@pytest.mark.parametrize("double", [lambda x: 2 * x, lambda x: jnp.add(x, x), lambda x: (2 * x).tolist()])
def test_right_answers_pass_in_numpy_jax_and_lists(double):
    assert _report(double).passed


def _not_implemented(x):
    raise NotImplementedError("your code here")


@pytest.mark.parametrize(
    "stub",
    [_not_implemented, lambda x: None, lambda x: ..., lambda x: (x, None)],
    ids=["NotImplementedError", "None", "Ellipsis", "None in a tuple"],
)
def test_stubs_are_recognised(stub):
    assert _report(stub).mistake == "not written yet"


@pytest.mark.parametrize(
    ("answer", "name"),
    [
        (lambda x: x**2, "squared"),
        (lambda x: (2 * x)[0], "wrong shape"),
        (lambda x: np.where(x > 3, np.nan, 2 * x), "NaN"),
        (lambda x: "twice", "not an array"),
        (lambda x: 2 * x + 1, "not recognised"),
        (lambda x: np.where(x > 3, np.inf, 2 * x), "not recognised"),
    ],
    ids=["named", "shape", "NaN", "text", "other", "infinite"],
)
def test_wrong_answers_are_told_apart(answer, name):
    assert _report(answer).mistake == name


def test_bits_are_recognised_where_nats_are_asked():
    entropy = np.array([0.3, 1.7])
    stage = Stage("entropy", lambda f: f(), given="two rows", expected=entropy, look="", nats=True)
    assert _report(lambda: entropy / np.log(2), stage).mistake == "bits for nats"
    assert _report(lambda: entropy / np.log(10), stage).mistake == "not recognised"


def test_dtype_is_asked_for_only_where_it_matters():
    stage = Stage("half", lambda f: f(ROW), given="x", expected=2 * ROW, look="", dtype=np.float16)
    assert _report(lambda x: np.asarray(2 * x, np.float16), stage).passed
    assert _report(lambda x: 2 * x, stage).mistake == "wrong dtype"
    assert _report(lambda x: jnp.asarray(2 * x, jnp.bfloat16)).passed  # these numbers are exact in bfloat16


def test_largest_error_is_located():
    def off(x):
        answer = 2 * x
        answer[1, 2] += 0.25
        return answer

    assert "off by 0.25 at index (1, 2), where it is -1.75" in _report(off).message


def _faulty(x):
    scale = {}
    return x * scale["two"]


def test_exceptions_are_reported_with_type_message_input_line_and_signature():
    report = _report(_faulty)
    assert report.mistake == "raised an exception"
    for words in ("KeyError", "two", "an array of shape (2, 3)", 'return x * scale["two"]', "`double(x)`"):
        assert words in report.message
    assert "test_stages.py" not in report.message  # a file's path is no help and differs between machines


def test_wrong_number_of_arguments_shows_the_signature():
    assert "`double(x)`" in _report(lambda: 0).message


def test_a_value_in_place_of_the_function_is_recognised():
    assert _report(2 * ROW).mistake == "not a function"


def test_interrupt_reaches_the_reader():
    def slow(x):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        _report(slow)


def test_stages_after_the_first_failure_are_not_run():
    def never(f):
        raise AssertionError("a later stage ran")

    later = Stage("later", never, given="nothing", expected=0.0, look="")
    report = _report(lambda x: x, DOUBLE, later)
    assert [f.outcome for f in report.findings] == ["failed", "not reached"]


def test_a_stage_without_meaning_is_left_out_and_does_not_fail():
    def gradient(f):
        raise NotApplicable("no gradient in NumPy")

    report = _report(lambda x: 2 * x, DOUBLE, Stage("gradient", gradient, given="x", expected=0.0, look=""))
    assert report.passed and "1 of 2" in report.message
    assert [f.outcome for f in report.findings] == ["passed", "left out"]


def test_the_first_mistake_that_fits_is_named_and_one_that_cannot_digest_the_answer_does_not_fit():
    mistakes = (
        Mistake("undigested", "w", "y", "l", seen=lambda answer: answer[99]),
        Mistake("first", "w", "y", "l", seen=lambda answer: True),
        Mistake("second", "w", "y", "l", seen=lambda answer: True),
    )
    stage = Stage("s", lambda f: f(ROW), given="x", expected=ROW, look="", mistakes=mistakes)
    assert _report(lambda x: x + 1, stage).mistake == "first"


def test_a_mistake_can_be_recognised_from_an_exception():
    shape = Mistake("broadcast", "w", "y", "l", seen=lambda answer: isinstance(answer, ValueError))
    stage = Stage("s", lambda f: f(ROW), given="x", expected=ROW, look="", mistakes=(shape,))
    assert _report(lambda x: x + np.ones(4), stage).mistake == "broadcast"


def test_numpy_warnings_of_wrong_functions_are_not_repeated():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert _report(lambda x: np.log(-np.abs(x)) / 0.0).mistake == "NaN"


def test_predicates_replace_arrays_where_right_answers_are_not_one():
    stage = Stage("positive", lambda f: f(), given="nothing", accept=lambda x: x > 0, look="Look at the sign.")
    assert _report(lambda: 3.0, stage).passed
    assert _report(lambda: -3.0, stage).mistake == "does not hold"
