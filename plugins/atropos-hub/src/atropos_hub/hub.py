"""Data files to a data set repository of the Hugging Face hub, in one commit with its README.md.

    share = HubShare(repository)
    share.check()                       before the work: is the library there, is a token known, is the name one?
    share.push(given, files, card)      the address of the data set

One commit brings all files or none, so a push that failed can be repeated; local files are only read.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from atropos_cli.sdk import ConfigError, DataError, UsageError
from atropos_cli.sdk.commands import shell
from atropos_cli.sdk.runs import RunFailed
from atropos_cli.sdk.secrets import learn_secret, redacted
from atropos_cli.sdk.sharing import Repository, Share

if TYPE_CHECKING:
    from huggingface_hub import HfApi

_REPO = re.compile(r"[A-Za-z0-9][\w.-]{0,95}/[A-Za-z0-9][\w.-]{0,95}")
_LICENSE = re.compile(r"[a-z0-9][a-z0-9.+-]{0,63}")
_REVISION = re.compile(r"[A-Za-z0-9][\w./-]{0,199}")
_LOADED = (".jsonl", ".json", ".jsonl.gz", ".jsonl.zst", ".parquet")


class HubShare(Share):
    """A data set repository. Raises UsageError for names that the hub does not take."""

    def __init__(self, repository: Repository) -> None:
        self.repository = repository
        _check_names(repository)

    def check(self) -> None:
        """Raises DataError (no library) or ConfigError (no token, offline) before anything is made."""
        try:
            import huggingface_hub as hub
            from huggingface_hub import constants
        except ModuleNotFoundError as error:
            raise DataError("pushing to the hub needs huggingface_hub", hint="pip install huggingface_hub") from error
        if constants.HF_HUB_OFFLINE:
            raise ConfigError("HF_HUB_OFFLINE is set, so nothing can be pushed", hint="unset it, or leave the push out")
        token = hub.get_token()
        if not token:
            raise ConfigError(
                "no token for the hub is known",
                hint="set HF_TOKEN to one that may write, or log in with: hf auth login",
            )
        learn_secret(token)

    def push(
        self, given: str, files: Mapping[str, Sequence[Path]], card: Mapping[str, Any], name: str | None = None
    ) -> str:
        """Commit the files and the README; returns the address. Raises RunFailed, DataError.

        name: of the configuration under which `datasets` loads them; default: that of the output.
        """
        self.check()
        for path in (path for paths in files.values() for path in paths):
            if not path.is_file() or not path.name.endswith(_LOADED):
                raise DataError(
                    f"{path} is not a file that `datasets` loads from a repository",
                    hint="write .jsonl or .parquet and push that",
                )
        from huggingface_hub import HfApi

        stem = Path(given.rstrip("/")).name.partition(".")[0]
        try:
            return _commit(HfApi(), self.repository, name or config_name(stem), files, card)
        except DataError:
            raise
        except Exception as error:  # the client raises its own, its HTTP library's and the system's
            named = ("--name", name) if name is not None else ()
            again = shell("push", given, self.repository.name, *self._flags(), *named)
            raise RunFailed(
                f"{self.repository.name}: the push failed: {_reason(error)}; the files here are complete",
                hint=f"{_advice(error)}; next: {again}",
            ) from error

    def _flags(self) -> list[str]:
        """The options that say the same to `atropos push`."""
        flags = ["--private"] if self.repository.private else []
        flags += ["--revision", self.repository.revision] if self.repository.revision else []
        return flags + (["--license", self.repository.license] if self.repository.license else [])


def _check_names(repository: Repository) -> None:
    name, revision = repository.name, repository.revision
    if not _REPO.fullmatch(name) or ".." in name or "--" in name or name.endswith(".git"):
        raise UsageError(f"{name!r} is not a repository of the hub", hint="give OWNER/NAME, as in me/sums-sft")
    if repository.license is not None and not _LICENSE.fullmatch(repository.license):
        raise UsageError(
            f"license {repository.license!r} is not an identifier",
            hint="for example apache-2.0, mit, cc-by-4.0 or other",
        )
    if revision is not None and (not _REVISION.fullmatch(revision) or ".." in revision):
        raise UsageError(f"{revision!r} is not a branch", hint="for example main or v2")


def config_name(text: str) -> str:
    """A name for a configuration out of a file's name."""
    name = re.sub(r"[^A-Za-z0-9_.-]+", "-", text).strip("-.")
    return name[:80] or "data"


def _commit(
    api: HfApi, target: Repository, name: str, files: Mapping[str, Sequence[Path]], card: Mapping[str, Any]
) -> str:
    from huggingface_hub import CommitOperationAdd, CommitOperationDelete

    from atropos_hub.readme import Part, merged, paths_of, split_header

    url = api.create_repo(target.name, repo_type="dataset", private=target.private or None, exist_ok=True)
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
