"""The environment `code-exec`: endless requests for small free programs, rewarded for running with output."""

from __future__ import annotations

import random
from collections.abc import Sequence

from atropos_cli.sdk import Episode, Field, JsonDict, Message, Task, TaskStream, user
from atropos_cli.sdk.prompts import packaged_prompt
from atropos_code import judging
from atropos_code.rewards import code_runs
from atropos_code.tested import SandboxConfig, SandboxedEnvironment, sandbox_info

GOALS = (
    "prints the first {n} {numbers}",
    "prints the sum of the first {n} {numbers}",
    "finds all {numbers} below {big} and prints how many there are",
    "sorts a list of {n} {things} with {sorting} and prints the list before and after",
    "counts how often each letter occurs in a sentence about {things} and prints a table",
    "builds a dictionary of {n} {things} with made-up prices and prints the cheapest and the dearest",
    "defines a class for {things} with {n} objects and prints a summary of each",
    "reads a table of {things} from a string in CSV form and prints totals by column",
    "simulates a queue of {n} customers who buy {things}, with a fixed random seed, and prints the longest wait",
    "prints a {n} by {n} {grid}",
    "finds the shortest path through a small grid with walls and prints the grid with the path marked",
    "checks whether each of {n} strings about {things} is a palindrome and prints the verdicts",
    "converts the numbers from 1 to {n} to {base} and prints them in a column",
    "encodes a sentence about {things} with a {cipher}, decodes it again and prints both",
    "prints a calendar-like table of {n} days with one of the {things} on each",
    "groups {n} {things} by the length of their names and prints the groups",
    "plays {n} rounds of a number guessing game against itself with a fixed random seed and prints the score",
    "solves the {puzzle} for size {small} and prints one solution",
    "prints all {combinations} of {small} {things}",
    "parses {n} dates written in different forms and prints them sorted",
    "implements a stack and a queue, moves {n} {things} between them and prints each step",
    "computes {statistics} of {n} fixed measurements and prints them with two decimals",
)
WORDS: dict[str, tuple[str, ...]] = {
    "numbers": ("prime numbers", "Fibonacci numbers", "square numbers", "triangular numbers", "perfect numbers",
                "palindromic numbers", "happy numbers", "powers of two", "Catalan numbers", "abundant numbers"),
    "things": ("fruits", "planets", "books", "cities", "animals", "tools", "songs", "trees", "ships", "recipes"),
    "sorting": ("bubble sort", "insertion sort", "merge sort", "quick sort", "heap sort", "counting sort"),
    "grid": ("multiplication table", "chessboard", "spiral of numbers", "magic square or a note that there is none",
             "identity matrix", "Pascal triangle"),
    "base": ("binary", "hexadecimal", "Roman numerals", "English words", "octal"),
    "cipher": ("Caesar cipher", "Vigenere cipher", "rail fence cipher", "substitution cipher", "Morse code"),
    "puzzle": ("n queens puzzle", "tower of Hanoi", "knight's tour", "subset sum puzzle", "coin change puzzle"),
    "combinations": ("permutations", "pairs", "subsets", "orderings without repeated neighbours"),
    "statistics": ("mean, median and mode", "variance and standard deviation", "quartiles", "a moving average"),
}  # fmt: skip


class CodeExecConfig(SandboxConfig):
    """Options of `code-exec`."""

    timeout_s: float = Field(default=5.0, gt=0, le=600, description="Wall-clock seconds for one program.")
    data_seed: int = Field(default=0, description="Another seed gives other requests.")


def request(key: str) -> str:
    """What to program; the same for the same key, in any process."""
    rng = random.Random(key)
    fields: dict[str, object] = {name: rng.choice(words) for name, words in WORDS.items()}
    fields |= {"n": rng.randint(3, 20), "small": rng.randint(3, 6), "big": rng.choice((100, 500, 1000, 5000))}
    return rng.choice(GOALS).format_map(fields)


class _Episode(Episode):
    def __init__(self, task: Task) -> None:
        self.task = task
        self._info: JsonDict = {}
        self._metrics: dict[str, float] = {}

    def reset(self) -> Sequence[Message]:
        return self.task.prompt

    async def step(self, reply: Message) -> None:
        result = await judging.run_reply(self.task, reply.text)
        self._info = {"outcome": result.outcome, "status": result.status, "limit": result.limit}
        self._info |= {"stdout": result.stdout[:2000], "stderr": result.stderr[-2000:]}
        self._metrics = {kind: float(result.outcome == kind) for kind in ("no_code", "syntax_error", "timeout")}
        self._metrics["ran"] = float(result.ran)

    def result(self) -> JsonDict:
        return self._info

    def metrics(self) -> dict[str, float]:
        return self._metrics


class CodeExecEnvironment(SandboxedEnvironment):
    """One request, one program."""

    name = "code-exec"
    Config = CodeExecConfig
    rewards = (code_runs,)
    splits = ("train", "test")
    prompt = packaged_prompt(__file__, "code_exec.toml")
    config: CodeExecConfig

    def tasks(self, split: str) -> TaskStream:
        """Request i depends on the seed, the split and i, and on nothing else."""
        return TaskStream(lambda index: self._task(split, index))

    def _task(self, split: str, index: int) -> Task:
        wanted = request(f"{self.config.data_seed}:{split}:{index}")
        prompt = (*self.prompt.opening(), user(f"Write a program that {wanted}."))
        info: JsonDict = {"task_name": self.name, "sandbox": sandbox_info(self.config)}
        return Task(id=f"program-{split}-{index}", prompt=prompt, info=info)

    def episode(self, task: Task) -> Episode:
        return _Episode(task)
