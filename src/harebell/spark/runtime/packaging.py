"""Makes the file that `spark-submit --py-files` takes: this package as pure Python, in one zip.

Rules: what is in the zip is what is installed here, Python sources and data files, without compiled parts (an executor
has another machine, maybe another Python) and caches; the same sources give the same bytes. No third-party package is
put in: PySpark comes with Spark, and pyarrow must be in the Python of the executors.

Why PYTHONPATH beside --py-files: --py-files reaches executors and the driver's own interpreter, but neither the process
that looks for data sources nor the one that plans a streaming query, which the driver's JVM starts by itself.
"""

from __future__ import annotations

import importlib.util
import shlex
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from harebell import __version__
from harebell.errors import InvalidArgument, MissingDependency
from harebell.synced_files import make_folder, replacing

__all__ = ["package", "submit_line"]

PACKAGES: Final = ("harebell", "pyspark_harebell")
# Compiled parts stand beside the sources they were made from; the sources are what travels.
LEFT_OUT: Final = frozenset((".so", ".pyd", ".dylib", ".pyc", ".pyo"))
_TIME: Final = (1980, 1, 1, 0, 0, 0)  # the earliest that a zip can say


def package(folder: Path) -> Path:
    """Writes harebell-VERSION.zip into the folder, which is made if need be, and returns its path.

    A file of that name is replaced in one step, also where several programs do so at a time. Raises MissingDependency
    when the sources are not there (an installation without .py files), InvalidArgument when the folder cannot be
    written.
    """
    files = dict(_files())
    if "harebell/spark/source.py" not in files or "pyspark_harebell/__init__.py" not in files:
        raise MissingDependency("the Python sources of harebell are not installed here, so they cannot be packaged")
    target = folder / f"harebell-{__version__}.zip"
    try:
        make_folder(folder)
        with replacing(target) as file, zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
            for name in sorted(files):
                archive.writestr(zipfile.ZipInfo(name, _TIME), files[name].read_bytes(), zipfile.ZIP_DEFLATED)
    except OSError as error:
        raise InvalidArgument(f"{target} cannot be written: {error.strerror}") from error
    return target.resolve()


def submit_line(zipped: Path, master: str, job: str) -> str:
    """The command that runs the program `job` on the cluster `master`, driver on this machine, with this package."""
    path = shlex.quote(str(zipped))
    return f"PYTHONPATH={path} spark-submit --master {shlex.quote(master)} --py-files {path} {shlex.quote(job)}"


def _files() -> Iterator[tuple[str, Path]]:
    """(name in the zip, file) of everything that travels."""
    for name in PACKAGES:
        spec = importlib.util.find_spec(name)
        for folder in (spec.submodule_search_locations or ()) if spec is not None else ():
            root = Path(folder)
            for path in root.rglob("*"):
                if path.is_file() and path.suffix not in LEFT_OUT and "__pycache__" not in path.parts:
                    yield f"{name}/{path.relative_to(root).as_posix()}", path
