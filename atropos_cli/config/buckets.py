"""The option groups of `atropos gen` and `train`: settings, and the options of environment, backend and trainer."""

from __future__ import annotations

import re
from collections.abc import Collection

from pydantic import BaseModel

from atropos_cli.config.options import options_of
from atropos_cli.config.roles import RoleOptions
from atropos_cli.config.settings import GenSettings
from atropos_cli.config.sources import Bucket

SETTINGS = "settings"
ENVIRONMENT = "env"
BACKEND = "backend"
TRAIN = "train"
TRAINER = "trainer"
REWARD = "reward"
ROLE = "role"
TOOLS = "tool"
SHARED_BACKEND = ("base_url", "api_key_env", "endpoint")
"""Backend options with a flag and a variable of their own: --base-url, ATROPOS_BASE_URL."""


def settings_bucket() -> Bucket:
    """The top level and the sections [sampling] and [execution]."""
    elsewhere = ("backend_options",), ("reward_options",), ("role_options",), ("tools_options",)
    options = tuple(option for option in options_of(GenSettings) if option.path not in elsewhere)
    return Bucket(name=SETTINGS, label="atropos gen", model=GenSettings, options=options)


def environment_bucket(
    model: type[BaseModel] | None, names: tuple[str, ...] = (), installed: Collection[str] = ()
) -> Bucket:
    """[env] and [environments.NAME]. model None: no environment is chosen."""
    return Bucket(
        name=ENVIRONMENT,
        label=f"environment {names[0]!r}" if names else "the environment",
        model=model,
        section="env",
        table="environments",
        prefix="ENV__",
        names=names,
        installed=installed,
    )


def backend_bucket(
    model: type[BaseModel] | None, names: tuple[str, ...] = (), installed: Collection[str] = ()
) -> Bucket:
    """[backend_options] and [backends.NAME]. model None: the backend is not known yet."""
    return Bucket(
        name=BACKEND,
        label=f"backend {names[0]!r}" if names else "the backend",
        model=model,
        section="backend_options",
        table="backends",
        prefix="BACKEND__",
        names=names,
        installed=installed,
        shared={name: (name,) for name in SHARED_BACKEND},
    )


def reward_bucket(name: str, model: type[BaseModel], installed: Collection[str] = ()) -> Bucket:
    """[reward.NAME]: the options of one reward."""
    return _one_of(REWARD, name, f"reward {name!r}", reward_prefix(name), model, installed)


def reward_prefix(name: str) -> str:
    """How the variables of a reward's options begin, after ATROPOS_."""
    return _prefix_of(REWARD, name)


def role_bucket(name: str, all_names: Collection[str] = ()) -> Bucket:
    """[role.NAME]: the options of one role. all_names: the roles of this command."""
    return _one_of(ROLE, name, f"role {name!r}", role_prefix(name), RoleOptions, frozenset(all_names))


def role_prefix(name: str) -> str:
    """How the variables of a role's options begin, after ATROPOS_."""
    return f"ROLE__{name.upper().replace('-', '_')}__"


def tools_bucket(name: str, model: type[BaseModel], installed: Collection[str] = ()) -> Bucket:
    """[tool.NAME]: the options of one source of tools."""
    return _one_of(TOOLS, name, f"tools of {name}", tools_prefix(name), model, installed)


def tools_prefix(name: str) -> str:
    """How the variables of the options of a source of tools begin, after ATROPOS_."""
    return _prefix_of(TOOLS, name)


def _one_of(
    table: str, name: str, label: str, prefix: str, model: type[BaseModel], installed: Collection[str]
) -> Bucket:
    """[TABLE.NAME]: one of those whose options have tables of their own."""
    section = f"{table}.{name}"
    return Bucket(
        name=section,
        label=label,
        model=model,
        section=section,
        table=table,
        prefix=prefix,
        names=(name,),
        installed=installed,
    )


def _prefix_of(table: str, name: str) -> str:
    return f"{table.upper()}__{re.sub('[^A-Z0-9]', '_', name.upper())}__"


def is_role_name(name: str) -> bool:
    """May a role have this name? It is part of flags, keys and variables."""
    return re.fullmatch(r"[a-z][a-z0-9]*(-[a-z0-9]+)*", name) is not None
