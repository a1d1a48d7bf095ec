"""``eigensweep workflows``: the packaged sweeps."""

from __future__ import annotations

from eigensweep.workflows import catalog, console


def workflows(name: str, as_json: bool) -> None:
    """List the packaged sweeps, or print one."""
    if name:
        print(catalog.text(name), end="")
        return
    found = [{"name": item, "description": catalog.describe(item)} for item in catalog.names()]
    if as_json:
        console.print_json(found)
        return
    console.print_table("packaged sweeps", ("name", ""), [tuple(item.values()) for item in found], left=2)
    print("  eigensweep run NAME runs one; eigensweep workflows NAME prints it, to edit")
