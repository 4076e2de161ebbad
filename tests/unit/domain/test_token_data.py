"""Token data is strict: ids are integers in [0, 2^31), log-probabilities finite numbers or missing, masks 0 or 1."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest
from pydantic import ValidationError

from atropos_cli.builtin.openai.answer import read_answer
from atropos_cli.datasets.trainrows import own_row
from atropos_cli.domain.messages import TokenSpan
from atropos_cli.domain.rollout import TokenSequence
from atropos_cli.domain.tokendata import ids_fault, logprobs_fault
from atropos_cli.errors import BackendError
from atropos_cli.io.formats import RowError, detect, read_as
from atropos_cli.ports.backend import Generation
from atropos_cli.rollout.tokens import checked_ids, checked_logprobs

NO_IDS: list[Any] = [
    "104", "०१", "token_id:7", True, False, -1, -100, 104.0, 1e3, float("nan"), None, 2**31, 2**32, 2**64, 10**30,
    [5], {"id": 5}, b"5",
]  # fmt: skip
NO_LOGPROBS: list[Any] = [
    "-0.5", True, False, float("nan"), float("inf"), float("-inf"), [-0.5], {"logprob": -1}, 10**400, "",
]  # fmt: skip
NO_FLAGS: list[Any] = ["yes", "1", "true", None, 2, -1, 0.5, [True]]
IDS = [0, 2**31 - 1, 15]


@pytest.mark.parametrize("place", [0, 2], ids=["first", "last"])
@pytest.mark.parametrize("bad", NO_IDS, ids=repr)
def test_what_is_no_id(bad: Any, place: int) -> None:
    ids: list[Any] = [7, 8, 9]
    ids[place] = bad
    fault = ids_fault(ids)
    assert fault is not None
    assert f"position {place}" in fault
    for make in (
        lambda: TokenSpan(ids=tuple(ids)),
        lambda: TokenSequence(ids=tuple(ids), mask=(False, True, True), logprobs=None),
        lambda: Generation(completions=(), prompt_ids=tuple(ids)),
    ):
        with pytest.raises(ValidationError):
            make()
    with pytest.raises(BackendError, match="something other than token ids"):
        checked_ids(ids, "own")


@pytest.mark.parametrize("bad", NO_LOGPROBS, ids=lambda value: repr(value)[:20])
def test_what_is_no_logprob(bad: Any) -> None:
    values = (-0.5, bad, 0)
    fault = logprobs_fault(values)
    assert fault is not None
    assert "position 1" in fault
    with pytest.raises(ValidationError):
        TokenSpan(ids=tuple(IDS), logprobs=values)
    with pytest.raises(BackendError, match="not a finite log-probability"):
        checked_logprobs(values, 3, "own")


@pytest.mark.parametrize("bad", NO_FLAGS, ids=repr)
def test_what_is_no_mask(bad: Any) -> None:
    with pytest.raises(ValidationError):
        TokenSpan(ids=tuple(IDS), mask=(False, bad, True))


def test_what_is_token_data() -> None:
    span = TokenSpan(ids=tuple(IDS), mask=[0, 1, True], logprobs=(0, -3, -1e300))
    assert span == TokenSpan(ids=tuple(IDS), mask=(False, True, True), logprobs=(0.0, -3.0, -1e300))
    assert ids_fault([]) is None
    assert logprobs_fault([-1e308, -1e308, -1e308]) is None  # though their sum is not finite
    with pytest.raises(BackendError, match="2 log-probabilities for 3"):
        checked_logprobs([-1.0, -1.0], 3, "own")


# Servers' answers: the token data is left out and counted; the reply stays.


def _answer(**choice: Any) -> bytes:
    choice = {"message": {"content": "Quarante-deux"}, "finish_reason": "stop", **choice}
    top = {key: choice.pop(key) for key in ("prompt_token_ids",) if key in choice}
    return json.dumps({"choices": [choice], **top}).encode()


def _content(*tokens: dict[str, Any]) -> dict[str, Any]:
    return {"content": [{"token": "a", "logprob": -1.0, **token} for token in tokens]}


def _flavours(ids: Sequence[Any]) -> list[dict[str, Any]]:
    logprobs = _content(*[{} for _ in ids])
    return [
        {"token_ids": ids, "logprobs": logprobs},
        {"response_token_ids": ids, "logprobs": logprobs},
        {"logprobs": _content(*({"id": value} for value in ids))},
        {"logprobs": _content(*({"token": f"token_id:{value}"} for value in ids))},
    ]


@pytest.mark.parametrize("flavour", range(4), ids=["token_ids", "response_token_ids", "content.id", "token_id:"])
@pytest.mark.parametrize("bad", NO_IDS[:-1], ids=repr)
def test_ids_in_an_answer(bad: Any, flavour: int) -> None:
    if flavour == 3 and bad == "104":
        return  # "token_id:104" is how an id is written there
    body = _answer(**_flavours([12, bad, 13])[flavour])
    generation, notes = read_answer(body, n=1, chat=True, with_tokens=True)
    (completion,) = generation.completions
    assert completion.message.content == "Quarante-deux"
    assert completion.message.tokens is None
    assert (notes.bad_token_ids, notes.no_token_ids) == (1, 0)


@pytest.mark.parametrize("flavour", range(4))
def test_ids_in_an_answer_that_are_right(flavour: int) -> None:
    generation, notes = read_answer(_answer(**_flavours(IDS)[flavour]), n=1, chat=True, with_tokens=True)
    assert generation.completions[0].message.tokens == TokenSpan(ids=tuple(IDS), mask=True, logprobs=(-1.0,) * 3)
    assert not notes.bad_token_ids


@pytest.mark.parametrize(
    "second", ["104", "token_id:+6", "token_id:1_0", "token_id: 6", "token_id:٦", "token_id:", None]
)
def test_ids_in_token_texts(second: str | None) -> None:
    body = _answer(logprobs=_content({"token": "token_id:5"}, {"token": second}))
    generation, notes = read_answer(body, n=1, chat=True, with_tokens=True)
    assert generation.completions[0].message.tokens is None
    assert notes.bad_token_ids == 1


@pytest.mark.parametrize("bad", [*NO_LOGPROBS[:8], None, 0.5, -9999.0], ids=lambda value: repr(value)[:20])
def test_logprobs_in_an_answer(bad: Any) -> None:
    body = _answer(token_ids=[4, 5], logprobs=_content({}, {"logprob": bad}))
    generation, notes = read_answer(body, n=1, chat=True, with_tokens=True)
    assert generation.completions[0].message.tokens == TokenSpan(ids=(4, 5), mask=True)
    assert notes.bad_logprobs == 1


@pytest.mark.parametrize("bad", [["104"], [True], [1.0], [-1], [2**31], "104", {"0": 1}, [None], 7, [[1]]], ids=repr)
def test_prompt_ids_in_an_answer(bad: Any) -> None:
    body = _answer(prompt_token_ids=bad, **_flavours(IDS)[0])
    generation, notes = read_answer(body, n=1, chat=True, with_tokens=True)
    assert generation.prompt_ids is None
    assert generation.prompt_tokens is None
    assert notes.bad_token_ids == 1


# Stored rows: refused with the place.


def _parallel(**lists: Any) -> dict[str, Any]:
    return {"tokens": [[1, 2, 3]], "masks": [[-100, 2, 3]], "scores": [1.0], **lists}


def _native(**span: Any) -> dict[str, Any]:
    tokens = {"ids": [1, 2, 3], "mask": [False, True, True], "logprobs": [0.0, -1, -0.5], **span}
    messages = [{"role": "user", "content": "¿Qué hora es?"}, {"role": "assistant", "content": "6", "tokens": tokens}]
    return {
        "schema_version": 1, "group_id": "g", "env": "e", "model": "m",
        "task": {"id": "t", "prompt": messages[:1]},
        "rollouts": [{"id": "g/0", "task_id": "t", "messages": messages, "rewards": {}, "reward": 1.0}],
    }  # fmt: skip


def _read(row: dict[str, Any]) -> Any:
    form = detect(row)
    assert form is not None
    return read_as(form, row, "rows.jsonl", 1)


@pytest.mark.parametrize("bad", NO_IDS, ids=repr)
def test_ids_in_rows(bad: Any) -> None:
    for row in (_parallel(tokens=[[1, 2, bad]], masks=[[-100, 2, bad]]), _native(ids=[1, 2, bad])):
        with pytest.raises(RowError, match="position 2"):
            _read(row)
    with pytest.raises(RowError, match="position 2"):
        own_row({"input_ids": [1, 2, bad], "labels": [-100, 2, 3]}, "demonstrations")


@pytest.mark.parametrize("bad", [v for v in NO_IDS if v != -100], ids=repr)
def test_labels_in_rows(bad: Any) -> None:
    with pytest.raises(RowError):
        own_row({"input_ids": [1, 2, 3], "labels": [-100, 2, bad]}, "demonstrations")
    with pytest.raises(RowError):
        _read(_parallel(masks=[[-100, 2, bad]]))


@pytest.mark.parametrize("mask", [[0, 1, 2], [-100, 3, 2], [1.0, 0, 1], ["0", "1", "1"], [None, 2, 3], [-1, 2, 3]])
def test_masks_in_rows(mask: list[Any]) -> None:
    with pytest.raises(RowError, match="mask of 0 and 1"):
        _read(_parallel(masks=[mask]))


@pytest.mark.parametrize("bad", NO_LOGPROBS, ids=lambda value: repr(value)[:20])
def test_logprobs_in_rows(bad: Any) -> None:
    for row in (_parallel(inference_logprobs=[[1.0, -1.0, bad]]), _native(logprobs=[0.0, -1.0, bad])):
        with pytest.raises(RowError, match=r"logprobs.*position 2"):
            _read(row)


@pytest.mark.parametrize(
    "row",
    [
        _parallel(inference_logprobs=[[-1.0, -1.0]]),
        _parallel(masks=[[-100, 2]]),
        _parallel(tokens=["1 2 3"]),
        _native(logprobs=[-1.0]),
        _native(mask=[True]),
        _native(mask="yes"),
        _native(mask=[0, 1, "1"]),
        _native(ids="1 2 3"),
        _native(ids=None),
        _native(restart="no"),
    ],
)
def test_lists_that_do_not_fit(row: dict[str, Any]) -> None:
    with pytest.raises(RowError):
        _read(row)


def test_rows_that_are_right() -> None:
    whole = ([1, 2, 3], [False, True, True])
    for row, logprobs in (
        (_parallel(), None),
        (_parallel(masks=[[0, 1, 1]], inference_logprobs=[[1.0, -1, -0.5]]), [0.0, -1.0, -0.5]),
        (_parallel(masks=[[False, True, True]], inference_logprobs=[[None, -1, -0.5]]), [0.0, -1.0, -0.5]),
        (_parallel(inference_logprobs=[[1.0, None, -0.5]]), None),
        (_parallel(inference_logprobs=[[]]), None),
        (_parallel(inference_logprobs=[None]), None),
        (_native(), [0.0, -1, -0.5]),
        (_native(mask=[0, 1, 1], logprobs=None), None),
    ):
        (rollout,) = _read(row).rollouts
        assert rollout.sequences == ((*whole, logprobs),)
    row = {"input_ids": [1, 2, 3], "labels": [-100, 2, 3]}
    assert own_row(row, "demonstrations") is row
