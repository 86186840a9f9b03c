"""Stubs, told as what they are where one of the reader's functions feeds another."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any


def written(function: Callable[..., Any]) -> Callable[..., Any]:
    """The reader's function, which raises NotImplementedError where it would return None or `...`.

    `examine` recognises a stub by that exception. Without it, a None that is handed on raises whatever the next
    function makes of it.
    """

    @functools.wraps(function)
    def call(*args: Any, **options: Any) -> Any:
        answer = function(*args, **options)
        if answer is None or answer is Ellipsis:
            raise NotImplementedError
        return answer

    return call
