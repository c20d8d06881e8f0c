"""Arguments and options of the verbs that name a process."""

from typing import Annotated

import typer

Id = Annotated[str, typer.Argument(metavar="ID", help="A process, as in `pie ps`.")]
Ids = Annotated[list[str], typer.Argument(metavar="ID…", help="As in `pie ps`.")]
Client = Annotated[
    str | None, typer.Option("--client", metavar="NAME", help="Speak for another client: messages go to its processes alone.")
]
