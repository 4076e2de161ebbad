"""Files of models are opened by the plugin that reads their format, and its faults are told from those of the file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from atropos_cli.errors import ConfigError, PluginError
from atropos_cli.plugins.modelfiles import open_model_file

READS = """
from atropos_cli.sdk.models import ModelFile

class File(ModelFile):
    parameters = 7
    def tokenizer(self): return 'tokens'
    def folder(self): raise ConfigError('there is no room')

@hookimpl
def atropos_open_model_file(path):
    if path.suffix == '.toy':
        return File()
    if path.suffix == '.bad':
        raise ConfigError(f'{path.name} is damaged')
    if path.suffix == '.odd':
        return 'a file'
    if path.suffix == '.boom':
        raise KeyError('inside')
"""


def test_the_plugin_that_knows_the_format_opens_the_file(site: Any) -> None:
    site.plugin("a-other", "@hookimpl\ndef atropos_open_model_file(path): return None")
    site.plugin("toy-files", READS)
    opened = open_model_file(Path("x.toy"))
    assert (opened.parameters, opened.context, opened.tokenizer()) == (7, None, "tokens")
    with pytest.raises(ConfigError, match="no room"):
        opened.folder()
    with pytest.raises(ConfigError, match=r"x\.bad is damaged"):
        open_model_file(Path("x.bad"))
    for name, fault in (("x.odd", "gave str, not a ModelFile"), ("x.boom", "KeyError: 'inside'")):
        with pytest.raises(PluginError, match=f"toy-files.*{fault}"):
            open_model_file(Path(name))


def test_a_format_that_nothing_reads_names_the_plugin_that_reads_gguf(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ATROPOS_DISABLE_PLUGINS", "atropos-local")
    with pytest.raises(ConfigError, match=r"no installed plugin reads model files like 'm\.gguf'") as raised:
        open_model_file(Path("m.gguf"))
    assert raised.value.hint == "pip install 'atropos-local[torch]'"
