"""Pieces of a reply that may be code: fenced blocks, other marks that people put around code, and bare lines."""

from __future__ import annotations

import bisect
import html
import itertools
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from atropos_code.syntax import first_error, parsed

_QUOTE = r"(?:[ \t]{0,3}+>(?!>>)[ \t]?+)*+"
_QUOTED = re.compile(rf"^{_QUOTE}")
_STRING = re.compile(r"#|\"\"\"|'''|\"(?:\\.|[^\"\\])*+\"?|'(?:\\.|[^'\\])*+'?")
_END_OF = {quote: re.compile(rf"(?:\\.|(?!{quote})[^\\])*+{quote}") for quote in ('"""', "'''")}
_OPEN = re.compile(
    rf"^({_QUOTE})([ \t]*)((?:[-*+]|\d{{1,3}}[.)])[ \t]+)?(`{{3,}}|~{{3,}}|'''(?=py)|\"\"\"(?=py)|｀{{3,}})([^`\n]*)$",
    re.IGNORECASE,
)
# A fence behind other words counts only where it names Python: else it is inline code.
_OPEN_LATE = re.compile(r"^()()(.*\S[ \t]*)(`{3,})[ \t]*((?:python|py)\d*)[ \t]*$", re.IGNORECASE)
_PYTHON = re.compile(
    r"(?!python[ -](?:repl|console))(?:python|py|ipython|cpython|sage)[\d.]*"
    r"(?:$|[^\w+-]|[-_](?:code|script|solution)\b)|[\w./-]+\.py$",
    re.IGNORECASE,
)
_INFO = re.compile(r"^\{?\.?\s*(?:language-|lang(?:uage)?\s*[=:-]\s*)?", re.IGNORECASE)
_WORDS_OF_OUTPUT = re.compile(
    r"(?:out ?put|prints?|printed|result|results|returns|stdout|console|terminal|ausgabe|ergebnis|sortie|affiche|salida"
    r"|resultado|saída|вывод|результат|输出|结果|输出结果|出力|結果|출력)[^\n]{0,30}[:：]?\W*$",
    re.IGNORECASE,
)
_TRANSCRIPT = re.compile(r"^\s*(?:>>>|In \[\d*\]:|Out\[\d*\]:|Traceback \(most recent call last\)|\$ )")
_TAGS = ("code", "pre", "python", "py", "program", "solution", "answer", "final_answer", "execute", "python_code")
_BRACKETS = ("python", "py", "code", "answer", "solution")
_LATEX = ("lstlisting", "minted", "verbatim", "python", "pythoncode", "code")
_I = re.IGNORECASE
_WRAPS = tuple(
    (re.compile(opening, _I | re.MULTILINE), re.compile(closing, _I | re.MULTILINE))
    for opening, closing in (
        (r"<pre\b[^>]{0,200}>\s*<code\b[^>]{0,200}>", r"</code>"),
        *((rf"<{tag}\b[^>]{{0,200}}>", rf"</{tag}>") for tag in _TAGS),
        *((rf"\[{name}(?:=[\w\"']{{1,30}})?\]", rf"\[/{name}\]") for name in _BRACKETS),
        *((rf"\\begin\{{{n}\}}(?:\[[^\]]{{0,200}}\])?(?:\{{\w+\}})?", rf"\\end\{{{n}\}}") for n in _LATEX),
        (r"\{code:[^}]{1,60}\}|(?<!\S)\{code\}(?=\n)", r"\{code\}"),
        (r"^[ \t]*#\+begin_src\b[^\n]*\n", r"^[ \t]*#\+end_src"),
        (r"<\|python_(?:tag|start)\|>", r"<\|\w{1,40}\|>|\Z"),
        (r"^\.\. (?:code-block|code|sourcecode)::[^\n]*\n", r"^(?=\S)|\Z"),
        (r"`{3,}(?:(?:python|py)\d*)?(?=[ \t]*[^`\s])", r"(?=`)"),
        (r"(?<!`)`(?=[^`\n]{8})", r"(?=[`\n])"),
    )
)
_MARKDOWN = frozenset({"markdown", "md", "mdx"})
_JSON_KEYS = ("code", "solution", "program", "python", "python_code", "answer", "completion", "source")
_ODD_SPACES = {ord(c): " " for c in "\u00a0\u2007\u202f\u3000"} | {
    ord(c): None for c in "\u200b\u200c\u200d\u2060\ufeff"
}
MOST_CHARACTERS = 400_000
"""A longer answer is looked at for fenced blocks only."""
_MOST_TRIES = 200
_MOST_PARSED = 2_000_000  # characters, of all tries together
_LONGEST_LATE = 2000  # characters of a line with a fence behind other words
_MOST_CUTS = 40


@dataclass(frozen=True, slots=True)
class Block:
    """language: in lower case, "" where none is named. output: the text before it says that it is output."""

    language: str
    content: str
    closed: bool = True
    output: bool = False

    @property
    def is_python(self) -> bool:
        return self.language == "python"


def blocks(text: str) -> list[Block]:
    """The fenced blocks of a text, in order. Blocks in lists, quotations and Markdown blocks are taken out of them."""
    found = []
    for block in _fenced(text)[0]:
        inner = _fenced(block.content)[0] if block.language in _MARKDOWN else []
        found += inner or [block]
    return found


def _fenced(text: str) -> tuple[list[Block], str]:
    """(the fenced blocks, the lines outside of them)."""
    found: list[Block] = []
    outside: list[str] = []
    before = ""
    lines = (text.replace("\r\n", "\n").replace("\r", "\n") if "\r" in text else text).split("\n")
    at = 0
    while at < len(lines):
        match = _OPEN.match(lines[at]) or (_OPEN_LATE.match(lines[at]) if len(lines[at]) <= _LONGEST_LATE else None)
        if match is None:
            outside.append(lines[at])
            before = lines[at] if lines[at].strip() else before
            at += 1
            continue
        inner, closed, after = _inside(lines, at + 1, match)
        output = _WORDS_OF_OUTPUT.search(before.strip()[-80:]) is not None
        found.append(Block(_language(match[5]), _content(inner), closed, output))
        outside.append("")
        before, at = "", after
    return found, "\n".join(outside)


def _inside(lines: list[str], begin: int, opening: re.Match[str]) -> tuple[list[str], bool, int]:
    """(content lines, is it closed, the line behind the block)."""
    fence = opening[4]
    width = len(opening[2]) + (len(opening[3] or "") if opening.re is _OPEN else 0)
    python = _language(opening[5]) in ("python", "")
    content: list[str] = []
    quotes: list[str] = []
    quote = ""
    passed: int | None = None
    deeper: int | None = None
    for at in range(begin, len(lines)):
        line = lines[at]
        if opening[1].strip():
            if not line.lstrip().startswith(">"):
                return content, True, at
            line = _QUOTED.sub("", line)
        if _closes(line, fence, width):
            if not quote:
                return content, True, at + 1
            passed = len(content) if passed is None else passed
        elif not quote and deeper is None and _closes(line, fence, len(line)):
            deeper = len(content)
        # A block in a list item is indented as a whole.
        line = _without_indent(line, width)
        content.append(line)
        quotes.append(quote)
        quote = _quote_after(line, quote) if python else ""
    if passed is None:
        passed = deeper
    if passed is not None:  # a string or an indent that never ends: the fence in it was the block's after all
        return content[:passed], True, begin + passed + 1
    for number, line in enumerate(content):
        if not quotes[number] and line.rstrip().endswith(fence) and line.strip() != fence:
            return [*content[:number], line.rstrip().removesuffix(fence)], True, begin + number + 1
    return content, False, len(lines)


def _closes(line: str, fence: str, width: int) -> bool:
    """A fence alone on its line, at most three columns further in than the opening one: else it is part of the text."""
    bare = line.strip()
    if not bare or set(bare) != {fence[0]} or len(bare) < len(fence):
        return False
    return len(line) - len(line.lstrip(" \t")) <= width + 3


def _quote_after(line: str, quote: str) -> str:
    """The triple quote that Python text is inside of behind this line, "" for none; `quote`: before it."""
    at = 0
    while at < len(line):
        if quote:
            match = _END_OF[quote].search(line, at)
            if match is None:
                return quote
            quote, at = "", match.end()
            continue
        match = _STRING.search(line, at)
        if match is None or match[0].startswith("#"):
            return ""
        at = match.end()
        if match[0] in _END_OF:
            quote = match[0]
    return quote


def _without_indent(line: str, width: int) -> str:
    kept = 0
    while kept < min(width, len(line)) and line[kept] in " \t":
        kept += 1
    return line[kept:]


def _language(info: str) -> str:
    name = _INFO.sub("", info.strip())
    if not name:
        return ""
    return "python" if _PYTHON.match(name) else name.split()[0].strip("}").lower()


def _content(lines: list[str]) -> str:
    text = "\n".join(lines)
    return text + "\n" if text.strip() else ""


def is_transcript(content: str) -> bool:
    """A doctest, an interpreter's or a shell's session, or a traceback: shown, not to be run."""
    return _TRANSCRIPT.match(content) is not None


def wrapped(text: str) -> list[Block]:
    """Code outside of fences, between other marks, or in JSON; only what Python can read."""
    _, outside = _fenced(text)
    if len(outside) > MOST_CHARACTERS:
        return []
    found: list[tuple[int, Block]] = []
    for opening, closing in _WRAPS:
        for start, inner in _between(outside, opening, closing):
            if (code := readable(inner)) is not None:
                found.append((start, Block("python", code)))
    found += [(-1, Block("python", code)) for code in map(readable, _json_texts(text)) if code is not None]
    return [block for _, block in sorted(found, key=lambda pair: pair[0])]


def _between(text: str, opening: re.Pattern[str], closing: re.Pattern[str]) -> Iterator[tuple[int, str]]:
    """(place, text) between each opening mark and the next closing one, in time that grows with the text alone."""
    first = opening.search(text)
    if first is None:
        return
    ends = [match.span() for match in closing.finditer(text, first.end())]
    starts = [begin for begin, _ in ends]
    position = 0
    for match in itertools.islice(opening.finditer(text), _MOST_TRIES):
        if match.start() < position:
            continue
        place = bisect.bisect_left(starts, match.end())
        if place == len(ends):
            return
        yield match.start(), text[match.end() : starts[place]]
        position = max(ends[place])


def _json_texts(text: str) -> list[str]:
    """Texts under the usual names of an answer that is a JSON object, bare or in a block marked as JSON."""
    found = []
    for source in (text, *(block.content for block in blocks(text) if block.language == "json")):
        if not source.strip().startswith("{"):
            continue
        try:
            data: Any = json.loads(source, strict=False)
        except (ValueError, RecursionError):
            continue
        if isinstance(data, dict):
            found += [data[key] for key in _JSON_KEYS if isinstance(data.get(key), str)]
    return found


def readable(text: str) -> str | None:
    """The text as Python reads it: without common indent, HTML's entities, invisible signs; None when it does not."""
    lines = text.strip("\r\n").split("\n")
    width = min((len(line) - len(line.lstrip()) for line in lines if line.strip()), default=0)
    plain = "\n".join(line[width:].rstrip("\r") for line in lines).strip("\n") + "\n"
    for code in (plain, html.unescape(plain), plain.translate(_ODD_SPACES)):
        if parsed(code) is not None:
            return code
    return None


def cleaned(code: str) -> str:
    """The code without invisible signs, where it is they that keep Python from reading it."""
    if parsed(code) is not None or code.isascii():
        return code
    plain = code.translate(_ODD_SPACES)
    return plain if parsed(plain) is not None else code


_STARTS = re.compile(
    r"^[ \t]*(?:async def |def |class |import |from \w[\w.]* import |@\w|[A-Za-z_]\w*\s*(?::[^=\n]+)?=[^=])"
)


def bare(text: str) -> list[Block]:
    """Runs of lines outside of any mark that Python can read and that begin like a program."""
    _, outside = _fenced(text)
    if len(outside) > MOST_CHARACTERS:
        return []
    lines = [re.sub(r"^ {0,3}>(?!>>) ?", "", line) for line in outside.split("\n")]
    found: list[Block] = []
    at, left = 0, _MOST_PARSED
    while at < len(lines) and left > 0:
        if not _STARTS.match(lines[at]):
            at += 1
            continue
        end, spent = _readable_until(lines, at)
        left -= spent
        if end > at and (code := readable("\n".join(lines[at:end]))) is not None:
            found.append(Block("python", code))
        at = max(end, at + 1)
    return found


def _readable_until(lines: list[str], begin: int) -> tuple[int, int]:
    """(the end of the longest run of lines from here that Python can read; characters parsed to find it)."""
    width = len(lines[begin]) - len(lines[begin].lstrip())
    end = begin
    while end < len(lines) and (not lines[end].strip() or len(lines[end]) - len(lines[end].lstrip()) >= width):
        end += 1
    spent = 0
    for _ in range(_MOST_CUTS):
        code = "\n".join(line[width:] for line in lines[begin:end]) + "\n"
        spent += len(code)
        place = first_error(code)
        if place is None:
            return end, spent
        # An error may be told at the line behind the one that makes it.
        end = min(begin + place - 1, end - 1)
        if end <= begin or spent > _MOST_PARSED:
            break
    return begin, spent
