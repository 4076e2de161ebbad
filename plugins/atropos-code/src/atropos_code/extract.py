"""The program in a model's reply, by stated rules."""

from __future__ import annotations

import re

from atropos_cli.sdk import split_thinking

_OPEN = re.compile(r"^([ \t]*)(`{3,}|~{3,})[ \t]*([\w+.#-]*)[^\n`]*$")
_PYTHON = frozenset({"python", "py", "python3", "py3", "python2", "ipython", "pycon"})


def blocks(text: str) -> list[tuple[str, str, bool]]:
    """The fenced blocks of a text: (language in lower case, content, whether it is closed)."""
    found: list[tuple[str, str, bool]] = []
    fence, language, indent = "", "", ""
    lines: list[str] = []
    for line in text.split("\n"):
        line = line.removesuffix("\r")
        if not fence:
            match = _OPEN.match(line)
            if match:
                indent, fence, language, lines = match[1], match[2], match[3].lower(), []
            continue
        bare = line.strip()
        if bare and set(bare) == {fence[0]} and len(bare) >= len(fence):
            found.append((language, _content(lines), True))
            fence = ""
        else:
            # A block in a list item is indented as a whole.
            lines.append(line.removeprefix(indent))
    if fence:
        found.append((language, _content(lines), False))
    return found


def _content(lines: list[str]) -> str:
    text = "\n".join(lines)
    return text + "\n" if text.strip() else ""


def extract_code(text: str, *, done_marker: bool = False) -> str:
    """The program that a reply gives as its answer; empty when there is none.

    Thoughts do not count: only what follows the last </think>, and nothing when a <think> is left
    open. Then the last closed block marked as Python; else the last closed block without a language;
    else the last block marked as Python that the reply broke off in. Text outside of blocks is no code.
    done_marker: the layout of base models, where the code stands between [BEGIN] (may be part of the
    prompt) and [DONE]; tried when there is no block.
    """
    _, answer = split_thinking(text)
    if answer is None:
        return ""
    found = blocks(answer)
    for marked, complete in ((True, True), (False, True), (True, False)):
        chosen = [
            content
            for language, content, closed in found
            if closed is complete and (language in _PYTHON if marked else not language)
        ]
        if chosen:
            return chosen[-1]
    if done_marker and not found:
        body = answer.partition("[BEGIN]")[2] if "[BEGIN]" in answer else answer
        return body.partition("[DONE]")[0].strip("\n")
    return ""


def extract_output(text: str) -> str | None:
    """The output that a reply predicts: the last closed block outside of thoughts, None without one."""
    _, answer = split_thinking(text)
    if answer is None:
        return None
    closed = [content for _, content, complete in blocks(answer) if complete]
    return closed[-1] if closed else None
