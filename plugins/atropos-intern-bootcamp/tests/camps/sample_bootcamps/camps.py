"""Bootcamps: case_generator(), prompt_func(identity), verify_score(reply, identity, ...)."""

import random
import re
import time
from pathlib import Path


class Basebootcamp:
    """What they share: extract an answer, compare it, penalties for short replies and missing thinking."""

    def case_generator(self):
        return {}

    def prompt_func(self, identity):
        return ""

    @classmethod
    def extract_output(cls, output):
        found = re.findall(r"\[answer\](.*?)\[/answer\]", output, re.DOTALL)
        return found[-1].strip() if found else None

    @classmethod
    def verify_score(
        cls, model_output, identity, format_score=0, short_penalty=True, short_threshold=100, format_penalty=True
    ):
        if format_penalty and "</think>" not in model_output:
            return 0
        if short_penalty and len(model_output) < short_threshold:
            return 0
        extracted = cls.extract_output(model_output)
        if extracted is None:
            return 0
        return 1.0 if cls.correct(extracted, identity) else format_score


class Sumsbootcamp(Basebootcamp):
    def __init__(self, largest=20):
        self.largest = largest

    def case_generator(self):
        return {"numbers": [random.randint(1, self.largest) for _ in range(3)]}

    def prompt_func(self, identity):
        return f"Add {identity['numbers']}. Put the sum into [answer] and [/answer]."

    def gold_answer(self, identity):
        return f"[answer]{sum(identity['numbers'])}[/answer]"

    @classmethod
    def correct(cls, extracted, identity):
        print("checking", extracted)
        return int(extracted) == sum(identity["numbers"])


class Wordsbootcamp(Basebootcamp):
    """Reads a file by a relative path; verifies without options."""

    def case_generator(self):
        return random.choice(Path("sample_bootcamps/words.txt").read_text().split())

    def prompt_func(self, identity):
        return f"Reverse {identity}. Put the result into [answer] and [/answer]."

    def gold_answer(self, identity):
        return f"[answer]{identity[::-1]}[/answer]"

    @classmethod
    def verify_score(cls, model_output, identity):
        return float(cls.extract_output(model_output) == identity[::-1])


class Evalbootcamp(Sumsbootcamp):
    @classmethod
    def correct(cls, extracted, identity):
        return eval(extracted) == sum(identity["numbers"])


class Hangingbootcamp(Sumsbootcamp):
    @classmethod
    def correct(cls, extracted, identity):
        time.sleep(1000)


class Brokenbootcamp(Sumsbootcamp):
    def case_generator(self):
        raise FileNotFoundError("data/of/long/ago.json")


class Unstorablebootcamp(Sumsbootcamp):
    def case_generator(self):
        return {"numbers": {1, 2, 3}}
