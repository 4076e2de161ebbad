"""What the commands that make training rows share of passing them on: `--recipe` and `--push-to-hub`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from atropos_cli.config.commands import CommandOptions, option
from atropos_cli.console.dataio import SHARING, RepositoryOptions
from atropos_cli.console.session import Session
from atropos_cli.errors import AtroposError, UsageError
from atropos_cli.paths import home

if TYPE_CHECKING:
    from atropos_cli.io.writers_out import DataOutput, OutputSpec
    from atropos_cli.ports.sharing import Share


class RecipeOptions(CommandOptions):
    """What is done with the rows besides."""

    recipes: tuple[Literal["llama-factory", "axolotl", "trl", "verl"], ...] = option(
        (),
        "Write beside the output how this trainer reads it: llama-factory (dataset_info.json), axolotl, trl, verl.",
        panel=SHARING,
        flag="recipe",
        metavar="NAME",
    )
    push_to_hub: str | None = option(
        None,
        "Push the rows with a dataset card; without -o they also stand in NAME.jsonl. Later: atropos push.",
        panel=SHARING,
        metavar="OWNER/NAME",
    )


class SharingOptions(RecipeOptions, RepositoryOptions):
    """The same, and what the repository is like."""


@dataclass(slots=True)
class Sharing:
    """What is to be done with the rows once they are written. failure: what of it did not work."""

    recipes: tuple[str, ...] = ()
    repository: str = ""
    hub: Share | None = None
    failure: AtroposError | None = None
    url: str | None = None

    @classmethod
    def of(cls, options: RecipeOptions, session: Session) -> Sharing:
        """As asked for. Raises UsageError, ComponentNotFound."""
        more = options if isinstance(options, SharingOptions) else SharingOptions()
        if options.push_to_hub is None and (more.private or more.revision or more.license):
            raise UsageError("--private, --revision and --license need --push-to-hub", hint="add --push-to-hub REPO")
        made = cls(tuple(dict.fromkeys(options.recipes)))
        if options.push_to_hub is not None:
            from atropos_cli.plugins.sharing import open_share
            from atropos_cli.ports.sharing import Repository

            made.repository = options.push_to_hub
            asked = Repository(made.repository, more.private, more.revision, more.license)
            made.hub = open_share(session.registry, asked)
        return made

    def output(self, given: str | None) -> str | None:
        """The output: what was given, or a file named like the repository."""
        return f"{self.repository.rpartition('/')[2]}.jsonl" if given is None and self.hub is not None else given

    def form(self, given: str | None, default: str, *, text: bool = False) -> str:
        """The shape of the rows: what was given, or what the recipe's program reads best. text: they will be text."""
        from atropos_cli.io.recipes import PREFERRED

        wanted = [PREFERRED[name] for name in self.recipes if name in PREFERRED]
        return given or (wanted[0] if wanted and len(self.recipes) == 1 and not text else default)

    def check(self, spec: OutputSpec | None, shape: str) -> None:
        """Before the work. Raises AtroposError for what cannot be done afterwards."""
        from atropos_cli.io import recipes
        from atropos_cli.io.upload import is_remote_target, local_name

        if spec is None or not (self.recipes or self.hub):
            return
        if spec.to_stdout:
            raise UsageError("--recipe and --push-to-hub need a file", hint="give one with -o")
        if spec.kind == "datasets":
            raise UsageError("a folder of `datasets` is neither pushed nor named in a recipe", hint="write .parquet")
        if self.recipes and is_remote_target(spec.target):
            raise UsageError("--recipe names files of this machine", hint="give a local -o")
        for name in self.recipes:
            recipes.check(name, shape, spec.target, shards=spec.shard_size is not None)
            path = Path(home(local_name(spec.target)))
            recipes.check_place(name, path, overwrite=spec.overwrite, validation=bool(spec.validation))
        if self.hub is not None:
            self.hub.check()

    def share(self, output: DataOutput, card: Mapping[str, Any], session: Session) -> list[str]:
        """Write the recipes, push the rows; returns the recipes' paths. What fails is raised by `raise_failure`."""
        from atropos_cli.io import recipes

        made = []
        for name in self.recipes:
            try:
                made.append(str(recipes.write(name, output, str(card["shape"]))))
            except AtroposError as error:
                self.failure = error
        notes = card["counts"].get("notes") or {}
        if "llama-factory" in self.recipes and notes.get("weighted"):
            session.out.warning(
                f"LLaMA-Factory reads no weights: it would train on context, too, in {notes['weighted']} rows",
                "make the rows with --split-turns, and train with mask_history: true",
            )
        for path in made:
            session.out.note(f"recipe: {path}")
        if self.hub is not None:
            self._push(output, card, session)
        return made

    def _push(self, output: DataOutput, card: Mapping[str, Any], session: Session) -> None:
        assert self.hub is not None
        assert output.path is not None
        files: dict[str, list[Path]] = {}
        for path, split in zip(output.files, output.splits, strict=True):
            files.setdefault(split, []).append(path)
        try:
            given = output.spec.target if output.place is None else output.place.url
            self.url = self.hub.push(given, files, card)
            session.out.note(f"pushed: {self.url}")
        except AtroposError as error:
            self.failure = error

    def raise_failure(self) -> None:
        """Raise what did not work; the rows themselves are there."""
        if self.failure is not None:
            raise self.failure
