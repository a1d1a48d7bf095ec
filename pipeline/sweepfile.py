"""The sweep file's form: its tables and keys, and what they may hold."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Annotated, Any, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    StrictBool,
    StrictFloat,
    StrictInt,
    StrictStr,
    ValidationError,
    WithJsonSchema,
)

from eigensweep.pipeline.errors import Fault, nearest
from eigensweep.pipeline.grid import LARGEST, shown
from eigensweep.pipeline.seeds import canonical

_RANGE_SCHEMA = {
    "type": "object",
    "properties": {
        "start": {"type": "number"},
        "stop": {"type": "number"},
        "num": {"type": "integer", "minimum": 1, "maximum": LARGEST},
        "scale": {"enum": ["linear", "log"], "default": "linear"},
    },
    "required": ["start", "stop", "num"],
    "additionalProperties": False,
}
_AXIS_SCHEMA = {"anyOf": [{"type": ["number", "string"]}, {"type": "array", "minItems": 1}, _RANGE_SCHEMA]}
_SIGNAL_SCHEMA = {
    "anyOf": [
        {"type": "number", "minimum": 0},
        {"type": "array", "items": {"type": "number", "minimum": 0}, "minItems": 1},
        _RANGE_SCHEMA,
    ]
}
_COUNT_SCHEMA = {"type": "integer", "minimum": 1, "maximum": LARGEST}
_REPLICATES_SCHEMA = {
    "anyOf": [
        _COUNT_SCHEMA,
        {"type": "object", "patternProperties": {"^[0-9]+$": _COUNT_SCHEMA}, "additionalProperties": False},
    ]
}
_EXAMPLES = {
    "name": 'name = "transition"',
    "grid": "[grid] with a value for each axis",
    "grid.replicates": "replicates = 50",
    "model": '[model] with ensemble = "attention-pooling"',
    "model.ensemble": 'ensemble = "attention-pooling"',
}
_NAME = r"^[A-Za-z0-9_][A-Za-z0-9._-]*$"

Axis = Annotated[Any, WithJsonSchema(_AXIS_SCHEMA)]
Signal = Annotated[Any, WithJsonSchema(_SIGNAL_SCHEMA)]
_Model = TypeVar("_Model", bound=BaseModel)


def _canonical_float(value: float) -> float:
    return float(canonical(float(value)))


class _Table(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Header(_Table):
    """The keys before the first table."""

    name: StrictStr = Field(
        pattern=_NAME, max_length=200, description="The study's folder, unless --study names one."
    )
    seed: StrictInt = Field(default=0, ge=0, lt=2**63, description="Every random number follows from it.")


class Grid(BaseModel):
    """A value, a list or a range for each axis of the ensemble, and for rho or mu2."""

    model_config = ConfigDict(
        extra="allow",
        frozen=True,
        json_schema_extra={"oneOf": [{"required": ["rho"]}, {"required": ["mu2"]}]},
    )
    __pydantic_extra__: dict[str, Axis]

    rho: Signal = Field(default=None, description="Signal alpha |mu|^2/kappa of each pooling; or give mu2.")
    mu2: Signal = Field(
        default=None, description="Squared signal norm |mu|^2, one for all poolings; or give rho."
    )
    replicates: Annotated[Any, WithJsonSchema(_REPLICATES_SCHEMA)] = Field(
        description="Independent replicates, or a table of them by d."
    )


class Model(BaseModel):
    """The ensemble and its options."""

    model_config = ConfigDict(extra="allow", frozen=True)

    ensemble: StrictStr = Field(description="Name of the ensemble.")


class Record(_Table):
    """What is kept of each column.

    Attributes
    ----------
    levels : tuple of str
        Matrices of the model whose spectra are kept, in the ensemble's order.
    top : int
        Leading eigenpairs kept per cell.
    columns : bool
        Whether the spectral columns are kept.
    """

    levels: tuple[StrictStr, ...] = Field(
        default_factory=tuple, description="Levels to record; without it all of them."
    )
    top: StrictInt = Field(default=3, ge=1, le=LARGEST, description="Leading eigenpairs kept per cell.")
    columns: StrictBool = Field(default=True, description="Keep the spectral columns.")


class Limits(_Table):
    """What a column may take.

    Attributes
    ----------
    seconds_per_column : float
        A column that takes longer is given up, in seconds.
    """

    seconds_per_column: Annotated[
        StrictFloat, Field(gt=0, le=1e9, allow_inf_nan=False), AfterValidator(_canonical_float)
    ] = Field(default=3600.0, description="A column that takes longer is given up.")


class SweepFile(Header):
    """A sweep of a spiked random-matrix model over a grid."""

    grid: Grid
    model: Model
    record: Record = Field(default_factory=Record)
    limits: Limits = Field(default_factory=Limits)
    inputs: dict[StrictStr, StrictStr] = Field(
        default_factory=dict, description="SHA-256 of files that the sweep names; written by eigensweep."
    )


TABLES = ("grid", "model", "record", "limits", "inputs")
"""The sweep file's tables."""


def schema(ensembles: Iterable[str]) -> dict[str, Any]:
    """Describe the sweep file for editors.

    Parameters
    ----------
    ensembles : iterable of str
        Names that ``model.ensemble`` may have.

    Returns
    -------
    dict
        JSON Schema, draft 2020-12.

    Examples
    --------
    >>> schema(["toy"])["$defs"]["Model"]["properties"]["ensemble"]["enum"]
    ['toy']
    """
    described = SweepFile.model_json_schema()
    for table in (described, *described["$defs"].values()):
        # What follows the first paragraph of a docstring is for readers of the code.
        table["description"] = table["description"].partition("\n")[0]
    described["$defs"]["Model"]["properties"]["ensemble"]["enum"] = sorted(ensembles)
    for signal in ("rho", "mu2"):
        del described["$defs"]["Grid"]["properties"][signal]["default"]
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **described}


def validate(form: type[_Model], table: Any, thing: str) -> tuple[_Model | None, list[Fault]]:
    """Validate one table.

    Parameters
    ----------
    form : type
        Its model.
    table : object
        What the file holds there.
    thing : str
        Its dotted key; empty for the keys before the first table.

    Returns
    -------
    model : form or None
        None if anything is wrong.
    faults : list of Fault
        What is wrong.

    Examples
    --------
    >>> _, [fault] = validate(Record, {"topp": 3}, "record")
    >>> print(fault)
    record.topp = 3: there is no such key; did you mean 'top'?
    """
    if not isinstance(table, Mapping):
        remedy = f"write [{thing}] and its keys below"
        return None, [Fault(thing, shown(table), "it is a value where a table belongs", remedy)]
    try:
        return form.model_validate(dict(table)), []
    except ValidationError as error:
        known = (SweepFile if form is Header else form).model_fields
        return None, [_fault(details, thing, known) for details in error.errors(include_url=False)]


def missing(thing: str) -> Fault:
    """Make the fault of a key that has to be there."""
    return Fault(thing, "", "it is missing", f"add {_EXAMPLES.get(thing, thing.rpartition('.')[2])}")


def _fault(details: Any, thing: str, known: Iterable[str]) -> Fault:
    path = [str(part) for part in details["loc"] if isinstance(part, str)]
    key = path[0] if path else ""
    name = f"{thing}.{key}" if thing and key else thing or key
    kind, context = details["type"], details.get("ctx", {})
    if kind == "missing":
        return missing(name)
    if kind == "extra_forbidden":
        return Fault(name, shown(details["input"]), "there is no such key", nearest(key, known))
    reason, remedy = _REASONS.get(
        kind, (str(details["msg"]).lower(), "run eigensweep schema to see the form")
    )
    return Fault(name, shown(details["input"]), reason.format(**context), remedy.format(**context))


_FOLDER = "it can't be the name of a folder"
_NAMING = "use up to 200 letters, digits, '.', '_' and '-', with no '.' or '-' at the front"
_REASONS = {
    "int_type": ("it is not a whole number", "write one"),
    "float_type": ("it is not a number", "write one"),
    "bool_type": ("it is neither true nor false", "write true or false"),
    "string_type": ("it is not a text", "write it in quotes"),
    "tuple_type": ("it is not a list", "write a list in square brackets"),
    "finite_number": ("it is not finite", "write a finite number"),
    "greater_than_equal": ("it is below {ge}", "write {ge} or more"),
    "greater_than": ("it is not above {gt}", "write a number above {gt}"),
    "less_than_equal": ("it is above {le}", "write {le} or less"),
    "less_than": ("it is not below {lt}", "write a number below {lt}"),
    "string_pattern_mismatch": (_FOLDER, _NAMING),
    "string_too_long": (_FOLDER, _NAMING),
}
