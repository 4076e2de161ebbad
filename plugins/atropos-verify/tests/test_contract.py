"""The rewards of this plugin keep the contract of all rewards."""

from __future__ import annotations

from atropos_authoring.rewards import RewardContract
from atropos_verify.answers import gsm8k, gsm8k_strict
from atropos_verify.combine import combined
from atropos_verify.layout import think_answer_format, think_format
from atropos_verify.shaping import length_penalty_reward, repetition_penalty
from atropos_verify.symbolic import answer, math
from atropos_verify.textual import choice, exact, json_schema_reward, regex_reward
from verify_support import make_task


class TestGsm8k(RewardContract):
    reward = gsm8k
    cases = ((make_task("72"), "So 72.", 1.0), (make_task("72"), "71", 0.0))


class TestGsm8kStrict(RewardContract):
    reward = gsm8k_strict
    cases = ((make_task("72"), "#### 72", 1.0), (make_task("72"), "72", 0.0))


class TestMath(RewardContract):
    reward = math
    cases = ((make_task("2\\sqrt{2}"), "\\boxed{\\sqrt{8}}", 1.0), (make_task("2\\sqrt{2}"), "\\boxed{\\sqrt{7}}", 0.0))


class TestAnswer(RewardContract):
    reward = answer
    cases = ((make_task("72"), "So 72.", 1.0), (make_task("72"), "\\boxed{x}", 0.0))


class TestChoice(RewardContract):
    reward = choice
    cases = ((make_task("B"), "Answer: (B)", 1.0), (make_task("B"), "Answer: (A)", 0.0))


class TestExact(RewardContract):
    reward = exact
    cases = ((make_task("Oslo"), "oslo.", 1.0), (make_task("Oslo"), "Rome", 0.0))


class TestRegex(RewardContract):
    reward = regex_reward(r"\d")
    cases = ((make_task(), "1", 1.0), (make_task(), "a", 0.0))


class TestJsonSchema(RewardContract):
    reward = json_schema_reward({"type": "object"})
    cases = ((make_task(), "{}", 1.0), (make_task(), "[]", 0.0))


class TestThinkAnswerFormat(RewardContract):
    reward = think_answer_format
    cases = ((make_task(), "<think>a</think><answer>b</answer>", 1.0), (make_task(), "b", 0.0))


class TestThinkFormat(RewardContract):
    reward = think_format
    cases = ((make_task(), "<think>a</think>b", 1.0), (make_task(), "b", 0.0))


class TestLengthPenalty(RewardContract):
    reward = length_penalty_reward(1, 3, unit="words")
    cases = ((make_task(), "a", 0.0), (make_task(), "a b", -0.5))


class TestRepetitionPenalty(RewardContract):
    reward = repetition_penalty
    cases = ((make_task(), "a b c d e", 0.0), (make_task(), "a a a a a", -0.5))


class TestCombined(RewardContract):
    reward = combined([gsm8k, think_format.with_weight(0.5)])
    cases = ((make_task("5"), "<think>x</think>5", 1.5), (make_task("5"), "6", 0.0))
