"""`atropos view`: browse rollouts in a local page, compare two runs, or write a page that needs no server."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated

import typer

from atropos_cli.console import dataio
from atropos_cli.console.ending import end
from atropos_cli.console.session import Session, session_of
from atropos_cli.errors import DataError, UsageError
from atropos_cli.io.remote import is_remote
from atropos_cli.streams import data_stream

if TYPE_CHECKING:
    from atropos_cli.cli.view.index import RunIndex
    from atropos_cli.cli.view.library import Library

_ROWS = (".jsonl", ".jsonl.gz", ".jsonl.zst", ".parquet", ".arrow")

SERVER, PAGE = "Server", "Page without a server"


def view(
    ctx: typer.Context,
    run: Annotated[
        str, typer.Argument(metavar="RUN", help="A run folder, a folder of runs, a file, or a glob.")
    ] = "runs",
    diff: Annotated[
        str | None,
        typer.Option("--diff", metavar="OTHER", show_default=False, help="Compare with this run on the same tasks."),
    ] = None,
    tokenizer: Annotated[
        str | None,
        typer.Option(
            "--tokenizer",
            metavar="NAME",
            show_default=False,
            help="Show tokens as text: a folder, a .gguf file, smollm2, or a name of the Hugging Face hub.",
        ),
    ] = None,
    group: Annotated[
        bool | None,
        typer.Option(
            "--group/--no-group",
            show_default=False,
            help="Join rows of one rollout by task, or by prompt.  [default: where rows have a task id, up to 64 MB]",
        ),
    ] = None,
    port: Annotated[int, typer.Option("--port", min=0, max=65535, rich_help_panel=SERVER, help="0: a free one.")] = 0,
    host: Annotated[
        str,
        typer.Option(
            "--host", metavar="ADDRESS", rich_help_panel=SERVER, help="Where to listen; this machine only by default."
        ),
    ] = "127.0.0.1",
    export: Annotated[
        Path | None,
        typer.Option(
            "--export",
            metavar="FILE",
            rich_help_panel=PAGE,
            show_default=False,
            help="Write one HTML file that holds everything, and stop.",
        ),
    ] = None,
    limit: Annotated[
        int | None,
        typer.Option(
            "--limit", min=1, rich_help_panel=PAGE, show_default=False, help="Groups in the file.  [default: all]"
        ),
    ] = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", rich_help_panel=PAGE, help="Replace an existing file.")
    ] = False,
    form: dataio.FormatOption = "auto",
) -> None:
    """Show the groups of a run in the browser: rollouts side by side, rewards, tokens, filters, search.

    Of a folder of runs (such as runs) it shows the list of them, live while they run, with a link to each.

    The address is printed on standard output; it holds a secret, so that nobody else on this machine can use it.
    Ctrl-C ends the server. Rows are read when they are looked at, so a file of any size opens at once.
    """
    session = session_of(ctx)
    if export is not None and export.is_dir():
        raise DataError(f"{export} is a folder", hint="give a file to --export")
    if export is not None and export.exists() and not overwrite:
        raise DataError(f"{export} is already there", hint="--overwrite replaces it")
    listed = _lists_runs(run)
    if listed and (diff is not None or export is not None):
        option = "--diff" if export is None else "--export"
        raise UsageError(
            f"{option} is of one run, and {run} is a folder of runs", hint=f"atropos runs {run} lists them"
        )
    if listed:
        with closing(_index(run, tokenizer, group, form)) as index:
            _serve(index, host, port, session)
        return
    with closing(_open(run, diff, tokenizer, group, form)) as library:
        if export is not None:
            _export(library, export, limit, session)
        else:
            _serve(library, host, port, session)


def _lists_runs(name: str) -> bool:
    """Is it a folder of runs, and neither a run nor a folder of data files?"""
    from atropos_cli.paths import home
    from atropos_cli.runs.find import is_run

    folder = Path(home(name))
    if is_remote(name) or not folder.is_dir():
        return False
    names = [path.name for path in folder.iterdir()]
    return not is_run(names) and not any(name.endswith(_ROWS) for name in names)


def _index(run: str, tokenizer: str | None, group: bool | None, form: str) -> RunIndex:
    from atropos_cli.cli.view.index import RunIndex
    from atropos_cli.paths import home

    return RunIndex([Path(home(run))], lambda folder: _open(str(folder), None, tokenizer, group, form))


def _open(run: str, other: str | None, tokenizer: str | None, group: bool | None, form: str) -> Library:
    from atropos_cli.cli.view.library import Library
    from atropos_cli.cli.view.runs import Run
    from atropos_cli.io.sources import find_sources

    if run == other == "-":
        raise UsageError("standard input (-) is named twice")
    decode: Callable[[Sequence[int]], str] | None = None
    if tokenizer is not None:
        from atropos_cli.datasets.convert.tokenizers import load_tokenizer

        decode = load_tokenizer(tokenizer).decode
    names = [run] if other is None else [run, other]
    return Library([Run(name, find_sources([name]), form=form, group=group) for name in names], decode)


def _export(library: Library, path: Path, limit: int | None, session: Session) -> None:
    from atropos_cli.cli.view.export import export
    from atropos_cli.io.remote import make_folder

    dataio.keep_inputs([source for run in library.runs for source in run.sources], path, str(path), "--export")
    make_folder(path.parent)
    with _until_sigterm():
        made = export(library, path, limit)
    kind = "compared task" if library.diff is not None else "group"
    kind += "" if made.groups == 1 else "s"
    more = f" of {made.total:,}" if made.groups < made.total else ""
    if made.groups < made.total and made.groups != limit:
        more += ", as many as a browser can hold"
    if made.with_tokens < made.groups:
        more += f"; tokens of the first {made.with_tokens:,}"
    said = f"wrote {path}: {made.groups:,} {kind}{more}, {made.size / 1e6:,.1f} MB"
    end(session.out, said, "open it in a browser")


@contextmanager
def _until_sigterm() -> Iterator[None]:
    """SIGTERM ends it as Ctrl-C does: the half page goes."""

    def stop(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _serve(library: Library | RunIndex, host: str, port: int, session: Session) -> None:
    """Serve until Ctrl-C or SIGTERM, which end it well: there is no other way to end it."""
    from atropos_cli.cli.view.server import ViewServer, is_loopback

    if not is_loopback(host):
        session.out.warning(
            f"{host} can be reached from other machines: whoever has the address sees the rollouts, unencrypted",
            "without --host only this machine can; ssh -L reaches it from elsewhere",
        )
    server = ViewServer(library, host, port)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.2}, name="view", daemon=True)
    ended = threading.Event()

    def stop(number: int, frame: FrameType | None) -> None:
        ended.set()

    before = signal.signal(signal.SIGTERM, stop)
    try:
        thread.start()
        if library.diff is not None:
            library.diff.start()
        session.out.data(server.url)
        data_stream().flush()  # whoever reads the address from a pipe waits for it
        end(session.out, "Ctrl-C ends the server", "open the address in a browser")
        while not ended.wait(0.5):
            pass
    except KeyboardInterrupt:
        session.out.note("ended")
    finally:
        signal.signal(signal.SIGTERM, before)
        server.shutdown()
        server.server_close()
