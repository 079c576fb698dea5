"""`timecycle ui`"""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, arg

from timecycle.cli.console import Result, say
from timecycle.ui.serve import serve


@dataclass(frozen=True, kw_only=True)
class Ui:
    """Do the whole job in the browser: annotate, propagate, review, correct, export.

    The page is served on this machine only. A run that is started there is continued on the command line, and the
    reverse.

    Examples:
      timecycle ui dog.mp4
      timecycle ui out
      timecycle ui videos/
    """

    path: Annotated[
        Positional[Path],
        arg(metavar="VIDEO|RUN|FOLDER", help="a video, the folder of a run, or a folder to choose from"),
    ] = Path()
    out: Annotated[
        Path | None, arg(aliases=["-o"], metavar="FOLDER", help="folder to write to; by default VIDEO_timecycle")
    ] = None
    host: Annotated[str, arg(metavar="ADDRESS", help="address to listen at; others than this machine may reach it")] = (
        "127.0.0.1"
    )
    port: Annotated[int, arg(help="port to listen at; by default a free one")] = 0
    no_browser: Annotated[bool, arg(help="print the address only; open no browser")] = False

    def __call__(self) -> Result:
        url = serve(self.path, self.out, host=self.host, port=self.port, browser=not self.no_browser, say=say)
        say("stopped")
        return {"url": url}
