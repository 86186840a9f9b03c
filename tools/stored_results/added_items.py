"""The trained head on sets that grow without changing their answer, by four kinds of added items.

sizes, sets   set sizes n (the first is the core alone) and number of random sets at each
kinds         what is added, in words
rows          one for each kind: kind, and for every size a number in each of ranking_accuracy, entropy, spread,
              target_weight and in read_outs, as in table1
"""

from __future__ import annotations

import jax

from adatemp.models import set_pooling
from adatemp.tasks import added_items, max_retrieval
from tools.stored_results import head

CELLS = tuple(added_items.KINDS)
SECONDS = 30
DATA = (head.FILE,)

SETS = {16: 4096, 32: 4096, 64: 4096, 128: 4096, 256: 4096, 512: 2048, 1024: 1024, 2048: 512, 4096: 512, 8192: 512}
SETS |= {16384: 512}


def run(cell: str) -> dict:
    """Measure the stored head on sets grown by one kind of item."""
    trained = set_pooling.load_head(head.FILE)
    # The same key for every kind: at each size all kinds grow around the same cores.
    columns = max_retrieval.evaluate_sizes(trained, jax.random.key(2), SETS, draw=added_items.drawer(cell))
    del columns["n"], columns["sets"]  # said once for the whole table
    return {"kind": cell, **columns}


def assemble(rows: list[dict]) -> dict:
    """The data of the result from its rows."""
    return {"sizes": list(SETS), "sets": list(SETS.values()), "kinds": dict(added_items.KINDS), "rows": rows}
