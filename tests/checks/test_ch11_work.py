"""Exercise 11.4: the right count passes, the oracle agrees with a count by hand, and planted mistakes are named."""

from __future__ import annotations

import pytest

from adatemp.checks import ch11
from adatemp.checks.ch11 import _work_programs

PRODUCTS = {(False, False): 2, (True, False): 3, (False, True): 7, (True, True): 8}
EXPONENTIALS = {(False, False): 1, (True, False): 2, (False, True): 2, (True, True): 4}
ROW_NUMBERS = {(False, False): 1, (True, False): 4, (False, True): 2, (True, True): 6}


def unwritten(*_, **__):
    raise NotImplementedError


def counting(
    products=PRODUCTS,
    exponentials=EXPONENTIALS,
    unit=2,
    pairs=lambda n, causal, what: n * (n + 1) // 2 if causal else n * n,
    traffic=lambda n, width, mode, causal: (8 if mode[1] else 4) * 2 * n * width + 4 * ROW_NUMBERS[mode] * n,
):
    def work(n, width, *, adaptive, causal, backward):
        mode = adaptive, backward
        return (
            unit * products[mode] * pairs(n, causal, "operations") * width,
            exponentials[mode] * pairs(n, causal, "exponentials"),
            traffic(n, width, mode, causal),
        )

    return work


work = counting()


def speed_with(loop=max, memory=True):
    def relative_speed(gpu, n, width):
        product, exponential = 2 * n * n * width / gpu["operations"], n * n / gpu["exponentials"]
        plain = loop(2 * product, exponential)
        times = plain, loop(product, exponential) + plain
        if memory:
            moved = [work(n, width, adaptive=kind, causal=False, backward=False)[2] for kind in (False, True)]
            times = [max(time, bytes_ / gpu["bandwidth"]) for time, bytes_ in zip(times, moved)]
        return times[0] / times[1]

    return relative_speed


relative_speed = speed_with()


def one_roof(gpu, n, width):
    product, exponential = 2 * n * n * width / gpu["operations"], n * n / gpu["exponentials"]
    return max(2 * product, exponential) / max(3 * product, 2 * exponential)


def test_the_right_answer_passes():
    assert ch11.ex4(work, relative_speed).require()


def test_half_of_all_pairs_is_near_enough_for_a_causal_mask():
    assert ch11.ex4(counting(pairs=lambda n, causal, what: n * n / (1 + causal)), relative_speed).require()


@pytest.mark.parametrize("mode", list(PRODUCTS))
def test_the_programs_that_are_counted_do_the_products_and_exponentials_of_the_kernels(mode):
    assert _work_programs.counted(*mode) == (PRODUCTS[mode], EXPONENTIALS[mode])


def extra(of_pairs):
    def traffic(n, width, mode, causal):
        return work(n, width, adaptive=mode[0], causal=causal, backward=mode[1])[2] + of_pairs(n, width)

    return traffic


def halved(*kinds):
    return lambda n, causal, what: n * (n + 1) / 2 if causal and what in kinds else n * n


def arrays_only(n, width, mode, causal):
    return (8 if mode[1] else 4) * 2 * n * width


@pytest.mark.parametrize(
    ("answer", "mistake"),
    [
        (unwritten, "not written yet"),
        (lambda *_, **__: None, "not written yet"),
        (lambda *args, **options: work(*args, **options)[:2], "wrong shape"),
        (counting(unit=1), "multiply-adds for operations"),
        (counting(products=PRODUCTS | {(True, False): 2}), "the second sweep is not counted"),
        (counting(products=PRODUCTS | {(True, False): 4}), "a second sweep with its values"),
        (counting(exponentials=dict.fromkeys(PRODUCTS, 0)), "exponentials are free"),
        (
            counting(exponentials=EXPONENTIALS | {(True, False): 1}),
            "the first loop's exponentials are not counted",
        ),
        (counting(traffic=extra(lambda n, width: 4 * n * n * width // 64)), "keys read again, charged to the memory"),
        (counting(traffic=extra(lambda n, width: 8 * n * n)), "the logits are written out"),
        (
            counting(traffic=lambda n, width, mode, causal: arrays_only(n, width, mode, causal)
                     + 2 * ROW_NUMBERS[mode] * n),
            "two bytes for four",
        ),
        (counting(traffic=arrays_only), "the numbers a row are left out"),
        (counting(products=PRODUCTS | {(False, True): 5, (True, True): 6}), "a backward pass in one kernel"),
        (counting(products=PRODUCTS | {(False, True): 5, (True, True): 7}), "a backward pass in one kernel"),
        (
            counting(products=PRODUCTS | {(True, True): 7}),
            "the gradient through the entropy costs no product",
        ),
        (counting(products=PRODUCTS | {(False, True): 4, (True, True): 6}), "twice the forward pass"),
        (
            counting(exponentials=EXPONENTIALS | {(False, True): 1, (True, True): 2}),
            "exponentials are counted for one kernel",
        ),
        (counting(pairs=halved()), "the causal mask is ignored"),
        (counting(pairs=halved("operations")), "half for the operations only"),
        (counting(pairs=halved("exponentials")), "half for the exponentials only"),
        (
            counting(traffic=lambda n, width, mode, causal: extra(lambda *_: 0)(n, width, mode, causal) / (1 + causal)),
            "half of the bytes",
        ),
    ],
)  # fmt: skip
def test_mistakes_in_the_work_are_named(answer, mistake):
    assert ch11.ex4(answer, relative_speed).mistake == mistake


@pytest.mark.parametrize(
    ("answer", "mistake"),
    [
        (unwritten, "not written yet"),
        (lambda *args: 1 / relative_speed(*args), "speeds turned round"),
        (speed_with(loop=lambda product, exponential: product), "exponentials are free"),
        (lambda gpu, n, width: 2 / 3, "exponentials are free"),
        (one_roof, "one roof over both loops"),
        (speed_with(loop=lambda product, exponential: product + exponential), "work added up where it overlaps"),
        (speed_with(memory=False), "the memory is forgotten"),
    ],
)
def test_mistakes_in_the_relative_speed_are_named(answer, mistake):
    assert ch11.ex4(work, answer).mistake == mistake


def test_the_picture_is_drawn():
    assert "<svg" in ch11.ex4(work, relative_speed)._repr_html_()
