"""What `make results` computes: one module a result, each with its cells, its layout and its estimate.

A module has CELLS (names of the parts that are computed and kept one by one), SECONDS (estimate for one cell on two
idle cores), run(cell) to a part that JSON can hold, assemble(parts in the order of CELLS) to the result's data, and
DATA (files read besides code). Its docstring is the description of the data.
"""
