# In Colab this installs adatemp and moves no package that is already there. Elsewhere it installs nothing and reports.
import importlib.metadata
import importlib.util
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import urllib.request
import zipfile

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # read once, when jax is imported

ARCHIVE = "__ARCHIVE__"
TESTED_ON = "__TESTED_ON__"
TESTED = {"python": "__PYTHON__", "jax": "__JAX__", "flax": "__FLAX__", "numpy": "__NUMPY__"}
SOURCE = os.environ.get("ADATEMP_SOURCE", ARCHIVE)  # an archive's address, or a folder that holds the repository
HOSTED = "COLAB_RELEASE_TAG" in os.environ or "ADATEMP_SOURCE" in os.environ


def installed_versions():
    found = {d.metadata["Name"]: d.version for d in importlib.metadata.distributions() if d.metadata["Name"]}
    return {name: version for name, version in found.items() if name != "adatemp" and re.match(r"\d[\w.+!]*$", version)}


def repository():
    """The folder that holds the library and the stored results, fetched once for each runtime."""
    if os.path.isdir(SOURCE):
        return pathlib.Path(SOURCE)
    folder = pathlib.Path(tempfile.gettempdir()) / re.sub(r"\W+", "-", SOURCE)
    if not folder.exists():
        try:
            archive, _ = urllib.request.urlretrieve(SOURCE)
        except OSError as error:
            raise RuntimeError(
                f"Cannot fetch {SOURCE} ({error}). Check the connection, run this cell again."
            ) from error
        half = folder.with_suffix(".part")
        with zipfile.ZipFile(archive) as content:
            content.extractall(half)
        half.rename(folder)
    return next(folder.iterdir())


def install(folder):
    """Installs adatemp with every installed version as a constraint, and makes sure that none of them moved."""
    before = installed_versions()
    constraints = pathlib.Path(tempfile.gettempdir()) / "adatemp-constraints.txt"
    constraints.write_text("".join(f"{name}=={version}\n" for name, version in before.items()))
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--constraint", str(constraints), str(folder)]
    result = subprocess.run(command, capture_output=True, text=True)
    if result.returncode:
        raise RuntimeError(f"adatemp does not fit this runtime. The last tested one: {TESTED_ON}.\n{result.stderr}")
    importlib.invalidate_caches()
    after = installed_versions()
    moved = [f"{name} {version} -> {after.get(name)}" for name, version in before.items() if after.get(name) != version]
    if moved:
        raise RuntimeError("The installation moved " + ", ".join(moved) + ". Restart the runtime before going on.")


def report():
    """Prints versions, device and expected time; warns of a runtime newer than the tested one; no GPU is no error."""
    import jax

    here = {"python": ".".join(map(str, sys.version_info[:2]))}
    here |= {name: importlib.metadata.version(name) for name in ("jax", "flax", "numpy")}
    versions = ", ".join(f"{name} {version}" for name, version in here.items())
    print(f"adatemp {importlib.metadata.version('adatemp')}, {versions}")
    print(f"Device: {jax.devices()[0].device_kind}. Expected time: __EXPECTED__.")

    def numbers(version):
        return [int(part) for part in re.findall(r"\d+", version)[:3]]

    newer = [name for name, version in here.items() if numbers(version) > numbers(TESTED[name])]
    if HOSTED and newer:
        print(f"This runtime has a newer {', '.join(newer)} than the last tested one: {TESTED_ON}.")
        print("If a cell fails, choose an older one: Runtime > Change runtime type > Runtime version.")
    if jax.default_backend() == "cpu":
        print("No GPU here, and none is needed: every cell also runs on the CPU.")
        if HOSTED:
            print("To turn one on: Runtime > Change runtime type > T4 GPU, then run all cells again.")


if HOSTED:
    if importlib.util.find_spec("adatemp") is None:
        install(repository())
    os.environ.setdefault("ADATEMP_RESULTS", str(repository() / "book" / "results"))
elif importlib.util.find_spec("adatemp") is None:
    raise ModuleNotFoundError(f"adatemp is not installed here. Run: pip install {ARCHIVE}")
report()
