# ruff: noqa: E501 - tables of wordings, a line each
"""Context overflow is told by what a server means: wordings of many servers, and what only looks like one."""

from __future__ import annotations

import json
from typing import Any

import pytest
from atropos_authoring.mock_server import MockServer

from atropos_cli.builtin.openai.errors import Asked, classify, read_error
from atropos_cli.sdk.backends import BackendError, ContextOverflow, FatalBackendError, RequestRejected, too_much

from .openai_support import ask, chat, opened

OVERFLOWS = """\
litellm.ContextWindowExceededError: OpenAIException - too big
The conversation has outgrown what the model can read (limit 4096 tokens).
the prompt does not leave room for any output
Der Kontext ist zu klein: 5000 Token angefragt, 4096 erlaubt
El mensaje excede el límite de tokens
промпт слишком длинный
Rejected: 5120 tokens in, capacity 4096
This model's maximum context length is 4096 tokens. However, you requested 5000 tokens (4000 in the messages, 1000 in the completion). Please reduce the length of the messages or completion.
This model's maximum context length is 8192 tokens. However, your messages resulted in 10000 tokens. Please reduce the length of the messages.
The decoder prompt (length 5000) is longer than the maximum model length of 4096. Make sure that `max_model_len` is no smaller than the number of text tokens.
'max_tokens' or 'max_completion_tokens' is too large: 500. This model's maximum context length is 1024 tokens and your request has 900 input tokens (500 > 1024 - 900).
max_tokens must be at least 1, got -12.
max_completion_tokens must be at least 1, got 0
max_tokens must be greater than or equal to 1, got -300
You passed 4097 input tokens and requested 1 output tokens. However, the model's context length is only 4096 tokens, resulting in a maximum input length of 4095 tokens. Please reduce the length of the input prompt.
The input (5000 tokens) is longer than the model's context length (4096 tokens).
Requested token count exceeds the model's maximum context length of 4096 tokens. You requested a total of 5000 tokens: 4500 tokens from the input messages and 500 tokens for the completion.
Input length (5000 tokens) exceeds the maximum allowed length (4096 tokens). Use a shorter input or enable --allow-auto-truncate.
the request exceeds the available context size (4096 tokens), try increasing it
Requested tokens (2285) exceed context window of 2048
Prompt tokens (5000) exceeds context window of 4096
input is too large to process. increase the physical batch size
Input validation error: `inputs` tokens + `max_new_tokens` must be <= 2048. Given: 3474 `inputs` tokens and 60 `max_new_tokens`
Input validation error: `inputs` must have less than 1024 tokens. Given: 2000
prompt too long; exceeded max context length by 904 tokens
the input length exceeds the context length
input length exceeds maximum context length
Trying to keep the first 5000 tokens when context the overflows. However, the model is loaded with context length of only 4096 tokens, which is not enough. Try to load the model with a larger context length, or provide a shorter input
The input token count (1200000) exceeds the maximum number of tokens allowed (1048576).
The input token count exceeds the maximum number of tokens allowed 32768.
Unable to submit request because the input token count is 40000 but model only supports up to 32768. Reduce the input token count and try again.
Prompt contains 40000 tokens and 0 draft tokens, too large for model with 32768 maximum context length
Prompt contains 33000 tokens, too large for model
prompt is too long: 210000 tokens > 200000 maximum
input length and `max_tokens` exceed context limit: 190000 + 20000 > 200000, decrease input length or `max_tokens` and try again
Input is too long for requested model.
Too many input tokens. Max input tokens: 8192, request input token count: 9000
The model returned the following errors: Input Tokens Exceeded: Number of input tokens exceeds maximum length
too many tokens: total number of tokens in the prompt cannot exceed 4081 - received 5000. Try using a shorter prompt
too many tokens
Range of input length should be [1, 30720]
Prompt 超长
输入内容过长，超过模型最大上下文长度
Invalid request: Your request exceeded model token limit: 8192
Input token length too long
invalid params, context window exceeds limit
This model's maximum prompt length is 131072 but the request contains 150000 tokens.
The prompt is too long: 5000, model maximum context length: 4096
This endpoint's maximum context length is 32768 tokens. However, you requested about 40000 tokens (39000 of text input, 1000 in the output). Please reduce the length of either one, or use the "middle-out" transform
Please reduce the length of the messages or completion.
Current length is 9000 while limit is 8192
Prompt length 5000 is greater than max_seq_len 4096
The input prompt length exceeds the session length
The sum of prompt length (5000.0), query length (0) and max_tokens (500) should not exceed max_num_tokens (4096)
Prompt length (5000) exceeds maximum input length (4096). Set log level to info and check TRTLLM logs
litellm.ContextWindowExceededError: litellm.BadRequestError: ContextWindowExceededError: OpenAIException - This model's maximum context length is 4097 tokens.
Your input exceeds the context window of this model. Please adjust your input and try again.
Input tokens exceed the configured limit of 272000 tokens. Your messages resulted in 300000 tokens. Please reduce the length of the messages.
Invalid 'messages[0].content': string too long. Expected a string with maximum length 1048576, but got a string with length 2000000 instead.
max_tokens=4000 and prompt exceed max_model_len 4096
Request of 2101 tokens is over the maximum context length of 2048 tokens
The conversation is too long for this model's context
Your prompt has 9000 tokens, but the window of this model holds only 8192
El contexto: prompt length 9000 exceeds limit
failed to process prompt: context size exceeded (n_ctx = 2048)
Context length exceeded
Sequence length 5000 is longer than the maximum sequence length for this model (4096)
Token indices sequence length is longer than the specified maximum sequence length for this model (5000 > 4096)
max_total_tokens (4096) exceeded: prompt 4000 + 200
Not enough KV cache space: prompt has 9000 tokens
This request requires 5000 tokens but the context window only holds 4096 tokens
Requested 5,000 tokens; the model can take at most 4096 tokens of context
The total length of input and output tokens must be less than 4096
Prompt and max_tokens together surpass the 4096 token context
The length of your prompt is above the 8k limit of this model
Error: your request is too big for the model: 12000 tokens, limit 8192
The prompt does not fit into the context of the model
input exceeds context
Prompt is longer than the context window
The request would need 9321 tokens but n_ctx is 4096
[TabbyAPI] Prompt length 5013 is greater than max_seq_len 4096
Generation error: prompt tokens (5000) + max_tokens (1000) > context (4096)
Your messages contain 9,512 tokens which exceeds the 8,192-token limit
Total tokens (prompt + completion) 10000 would go over the model's 8192 context
the prompt is bigger than what the model can take: 9000 tokens, maximum 8192
slot context full
Le contexte maximal du modèle est de 4096 tokens, votre requête en contient 5000
Die Eingabe ist zu lang: 5000 Tokens, maximal 4096 erlaubt
La longitud del contexto supera el máximo de 4096 tokens
入力トークン数が上限を超えています
Failed: input_tokens + max_new_tokens must not exceed 4096
ValueError: Sampled prompt has 5000 tokens; engine max_model_len=4096
exceeded model context
request too large for model, reduce the length
message too long for context window
max_tokens must be positive
max_new_tokens must be strictly positive
`max_tokens` is -35; it must be greater than 0
The combined length of the prompt and the completion is more than the model allows (4096 tokens)
""".splitlines()
MAX_TOKENS_ALONE = """\
max_tokens=5000 cannot be greater than max_model_len=4096. Please request fewer output tokens.
max_tokens is too large: 100000. This model supports at most 4096 completion tokens, whereas you provided 100000.
'max_tokens' or 'max_completion_tokens' is too large: 5000. This model's maximum context length is 1024 tokens and your request has 90 input tokens (5000 > 1024 - 90).
max_tokens: 100000 > 8192, which is the maximum allowed number of output tokens for claude
`max_tokens` must be less than or equal to `8192`, the maximum value for `max_tokens` is less than the `context_window` for this model
Invalid max_tokens value, the valid range of max_tokens is [1, 8192]
The maximum tokens you requested exceeds the model limit of 4096.
Range of max_tokens should be [1, 2000]
max_tokens: Input should be less than or equal to 4096
""".splitlines()
OTHERS = """\
Unknown parameter: max_input_tokens
There is no room in the queue: 5 requests wait
LoRA rank 128 is greater than max_lora_rank 64
invalid character in prompt
temperature must be at least 0
the message list is longer than allowed: context of the user is missing
stop sequences: at most 4
temperature: Input should be less than or equal to 2
stop: List should have at most 4 items after validation, not 6
top_logprobs: Input should be less than or equal to 20
Requested prompt logprobs of 5, which is greater than max allowed: 0
Unknown field `max_input_length`: extra fields not permitted
bad image
no
Expected 'content' to be string or array
The model `x` does not exist
n must be at most 8
messages: roles must alternate
The prompt contains an unknown role
Too many images in the prompt: at most 1 is allowed
tools: too many functions, at most 128
Invalid value for 'content': expected a string, got null.
CUDA error: out of memory
CUDA out of memory. Tried to allocate 2.00 GiB
Request was blocked: input contains prohibited content
the chat template refuses the messages: system role not supported
Internal server error
Rate limit reached for requests
engine is full
Input should be a valid string
top_p must be in (0, 1]
unsupported parameter: max_context_length
The input contains invalid tokens
user name in messages is too long, at most 64
seed must be less than 2147483647
'messages' must contain the word 'json' in some form
The maximum number of tools is 128
Function name too long: maximum length is 64
Image size exceeds limit of 20 MB
Too many messages with role system
input.0.content: String should have at least 1 character
No room left on device
Model is overloaded: reached maximum capacity
prompt contains forbidden word
This model only supports text input
The messages must not be empty
request limit reached
Conversation roles must alternate user/assistant/user/assistant
tool_choice is only allowed when tools are specified
Input validation error: `temperature` must be strictly positive
Input validation error: `best_of` must be > 0 and <= 2. Given: 4
Unsupported value: 'temperature' does not support 0.2 with this model. Only the default (1) value is supported.
logit_bias token ids must be less than 32000
prompt_logprobs exceeds maximum
Invalid token ids in prompt: 200000 is out of vocabulary
Token id 151940 is out of vocabulary
This model supports only 1 input message
""".splitlines()
ASKED = Asked(address="h:1", url="http://h:1/v1/chat/completions", model="m")


def outcome(status: int, body: Any) -> BackendError:
    return classify(status, read_error(json.dumps(body).encode()), ASKED)


@pytest.mark.parametrize("message", OVERFLOWS)
def test_a_context_overflow_by_its_meaning(message: str) -> None:
    assert too_much(message) == "context"


@pytest.mark.parametrize("message", MAX_TOKENS_ALONE)
def test_max_tokens_that_no_prompt_leaves_room_for_stops_the_run(message: str) -> None:
    assert too_much(message) == "max_tokens"
    assert type(outcome(400, {"error": {"message": message}})) is FatalBackendError


@pytest.mark.parametrize("message", OTHERS)
def test_other_complaints_are_no_overflow(message: str) -> None:
    assert too_much(message) is None
    assert not isinstance(outcome(400, {"error": {"message": message}}), ContextOverflow)


LONG = "This endpoint's maximum context length is 32768 tokens. However, you requested about 40000 tokens"
BEHIND_PROXIES: list[tuple[int, Any]] = [
    (413, "<html>413 Request Entity Too Large</html>"),
    (413, {}),
    (400, {"error": {"message": "Provider returned error", "metadata": {"raw": json.dumps({"error": {"message": LONG}})}}}),
    (400, {"error": {"message": "Provider returned error", "metadata": {"raw": "prompt is too long: 9 tokens > 8 maximum"}}}),
    (400, [{"error": {"code": 400, "message": "The input token count (12000) exceeds the maximum number of tokens (8192)."}}]),
    (400, {"error": {"code": "BadRequest", "message": "failed", "innererror": {"message": "context length exceeded"}}}),
    (500, {"detail": "litellm.ContextWindowExceededError: OpenAIException - " + LONG}),
    (404, {"error": {"message": LONG, "code": "context_length_exceeded"}}),
    (400, {"error": {"message": "bad", "code": "model_context_window_exceeded"}}),
    (400, {"type": "error", "error": {"type": "invalid_request_error", "message": "prompt is too long: 9 tokens > 8 maximum"}}),
]  # fmt: skip


@pytest.mark.parametrize(("status", "body"), BEHIND_PROXIES)
def test_an_overflow_behind_proxies_and_in_other_shapes(status: int, body: Any) -> None:
    data = body.encode() if isinstance(body, str) else json.dumps(body).encode()
    assert type(classify(status, read_error(data), ASKED)) is ContextOverflow


def test_bodies_without_end_are_no_trouble() -> None:
    deep: Any = "x"
    for _ in range(50):
        deep = {"raw": deep}
    assert type(outcome(400, {"error": {"message": "odd", "metadata": deep}})) is RequestRejected
    assert too_much("max_tokens " * 20_000) is None


async def test_an_overflow_that_comes_with_status_200() -> None:
    aborted = {
        "type": "abort",
        "message": "Input length (9000 tokens) exceeds the maximum allowed length",
        "status_code": 400,
    }
    script = [
        chat({"message": {"content": ""}, "finish_reason": aborted}),
        {"json": {"error": {"message": LONG}, "choices": []}},
        {"json": {"object": "error", "message": "prompt too long; exceeded max context length by 904 tokens", "choices": None}},
    ]  # fmt: skip
    with MockServer(script) as server:
        async with opened(server) as backend:
            for _ in script:
                with pytest.raises(ContextOverflow):
                    await backend.generate(ask())
