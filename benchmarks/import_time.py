"""What `import adatemp` costs beyond `import jax`: the bar is 0.15 s, without Flax and without Matplotlib.

Run: python benchmarks/import_time.py
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys

BAR_SECONDS = 0.15
REPEATS = 7
FORBIDDEN = ("flax", "optax", "matplotlib", "ipywidgets")

# In an interpreter of its own: what is timed is the first import, with the files in the system's cache.
PROGRAM = """
import json, sys, time
start = time.perf_counter(); import jax
after_jax = time.perf_counter(); import adatemp
after_package = time.perf_counter(); adatemp.adaptive_temperature_softmax
after_softmax = time.perf_counter()
loaded = [name for name in {forbidden!r} if name in sys.modules]
print(json.dumps([after_jax - start, after_package - after_jax, after_softmax - after_package, loaded]))
"""


def measure() -> tuple[float, float, float, list[str]]:
    """Seconds for jax, for adatemp after it, for its softmax after that; and which forbidden modules are loaded."""
    program = PROGRAM.format(forbidden=FORBIDDEN)
    output = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    return tuple(json.loads(output))


def main() -> int:
    measure()  # writes the bytecode
    runs = [measure() for _ in range(REPEATS)]
    jax_, package, softmax = (statistics.median(run[i] for run in runs) for i in range(3))
    loaded = sorted({name for run in runs for name in run[3]})
    print(f"import jax                            {jax_:7.3f} s")
    print(f"import adatemp, after it              {package:7.3f} s   bar {BAR_SECONDS} s")
    print(f"its softmax, on first use             {softmax:7.3f} s")
    print(f"of {', '.join(FORBIDDEN)} it loads: {', '.join(loaded) or 'none'}")
    within = package + softmax < BAR_SECONDS and not loaded
    print("within the bar" if within else "OVER THE BAR")
    return 0 if within else 1


if __name__ == "__main__":
    sys.exit(main())
