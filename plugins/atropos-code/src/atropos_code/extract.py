"""The program in a model's reply, by stated rules."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache

from atropos_cli.sdk import split_thinking
from atropos_code.blocks import Block, bare, blocks, cleaned, is_transcript, wrapped
from atropos_code.syntax import (
    FULL,
    STUB,
    WEAK,
    does_something,
    is_program,
    names_of,
    parsed,
    strength,
    without_words,
)

_MOST_PIECES = 50  # blocks that one program is put together from


def extract_code(text: str, *, names: Sequence[str] = (), done_marker: bool = False) -> str:
    """The program that a reply gives as its answer; empty when there is none.

    Thoughts do not count. names: what the task asks for. The last block that defines a name is its answer, so a usage
    example, a test or the output behind it changes nothing; without such a block the name is looked for in other marks
    around code, and in bare lines. Without names the last block marked as Python counts, else the last one without a
    language. What the chosen blocks need and an earlier block defines is put before them.
    done_marker: the layout of base models, where the code is between [BEGIN] (may be part of the prompt) and
    [DONE]; tried when there is no block.
    """
    return _extract(text, tuple(names), done_marker)


@lru_cache(maxsize=512)
def _extract(text: str, names: tuple[str, ...], done_marker: bool) -> str:
    _, answer = split_thinking(text)
    if answer is None:
        return ""
    if done_marker:
        answer = answer.partition("[BEGIN]")[2] if "[BEGIN]" in answer else answer
        answer = answer.partition("[DONE]")[0]
    found = [_clean(block) for block in blocks(answer)]
    if not found and done_marker:
        return answer.strip("\n") if is_program(answer) else ""
    code = _named(answer, found, names) if names else None
    return _last(found) if code is None else code


def _clean(block: Block) -> Block:
    content = cleaned(block.content)
    return block if content is block.content else Block(block.language, content, block.closed, block.output)


def _may_be_program(block: Block) -> bool:
    """Python or unmarked, and neither a session nor comments alone."""
    return block.language in ("python", "") and not is_transcript(block.content) and is_program(block.content)


def _named(answer: str, found: list[Block], names: tuple[str, ...]) -> str | None:
    """The program that defines what is asked for; None when nothing does."""
    programs = [block for block in found if _may_be_program(block)]
    closed = [block for block in programs if block.closed]
    others = [block for block in found if block.language not in ("python", "") and not is_transcript(block.content)]
    pools: tuple[tuple[Callable[[], list[Block]], int], ...] = (
        (lambda: closed, FULL),
        (lambda: [block for block in others if does_something(block.content)], FULL),
        (lambda: wrapped(answer), FULL),
        (lambda: [block for block in programs if not block.closed], FULL),
        (lambda: _bare(answer), FULL),
        (lambda: closed, WEAK),
        (lambda: programs, WEAK),
        (lambda: wrapped(answer), WEAK),
        (lambda: programs, STUB),
    )
    for pool, at_least in pools:
        candidates = pool()
        code = _joined(candidates, names, at_least)
        if code is not None:
            return code
    return None


def _bare(answer: str) -> list[Block]:
    return [Block("python", without_words(block.content)) for block in bare(answer)]


def _joined(candidates: list[Block], names: tuple[str, ...], at_least: int) -> str | None:
    """The last definition of each name, in the order of the reply; None when no name is defined."""
    chosen: set[int] = set()
    for name in names:
        holders = [i for i, block in enumerate(candidates) if _strength(block, name) >= at_least]
        chosen |= set(holders[-1:])
    return _with_needed(candidates, chosen) if chosen else None


def _strength(block: Block, name: str) -> int:
    """As strength(); what is not marked as Python and cannot be read as such may be of another language."""
    found = strength(block.content, name)
    return found if block.is_python or parsed(block.content) is not None else min(found, WEAK)


def _with_needed(candidates: list[Block], chosen: set[int]) -> str:
    """The chosen blocks in their order, and with them the earlier ones that define what they lack."""
    last = max(chosen)
    names = [names_of(block.content) for block in candidates[: last + 1]]
    for _ in range(_MOST_PIECES):
        lacking = set().union(*(names[i].read for i in chosen)) - set().union(*(names[i].bound for i in chosen))
        for i in reversed(range(last)):
            if i not in chosen and not candidates[i].output and lacking & names[i].at_top:
                chosen = {*chosen, i}
                break
        else:
            break
    return "\n".join(candidates[i].content for i in sorted(chosen))


def _last(found: list[Block]) -> str:
    """The program where no name is asked for."""
    programs = [block for block in found if _may_be_program(block)]
    marked = [block for block in programs if block.closed and block.is_python]
    unmarked = [block for block in programs if block.closed and not block.is_python and not block.output]
    for chosen in (
        [block for block in marked if not _is_values(block)],
        marked,
        [block for block in unmarked if does_something(block.content)],
        unmarked,
        [block for block in programs if block.is_python],
    ):
        if chosen:
            return _with_needed(programs, {programs.index(chosen[-1])})
    return ""


def _is_values(block: Block) -> bool:
    """Is it what a program prints, rather than a program?"""
    return parsed(block.content) is not None and not does_something(block.content)


def extract_output(text: str) -> str | None:
    """The output that a reply predicts: the last closed block outside of thoughts, None without one."""
    _, answer = split_thinking(text)
    if answer is None:
        return None
    closed = [block.content for block in blocks(answer) if block.closed]
    return closed[-1] if closed else None
