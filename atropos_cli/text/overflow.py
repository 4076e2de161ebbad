"""Does an error say that prompt and completion do not fit the model's context? Recognised by its meaning.

Every server has its own words, and proxies wrap them, so no list of sentences is enough. A complaint about the context
names something that holds the prompt (context, window, sequence, input, prompt, messages) with its measure (tokens,
length, size), and says that it is too much (exceeds, too long, must be <=, "is 4096. However, you requested 5000"), or
it names two numbers of tokens, one of them a limit. A max_tokens that no prompt would leave room for is a case
of its own: every request of the run would meet it.
"""

from __future__ import annotations

import re
from typing import Literal

TooMuch = Literal["context", "max_tokens"]

_CODES = re.compile(
    r"context_(length|window|size|limit)|exceed_context|contextwindowexceeded|string_above_max_length|input_too_long"
    r"|prompt_too_long|request_too_large|too_many_tokens|max_(context|input)_|input_length|payload_?too_?large"
    r"|^(1261|2013)$",  # Zhipu, MiniMax
    re.IGNORECASE,
)
_FLAGS = re.IGNORECASE | re.DOTALL
# What holds the prompt, or what is left for the completion beside it.
_ROOM = (
    r"context|prompts?|inputs?|messages?|sequence|session|conversation|history|n_ctx|num_ctx|request too large"
    r"|max_?(model|seq|sequence|input|total|num|context|position)\w*|maximum (model|sequence|total|combined)"
    r"|token (count|limit)|(number|sum|total|count) of [\w ]{0,20}tokens|tokens? requested|requested (token|a total)"
    r"|too many tokens|token count"
)
_MEASURE = (
    r"tokens?|length|len\b|n_ctx|num_ctx|window|\blong\b|size|characters|chars|limit|\broom\b"
    r"|(exceed\w*|overflow\w*|fits?|surpass\w*|large|big|long)( \w+){0,3}? (\w+'s )?context"
    r"|context (is |was )?(full|exceeded)"
)
_EXCESS = (
    r"exceed\w*|surpass\w*|overflow\w*|over the|too (long|large|big|many|much)"
    r"|(longer|greater|larger|bigger|more|higher) than|>\s*\d"
    r"|(does|do|did|can|could|will|would)(n't|n.t| ?not) (fit|be (more|greater|larger|longer))|cannot fit"
    r"|not enough|(out of|no|run out of) (room|space|context)|context (is )?full|is too (long|large|big)"
    r"|too (long|large|big) for (the |this |requested )?model"
    r"|(must|should|has to|have to|needs? to) (be|have|contain) (<=?|less|at most|no (more|longer)|fewer|smaller"
    r"|shorter|below|under|within|in \[|\[)|(should|must) not be (more|greater|larger|longer)"
    r"|shorten|shorter|reduce|truncat\w*"
    r"|beyond|only (supports?|allows?|accepts?|has|holds?)|up to \d+|at most \d+|limited to|allowed \(?\d"
    r"|maximum[^.]{0,60}\bis \d[^.]*[.,;] ?(however|but|while|yours?|got|the request|and)|but (the|your|this) request"
    r"|outgr[eo]wn?|(leaves? no|not leave( any| enough)?|no|without) room"
    r"|is full|reached|(holds|has|takes|supports|accepts|allows|of) (only|at most|a maximum)|above (the|its|this|our)"
    r"|(while|but) (the )?(limit|maximum)|max(imum)? (context|model|sequence|prompt|input) (length|size|window)"
)
_OTHER = re.compile(
    r"\b(stop|temperature|top_\w+|logprobs|images?|tools?|names?)\b.{0,30}\b(must|should|at most|too)\b", _FLAGS
)
_ABOUT_ROOM = re.compile(rf"\b({_ROOM})\b", _FLAGS)
_ABOUT_MEASURE = re.compile(rf"({_MEASURE})", _FLAGS)
_TOO_MUCH = re.compile(_EXCESS, _FLAGS)
# vLLM takes the prompt from the context and asks for the rest, which may be nothing or less. We never send that.
_NOTHING_LEFT = re.compile(
    r"max_?(completion_?|new_?|output_?)?tokens\W.{0,60}(at least (1|one)\b"
    r"|(greater|more|larger) than (or equal to )?[01]\b|>=? ?[01]\b"
    r"|positive|non-negative|got:? ?-?\d+ ?$|got:? ?-\d)|negative.{0,40}max_?(new_?)?tokens",
    _FLAGS,
)
_OTHER_TONGUES = re.compile(
    r"(上下文|输入|输出|提示词?|对话|tokens?|prompt|长度|字数|請求|输入内容).{0,24}(超长|过长|太长|超过|超出|超限|过大|過長|超過|大于)"
    r"|(超过|超出|超過)[^。]{0,24}(上下文|最大长度|长度限制|长度|token|上限)"
    r"|(eingabe|anfrage|kontext|prompt|entrada|contexto|mensaje|mensagem|contexte|requête|entrée|contesto|запрос|контекст"
    r"|токен|промпт|сообщени)\w*.{0,60}"
    r"(zu lang|zu groß|zu klein|überschreit\w*|supera|excede|dépasse|trop long\w*|demasiad\w+ larg\w+|troppo lung\w+"
    r"|слишком|превыша\w+)"
    r"|コンテキスト.{0,24}(超え|超過)|(トークン|入力).{0,24}(超え|超過|長すぎ)|(컨텍스트|토큰).{0,24}(초과)",
    _FLAGS,
)
# Names of the error itself, which proxies put into the text; names of fields say nothing.
_NAMED = re.compile(r"context_?(length|window)_?exceeded|(prompt|input)_too_long", re.IGNORECASE)
# max_tokens by itself: more than the model gives to any prompt.
_ONLY_MAX_TOKENS = re.compile(
    r"max_?(completion_?|new_?|output_?)?tokens\b.{0,60}(cannot be greater than max_model_len|is too (large|big|high)"
    r"|(must|should) be (<=?|less|at most|in \[|\[|between|within)|exceed\w*|valid range|> ?\d|less than or equal)"
    r"|supports at most \d+ (completion|output) tokens|maximum allowed number of output tokens|range of max_?tokens"
    r"|valid range of max_?tokens|maximum (value for|tokens you requested)|maximum (output|completion) tokens",
    _FLAGS,
)
_WITH_PROMPT = re.compile(
    r"\b(prompts?|input|inputs|messages)\b[\W_]*(has|have|tokens?|length|contains?|of \d|is \d|\(|\+|resulted)"
    r"|\d+ (prompt|input)|input length|\+ ?['`\"]?max_|\bsum of|in the (messages|prompt|input)"
    r"|you requested (a total|about|\d)|and prompt|prompt and|total tokens?|query length",
    _FLAGS,
)
_NUMBERS = re.compile(r"max_?(?:completion_?|new_?|output_?)?tokens\D{0,60}?(\d+).{0,80}?context\D{0,40}(\d+)", _FLAGS)
# Fields of a request whose own limits have nothing to do with the context.
_OTHER_FIELDS = re.compile(
    r"\b(stop|stop_sequences?|temperature|top_p|top_k|top_logprobs|logprobs|prompt_logprobs|n|best_of|seed|user|tools?"
    r"|images?|videos?|audios?|files?|metadata|logit_bias|frequency_penalty|presence_penalty|min_p)\b",
    re.IGNORECASE,
)
_SIZES = re.compile(r"(?<![\w.])\d[\d,_']*(?![\w.]*\d)")
_LIMIT = re.compile(
    r"limit|max|context|n_ctx|window|allow|hold|capacity|larger? model|at most|contexte|contexto", re.IGNORECASE
)
_NO_SIZE = re.compile(r"vocab|token ids?\b|image|\b[KMG]i?B\b|messages? must|out of range", re.IGNORECASE)
_RATE = re.compile(r"per[ -](minute|second|hour|day)|\b[TR]P[MD]\b|rate.?limit|quota", re.IGNORECASE)


def too_much(message: str, *codes: str, param: str = "") -> TooMuch | None:
    """What an error complains of: "context", "max_tokens" (alone, for any prompt), None (something else)."""
    if _NOTHING_LEFT.search(message):
        return "context"
    if _ONLY_MAX_TOKENS.search(message):
        numbers = _NUMBERS.search(message)
        alone = numbers is not None and int(numbers[1]) >= int(numbers[2])
        if alone or not _WITH_PROMPT.search(message):
            return "max_tokens"
        return "context"
    if any(_CODES.search(code) for code in codes if code):
        return "context"
    if _NAMED.search(message) or _OTHER_TONGUES.search(message):
        return "context"
    if _RATE.search(message) or _OTHER_FIELDS.fullmatch(param.rpartition(".")[2]):
        return None
    if any(map(_about_context, _sentences(message))):
        return "context"
    whole = (_about_context(message) or _compares_sizes(message)) and not _OTHER_FIELDS.search(message)
    return "context" if whole else None


def _about_context(text: str) -> bool:
    return (
        _ABOUT_ROOM.search(text) is not None
        and _ABOUT_MEASURE.search(text) is not None
        and _TOO_MUCH.search(text) is not None
        and _OTHER.search(text) is None
    )


def _compares_sizes(text: str) -> bool:
    """Does it name two numbers of tokens, one of which is a limit?"""
    if not re.search(r"token|context|prompt|length", text, re.IGNORECASE) or not _LIMIT.search(text):
        return False
    if _NO_SIZE.search(text):
        return False
    sizes = {int(re.sub(r"\D", "", found)) for found in _SIZES.findall(text)}
    return len({size for size in sizes if size >= 64}) > 1


def _sentences(text: str) -> list[str]:
    return re.split(r"(?<=[.!?;])\s+|\n+", text)
