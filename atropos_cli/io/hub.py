"""Data files to a data set repository of the Hugging Face hub, in one commit with its README.md.

    check(target)                       before the work: is the library there, is a token known, is the name one?
    push(target, name, files, card)     the address of the data set

One commit brings all files or none, so a push that failed can be repeated; local files are only read.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from atropos_cli.errors import ConfigError, DataError, RunFailed, UsageError
from atropos_cli.redaction import learn, redacted

if TYPE_CHECKING:
    from huggingface_hub import HfApi

_REPO = re.compile(r"[A-Za-z0-9][\w.-]{0,95}/[A-Za-z0-9][\w.-]{0,95}")
_LICENSE = re.compile(r"[a-z0-9][a-z0-9.+-]{0,63}")
_REVISION = re.compile(r"[A-Za-z0-9][\w./-]{0,199}")
_LOADED = (".jsonl", ".json", ".jsonl.gz", ".jsonl.zst", ".parquet")


@dataclass(frozen=True, slots=True)
class HubTarget:
    """Where a push goes: OWNER/NAME, a branch (made when it is not there), and what a new repository is like."""

    repo: str
    private: bool = False
    revision: str | None = None
    license: str | None = None

    def check(self) -> None:
        """Raises UsageError for names that the hub does not take."""
        if not _REPO.fullmatch(self.repo) or ".." in self.repo or "--" in self.repo or self.repo.endswith(".git"):
            raise UsageError(f"{self.repo!r} is not a repository of the hub", hint="give OWNER/NAME, as in me/sums-sft")
        if self.license is not None and not _LICENSE.fullmatch(self.license):
            raise UsageError(
                f"license {self.license!r} is not an identifier", hint="for example apache-2.0, mit, cc-by-4.0 or other"
            )
        if self.revision is not None and (not _REVISION.fullmatch(self.revision) or ".." in self.revision):
            raise UsageError(f"{self.revision!r} is not a branch", hint="for example main or v2")

    def as_flags(self) -> list[str]:
        """The options that say the same to `atropos push`."""
        flags = ["--private"] if self.private else []
        flags += ["--revision", self.revision] if self.revision else []
        return flags + (["--license", self.license] if self.license else [])


def check(target: HubTarget) -> None:
    """Raises UsageError, DataError (no library) or ConfigError (no token, offline) before anything is made."""
    target.check()
    try:
        import huggingface_hub as hub
        from huggingface_hub import constants
    except ModuleNotFoundError as error:
        raise DataError("pushing to the hub needs huggingface_hub", hint="pip install 'atropos-cli[hub]'") from error
    if constants.HF_HUB_OFFLINE:
        raise ConfigError("HF_HUB_OFFLINE is set, so nothing can be pushed", hint="unset it, or leave the push out")
    token = hub.get_token()
    if not token:
        raise ConfigError(
            "no token for the hub is known", hint="set HF_TOKEN to one that may write, or log in with: hf auth login"
        )
    learn(token)


def push(
    target: HubTarget, name: str, files: Mapping[str, Sequence[Path]], card: Mapping[str, Any], *, again: str
) -> str:
    """Commit the files and the README; returns the address. again: the command that repeats it.

    name: of the configuration under which `datasets` loads them. files: by split. Raises RunFailed, DataError.
    """
    check(target)
    for path in (path for paths in files.values() for path in paths):
        if not path.is_file() or not path.name.endswith(_LOADED):
            raise DataError(
                f"{path} is not a file that `datasets` loads from a repository",
                hint="write .jsonl or .parquet and push that",
            )
    from huggingface_hub import HfApi

    try:
        return _commit(HfApi(), target, name, files, card)
    except DataError:
        raise
    except Exception as error:  # the client raises its own, its HTTP library's and the system's
        raise RunFailed(
            f"{target.repo}: the push failed: {_reason(error)}; the files here are complete",
            hint=f"{_advice(error)}; next: {again}",
        ) from error


def config_name(text: str) -> str:
    """A name for a configuration out of a file's name."""
    name = re.sub(r"[^A-Za-z0-9_.-]+", "-", text).strip("-.")
    return name[:80] or "data"


def _commit(
    api: HfApi, target: HubTarget, name: str, files: Mapping[str, Sequence[Path]], card: Mapping[str, Any]
) -> str:
    from huggingface_hub import CommitOperationAdd, CommitOperationDelete

    from atropos_cli.io.datasetcard import Part, merged, paths_of, split_header

    url = api.create_repo(target.repo, repo_type="dataset", private=target.private or None, exist_ok=True)
    repo = url.repo_id
    if target.revision:
        api.create_branch(repo, branch=target.revision, repo_type="dataset", exist_ok=True)
    info = api.dataset_info(repo, revision=target.revision)
    if target.private and info.private is False:
        raise DataError(f"{repo} is there already, and is public", hint="make it private on the hub, or name another")
    there = {item.rfilename for item in info.siblings or ()}
    old = _old_readme(api, repo, info.sha) if "README.md" in there else None
    placed = {split: [f"data/{name}/{config_name(path.name)}" for path in paths] for split, paths in files.items()}
    readme = merged(old, Part(name, repo, placed, card, target.license, target.revision))
    adds = [
        CommitOperationAdd(path_in_repo=where, path_or_fileobj=str(path))
        for split, paths in files.items()
        for where, path in zip(placed[split], paths, strict=True)
    ]
    adds.append(CommitOperationAdd(path_in_repo="README.md", path_or_fileobj=readme.encode("utf-8", "replace")))
    kept = {where for paths in placed.values() for where in paths}
    gone = [
        path
        for path in sorted(paths_of(split_header(old or "")[0], name) & there - kept)
        if path.startswith(f"data/{name}/")
    ]
    operations: list[Any] = [*adds, *(CommitOperationDelete(path_in_repo=path) for path in gone)]
    api.create_commit(
        repo,
        operations,
        commit_message=f"{name}: {sum(map(len, placed.values()))} files by atropos",
        repo_type="dataset",
        revision=target.revision,
        parent_commit=info.sha,  # what somebody else pushed meanwhile is not overwritten
    )
    return str(url)


def _old_readme(api: HfApi, repo: str, commit: str | None) -> str:
    path = api.hf_hub_download(repo, "README.md", repo_type="dataset", revision=commit)
    return Path(path).read_text(encoding="utf-8", errors="replace")


def _status(error: Exception) -> int | None:
    found = getattr(getattr(error, "response", None), "status_code", None)
    return found if isinstance(found, int) else None


def _reason(error: Exception) -> str:
    lines = [line.strip() for line in redacted(str(error)).splitlines() if line.strip()]
    return f"{type(error).__name__}: {' '.join(lines)[:300]}" if lines else type(error).__name__


def _advice(error: Exception) -> str:
    status = _status(error)
    if status in (401, 403):
        return "the token must be one that may write to this repository (HF_TOKEN)"
    if status == 404:
        return "does the owner exist, and may the token see it?"
    if status in (409, 412):
        return "somebody else changed the repository meanwhile: push again"
    return "push again once the hub answers"
