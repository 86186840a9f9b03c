"""Three readings of the published optimiser, one seed each: what the main recipe was chosen from.

sizes, sets   as in table1
rows          as in table1, with "recipe", and "distance": mean absolute difference between the accuracy of plain
              softmax and the published row over the sizes of the published row, in points
"""

from __future__ import annotations

import numpy as np

from adatemp.tasks import max_retrieval
from tools.stored_results import table1

CELLS = max_retrieval.RECIPES
SECONDS = table1.SECONDS
DATA = ()


def run(cell: str) -> dict:
    """Train and measure one head by one recipe."""
    row = table1.measure(0, cell)
    ours = dict(zip(table1.SETS, row["read_outs"]["plain"]["accuracy"]))
    published = max_retrieval.PUBLISHED
    distance = np.mean([abs(100 * ours[n] - plain) for n, (plain, _) in published.items()])
    return {"recipe": cell, "distance": float(distance), **row}


def assemble(rows: list[dict]) -> dict:
    """The data of the result from its rows."""
    return {"sizes": list(table1.SETS), "sets": list(table1.SETS.values()), "rows": rows}
