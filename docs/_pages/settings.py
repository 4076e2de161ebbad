"""What `atropos gen` can be told: the flag, the configuration key and the variable of every setting."""

from __future__ import annotations

from collections.abc import Iterator

from _pages.markdown import page, quoted, table

INTRO = """\
Each setting can be given as a flag, as a variable or in a file. Later sources win: defaults, the user's file, the
project's file, `ATROPOS_*` variables, flags. `atropos config show gen ENV` prints every value with its source, and
[configure](../how-to/configure.md) shows the files."""
CONTROL = {
    "REMOTE_PYTHON": "Interpreter with atropos on another machine, as `--remote-python` of `atropos tmux` says.",
    "SLURM_PROFILE": "Cluster profile of `atropos slurm`, as `--profile` says.",
    "OFFLINE": "`1`: use only what is on this machine, as `--offline` does; `offline = true` in a file.",
    "CACHE_DIR": "Folder for models and data of the hub (`hub`, `datasets` below it); `cache_dir` in a file.",
    "DOTENV": "`0`: leave the file `.env` of the working folder alone. Cannot stand in that file.",
    "LOG_LEVEL": "Level of the logs of libraries, as `--log-level`: `debug`, `info`, `warning`, `error` or `critical`.",
    "CONFIG": "Configuration file to read instead of `./atropos.toml`, as `--config` does.",
    "DEBUG": "`1`: show tracebacks, as `--debug` does.",
    "DISABLE_PLUGINS": "Plugins or distributions to leave out, separated by commas; `all`: every one but the built-in.",
    "STRICT_PLUGINS": "`1`: a broken plugin is an error, as with `--strict-plugins`.",
    "API_KEY": "Key that `atropos doctor` sends to a server other than api.openai.com; for `gen`, see `--api-key-env`.",
}


def pages() -> Iterator[tuple[str, str]]:
    """reference/settings.md."""
    from atropos_cli.cli.options import settings_flags
    from atropos_cli.config import sources
    from atropos_cli.config.buckets import SHARED_BACKEND, settings_bucket

    bucket = settings_bucket()
    missing = sources.CONTROL ^ set(CONTROL)
    if missing:
        raise SystemExit(f"docs/_pages/settings.py and config/sources.py differ in the variables {sorted(missing)}")
    rows: dict[str, list[tuple[str, ...]]] = {}
    for flag in settings_flags(bucket):
        option = flag.option
        section = option.path[0] if len(option.path) > 1 else ""
        notes = option.description + (f" ({option.range})" if option.range else "")
        rows.setdefault(section, []).append(
            (
                f"`--{flag.names[0]}`",
                f"`{option.path[-1]}`",
                f"`ATROPOS_{option.path[-1].upper()}`",
                quoted(option.type_text),
                quoted(option.default_text),
                notes,
            )
        )
    header = ("flag", "key", "variable", "type", "default", "meaning")
    parts = []
    for section, lines in rows.items():
        title = f"Section `[{section}]`" if section else "At the top of the file"
        parts.append(f"## {title}\n\n{table(header, lines)}")
    shared = ", ".join(f"`ATROPOS_{name.upper()}`" for name in SHARED_BACKEND)
    parts.append(
        "## Options of environments, backends and rewards\n\n"
        "An option of the environment is a flag (`--max-steps 50`, or `--env.max-steps 50` where a setting has the "
        "name), a key in section `[env]` or `[environments.NAME]`, and the variable `ATROPOS_ENV__MAX_STEPS`. An "
        "option of the backend is the flag `--backend.max-batch 8`, a key in section `[backend_options]` or "
        f"`[backends.NAME]`, and the variable `ATROPOS_BACKEND__MAX_BATCH`. Short variables: {shared}. "
        "An option of a reward that is in use is the flag `--judge.model NAME` (the reward's name stands before the "
        "dot), a key in section `[reward.judge]`, and the variable `ATROPOS_REWARD__JUDGE__MODEL`. "
        "The options themselves are in [components](components.md)."
    )
    parts.append(
        "## Options of one command\n\n"
        "Every other option of a command is a flag (`atropos filter --min-score 0.5`), a key in the section of the "
        "command (`min_score` in `[filter]`), and a variable that begins with it (`ATROPOS_FILTER__MIN_SCORE`). The "
        "section of `atropos env check` is `[env-check]`, its variables begin with `ATROPOS_ENV_CHECK__`. Flags that "
        "may be repeated are lists with a plural name: `--reward` is `rewards`. `atropos config show filter` prints "
        "the names, each with its value and source."
    )
    parts.append(
        "## Variables that steer the program\n\n"
        + table(("variable", "meaning"), [(f"`ATROPOS_{name}`", CONTROL[name]) for name in CONTROL])
    )
    yield "settings.md", page("Settings", INTRO, *parts)
