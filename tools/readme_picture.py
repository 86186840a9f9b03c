"""Draws the README's picture from the stored Table 1 run: python -m tools.readme_picture [--check].

A picture file cannot follow the page it is shown on, so this one brings its own ground, and both sets of colours to
follow the reader's system.
"""

from __future__ import annotations

import argparse
import sys

import numpy as np

from adatemp import _palette, _svg, plotting, runtime
from adatemp.tasks import max_retrieval
from tools.project import ROOT

FILE = ROOT / "book" / "_static" / "readme.svg"
FONTS = 'system-ui,-apple-system,"Segoe UI",Roboto,"Helvetica Neue",Arial,sans-serif'


def draw() -> str:
    """The picture as a self-contained SVG document."""
    table = runtime.results("table1").data
    sizes, rows = np.array(table["sizes"]), table["rows"]
    soft, hard = (
        100 * np.mean([row["read_outs"][name]["accuracy"] for row in rows], axis=0) for name in ("plain", "argmax")
    )
    published = {n: plain for n, (plain, _) in max_retrieval.PUBLISHED.items()}
    fig, axes = plotting.figure(width=6.6, height=3.3)
    axes.fill_between(sizes, hard, 100, color=plotting.palette["muted"], alpha=0.14, linewidth=0)
    axes.fill_between(sizes, soft, hard, color=plotting.palette["plain"], alpha=0.16, linewidth=0)
    axes.plot(sizes, hard, label="ours, hard argmax", **plotting.role("argmax"))
    axes.plot(sizes, soft, label="ours, softmax", **plotting.role("plain"))
    axes.plot(list(published), list(published.values()), label="published, softmax", **plotting.role("published"))
    axes.text(5200, 82, "lost by ranking", ha="center")
    arrow = {"arrowstyle": "-", "color": plotting.palette["muted"]}
    axes.annotate("lost by dispersion", (512, (soft[5] + hard[5]) / 2), (18, 52), va="center", arrowprops=arrow)
    axes.set(xscale="log", ylim=(0, 101), xlabel="items n", ylabel="accuracy, %")
    axes.set_xticks(sizes[::2], [f"{n:,}" for n in sizes[::2]])
    axes.minorticks_off()
    axes.set_title(f"Find the maximum of n items: trained on up to 16, mean of {len(rows)} heads", fontsize=10.5)
    axes.legend(loc="lower left")
    drawing = _svg.render(fig)
    style = (
        f"svg{{{_palette.declarations('light')};fill:var(--adatemp-ink);font-family:{FONTS}}}"
        f"@media (prefers-color-scheme:dark){{svg{{{_palette.declarations('dark')}}}}}"
        "svg *{stroke-linejoin:round;stroke-linecap:butt}"
    )
    elements = "\n".join(_svg.number_ids(drawing.elements, "readme-"))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {drawing.width:g} {drawing.height:g}">\n'
        f'<style>{style}</style>\n<rect width="100%" height="100%" fill="var(--adatemp-ground)"/>\n{elements}\n</svg>\n'
    )


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--check", action="store_true", help="write nothing; fail when the picture is stale")
    check = parser.parse_args(arguments).check
    picture = draw()
    if FILE.exists() and FILE.read_text(encoding="utf-8") == picture:
        return 0
    if check:
        print(f"{FILE.relative_to(ROOT)}: stale; run `make chapters` and commit the result", file=sys.stderr)
        return 1
    FILE.write_text(picture, encoding="utf-8")
    print(f"drew {FILE.relative_to(ROOT)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
