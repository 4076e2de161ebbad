"""Places where rows are shared, by the plugin that knows one."""

from __future__ import annotations

from atropos_cli.errors import AtroposError, ComponentNotFound
from atropos_cli.plugins.firstanswer import first_answer
from atropos_cli.plugins.firstparty import pip_install
from atropos_cli.plugins.registry import Registry
from atropos_cli.ports.sharing import Repository, Share


def open_share(registry: Registry, repository: Repository) -> Share:
    """The repository, from the first plugin that takes it.

    Raises ComponentNotFound when none does, PluginError for the fault of a plugin, and what the plugin finds wrong.
    """
    asked, task = {"repository": repository}, f"push to {repository.name!r}"
    # mypy takes no abstract class for type[T]; here it is only the type of the answer
    share = first_answer(registry, "atropos_share", asked, Share, task, AtroposError)  # type: ignore[type-abstract]
    if share is not None:
        return share
    raise ComponentNotFound(
        f"no installed plugin pushes rows to {repository.name!r}",
        hint=f"{pip_install('atropos-hub')}: OWNER/NAME is then a repository of the Hugging Face hub",
    )
