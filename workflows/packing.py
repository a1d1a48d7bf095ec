"""``eigensweep pack`` and ``eigensweep export``: one file, or one compact cube, out of studies."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from eigensweep.workflows import console
from eigensweep.workflows.verifying import counted


def pack(studies: Sequence[Path], output: Path, check: bool, as_json: bool) -> None:
    """Pack studies and say what came of it."""
    from eigensweep.pipeline.pack import pack as pack_studies

    with counted("pack") as watch:
        packed = pack_studies(studies, output, check=check, watch=watch)
    if as_json:
        console.print_json(asdict(packed))
        return
    print(f"{output}: {packed.columns} columns in {packed.files} files, {console.size(packed.bytes)}")
    if packed.shared:
        rest = f", {packed.rounded} to 1e-10: the first study's are kept" if packed.rounded else ""
        exact = packed.shared - packed.rounded
        print(f"  {packed.shared} were in several studies: {exact} equal bit for bit{rest}")
    print(f"  open_cube({str(output)!r}) in Python, or xarray.open_zarr")


def export(study: Path, file: Path, as_json: bool) -> None:
    """Export a cube and say how much it was."""
    from eigensweep.pipeline.export import export as export_cube

    exported = export_cube(study, file)
    if as_json:
        console.print_json(asdict(exported))
        return
    what = "cells" if file.suffix == ".nc" else "rows"
    print(f"{file}: {exported.rows} {what}, {console.size(exported.bytes)}")
