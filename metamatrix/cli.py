"""Which commands are there? Their options; each does its work in a module of its own, imported when it is called."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Optional

import typer

__all__ = ["app", "main"]

app = typer.Typer(
    name="metamatrix",
    help="Which versions of torch, diffusers, transformers and accelerate load which pipelines, with every weight "
    "really there? metamatrix runs them and shows the evidence.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)

MatrixFile = Annotated[Path, typer.Option("--matrix", help="The matrix file.")]
Select = Annotated[
    Optional[str],
    typer.Option(
        "--select",
        help="A selection of the matrix file, an expression such as 'offload == disk', or both: "
        "'nightly and offload == disk'.",
    ),
]
Isolation = Annotated[
    str,
    typer.Option(
        "--isolation", envvar="METAMATRIX_ISOLATION", help="docker, venv, or auto: docker where an engine answers."
    ),
]
DiskGb = Annotated[
    float,
    typer.Option(
        "--disk-gb", min=0, envvar="METAMATRIX_DISK_GB", help="GiB that environments and images may take in all."
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Write JSON to standard output.")]


@app.callback(invoke_without_command=True)
def root(version: Annotated[bool, typer.Option("--version", help="Print the version and end.")] = False) -> None:
    if version:
        from metamatrix import __version__

        typer.echo(f"metamatrix {__version__}")
        raise typer.Exit


@app.command()
def plan(
    matrix: MatrixFile = Path("matrix.yaml"),
    select: Select = None,
    output: Annotated[Optional[Path], typer.Option("--output", help="Write plan.json into this folder.")] = None,
    as_json: AsJson = False,
) -> None:
    """Show which environments and cells a matrix means, what is left out and why, and what it will cost."""
    from metamatrix.commands.plan import run_plan

    raise typer.Exit(run_plan(matrix, select, output, as_json))


@app.command()
def run(
    matrix: MatrixFile = Path("matrix.yaml"),
    select: Select = None,
    output: Annotated[
        Path, typer.Option("--output", help="The run's folder; the same folder again continues it.")
    ] = Path("out/run"),
    plan_file: Annotated[
        Optional[Path],
        typer.Option(
            "--plan", help="Run a plan file, or the folder of a data set, in its very environments, not the matrix."
        ),
    ] = None,
    shard: Annotated[
        Optional[str],
        typer.Option(
            "--shard",
            help="K/N: only the environments of the K-th of N parts, to be joined with `merge`. Best with --plan: "
            "then all parts are of one plan.",
        ),
    ] = None,
    jobs: Annotated[int, typer.Option("--jobs", min=0, help="Cells at once; 0 means one per core.")] = 0,
    isolation: Isolation = "auto",
    disk_gb: DiskGb = 40,
    fail_on: Annotated[
        Optional[str],
        typer.Option("--fail-on", help="`unexpected`: exit with 1 if there is a bad verdict that no `expect` covers."),
    ] = None,
    cold: Annotated[bool, typer.Option("--cold", help="Give every cell a fresh process. Slow; for checking.")] = False,
    shuffle: Annotated[
        Optional[int],
        typer.Option("--shuffle", help="Run cells in a random order of this seed. For checking."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Build the environments, run the cells, write the results down."""
    from metamatrix.commands.run import Choices, run_matrix

    choices = Choices(
        matrix, select, output, plan_file, jobs, isolation, disk_gb, fail_on, cold, shuffle, as_json, shard
    )
    raise typer.Exit(run_matrix(choices))


@app.command()
def merge(
    shards: Annotated[list[Path], typer.Argument(help="The folders of the shards, in any order.")],
    output: Annotated[
        Path, typer.Option("--output", help="The folder of the whole run; the same folder again adds to it.")
    ] = Path("out/run"),
    plan_file: Annotated[
        Optional[Path], typer.Option("--plan", help="The whole plan; by default the one that the shards hold.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Make one run of its shards; exit code 4 where one is missing or cut."""
    from metamatrix.commands.merge import run_merge

    raise typer.Exit(run_merge(shards, output, plan_file, as_json))


@app.command()
def report(
    folder: Annotated[Path, typer.Argument(help="The folder of a run, or of a data set.")] = Path("out/run"),
    site: Annotated[Optional[Path], typer.Option("--site", help="Where the pages go; FOLDER/site by default.")] = None,
    dataset: Annotated[
        Optional[Path], typer.Option("--dataset", help="Write the compact data set of the run into this folder, too.")
    ] = None,
    history: Annotated[
        Optional[str],
        typer.Option(
            "--history",
            help="A site that was published before, as a folder or an address: its runs are published again, and this "
            "one with them.",
        ),
    ] = None,
    first: Annotated[
        bool, typer.Option("--first", help="Nothing is published at --history yet; end with an error if there is.")
    ] = False,
    base_url: Annotated[
        Optional[str],
        typer.Option("--base-url", help="The address that the site will have; for its sitemap and feeds."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Write the site with its data, badges and feeds, and results.json, JUnit XML and a summary of a run."""
    from metamatrix.commands.report import ReportChoices, run_report

    raise typer.Exit(run_report(ReportChoices(folder, site, dataset, history, first, base_url, as_json)))


@app.command()
def serve(
    folder: Annotated[Path, typer.Argument(help="The folder of a run, a data set or a site.")] = Path("out/run"),
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="0 takes any that is free.")] = 8000,
    host: Annotated[
        str, typer.Option("--host", help="Where to listen. Anything but this machine lets others read the results.")
    ] = "127.0.0.1",
) -> None:
    """Show the pages of a folder in a browser, with live progress while its matrix runs."""
    from metamatrix.commands.serve import run_serve

    raise typer.Exit(run_serve(folder, host, port))


@app.command()
def lookup(
    terms: Annotated[
        Optional[list[str]],
        typer.Argument(help="NAME=VALUE or a range, such as pipeline=sdxl 'diffusers>=0.36,<0.40' verdict=bad."),
    ] = None,
    good_for: Annotated[
        Optional[list[str]],
        typer.Option("--good-for", help="The newest environment that is good for these pipelines, such as sdxl,flux."),
    ] = None,
    runner: Annotated[str, typer.Option("--runner", help="Where it was measured.")] = "cpu",
    data: Annotated[
        Optional[str],
        typer.Option(
            "--data",
            help="The folder of a data set or a run, or the address of a site; by default the data that come with "
            "the program.",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Look up what was measured: good and bad as version ranges, and the newest good set of versions."""
    from metamatrix.commands.lookup import run_lookup

    raise typer.Exit(run_lookup(terms or [], ",".join(good_for or []), runner, data, as_json))


@app.command()
def compare(
    before: Annotated[Path, typer.Argument(help="The folder of the earlier run or data set.")],
    after: Annotated[Path, typer.Argument(help="The folder of the later one.")],
    fail_on: Annotated[
        Optional[str], typer.Option("--fail-on", help="`new-red`: exit with 1 if something good has become bad.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show what has changed between two runs: new red, new green, what is new, gone, or without an answer."""
    from metamatrix.commands.compare import run_compare

    raise typer.Exit(run_compare(before, after, fail_on, as_json))


@app.command()
def controls(
    folder: Annotated[Path, typer.Argument(help="The folder of a run.")] = Path("out/run"),
    as_json: AsJson = False,
) -> None:
    """Show which planted defects the guard caught in each environment of a run; exit code 1 where it missed one."""
    from metamatrix.commands.controls import run_controls

    raise typer.Exit(run_controls(folder, as_json))


@app.command()
def image(
    environment: Annotated[str, typer.Argument(help="The environment's id, or how it begins.")],
    folder: Annotated[Path, typer.Option("--output", help="The folder of the run that it is in.")] = Path("out/run"),
    tag: Annotated[Optional[str], typer.Option("--tag", help="The image's name.")] = None,
    push: Annotated[Optional[str], typer.Option("--push", help="Name it so and push it to that registry.")] = None,
    bill: Annotated[
        Optional[Path], typer.Option("--sbom", help="Write the bill of materials (CycloneDX) into this file, too.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Make an image of one environment that stands alone and can check itself, with a bill of materials."""
    from metamatrix.commands.image import run_image

    raise typer.Exit(run_image(environment, folder, tag, push, bill, as_json))


@app.command()
def clean(
    disk_gb: DiskGb = 40,
    everything: Annotated[
        bool, typer.Option("--everything", help="Remove all that metamatrix has made, except results.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would go.")] = False,
    as_json: AsJson = False,
) -> None:
    """Remove what killed runs left, old images, and the environments used least recently that are over the budget."""
    from metamatrix.commands.clean import run_clean

    raise typer.Exit(run_clean(disk_gb, everything, dry_run, as_json))


@app.command()
def schema(
    check: Annotated[
        bool, typer.Option("--check", help="Only say whether the files in the repository are current.")
    ] = False,
) -> None:
    """Write the JSON Schemas of matrix.yaml, results.json and data sets into the source tree."""
    from metamatrix.commands.schema import run_schema

    raise typer.Exit(run_schema(check))


def main() -> None:
    """Run the command line; an error that a user can do something about is told in words, with its exit code."""
    try:
        app()
    except Exception as error:
        from reports.wording import harmless
        from runner.errors import InfrastructureError, MetamatrixError

        if isinstance(error, OSError) or type(error).__module__ == "sqlite3":
            # The disk, the rights on a folder, a damaged database: nothing that a traceback would help with.
            error = InfrastructureError(str(error), "Check the file or folder and its rights; a copy may help.")
        if not isinstance(error, MetamatrixError):
            raise
        print(harmless(f"metamatrix: {error}"), file=sys.stderr)
        if error.remedy:
            print(harmless(error.remedy), file=sys.stderr)
        sys.exit(error.exit_code)
