"""Checkpoints `checkpoints/step-N` and the folder `model`: an adapter in PEFT's form, and where the server keeps it.

A folder is written beside its place, forced to disk and renamed: it is whole, or absent. transformers and the backend
`local` load it, with the base model that it names. `tinker.json` in it says from what the server continues.
"""

from __future__ import annotations

import contextlib
import json
import lzma
import os
import re
import shutil
import tarfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from atropos_cli.sdk import DataError
from atropos_cli.sdk.backends import proxy_for, tls_context
from atropos_cli.sdk.training import TrainerError

from .policy import Policy, Saved
from .service import Service, Unreadable
from .tokens import Words

if TYPE_CHECKING:
    import httpx

STATE = "tinker.json"
_EVALUATED = "evaluated"
_WRITING = ".writing-"
_WEIGHTS, _CONFIG = "adapter_model.safetensors", "adapter_config.json"
_MODULE = re.compile(r"(?:^|\.)(\w+)\.lora_(?:A|embedding_A)(?:\.weight)?$")
_TIMEOUT = 60.0
_PIECE = 1 << 20
_CONFIG_MOST = 1 << 20
_LOG = "the server's log may say more; a run that has a checkpoint continues with --resume"


def newest(run: Path) -> tuple[Path, dict[str, Any]]:
    """The newest whole checkpoint and its state. Raises DataError when there is none, or when it is damaged."""
    found = sorted((run / "checkpoints").glob("step-*"), key=_step)
    if not found:
        raise DataError(
            f"there is no complete checkpoint below {run / 'checkpoints'}: nothing to resume from",
            hint="start again with --overwrite, or name the folder of a run that has saved one",
        )
    folder = found[-1]
    try:
        state = json.loads((folder / STATE).read_text(encoding="utf-8"))
        assert all(isinstance(state[name], kind) for name, kind in _KINDS.items())
    except (OSError, ValueError, KeyError, TypeError, AssertionError) as error:
        older = f"then --resume continues from {found[-2].name}" if len(found) > 1 else "and start with --overwrite"
        raise DataError(
            f"checkpoint {folder} is damaged: no {STATE} that can be read", hint=f"remove it; {older}"
        ) from error
    return folder, state


_KINDS = {"step": int, "taken": int, "state": str, "base_model": str}


def write(folder: Path, policy: Policy, saved: Saved, words: Words, state: dict[str, Any]) -> None:
    """Download an adapter and put a folder of it in place.

    Raises TrainerError, ServerUnavailable; an older folder stays then.
    """
    with _placing(folder) as writing:
        writing.mkdir(parents=True)
        _download(policy, saved.sampler, writing)
        _complete(writing, words.location)
        words.tokenizer.save_pretrained(str(writing))
        (writing / STATE).write_text(json.dumps(state, indent=1) + "\n", encoding="utf-8")


def copy(source: Path, folder: Path) -> None:
    """Put a copy of a checkpoint in place as another folder. Raises TrainerError; an older folder stays then."""
    with _placing(folder) as writing:
        shutil.copytree(source, writing, ignore=shutil.ignore_patterns(_EVALUATED))


@contextlib.contextmanager
def _placing(folder: Path) -> Iterator[Path]:
    """A place beside a folder, to be filled: it becomes the folder, whole, or nothing of it stays.

    Raises TrainerError where it cannot be written.
    """
    for left in folder.parent.glob(f"{_WRITING}*"):  # by a session that was killed
        shutil.rmtree(left, ignore_errors=True)
    writing, old = (folder.with_name(f"{_WRITING}{word}{folder.name}") for word in ("", "old-"))
    try:
        yield writing
        _force_to_disk(writing)
        if folder.exists():
            folder.rename(old)
        writing.rename(folder)
        shutil.rmtree(old, ignore_errors=True)
    except OSError as error:
        # shutil.Error lists the files that failed; the first is enough.
        first = error.args[0][0][-1] if isinstance(error, shutil.Error) and error.args and error.args[0] else error
        raise TrainerError(
            f"{folder} cannot be written: {first}", hint="mend it, then continue with --resume"
        ) from error
    finally:
        shutil.rmtree(writing, ignore_errors=True)


def is_evaluated(folder: Path) -> bool:
    """Is the evaluation of this checkpoint's step done?"""
    return (folder / _EVALUATED).exists()


def note_evaluated(folder: Path) -> None:
    """The evaluation is done: a run that continues from here need not make it."""
    if folder.is_dir():
        with contextlib.suppress(OSError):
            (folder / _EVALUATED).touch()


def prune(run: Path, *, keep: int, best: Callable[[int], bool]) -> list[str]:
    """Remove all but the newest checkpoints and the best one; the server's names of those removed."""
    found = sorted((run / "checkpoints").glob("step-*"), key=_step)
    gone = []
    for folder in found[: max(0, len(found) - keep)]:
        if not best(_step(folder)):
            with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
                state = json.loads((folder / STATE).read_text(encoding="utf-8"))
                gone += [str(state["state"]), str(state["sampler"])]
            shutil.rmtree(folder, ignore_errors=True)
    return gone


def _step(folder: Path) -> int:
    match = re.fullmatch(r"step-(\d+)", folder.name)
    return int(match[1]) if match else -1


def _download(policy: Policy, path: str, folder: Path) -> None:
    """The adapter's two files out of the server's archive. Nothing else of it is touched."""
    service = policy.service
    url = _archive_url(service, path)
    archive = folder / "archive"

    def work() -> None:
        _fetch(service, url, archive)
        try:
            with contextlib.ExitStack() as stack:
                with _reading(path):
                    packed = stack.enter_context(tarfile.open(archive))
                _unpack(packed, path, folder)
        finally:
            archive.unlink()

    service.fetch(work, url)


@contextlib.contextmanager
def _reading(path: str) -> Iterator[None]:
    """Raises Unreadable for an archive that is none or is damaged; gzip and bz2 have OSErrors for that."""
    try:
        yield
    except (tarfile.TarError, EOFError, OSError, zlib.error, lzma.LZMAError, ValueError) as error:
        text = f"the adapter {path} that the server sends cannot be read: {error}"
        raise Unreadable(text, hint="continue with --resume") from error


def _fetch(service: Service, url: str, archive: Path) -> None:
    """Raises httpx.HTTPError."""
    import httpx

    def sign(request: httpx.Request) -> None:
        """The key is for the server alone; httpx would take it along to where a redirection leads."""
        for name, value in service.headers().items():
            request.headers.pop(name, None)
            if _origin(request.url) == _origin(httpx.URL(service.url)):
                request.headers[name] = value

    with (
        httpx.Client(
            timeout=_TIMEOUT,
            follow_redirects=True,
            proxy=proxy_for(url),
            verify=tls_context() if url.startswith("https:") else True,
            trust_env=False,
            event_hooks={"request": [sign]},
        ) as client,
        client.stream("GET", url) as answer,
        archive.open("wb") as file,
    ):
        answer.raise_for_status()
        for piece in answer.iter_bytes(_PIECE):
            file.write(piece)


def _origin(url: httpx.URL) -> tuple[str, str, int | None]:
    return url.scheme, url.host, url.port


def _archive_url(service: Service, path: str) -> str:
    """The address of an adapter's archive. SkyRL's server knows it by its name alone, others by its kind and name."""
    import tinker

    rest = service.client.create_rest_client()
    run, _, name = path.removeprefix("tinker://").partition("/")
    try:
        return str(service.wait(lambda: rest.get_checkpoint_archive_url(run, name).result()).url)
    except TrainerError as error:
        if not isinstance(error.__cause__, tinker.NotFoundError):
            raise
    name = name.rpartition("/")[2]
    return str(service.wait(lambda: rest.get_checkpoint_archive_url(run, name).result()).url)


def _unpack(packed: tarfile.TarFile, path: str, folder: Path) -> None:
    missing = {_WEIGHTS, _CONFIG}
    while missing:
        with _reading(path):
            member = packed.next()
            if member is None:
                break
            name = Path(member.name).name
            source = packed.extractfile(member) if member.isreg() and name in missing else None
        if source is None:
            continue
        room = _CONFIG_MOST if name == _CONFIG else shutil.disk_usage(folder).free
        if member.size > room:
            raise TrainerError(
                f"{name} in the server's archive has {member.size} bytes, and there is room for {room}", hint=_LOG
            )
        missing.remove(name)
        with (folder / name).open("wb") as file:
            while True:
                with _reading(path):
                    piece = source.read(_PIECE)
                if not piece:
                    break
                file.write(piece)
    with _reading(path):  # to its end, where the checksum of what is compressed is
        while packed.fileobj is not None and packed.fileobj.read(_PIECE):
            pass
    if missing:
        raise TrainerError(f"the server's archive has no {' and no '.join(sorted(missing))}", hint=_LOG)


def _complete(folder: Path, base: str) -> None:
    """Name the base model and the layers in the adapter's configuration.

    Servers leave out the layers, and PEFT would take a default for them and drop the weights of all others in silence.
    """
    try:
        config = json.loads((folder / _CONFIG).read_text(encoding="utf-8"))
        names = _tensors(folder / _WEIGHTS)
        config = {**config, "peft_type": "LORA", "task_type": "CAUSAL_LM", "inference_mode": True}
    except (ValueError, TypeError, LookupError, RecursionError) as error:
        raise TrainerError(f"the server's adapter cannot be read: {error}", hint=_LOG) from error
    modules = {found[1] for name in names if (found := _MODULE.search(name)) is not None}
    if not modules:
        raise TrainerError("the server's adapter has no LoRA weights", hint="--lora-r, and the log of the server")
    config |= {"base_model_name_or_path": base, "target_modules": sorted(modules)}
    (folder / _CONFIG).write_text(json.dumps(config, indent=1) + "\n", encoding="utf-8")


def _tensors(path: Path) -> list[str]:
    """The names in a safetensors file. Raises ValueError for one that is cut off."""
    size = path.stat().st_size
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        header = json.loads(file.read(length)) if length <= size else {}
    names = [name for name in header if name != "__metadata__"]
    if not names or 8 + length + max(header[name]["data_offsets"][1] for name in names) > size:
        raise ValueError(f"{path.name} is cut off")
    return names


def _force_to_disk(folder: Path) -> None:
    for path in [*folder.rglob("*"), folder]:
        number = os.open(path, os.O_RDONLY)
        try:
            os.fsync(number)
        finally:
            os.close(number)
