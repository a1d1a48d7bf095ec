"""Packing studies for archiving: one compact, sharded, sorted cube, equal in every value."""

from __future__ import annotations

import math
import os
import shutil
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import zarr
from zarr.codecs import BloscCodec, Crc32cCodec
from zarr.storage import LocalStore

from eigensweep.pipeline import provenance
from eigensweep.pipeline.blocks import Layout
from eigensweep.pipeline.cube import FORMAT, Plan
from eigensweep.pipeline.ensemble import Level
from eigensweep.pipeline.errors import Fault, InputError, StudyError
from eigensweep.pipeline.joining import CHECK, Joiner, Source, Tally
from eigensweep.pipeline.kernel import Recipe
from eigensweep.pipeline.recovery import axis_values, true_layout
from eigensweep.pipeline.schema import Variable, level_variables
from eigensweep.pipeline.stored import PACKED, open_stored
from eigensweep.pipeline.study import INPUTS, joined_ensemble
from eigensweep.pipeline.sweep import Sweep
from eigensweep.pipeline.tiling import fit, pieces
from eigensweep.pipeline.verify import verify

SHARD = 1 << 26
"""Bytes of a level, all its arrays together, that are in memory at a time and share their shards."""
CHUNK = 1 << 20
"""Bytes of a chunk within a shard: what a reader of one cell decodes."""

Watch = Callable[[int, int], None]
"""Told how many columns are behind and how many there are."""


@dataclass(frozen=True)
class Packed:
    """What was packed.

    Parameters
    ----------
    path : Path
        The packed cube.
    columns : int
        Columns that are done.
    shared : int
        Columns that several studies held.
    rounded : int
        Of these, how many agreed to 1e-10 and not bit for bit; the first study's are kept.
    files, bytes : int
        What it takes on disk.
    """

    path: Path
    columns: int
    shared: int
    rounded: int
    files: int
    bytes: int


def pack(
    studies: Sequence[str | Path], out: str | Path, *, check: bool = True, watch: Watch | None = None
) -> Packed:
    """Make one compact cube of a study, or of several of one sweep that were run in different places.

    Parameters
    ----------
    studies : sequence of str or Path
        Studies or packed cubes that agree in seed, model and record. Their grids are joined.
    out : str or Path
        The packed cube, which must not exist.
    check : bool
        Whether the result is verified before it is put in its place.
    watch : callable, optional
        Told how many columns are behind and how many there are.

    Returns
    -------
    Packed
        What was packed.

    Raises
    ------
    InputError
        If the studies contradict each other, differ in a column that several hold, or the output exists.
    StudyError
        If a study is damaged.

    Notes
    -----
    Every axis ascends. Arrays are cut into shards; within a shard, a chunk holds one grid point. Each has
    its checksum. Columns that are not done hold nothing. A column that is done lacks no signal strength:
    those that a study had not filled yet are derived from its spectral column. Where no spectral columns
    are kept, such a column is refused, and the digests are those of the sorted pairs.

    It is built beside its place and renamed into it once all of it is on disk. The memory that it takes
    does not grow with the studies.
    """
    target = Path(out)
    _refuse_existing(target)
    sources = [_source(path) for path in studies]
    _refuse_contradictions(sources)
    tally = Tally()
    with _beside(target) as temporary:
        plan = _joined_plan(sources, temporary / INPUTS)
        _write(temporary, plan, sources, tally, watch or (lambda done, total: None))
        if check:
            _check(temporary)
        _flush(temporary)
        files = [path for path in temporary.rglob("*") if path.is_file()]
        size = sum(path.stat().st_size for path in files)
    return Packed(target, tally.columns, tally.shared, tally.rounded, len(files), size)


def _refuse_existing(target: Path) -> None:
    if target.exists():
        raise InputError(Fault("--output", str(target), "it exists already", "name another, or remove it"))
    if not target.absolute().parent.is_dir():
        reason = f"there is no folder {target.absolute().parent}"
        raise InputError(Fault("--output", str(target), reason, "make it first"))


def _source(study: str | Path) -> Source:
    stored = open_stored(study)
    layout = true_layout(stored)
    expected = {**layout.axes, layout.signal: layout.signal_values}
    for name, values in expected.items():
        if axis_values(stored, name) != values:
            raise StudyError(f"{study}: the coordinate {name} is damaged; {CHECK}")
    return Source(stored, layout)


def _refuse_contradictions(sources: Sequence[Source]) -> None:
    """Refuse sources that are not of one sweep."""
    if not sources:
        raise InputError(Fault("STUDY", "", "none is named", "name one or more"))
    first = sources[0]
    faults = []
    for other in sources[1:]:
        remedy = f"pack {other.name} apart"
        for fault in other.stored.sweep.contradictions(first.stored.sweep):
            reason = fault.reason.replace("the study has", f"{first.name} has", 1)
            faults.append(Fault(f"{other.name}: {fault.thing}", fault.value, reason, remedy))
    known: dict[str, tuple[str, str]] = {}
    for source in sources:
        for sweep in source.stored.sweeps:
            for name, digest in sweep.inputs.items():
                held, owner = known.setdefault(name, (digest, source.name))
                if held != digest:
                    reason = f"{owner} has another file of that name"
                    faults.append(
                        Fault(
                            f"{source.name}: inputs.{name}", digest[:12], reason, f"pack {source.name} apart"
                        )
                    )
    if faults:
        raise InputError(faults)


def _joined_plan(sources: Sequence[Source], inputs: Path) -> Plan:
    """Join the axes, each ascending, and copy the files that the sweeps name."""
    sweeps: list[Sweep] = []
    for source in sources:
        for sweep in source.stored.sweeps:
            for name in sweep.inputs:
                (inputs / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(source.stored.inputs / name, inputs / name)
            sweeps.append(sweep)
    layouts = [source.layout for source in sources]
    joined = layouts[0]
    for layout in layouts[1:]:
        joined = joined.grown(layout)
    ascending = Layout(
        axes={
            name: tuple(sorted(values, key=lambda v: v if isinstance(v, str) else float(v)))
            for name, values in joined.axes.items()
        },
        signal=joined.signal,
        signal_values=tuple(sorted(joined.signal_values)),
        replicates=joined.replicates,
        run=joined.replicates,
        signal_chunk=len(joined.signal_values),
        top=joined.top,
        modes=joined.modes,
    )
    stored = sources[0].stored
    ensemble = joined_ensemble(sweeps[-1], [name for sweep in sweeps for name in sweep.inputs], inputs)
    return Plan(ensemble, ascending, stored.levels, stored.columns)


def _write(path: Path, plan: Plan, sources: Sequence[Source], tally: Tally, watch: Watch) -> None:
    """Write a packed cube."""
    group = zarr.create_group(LocalStore(path), attributes=_attributes(plan, sources))
    for variable in plan.variables():
        if variable.coordinate:
            array = _create(group, plan, variable, plan.shape(variable), None)
            array[...] = plan.values(variable)
    sizes = {
        level.name: tuple(plan.layout.size(dim) for dim in (*level.axes, "replicate"))
        for level in plan.levels
    }
    total, behind = sum(math.prod(size) for size in sizes.values()), 0
    for level in plan.levels:
        unit, tile = _tile(plan, sizes[level.name])
        arrays = _create_level(group, plan, level, unit, tile)
        joiner = Joiner(sources, level, plan.layout, _recipe(plan, sources[0].stored.sweep.seed), tally)
        for region in pieces(tuple(slice(0, size) for size in sizes[level.name]), tile):
            for role, values in joiner.join(region).items():
                arrays[role][region] = values
            behind += math.prod(part.stop - part.start for part in region)
            watch(behind, total)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Consolidated metadata is currently not part")
        warnings.filterwarnings("ignore", message=f"Object at {INPUTS} is not recognized")
        zarr.consolidate_metadata(group.store)


def _tile(plan: Plan, sizes: Sequence[int]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Choose how many columns a chunk and a shard hold along each of the column's dimensions."""
    layout = plan.layout
    pairs, modes = 8 * len(layout.signal_values) * layout.top, 8 * layout.modes * plan.columns
    (run,) = fit(sizes[-1:], (1,), CHUNK // max(pairs, modes))
    unit = (*(1,) * (len(sizes) - 1), run)
    return unit, fit(sizes, unit, SHARD // (2 * pairs + 3 * modes + 32))


def _create_level(
    group: zarr.Group, plan: Plan, level: Level, unit: tuple[int, ...], tile: tuple[int, ...]
) -> dict[str, zarr.Array[Any]]:
    arrays = {}
    for role, variable in level_variables(level, plan.layout.signal, plan.columns).items():
        rest = plan.shape(variable)[len(tile) :]
        # A number a column: all of a shard's fit into one chunk, and need no shard around it.
        shape = ((*unit, *rest), (*tile, *rest)) if rest else (tile, None)
        arrays[role] = _create(group, plan, variable, *shape)
    return arrays


def _create(
    group: zarr.Group,
    plan: Plan,
    variable: Variable,
    chunks: tuple[int, ...],
    shards: tuple[int, ...] | None,
) -> zarr.Array[Any]:
    typesize = 1 if variable.dtype == "str" else np.dtype(variable.dtype).itemsize
    return group.create_array(
        variable.name,
        shape=plan.shape(variable),
        chunks=chunks,
        shards=shards,
        dtype=str if variable.dtype == "str" else variable.dtype,
        fill_value=variable.fill,
        # The checksum comes last, so that it sees the very bytes on disk.
        compressors=[
            BloscCodec(cname="zstd", clevel=5, shuffle="bitshuffle", typesize=typesize),
            Crc32cCodec(),
        ],
        chunk_key_encoding={"name": "default", "separator": "."},
        dimension_names=variable.dims,
        attributes={"long_name": variable.long_name, "units": variable.units, "source": variable.source},
    )


def _attributes(plan: Plan, sources: Sequence[Source]) -> dict[str, Any]:
    """Join the provenance: every sweep once, and all attributes of each source as they were."""
    own = [dict(source.stored.document["attributes"]) for source in sources]
    for attributes in own:
        del attributes["eigensweep_format"], attributes["coordinates"]
    sweeps = {
        entry["digest"]: entry for attributes in reversed(own) for entry in reversed(attributes["sweeps"])
    }
    extra = [v.name for v in plan.variables() if v.coordinate and v.dims != (v.name,)]
    named = [
        {"study": Path(source.name).name, "attributes": attributes}
        for source, attributes in zip(sources, own, strict=True)
    ]
    return {
        **own[0],
        "eigensweep_format": FORMAT,
        "coordinates": " ".join(extra),
        "sweeps": [*reversed(sweeps.values())],
        PACKED: {"time": provenance.now(), **provenance.versions(), "sources": named},
    }


def _recipe(plan: Plan, seed: int) -> Recipe:
    layout = plan.layout
    return Recipe(
        ensemble=plan.ensemble,
        seed=seed,
        signal=layout.signal,
        signal_values=layout.signal_values,
        top=layout.top,
        columns=plan.columns,
        modes=layout.modes,
    )


def _check(path: Path) -> None:
    report = verify(path, sample=0)
    if not report.sound:
        raise StudyError(
            f"nothing was packed, for this would be wrong in it: {report.findings[0]}; eigensweep verify the "
            "studies"
        )


def _flush(path: Path) -> None:
    """See to it that all is on disk: after this the studies may be removed."""
    for file in path.rglob("*"):
        handle = os.open(file, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


@contextmanager
def _beside(target: Path) -> Iterator[Path]:
    """Build a folder beside its place, and rename it into it or leave nothing."""
    temporary = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    shutil.rmtree(temporary, ignore_errors=True)
    try:
        yield temporary
        temporary.rename(target)
    except OSError as error:
        raise StudyError(f"{target}: {error.strerror or error}; make room and pack again") from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
