"""`atropos push`: a file of rows, or the groups of a run, to the Hugging Face hub with a dataset card."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from atropos_cli.sdk import DataError
from atropos_cli.sdk.commands import ExitCode, JsonOption, Session, option, with_flags
from atropos_cli.sdk.data import ReadLog, ReadOptions, find_sources, home, read_object, read_objects
from atropos_cli.sdk.jobs import core_version
from atropos_cli.sdk.runs import now
from atropos_cli.sdk.sharing import Repository, RepositoryOptions, card_path, describe_source
from atropos_hub.hub import HubShare, config_name

if TYPE_CHECKING:
    from atropos_cli.sdk.data import Source


class PushOptions(RepositoryOptions):
    """What the repository is like, and the data set in it."""

    name: str | None = option(
        None, "Configuration of the data set, as in load_dataset(REPO, NAME); default: the file's name."
    )
    dry_run: bool = option(False, "Print the card and push nothing.")


@with_flags("push", PushOptions)
def push(
    given: Annotated[
        str, typer.Argument(metavar="FILE|RUN", help="An output of ours, any file of rows, or a run folder.")
    ],
    repo: Annotated[str, typer.Argument(metavar="OWNER/NAME", help="Data set repository; made when it is not there.")],
    *,
    options: PushOptions,
    session: Session,
    as_json: JsonOption = False,
) -> int:
    """Push rows to a data set of the Hugging Face hub, with a card that says what they were made from.

    All files and the card go in one commit: a push that failed can be repeated. A repository may hold several
    data sets by name; what stands in its README.md stays. The token is that of HF_TOKEN or of `hf auth login`.
    """
    share = HubShare(Repository(repo, options.private, options.revision, options.license))
    files, card = _found(given)
    config = config_name(options.name or Path(given.rstrip("/")).name.partition(".")[0])
    if options.dry_run:
        from atropos_hub.readme import Part, merged

        placed = {split: [f"data/{config}/{path.name}" for path in paths] for split, paths in files.items()}
        session.out.data(merged(None, Part(config, repo, placed, card, options.license, options.revision)).rstrip())
        return ExitCode.OK
    url = share.push(given, files, card, config if options.name else None)
    if as_json:
        session.out.json(
            {"repo": repo, "name": config, "url": url, "files": [str(p) for s in files.values() for p in s]}
        )
    else:
        session.out.data(f"pushed: {url}")
        session.out.note(f'load it: datasets.load_dataset("{repo}", "{config}")')
    return ExitCode.OK


def _found(given: str) -> tuple[dict[str, list[Path]], dict[str, Any]]:
    """(files by split, card). The card beside an output knows its shards and splits. Raises DataError."""
    path = Path(home(given))
    stored = card_path(path)
    if stored.is_file():
        try:
            card = read_object(stored)
            outputs = [path.with_name(Path(str(item["name"])).name) for item in card["outputs"]]
            missing = [str(file) for file in outputs if not file.is_file()]
            splits = _splits(outputs, list(card["rows"]))
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise DataError(f"{stored} is not a card: {type(error).__name__}: {error}", hint="remove it") from error
        if missing:
            raise DataError(f"{missing[0]} is missing, which {stored} names", hint="make the rows again")
        return splits, card
    sources = find_sources([given])
    paths = [source.path for source in sources if source.path is not None]
    if len(paths) != len(sources):
        raise DataError(f"{given} is no file", hint="write it to a file first")
    return {"train": paths}, _card_of(sources)


def _splits(paths: list[Path], splits: list[str]) -> dict[str, list[Path]]:
    if splits in (["train"], []):
        return {"train": paths}
    found: dict[str, list[Path]] = {}
    for path in paths:
        stem = path.name.partition(".")[0]
        split = next((name for name in ("validation", "train") if stem.endswith(f"-{name}") or f"-{name}-" in stem), "")
        found.setdefault(split or "train", []).append(path)
    return found


def _card_of(sources: list[Source]) -> dict[str, Any]:
    """A card for rows without one: a run's groups, or a file of somebody else's."""
    is_run = any(source.run is not None for source in sources)
    rows = sum(_rows(source) for source in sources)
    return {
        "atropos_version": core_version,
        "created": now(),
        "command": "gen" if is_run else "push",
        "options": {},
        "sources": [describe_source(source) for source in sources],
        "read": {},
        "steps": [],
        "counts": _summary(sources[0].run) if is_run else {},
        "lineage": "a row is a group: a task and all rollouts of it, with their rewards" if is_run else "",
        "shape": "groups" if is_run else "",
        "scores": {},
        "outputs": [
            {"name": source.path.name, "bytes": source.path.stat().st_size} for source in sources if source.path
        ],
        "rows": {"train": rows},
        "notes": [],
    }


def _summary(run: Path | None) -> dict[str, Any]:
    """The numbers of a run's summary."""
    if run is None or not (run / "summary.json").is_file():
        return {}
    try:
        summary = read_object(run / "summary.json")
    except (OSError, ValueError) as error:
        raise DataError(f"{run / 'summary.json'} cannot be read: {error}", hint="remove it, or repair it") from error
    return {key: value for key, value in summary.items() if isinstance(value, int | float | str)}


def _rows(source: Source) -> int:
    """Rows of a file, counted as cheaply as its kind allows."""
    if source.path is not None and source.path.name.endswith(".parquet"):
        try:
            import pyarrow.parquet as pq

            return int(pq.ParquetFile(source.path).metadata.num_rows)
        except ModuleNotFoundError as error:
            raise DataError("reading parquet needs pyarrow", hint="pip install 'atropos-cli[parquet]'") from error
        except (OSError, ValueError) as error:
            raise DataError(f"{source.name} is not parquet: {error}") from error
    return len([item.number for item in read_objects(source, ReadOptions(tolerant=True), ReadLog())])
