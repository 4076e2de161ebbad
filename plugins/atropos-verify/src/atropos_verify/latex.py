"""Bring a mathematical answer to one spelling, and take it apart at its top level.

Nothing here decides about equality; `compare` does. All functions take time linear in the text for
the lengths that `compare` admits.
"""

from __future__ import annotations

import re

VULGAR = {
    "½": (1, 2), "⅓": (1, 3), "⅔": (2, 3), "¼": (1, 4), "¾": (3, 4), "⅕": (1, 5), "⅖": (2, 5), "⅗": (3, 5),
    "⅘": (4, 5), "⅙": (1, 6), "⅚": (5, 6), "⅐": (1, 7), "⅛": (1, 8), "⅜": (3, 8), "⅝": (5, 8), "⅞": (7, 8),
    "⅑": (1, 9), "⅒": (1, 10),
}  # fmt: skip
"""Fraction characters."""

_CHARACTERS = {
    "−": "-", "–": "-", "—": "-", "－": "-", "﹣": "-", "＋": "+", "×": r"\times ", "·": r"\cdot ", "⋅": r"\cdot ",
    "∙": r"\cdot ", "÷": r"\div ", "∕": "/", "⁄": "/", "√": r"\sqrt ", "π": r"\pi ", "∞": r"\infty ", "≤": r"\leq ",
    "≥": r"\geq ", "≠": r"\neq ", "∪": r"\cup ", "∩": r"\cap ", "∅": r"\emptyset ", "∈": r"\in ", "°": r"^\circ ",
    "±": r"\pm ", "θ": r"\theta ", "α": r"\alpha ", "β": r"\beta ", "⟨": r"\langle ", "⟩": r"\rangle ",
    "\u00a0": " ", "\u2009": " ", "\u202f": " ", "\u200b": "", "\ufeff": "", "，": ",", "（": "(", "）": ")",
    "％": "%", "＄": "$", "．": ".", **{chr(0xFF10 + i): str(i) for i in range(10)},
    **{char: rf"\frac{{{top}}}{{{bottom}}}" for char, (top, bottom) in VULGAR.items()},
}  # fmt: skip
_SUPERSCRIPTS = re.compile("[⁰¹²³⁴⁵⁶⁷⁸⁹⁻]+")
_SUPER_DIGITS = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁻", "0123456789-")
_TABLE = str.maketrans(_CHARACTERS)

_COMMANDS: list[tuple[re.Pattern[str], str]] = [
    (re.compile(pattern), replacement)
    for pattern, replacement in [
        (r"\\(?:left|right|bigl|bigr|Bigl|Bigr|biggl|biggr|big|Big|bigg|Bigg|displaystyle|textstyle)(?![A-Za-z])", ""),
        (r"\\(?:dfrac|tfrac|cfrac)(?![A-Za-z])", r"\\frac"),
        (r"\\(?:text(?:bf|it|rm|sf|tt|normal)|math(?:rm|bf|it|sf)|mbox|hbox|boldsymbol|operatorname)\s*\{", r"\\text{"),
        (r"\\(?:le|leqslant|leqq)(?![A-Za-z])", r"\\leq "),
        (r"\\(?:ge|geqslant|geqq)(?![A-Za-z])", r"\\geq "),
        (r"\\lt(?![A-Za-z])", "<"),
        (r"\\gt(?![A-Za-z])", ">"),
        (r"\\ne(?![A-Za-z])", r"\\neq "),
        (r"\\(?:varnothing|O(?=\s*$))(?![A-Za-z])", r"\\emptyset "),
        (r"\\(?:lbrace)(?![A-Za-z])", r"\\{"),
        (r"\\(?:rbrace)(?![A-Za-z])", r"\\}"),
        (r"\\(?:lbrack)(?![A-Za-z])", "["),
        (r"\\(?:rbrack)(?![A-Za-z])", "]"),
        (r"\\(?:quad|qquad|enspace|thinspace|space)(?![A-Za-z])", " "),
        (r",\\!\s*(?=\d)", ","),
        (r"(?<!\\)\\!", ""),
        (r"\{,\}", ","),
        (r"(?<!\\)\\[,;: ]|~", " "),
        (r"<=|=<", r"\\leq "),
        (r">=|=>", r"\\geq "),
        (r"!=", r"\\neq "),
        (r"\^\s*(?:\{\s*\\circ\s*\}|\\circ(?![A-Za-z])|\{\s*\\degree\s*\})|\\degrees?(?![A-Za-z])", r"^\\circ "),
        (r"(?<!\\)\\%", "%"),
        (r"(?<!\\)\\\$", r"\\dollar "),
    ]
]  # fmt: skip
_GROUPED = re.compile(r"(?<![\d.,])(\d{1,3})((?: \d{3})+)(?![\d])")
_REPEATING = re.compile(r"(?<![\d.])(\d{0,9})\.(\d{0,9})\\(?:overline|bar|dot)\s*\{(\d{1,9})\}")
_EDGES = [("$$", "$$"), ("$", "$"), ("\\(", "\\)"), ("\\[", "\\]"), ("**", "**"), ("`", "`")]
_DEGREES_OF = re.compile(
    r"(?<![A-Za-z\\])\\?(sin|cos|tan|cot|sec|csc)(?![A-Za-z])\s*(\^\s*(?:\{\s*\d\s*\}|\d))?"
    r"\s*[({]?\s*(-?\d{1,5}(?:\.\d{1,5})?)\s*\^\\circ\s*[)}]?"
)
_SPACES = re.compile(r"\s+")
_TEXT_BODY = re.compile(r"\\text\s*\{([^{}]*)\}")


def clean(text: str) -> str:
    """One spelling: delimiters, sizes and spacing dropped, synonyms united, fractions braced."""
    text = _SUPERSCRIPTS.sub(lambda match: "^{" + match[0].translate(_SUPER_DIGITS) + "}", strip_edges(text))
    text = text.translate(_TABLE)
    for pattern, replacement in _COMMANDS:
        text = pattern.sub(replacement, text)
    text = _REPEATING.sub(_repeating, brace_arguments(text).strip())
    text = _SPACES.sub(" ", text)
    return strip_edges(text)


def in_radians(text: str) -> str:
    """A cleaned text with the degrees that a trigonometric function is taken of as radians: they are no unit there."""
    return _DEGREES_OF.sub(r"\\\1\2(\\frac{\3\\pi}{180})", text)


def _repeating(match: re.Match[str]) -> str:
    """0.1\\overline{6} as the fraction that it is."""
    whole, fixed, period = match[1] or "0", match[2], match[3]
    bottom = (10 ** len(period) - 1) * 10 ** len(fixed)
    top = int(whole + fixed + period) - int(whole + fixed)
    return rf"\frac{{{top}}}{{{bottom}}}"


def strip_edges(text: str) -> str:
    """Without the math or Markdown delimiters around the whole, and without a final full stop."""
    while True:
        before = text
        text = text.strip()
        if (
            text.endswith((".", ",", ";", "!"))
            and not text.endswith(("\\,", "\\;", "\\!", ".m.", ".."))
            and not _is_factorial(text)
        ):
            text = text[:-1]
        text = text.removesuffix("...").removesuffix("\\ldots") if text.endswith(("...", "\\ldots")) else text
        for left, right in _EDGES:
            inner = text[len(left) : len(text) - len(right)]
            around = len(text) > len(left) + len(right) and text.startswith(left) and text.endswith(right)
            if around and left not in inner.replace("\\$", "") and not (left == "$" and inner.endswith("\\")):
                text = inner
        if text == before:
            return text


def _is_factorial(text: str) -> bool:
    return text.endswith("!") and len(text) > 1 and (text[-2].isdigit() or text[-2] in ")}")


def brace_arguments(text: str) -> str:
    r"""\frac12, \frac 3{4} and \sqrt2 with braces: \frac{1}{2}, \frac{3}{4}, \sqrt{2}."""
    if "\\frac" not in text and "\\sqrt" not in text and "\\binom" not in text:
        return text
    out: list[str] = []
    pos = 0
    for match in re.finditer(r"\\(frac|binom|sqrt)(?![A-Za-z])\s*(\[[^\]]*\])?", text):
        if match.start() < pos:
            continue
        out.append(text[pos : match.start()])
        arguments, pos = [], match.end()
        for _ in range(1 if match[1] == "sqrt" else 2):
            argument, pos = _argument(text, pos)
            arguments.append("{" + argument + "}")
        out.append("\\" + match[1] + (match[2] or "") + "".join(arguments))
    out.append(text[pos:])
    return "".join(out)


def _argument(text: str, pos: int) -> tuple[str, int]:
    """The TeX argument that begins at pos: a group, a command or one character."""
    while pos < len(text) and text[pos] == " ":
        pos += 1
    if pos >= len(text):
        return "", pos
    if text[pos] == "{":
        end = matching(text, pos)
        if end is None:
            return text[pos + 1 :], len(text)
        return brace_arguments(text[pos + 1 : end]), end + 1
    if text[pos] == "\\":
        match = re.compile(r"\\(?:[A-Za-z]+|.)").match(text, pos)
        end = match.end() if match else pos + 1
        if match and match[0] in ("\\sqrt", "\\frac") and end < len(text):
            inner, end = _argument(text, end)
            if match[0] == "\\frac":
                second, end = _argument(text, end)
                return f"\\frac{{{inner}}}{{{second}}}", end
            return f"\\sqrt{{{inner}}}", end
        return text[pos:end], end
    return text[pos], pos + 1


def matching(text: str, start: int) -> int | None:
    """The position of the brace that closes the one at `start`; escaped braces do not count."""
    depth = 0
    pos = start
    while pos < len(text):
        char = text[pos]
        if char == "\\":
            pos += 2
            continue
        if char == "{":
            depth += 1
        elif char == "}":
            depth -= 1
            if depth == 0:
                return pos
        pos += 1
    return None


def squash(text: str) -> str:
    """Without any white space; for comparing spellings."""
    return _SPACES.sub("", text)


def split_top(text: str, separators: tuple[str, ...]) -> list[str]:
    """The parts between separators that stand outside all brackets. Word separators need spaces around."""
    parts: list[str] = []
    depth = 0
    begin = pos = 0
    while pos < len(text):
        found = next((s for s in separators if depth == 0 and text.startswith(s, pos)), None)
        if found is not None:
            parts.append(text[begin:pos])
            pos = begin = pos + len(found)
            continue
        char = text[pos]
        if char == "\\" and pos + 1 < len(text):
            following = text[pos + 1]
            if following in "{}":
                depth += 1 if following == "{" else -1
                pos += 2
                continue
            command = re.compile(r"\\(?:[A-Za-z]+|.)").match(text, pos)
            width = len(command[0]) if command else 2
            if command and command[0] in ("\\langle", "\\rangle"):
                depth += 1 if command[0] == "\\langle" else -1
            pos += width
            continue
        if char in "([{":
            depth += 1
        elif char in ")]}":
            depth = max(0, depth - 1)
        pos += 1
    parts.append(text[begin:])
    return parts


def bracketed(text: str) -> tuple[str, str, str] | None:
    """(left, inside, right) when one pair of brackets, of equal or different kinds, encloses the whole."""
    for left in ("\\{", "\\langle", "(", "[", "{"):
        if text.startswith(left):
            break
    else:
        return None
    depth = 0
    pos = 0
    while pos < len(text):
        mark, width = _bracket_at(text, pos)
        if mark == "open":
            depth += 1
        elif mark == "close":
            depth -= 1
            if depth == 0:
                if pos + width != len(text):
                    return None
                return left, text[len(left) : pos].strip(), text[pos:]
        pos += width
    return None


def _bracket_at(text: str, pos: int) -> tuple[str, int]:
    char = text[pos]
    if char == "\\":
        match = re.compile(r"\\(?:[A-Za-z]+|.)").match(text, pos)
        command = match[0] if match else "\\"
        kind = "open" if command in ("\\{", "\\langle") else "close" if command in ("\\}", "\\rangle") else ""
        return kind, max(1, len(command))
    return "open" if char in "([{" else "close" if char in ")]}" else "", 1


def untext(text: str) -> str:
    r"""\text{...} replaced by what it holds."""
    return _TEXT_BODY.sub(lambda match: match[1], text)


def join_groups(text: str) -> str:
    """1 234 567 as 1234567. Only for places where the spaces cannot separate two numbers."""
    return _GROUPED.sub(lambda match: match[1] + match[2].replace(" ", ""), text)
