"""Conversations written as one text, as turns.

    "\\n\\nHuman: Hi\\n\\nAssistant: Hello"        a label before each turn, in its usual spellings and languages
    "### Instruction:\\n...\\n\\n### Response:"     the same under headings
    "<|im_start|>user\\nHi<|im_end|>..."          marks of a chat template
    "user\\nHi\\nassistant\\n"                      what is left of such marks when special tokens are skipped

A text is a transcript only when it begins with a label and its turns alternate. Where two readings are possible it
is refused: a guess would train on the user's words.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

Turn = tuple[str, str]
"""Role (system, user, assistant) and text."""

_NAMES: dict[str, tuple[str, ...]] = {
    "user": (
        "human", "user", "prompter", "customer", "usuario", "usuária", "usuário", "utilisateur", "utilisatrice",
        "humain", "humano", "utente", "umano", "benutzer", "benutzerin", "nutzer", "nutzerin", "mensch", "gebruiker",
        "mens", "użytkownik", "człowiek", "uživatel", "användare", "bruger", "bruker", "käyttäjä", "felhasználó",
        "utilizator", "kullanıcı", "insan", "người dùng", "pengguna", "пользователь", "человек", "користувач",
        "людина", "χρήστης", "משתמש", "المستخدم", "مستخدم", "إنسان", "کاربر", "उपयोगकर्ता", "मानव", "ব্যবহারকারী",
        "ผู้ใช้", "用户", "用戶", "使用者", "人类", "人類", "人", "ユーザー", "ユーザ", "人間", "사용자", "인간", "유저",
    ),
    "assistant": (
        "assistant", "ai assistant", "ai", "bot", "chatbot", "gpt", "chatgpt", "claude", "model", "agent",
        "asistente", "assistente", "assistante", "assistent", "assistentin", "ia", "ki", "asystent", "asystentka",
        "avustaja", "asszisztens", "asistan", "asisten", "trợ lý", "ассистент", "помощник", "бот", "ии",
        "асистент", "помічник", "βοηθός", "עוזר", "المساعد", "مساعد", "دستیار", "सहायक", "সহকারী", "ผู้ช่วย",
        "助手", "助理", "机器人", "機器人", "人工智能", "アシスタント", "ボット", "어시스턴트", "비서", "봇",
    ),
    "system": ("system", "sistema", "système", "systeem", "система", "النظام", "系统", "系統", "システム", "시스템"),
    "question": (
        "question", "q", "pregunta", "pergunta", "domanda", "frage", "f", "vraag", "pytanie", "вопрос", "в", "сұрақ",
        "soru", "câu hỏi", "pertanyaan", "السؤال", "سؤال", "प्रश्न", "问题", "問題", "问", "問", "提问", "質問", "질문",
        "instruction", "anweisung", "instrucción", "instrução", "istruzione", "инструкция", "指令", "指示", "명령",
    ),
    "answer": (
        "answer", "a", "respuesta", "resposta", "risposta", "réponse", "antwort", "antwoord", "odpowiedź", "ответ", "о",
        "cevap", "yanıt", "câu trả lời", "jawaban", "الجواب", "الإجابة", "جواب", "उत्तर", "回答", "答案", "答",
        "답변", "답", "response", "reply", "output", "응답", "応答", "出力",
    ),
    "input": ("input", "eingabe", "entrada", "entrée", "ввод", "输入", "輸入", "入力", "입력"),
}  # fmt: skip
_ROLE_OF_KIND = {"question": "user", "input": "user", "answer": "assistant"}
KINDS: dict[str, str] = {name: kind for kind, names in _NAMES.items() for name in names}
"""Kind of each name that may precede a turn. question and answer are weak: they occur in other texts, too."""


def _any(names: Sequence[str]) -> str:
    return "|".join(re.escape(name).replace(r"\ ", " ") for name in sorted(names, key=len, reverse=True))


_LABEL = re.compile(
    r"(?P<lead>^|\n)[ \t]*(?P<mark>#{1,6}[ \t]*|\*\*|\[)?(?P<name>" + _any(list(KINDS)) + r")"
    r"(?:(?P<close>\*\*|\])?[ \t]?[:：](?:\*\*)?|(?P<heading>)(?=[ \t]*\n))[ \t]*",
    re.IGNORECASE,
)
_INLINE = re.compile(
    r"(?P<lead>)(?P<mark>#{2,6}[ \t]*)(?P<name>" + _any(list(KINDS)) + r")[ \t]?[:：][ \t]*", re.IGNORECASE
)
_SPEAKER = r"(?P<name>system|developer|user|human|assistant|model|tool|ipython)"
_MARKS = re.compile(
    rf"<\|(?:im_start|start_header_id)\|>\s*{_SPEAKER}(?:<\|end_header_id\|>)?[ \t]*\n*|"
    rf"<start_of_turn>\s*{_SPEAKER.replace('name', 'turn')}[ \t]*\n*|<\|{_SPEAKER.replace('name', 'short')}\|>[ \t]*\n*"
)
_ENDS = re.compile(
    r"(?:\s*(?:<\|(?:im_end|eot_id|end|endoftext|end_of_text|eom_id)\|>|<end_of_turn>|</s>|<eos>))+\s*\Z"
)
_BEGINS = re.compile(r"\A(?:\s*(?:<s>|<bos>|<\|begin_of_text\|>|<\|startoftext\|>))+")
_SKIPPED = re.compile(r"(?:^|(?<=\n))(?P<name>system|user|assistant)\n")
_BLANK = re.compile(r"\n[ \t\r]*\n[ \t]*\Z")
_FENCE = re.compile(r"```|~~~")


class Ambiguous(ValueError):
    """A text that looks like a transcript, and can be read in more than one way, or in none; the text says why."""


@dataclass(frozen=True, slots=True)
class _Label:
    """A label: where it begins and where its turn's text begins, how it is written, whether a blank line is before."""

    begin: int
    end: int
    kind: str
    style: tuple[str, str]
    blank: bool

    @property
    def role(self) -> str:
        return _ROLE_OF_KIND.get(self.kind, self.kind)


def turns_of(text: str, *, prompt: bool = False, weak: bool = False) -> list[Turn] | None:
    """The turns of a transcript; None for any other text. Raises Ambiguous.

    prompt: the text asks, so that it may end with the label of the reply to come (which is no turn), and a text may
    stand before the first label (which becomes the system's). weak: Question/Answer are labels, too, where there is
    one of each.
    """
    if "<" in text and (made := _marked(text)) is not None:
        return made
    body = text.strip()
    if prompt and body.startswith(("system\n", "user\n")) and (made := _skipped(text)) is not None:
        return made
    if not (
        _LABEL.match(body) or _INLINE.match(body) or (prompt and body.endswith((":", "：", ":**"))) or "### " in body
    ):
        return None
    labels = _labels(text)
    if not labels:
        return None
    before = text[: labels[0].begin].strip()
    headed = labels[0].style[0].startswith("#")
    asks = prompt and not text[labels[-1].end :].strip() and labels[-1].role == "assistant"
    if before and not (asks or (headed and labels[0].kind == "question")):
        return None
    labels = _family(labels, weak=weak or headed)
    if not labels:
        return None
    turns = _cut(text, _boundaries(labels))
    if before:
        turns.insert(0, ("system", before))
    return _checked(turns, prompt=prompt)


def reply_of(text: str) -> str | None:
    """The text of a reply that bears an assistant's label; None for any other text."""
    match = _LABEL.match(text.lstrip())
    if match is None or KINDS[match["name"].lower()] != "assistant":
        return None
    return text.lstrip()[match.end() :].strip()


def asked_of(text: str) -> str | None:
    """The text of a prompt that is one user's turn under a label; None for any other text."""
    match = _LABEL.match(text.lstrip())
    if match is None or KINDS[match["name"].lower()] != "user":
        return None
    return text.lstrip()[match.end() :].strip()


def without_end(text: str) -> str:
    """A reply without the marks that end a turn."""
    return _ENDS.sub("", text)


def _labels(text: str) -> list[_Label]:
    """All labels outside of code blocks, in order."""
    fences = [match.start() for match in _FENCE.finditer(text)]
    pattern = _INLINE if _INLINE.match(text.lstrip()) else _LABEL
    found = []
    for match in pattern.finditer(text):
        place = match.start("name")
        if bisect_left(fences, place) % 2:
            continue
        parts = match.groupdict()
        mark = (parts["mark"] or "").strip()
        if parts.get("heading") is not None and not mark.startswith("#"):
            continue  # a word alone on its line
        if mark == "[" and not parts.get("close"):
            continue
        begin = match.start("mark") if mark else place
        blank = _BLANK.search(text[max(begin - 80, 0) : begin]) is not None
        name = match["name"].lower()
        found.append(_Label(match.start(), match.end(), KINDS[name], (mark, name), blank))
    return found


def _family(labels: list[_Label], *, weak: bool) -> list[_Label]:
    """The labels of one pair of names, as the first of each role is written; none where there is no pair."""
    strong = labels[0].kind in ("user", "assistant", "system")
    if not strong and not weak:
        return []
    asks, answers = ("user", "assistant") if strong else ("question", "answer")
    mark = labels[0].style[0]
    same = [label for label in labels if label.style[0] == mark]
    names = {
        kind: next((label.style for label in same if label.kind == kind), None) for kind in (asks, answers, "system")
    }
    if names[asks] is None or names[answers] is None:
        return []
    if not strong and not mark and [label.kind for label in same] != ["question", "answer"]:
        return []  # several questions are examples as a rule: which of the answers is the reply?
    return [label for label in same if label.style in names.values() or (not strong and mark and label.kind == "input")]


def _boundaries(labels: list[_Label]) -> list[_Label]:
    """The labels that begin a turn: all, or those behind a blank line, whichever alternate. Raises Ambiguous."""
    apart = [label for index, label in enumerate(labels) if label.blank or not index]
    every, some = _alternate(labels), _alternate(apart)
    if len(apart) == len(labels) or (every and not some):
        return labels
    if some and not every:
        return apart
    if every:
        raise Ambiguous("a transcript of which one turn holds what may be turns of its own")
    raise Ambiguous("a transcript whose turns do not alternate")


def _alternate(labels: Sequence[_Label]) -> bool:
    roles = [label.role for label in labels if label.kind not in ("system", "input")]
    return {"user", "assistant"} <= {*roles} and all(a != b for a, b in pairwise(roles))


def _cut(text: str, labels: Sequence[_Label]) -> list[Turn]:
    turns: list[Turn] = []
    ends = [*(label.begin for label in labels[1:]), len(text)]
    for label, end in zip(labels, ends, strict=True):
        words = text[label.end : end].strip()
        if label.kind == "input" and turns and turns[-1][0] == "user":
            turns[-1] = ("user", f"{turns[-1][1]}\n\n{words}" if words else turns[-1][1])
        else:
            turns.append((label.role, words))
    return turns


def _checked(turns: list[Turn], *, prompt: bool) -> list[Turn]:
    """The turns, if they are a conversation. Raises Ambiguous."""
    if prompt and turns[-1] == ("assistant", ""):
        turns = turns[:-1]
    empty = next((role for role, words in turns if not words), None)
    if empty is not None:
        raise Ambiguous(f"a transcript with a turn of the {empty} that is empty")
    spoken = [role for role, _ in turns if role != "system"]
    if any(a == b for a, b in pairwise(spoken)):
        raise Ambiguous("a transcript whose turns do not alternate")
    if "user" not in spoken:
        raise Ambiguous("a transcript without a turn of the user")
    return turns


def _marked(text: str) -> list[Turn] | None:
    """Turns between the marks of a chat template."""
    body = _BEGINS.sub("", text).lstrip()
    matches = list(_MARKS.finditer(body))
    if not matches or matches[0].start():
        return None
    turns: list[Turn] = []
    ends = [*(match.start() for match in matches[1:]), len(body)]
    for match, end in zip(matches, ends, strict=True):
        name = match["name"] or match["turn"] or match["short"]
        role = {"human": "user", "model": "assistant", "developer": "system"}.get(name, name)
        if role in ("tool", "ipython"):
            return None  # the calls are text in a form of the template's own
        turns.append((role, _ENDS.sub("", body[match.end() : end]).strip()))
    if turns[-1] == ("assistant", ""):
        turns = turns[:-1]
    return [turn for turn in turns if turn[1] or turn[0] != "system"] or None


def _skipped(text: str) -> list[Turn] | None:
    """Turns of a rendered prompt that was decoded without its special tokens: each role is a line, the reply's last."""
    body = text.lstrip("\n") if text.rstrip(" ").endswith("\n") else text.lstrip("\n") + "\n"
    matches = list(_SKIPPED.finditer(body))
    if not matches or matches[0].start() or matches[-1]["name"] != "assistant" or body[matches[-1].end() :].strip():
        return None
    ends = [match.start() for match in matches[1:]]
    turns = [(m["name"], body[m.end() : end].strip()) for m, end in zip(matches[:-1], ends, strict=True)]
    spoken = [role for role, _ in turns if role != "system"]
    if not spoken or any(a == b for a, b in pairwise(spoken)):
        return None
    return [turn for turn in turns if turn[1] or turn[0] != "system"]
