"""A multi-turn environment in one file: guess a number between 1 and 100, with hints.

atropos gen ./guess.py:Guess --backend scripted --backend.function ./player.py:reply --limit 5
"""

from __future__ import annotations

import random
import re

from atropos_cli.sdk import Config, Environment, Episode, Field, Task, TaskStream, reward, system, user

RULES = """\
I am thinking of a whole number from 1 to {largest}. Guess it; reply with a number. I say if mine is higher or lower."""


class GuessConfig(Config):
    largest: int = Field(default=100, ge=2, description="Largest number.")
    guesses: int = Field(default=9, ge=1, description="Guesses before the game ends.")


class Game(Episode):
    """One game. The engine calls reset() once, then step() with each reply until it returns None."""

    def __init__(self, task: Task, config: GuessConfig) -> None:
        self.secret = task.answer
        self.config = config
        self.used = 0
        self.found = False

    def reset(self):
        return [system(RULES.format(largest=self.config.largest)), user("Your first guess?")]

    def step(self, reply):
        self.used += 1
        number = re.search(r"\d+", reply.text)
        if number and int(number[0]) == self.secret:
            self.found = True
            return None
        if self.used == self.config.guesses:
            self.stop_reason = "step_limit"
            return None
        if not number:
            return [user("That is not a number. Your guess?")]
        return [user("Higher." if int(number[0]) < self.secret else "Lower.")]

    def result(self):
        return {"found": self.found, "guesses": self.used}


@reward
def found(task, rollout) -> float:
    """1 for the right number, less a tenth for each guess beyond the first."""
    return max(0.0, 1.1 - 0.1 * rollout.info["guesses"]) if rollout.info["found"] else 0.0


class Guess(Environment):
    """Guess a number in few steps."""

    name = "guess"
    Config = GuessConfig
    rewards = (found,)

    def tasks(self, split):
        """An endless stream; the same index always gives the same secret."""
        return TaskStream(lambda index: self.task(split, index))

    def task(self, split, index):
        secret = random.Random(f"{split}/{index}").randint(1, self.config.largest)
        return Task(id=f"{split}-{index}", answer=secret, info={"task_name": "guess"})

    def episode(self, task):
        return Game(task, self.config)
