"""`bigfleet providerkit`: for whoever writes a provider."""

from pathlib import Path
from typing import Annotated

import typer

from bigfleet.cli.program import examples
from bigfleet.providerkit.new import write_project

app = typer.Typer(
    name="providerkit",
    help="For whoever writes a provider.",
    epilog=examples("bigfleet providerkit new acme-cloud"),
    no_args_is_help=True,
)


@app.callback()
def _root() -> None:
    """Keep `new` a subcommand: Typer would drop the word in an app with only one command."""


@app.command(epilog=examples("bigfleet providerkit new acme-cloud"))
def new(
    name: Annotated[str, typer.Argument(help="The provider's name: lower-case letters, digits, hyphens.")],
    folder: Annotated[Path | None, typer.Option(help="Where to write it. [default: a folder of that name]")] = None,
) -> None:
    """Write a working, conformant provider project to begin from."""
    target = folder or Path(name)
    for file in write_project(name, target):
        typer.echo(target / file)
    typer.echo(f"begun; next: cd {target} && pip install -e '.[dev]' && pytest")
