"""The options a pydantic model stands for: one per leaf field, with type, default, range and description.

Flags, configuration keys, environment variables, help texts and error messages are all made from these,
so that they cannot disagree.
"""

from __future__ import annotations

import enum
import json
import types
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from dataclasses import field as default_of
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel, SecretBytes, SecretStr
from pydantic.fields import FieldInfo

from atropos_cli.config.pairs import json_once

Kind = Literal["bool", "list", "json", "value"]
MASK = "********"
_NOTHING: tuple[Any, ...] = (None, "", (), [], {})


@dataclass(frozen=True, slots=True)
class Option:
    """One leaf of a Config model.

    path: field names from the model's top. core: the type without Optional and Annotated (of the items,
    for a list). default_text: None when the option is required or has no default worth showing. shown: what the field
    says of its flag, as config.commands.option puts it there: panel, flag, short, metavar.
    """

    path: tuple[str, ...]
    kind: Kind
    core: Any
    optional: bool
    required: bool
    default: Any
    description: str
    choices: tuple[Any, ...]
    range: str
    secret: bool
    shown: Mapping[str, str] = default_of(default_factory=dict)

    @property
    def key(self) -> str:
        """The dotted name, as in messages and configuration files."""
        return ".".join(self.path)

    @property
    def flag(self) -> str:
        """The long name without the leading dashes: the dotted one in kebab case, or another that the field gives."""
        return self.shown.get("flag") or self.key.replace("_", "-")

    @property
    def type_text(self) -> str:
        """The type as help shows it."""
        if "metavar" in self.shown:
            return self.shown["metavar"]
        if self.choices:
            return "|".join(choice_text(choice) for choice in self.choices)
        if self.kind == "bool":
            return "true|false"
        if self.kind == "json":
            return "JSON"
        return type_name(self.core)

    @property
    def default_text(self) -> str | None:
        """The default as a user would type it."""
        if self.required or self.default in _NOTHING:
            return None
        return value_text(self.default)


def options_of(model: type[BaseModel], above: tuple[str, ...] = ()) -> tuple[Option, ...]:
    """Every option of a model, nested models flattened, in the order of the fields."""
    return tuple(_walk(model, above, (model,)))


def _walk(model: type[BaseModel], above: tuple[str, ...], outer: tuple[type[BaseModel], ...]) -> Iterator[Option]:
    for field_name, field in model.model_fields.items():
        path = (*above, field.alias or field_name)
        core, optional = strip(field.annotation)
        if isinstance(core, type) and issubclass(core, BaseModel) and core not in outer:
            yield from _walk(core, path, (*outer, core))
        else:
            yield _option(path, core, optional, field)


def _option(path: tuple[str, ...], core: Any, optional: bool, field: FieldInfo) -> Option:
    kind, item = _kind(core)
    return Option(
        path=path,
        kind=kind,
        core=item,
        optional=optional,
        required=field.is_required(),
        default=_default(field),
        description=" ".join((field.description or "").split()),
        choices=_choices(item),
        range=_range(field.metadata),
        secret=item in (SecretStr, SecretBytes),
        shown=_shown(field),
    )


def _shown(field: FieldInfo) -> dict[str, str]:
    extra = field.json_schema_extra
    return {name: str(value) for name, value in extra.items()} if isinstance(extra, dict) else {}


def strip(annotation: Any) -> tuple[Any, bool]:
    """(type, optional): Annotated and `| None` taken off."""
    optional = False
    while True:
        origin = get_origin(annotation)
        if origin is Annotated:
            annotation = get_args(annotation)[0]
        elif origin in (Union, types.UnionType):
            rest = [arg for arg in get_args(annotation) if arg is not type(None)]
            if len(rest) == len(get_args(annotation)):
                return annotation, optional
            optional = True
            if len(rest) != 1:
                return Union[tuple(rest)], optional  # noqa: UP007 (made at run time)
            annotation = rest[0]
        else:
            return annotation, optional


_LISTS = (list, tuple, set, frozenset, Sequence, Set)


def _kind(core: Any) -> tuple[Kind, Any]:
    if core is Any:  # a class since Python 3.11, so it would pass for a plain value
        return "json", Any
    if core is bool:
        return "bool", bool
    origin = get_origin(core) or core
    if origin in _LISTS:
        items = [arg for arg in get_args(core) if arg is not Ellipsis] or [str]
        item = strip(items[0])[0]
        if all(strip(other)[0] == item for other in items) and _scalar(item):
            return "list", item
        return "json", core
    return ("value", core) if _scalar(core) else ("json", core)


def _scalar(core: Any) -> bool:
    origin = get_origin(core)
    if origin is Literal:
        return True
    if origin in (Union, types.UnionType):
        return all(_scalar(strip(arg)[0]) for arg in get_args(core))
    if not isinstance(core, type) or origin is not None:
        return False
    return not issubclass(core, (BaseModel, Mapping, list, tuple, set, frozenset)) and core is not object


def _choices(core: Any) -> tuple[Any, ...]:
    if get_origin(core) is Literal:
        return get_args(core)
    if isinstance(core, type) and issubclass(core, enum.Enum):
        return tuple(core)
    return ()


def _default(field: FieldInfo) -> Any:
    if field.is_required():
        return None
    if field.default_factory is not None:
        try:
            return field.get_default(call_default_factory=True, validated_data={})
        except Exception:  # noqa: BLE001 (a factory that needs other values has no default to show)
            return None
    return field.default


def _range(metadata: Sequence[Any]) -> str:
    bounds: dict[str, Any] = {}
    for item in metadata:
        for name in ("ge", "gt", "le", "lt", "multiple_of"):
            value = getattr(item, name, None)
            if value is not None:
                bounds[name] = value
    if "ge" in bounds and "le" in bounds:
        parts = [f"{bounds['ge']} to {bounds['le']}"]
    else:
        symbols = {"ge": ">=", "gt": ">", "le": "<=", "lt": "<"}
        parts = [f"{symbol} {bounds[name]}" for name, symbol in symbols.items() if name in bounds]
    if "multiple_of" in bounds:
        parts.append(f"a multiple of {bounds['multiple_of']}")
    return ", ".join(parts)


_NAMES = {int: "INTEGER", float: "NUMBER", str: "TEXT", bool: "true|false", Path: "PATH", SecretStr: "SECRET"}


def type_name(core: Any) -> str:
    """A short upper-case word for a scalar type."""
    if core in _NAMES:
        return _NAMES[core]
    origin = get_origin(core)
    if origin is Literal:
        return "|".join(choice_text(choice) for choice in get_args(core))
    if origin in (Union, types.UnionType):
        return "|".join(dict.fromkeys(type_name(strip(arg)[0]) for arg in get_args(core)))
    for base, name in _NAMES.items():
        if isinstance(core, type) and issubclass(core, base):
            return name
    return getattr(core, "__name__", "VALUE").upper()


def choice_text(choice: Any) -> str:
    """A choice as a user types it."""
    value = choice.value if isinstance(choice, enum.Enum) else choice
    return value_text(value)


def value_text(value: Any) -> str:
    """A value as a user would type it; secrets masked."""
    if isinstance(value, enum.Enum):
        value = value.value
    if isinstance(value, (SecretStr, SecretBytes)):
        return MASK
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return repr(value).removesuffix(".0")
    if isinstance(value, str):
        return value if value.isprintable() and value == value.strip() and value else json.dumps(value)
    if isinstance(value, (list, tuple, set, frozenset)):
        return ", ".join(value_text(item) for item in value) or "[]"
    if isinstance(value, BaseModel):
        return value.model_dump_json()
    if isinstance(value, dict):
        return json.dumps(value, default=str, ensure_ascii=False)
    return str(value)


def parse_text(option: Option, text: str | Sequence[str]) -> Any:
    """What a flag or a variable says, in a shape the model accepts. Raises ValueError with what was expected.

    A single text for a list is JSON when it begins with "[", else its parts at commas. `none` unsets an
    option that may be unset and is not text.
    """
    if option.kind == "list":
        items: Sequence[Any] = text if not isinstance(text, str) else _split(text)
        return [_parse_scalar(option, item) if isinstance(item, str) else item for item in items]
    if not isinstance(text, str):
        raise ValueError("expected one value")
    if option.optional and text.lower() in ("none", "null") and not _takes_text(option.core):
        return None
    if option.kind == "json":
        # Where text is taken too, what does not look like JSON is text.
        try:
            parsed = json_once(text, f"--{option.flag}")
            return text if _takes_text(option.core) and not isinstance(parsed, dict | list) else parsed
        except ValueError as error:
            if (option.core is Any or _takes_text(option.core)) and not text.lstrip().startswith(("{", "[")):
                return text
            raise ValueError(f"expected JSON ({error})") from None
    return _parse_scalar(option, text)


def _split(text: str) -> Sequence[Any]:
    if not text.lstrip().startswith("["):
        return [part.strip() for part in text.split(",")]
    try:
        parsed = json_once(text, "a list")
    except ValueError as error:
        raise ValueError(f"expected a JSON list or values with commas between them ({error})") from None
    return parsed if isinstance(parsed, list) else [parsed]


def _parse_scalar(option: Option, text: str) -> Any:
    for choice in option.choices:
        if choice_text(choice) == text:
            return choice.value if isinstance(choice, enum.Enum) else choice
    return text


def _takes_text(core: Any) -> bool:
    if get_origin(core) in (Union, types.UnionType):
        return any(_takes_text(arg) for arg in get_args(core))
    return isinstance(core, type) and issubclass(core, (str, Path, SecretStr))
