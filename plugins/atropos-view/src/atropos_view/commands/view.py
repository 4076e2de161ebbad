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

from atropos_cli.sdk import DataError, UsageError
from atropos_cli.sdk.commands import FORMAT, CommandOptions, Session, data_stream, end, keep_inputs, option, with_flags
from atropos_cli.sdk.data import is_remote

if TYPE_CHECKING:
    from atropos_view.page.index import RunIndex
    from atropos_view.page.library import Library

_ROWS = (".jsonl", ".jsonl.gz", ".jsonl.zst", ".parquet", ".arrow")

SERVER, PAGE = "Server", "Page without a server"


class ViewOptions(CommandOptions):
    """Which runs are shown, and how."""

    diff: str | None = option(None, "Compare with this run on the same tasks.", metavar="OTHER")
    tokenizer: str | None = option(
        None, "Show tokens as text: a folder, a .gguf file, smollm2, or a name of the Hugging Face hub.", metavar="NAME"
    )
    group: bool | None = option(
        None, "Join rows of one rollout by task, or by prompt.  [default: where rows have a task id, up to 64 MB]"
    )
    port: int = option(0, "0: a free one.", panel=SERVER, ge=0, le=65535)
    host: str = option("127.0.0.1", "Where to listen; this machine only by default.", panel=SERVER, metavar="ADDRESS")
    export: Path | None = option(
        None, "Write one HTML file that holds everything, and stop.", panel=PAGE, metavar="FILE"
    )
    limit: int | None = option(None, "Groups in the file.  [default: all]", panel=PAGE, ge=1)
    overwrite: bool = option(False, "Replace an existing file.", panel=PAGE)
    format: str = FORMAT


@with_flags("view", ViewOptions)
def view(
    run: Annotated[
        str, typer.Argument(metavar="RUN", help="A run folder, a folder of runs, a file, or a glob.")
    ] = "runs",
    *,
    options: ViewOptions,
    session: Session,
) -> None:
    """Show the groups of a run in the browser: rollouts side by side, rewards, tokens, filters, search.

    Of a folder of runs (such as runs) it shows the list of them, live while they run, with a link to each.

    The address is printed on standard output; it holds a secret, so that nobody else on this machine can use it.
    Ctrl-C ends the server. Rows are read when they are looked at, so a file of any size opens at once.
    """
    export = options.export
    if export is not None and export.is_dir():
        raise DataError(f"{export} is a folder", hint="give a file to --export")
    if export is not None and export.exists() and not options.overwrite:
        raise DataError(f"{export} is already there", hint="--overwrite replaces it")
    listed = _lists_runs(run)
    if listed and (options.diff is not None or export is not None):
        name = "--diff" if export is None else "--export"
        raise UsageError(f"{name} is of one run, and {run} is a folder of runs", hint=f"atropos runs {run} lists them")
    if listed:
        with closing(_index(run, options)) as index:
            _serve(index, options, session)
        return
    with closing(_open(run, options.diff, options)) as library:
        if export is not None:
            _export(library, export, options.limit, session)
        else:
            _serve(library, options, session)


def _lists_runs(name: str) -> bool:
    """Is it a folder of runs, and neither a run nor a folder of data files?"""
    from atropos_cli.sdk.data import home
    from atropos_cli.sdk.runs import is_run

    folder = Path(home(name))
    if is_remote(name) or not folder.is_dir():
        return False
    names = [path.name for path in folder.iterdir()]
    return not is_run(names) and not any(name.endswith(_ROWS) for name in names)


def _index(run: str, options: ViewOptions) -> RunIndex:
    from atropos_cli.sdk.data import home
    from atropos_view.page.index import RunIndex

    return RunIndex([Path(home(run))], lambda folder: _open(str(folder), None, options))


def _open(run: str, other: str | None, options: ViewOptions) -> Library:
    from atropos_cli.sdk.data import find_sources
    from atropos_view.page.library import Library
    from atropos_view.page.runs import Run

    if run == other == "-":
        raise UsageError("standard input (-) is named twice")
    decode: Callable[[Sequence[int]], str] | None = None
    if options.tokenizer is not None:
        from atropos_cli.sdk.data import load_tokenizer

        decode = load_tokenizer(options.tokenizer).decode
    names = [run] if other is None else [run, other]
    return Library(
        [Run(name, find_sources([name]), form=options.format, group=options.group) for name in names], decode
    )


def _export(library: Library, path: Path, limit: int | None, session: Session) -> None:
    from atropos_cli.sdk.data import make_folder
    from atropos_view.page.export import export

    keep_inputs([source for run in library.runs for source in run.sources], path, str(path), "--export")
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


def _serve(library: Library | RunIndex, options: ViewOptions, session: Session) -> None:
    """Serve until Ctrl-C or SIGTERM, which end it well: there is no other way to end it."""
    from atropos_view.page.server import ViewServer, is_loopback

    host = options.host
    if not is_loopback(host):
        session.out.warning(
            f"{host} can be reached from other machines: whoever has the address sees the rollouts, unencrypted",
            "without --host only this machine can; ssh -L reaches it from elsewhere",
        )
    server = ViewServer(library, host, options.port)
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
