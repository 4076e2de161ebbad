"""Stored data: files of rows on this machine or elsewhere."""

from __future__ import annotations

from atropos_cli.datasets.convert.tokenizers import load_tokenizer
from atropos_cli.domain.base import is_finite, is_value
from atropos_cli.io.append import atomic_write, write_orders
from atropos_cli.io.formats import FORMATS, Format, RowError, detect, read_as
from atropos_cli.io.grouping import joined
from atropos_cli.io.jsonvalue import NotJson, kind_of, read_object
from atropos_cli.io.jsonvalue import dump as dump_json
from atropos_cli.io.jsonvalue import parse as parse_json
from atropos_cli.io.lock import file_lock
from atropos_cli.io.lost import LostGroups
from atropos_cli.io.prompting import PROMPT_PARTS, whole_prompt
from atropos_cli.io.readers import ReadLog, ReadOptions, pick_format, read_objects, read_records
from atropos_cli.io.records import Message as StoredMessage
from atropos_cli.io.records import Record, StoredRollout, TokenSeq, text_of
from atropos_cli.io.remote import is_remote, local_copy, make_folder
from atropos_cli.io.sources import Source, find_sources, table_rows
from atropos_cli.io.thinkform import thinking_of
from atropos_cli.io.values import keeps_to_lines, read_values
from atropos_cli.paths import home, real_target, replacing
from atropos_cli.text.thinking import may_think
from atropos_cli.text.toolparsing.blocks import reply_blocks

__all__ = [
    "FORMATS",
    "PROMPT_PARTS",
    "Format",
    "LostGroups",
    "NotJson",
    "ReadLog",
    "ReadOptions",
    "Record",
    "RowError",
    "Source",
    "StoredMessage",
    "StoredRollout",
    "TokenSeq",
    "atomic_write",
    "detect",
    "dump_json",
    "file_lock",
    "find_sources",
    "home",
    "is_finite",
    "is_remote",
    "is_value",
    "joined",
    "keeps_to_lines",
    "kind_of",
    "load_tokenizer",
    "local_copy",
    "make_folder",
    "may_think",
    "parse_json",
    "pick_format",
    "read_as",
    "read_object",
    "read_objects",
    "read_records",
    "read_values",
    "real_target",
    "replacing",
    "reply_blocks",
    "table_rows",
    "text_of",
    "thinking_of",
    "whole_prompt",
    "write_orders",
]
