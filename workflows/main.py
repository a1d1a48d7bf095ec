"""The command line: what can be typed. What it does lives in modules that are imported when it is done."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Optional

import typer

app = typer.Typer(
    name="eigensweep",
    help="Sweep spiked random-matrix models over a grid and learn whether theory holds.",
    no_args_is_help=True,
    rich_markup_mode="rich",
    add_completion=False,
    pretty_exceptions_enable=False,
)

SweepArgument = Annotated[
    str, typer.Argument(metavar="SWEEP", help="A sweep file, a packaged sweep's name, or a study.")
]
StudyArgument = Annotated[Path, typer.Argument(metavar="STUDY", help="The study's folder.")]
StudyOption = Annotated[
    Optional[Path],  # noqa: UP045 (typer reads the annotation at run time)
    typer.Option("--study", metavar="FOLDER", help="Where the study lives; the sweep's name if not given."),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]
ClusterOption = Annotated[
    str,
    typer.Option(
        "--cluster", metavar="WHERE", help="local, serial, profile.toml, tcp://host:port or scheduler.json."
    ),
]
WorkersOption = Annotated[
    Optional[int],  # noqa: UP045
    typer.Option("--workers", metavar="N", help="Local worker processes; one a core if not given."),
]


@app.command(epilog="Example: eigensweep run quickstart")
def run(
    sweep: SweepArgument,
    study: StudyOption = None,
    cluster: ClusterOption = "local",
    workers: WorkersOption = None,
    retry_failed: Annotated[
        bool, typer.Option("--retry-failed", help="Try columns again that failed before.")
    ] = False,
    share: Annotated[
        str,
        typer.Option("--share", metavar="K/N", help="Compute the K-th of N shares, in this process alone."),
    ] = "",
    quick: Annotated[
        bool, typer.Option("--quick", help="A small part of the grid, as a trial, in the study NAME-quick.")
    ] = False,
    figures: Annotated[bool, typer.Option(help="Draw the figures at the end.")] = True,
    as_json: JsonOption = False,
) -> None:
    """Run a sweep: compute what its study lacks, then draw it.

    The same command again goes on where a stopped run ended, and grows the study if the sweep file asks for
    more. Exit codes: 0 done, 1 some columns failed, 2 wrong input, 3 interrupted.
    """
    from eigensweep.workflows import running

    options = running.Options(cluster, workers, retry_failed, share, quick, figures, as_json)
    running.run(sweep, study, options)


@app.command(epilog="Example: eigensweep plan transition.toml")
def plan(
    sweep: SweepArgument,
    study: StudyOption = None,
    cluster: Annotated[
        str,
        typer.Option(
            "--cluster", metavar="PROFILE", help="Check a profile against it; print its job script."
        ),
    ] = "",
    trial: Annotated[bool, typer.Option(help="Time a column of each size to project core-hours.")] = True,
    as_json: JsonOption = False,
) -> None:
    """Say what a sweep will cost: columns, blocks, memory, disk, files and core-hours."""
    from eigensweep.workflows import planning

    planning.plan(sweep, study, cluster, trial, as_json)


@app.command(epilog="Example: eigensweep submit transition.toml --cluster slurm.toml")
def submit(
    sweep: SweepArgument,
    cluster: Annotated[str, typer.Option("--cluster", metavar="PROFILE", help="A profile for SLURM.")],
    study: StudyOption = None,
    as_json: JsonOption = False,
) -> None:
    """Submit a run to SLURM: the driver is a job too, and goes on in another when its walltime ends."""
    from eigensweep.workflows import submitting

    submitting.submit(sweep, study, cluster, as_json)


@app.command(epilog="Example: eigensweep status quickstart")
def status(study: StudyArgument, as_json: JsonOption = False) -> None:
    """Tell how far a study is, who works on it and what failed."""
    from eigensweep.workflows import story

    story.status(study, as_json)


@app.command(
    epilog="Example: eigensweep column quickstart d=200 gamma=0.25 pooling=mean replicate=3 --rho 2",
)
def column(
    sweep: SweepArgument,
    parameters: Annotated[
        list[str],
        typer.Argument(metavar="NAME=VALUE...", help="The column; axes with one value may be left out."),
    ],
    level: Annotated[str, typer.Option("--level", help="Which matrix of the model.")] = "",
    rho: Annotated[
        Optional[list[float]],  # noqa: UP045
        typer.Option("--rho", metavar="RHO", help="Signal strengths to show; may be repeated."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Compute one column alone, from its seeds, and show it beside what is stored."""
    from eigensweep.workflows import columns

    columns.column(sweep, parameters, level, rho or [], as_json)


@app.command(epilog="Example: eigensweep theory --delta 0.5 --gamma 0.25 --rho 3")
def theory(
    delta: Annotated[float, typer.Option("--delta", help="Ratio d/V.")],
    gamma: Annotated[float, typer.Option("--gamma", help="Ratio d/N.")],
    rho: Annotated[
        Optional[list[float]],  # noqa: UP045
        typer.Option("--rho", metavar="RHO", help="Signal strength; may be repeated."),
    ] = None,
    table: Annotated[
        str, typer.Option("--table", help="class-centered, centered or raw.")
    ] = "class-centered",
    gain: Annotated[
        float, typer.Option("--gain", help="alpha/kappa of the pooling (raw and centered).")
    ] = 1.0,
    as_json: JsonOption = False,
) -> None:
    """Print the bulk, the thresholds, and the outlier and overlap at some rho, in closed form."""
    from eigensweep.workflows import predicting

    predicting.theory(delta, gamma, rho or [], table, gain, as_json)


@app.command(epilog="Example: eigensweep fit quickstart")
def fit(
    study: StudyArgument,
    level: Annotated[str, typer.Option("--level", help="One level only.")] = "",
    method: Annotated[
        str, typer.Option("--method", help="continuation (calibrated, the default) or crossing (a check).")
    ] = "continuation",
    redraws: Annotated[
        int, typer.Option("--redraws", metavar="K", help="More directions u drawn for each stored column.")
    ] = 8,
    as_json: JsonOption = False,
) -> None:
    """Fit every transition of a study and compare it with theory; leaves fits.csv and fits.json there."""
    from eigensweep.workflows import fitting

    fitting.fit(study, level, method, redraws, as_json)


@app.command(epilog="Example: eigensweep plot transition quickstart -o transition.png")
def plot(
    kind: Annotated[
        str,
        typer.Argument(metavar="KIND", help="transition, spectrum, phase-diagram, pooling or thresholds."),
    ],
    study: StudyArgument,
    output: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(
            "-o", "--output", metavar="FILE", help="png, svg or pdf; STUDY/figures/KIND.png if not given."
        ),
    ] = None,
) -> None:
    """Draw a figure of a study."""
    from eigensweep.workflows import drawing

    drawing.plot(kind, study, output)


CubeArgument = Annotated[Path, typer.Argument(metavar="STUDY", help="A study, or a packed cube.")]


@app.command(epilog="Example: eigensweep verify quickstart --repair")
def verify(
    study: CubeArgument,
    repair: Annotated[
        bool, typer.Option("--repair", help="Mark damaged columns pending, so that the next run redoes them.")
    ] = False,
    sample: Annotated[
        int, typer.Option("--sample", metavar="N", min=0, help="Columns to compute again from their seeds.")
    ] = 16,
    as_json: JsonOption = False,
) -> None:
    """Read every chunk, check every number, and say what is damaged.

    Exit codes: 0 no damage, 1 damage found, 2 wrong input.
    """
    from eigensweep.workflows import verifying

    verifying.verify(study, sample, repair, as_json)


@app.command(epilog="Example: eigensweep pack laptop cluster -o transition.zarr")
def pack(
    studies: Annotated[
        list[Path], typer.Argument(metavar="STUDY...", help="Studies of one sweep, which are joined.")
    ],
    output: Annotated[
        Path, typer.Option("-o", "--output", metavar="OUT", help="The packed cube; it must not exist.")
    ],
    check: Annotated[bool, typer.Option(help="Verify the packed cube before it is put in place.")] = True,
    as_json: JsonOption = False,
) -> None:
    """Make one compact, sorted cube for archiving, equal in every value."""
    from eigensweep.workflows import packing

    packing.pack(studies, output, check, as_json)


@app.command(epilog="Example: eigensweep export quickstart quickstart.csv")
def export(
    study: CubeArgument,
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="What to write: .csv or .parquet (a tidy table), or .nc.")
    ],
    as_json: JsonOption = False,
) -> None:
    """Write what is done into one file: a tidy table, or the whole cube as netCDF."""
    from eigensweep.workflows import packing

    packing.export(study, file, as_json)


@app.command(epilog="Example: eigensweep schema > sweep.schema.json")
def schema() -> None:
    """Print the JSON Schema of a sweep file, for editors."""
    from eigensweep.pipeline.sweep import Sweep
    from eigensweep.workflows import console

    console.print_json(Sweep.json_schema())


@app.command(epilog="Example: eigensweep workflows quickstart > mine.toml")
def workflows(
    name: Annotated[str, typer.Argument(metavar="[NAME]", help="Print this one, to edit.")] = "",
    as_json: JsonOption = False,
) -> None:
    """List the packaged sweeps, or print one."""
    from eigensweep.workflows import telling

    telling.workflows(name, as_json)


def main() -> None:
    """Run the command line."""
    from eigensweep.workflows.console import reporting

    with reporting():
        app()


if __name__ == "__main__":
    main()
