"""A package with the interface of InternBootcamp, for the tests: well-behaved bootcamps and others."""

from sample_bootcamps.camps import (
    Basebootcamp,
    Brokenbootcamp,
    Evalbootcamp,
    Hangingbootcamp,
    Sumsbootcamp,
    Unstorablebootcamp,
    Wordsbootcamp,
)

__all__ = [
    "Basebootcamp",
    "Brokenbootcamp",
    "Evalbootcamp",
    "Hangingbootcamp",
    "Sumsbootcamp",
    "Unstorablebootcamp",
    "Wordsbootcamp",
]
