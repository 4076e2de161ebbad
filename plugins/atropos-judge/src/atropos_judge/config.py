"""The options of a judge, and which of them are part of what a run is."""

from __future__ import annotations

import os
from pathlib import Path
from urllib.parse import urlsplit

from pydantic import field_validator, model_validator

from atropos_cli.sdk import Config, Field, JsonDict
from atropos_cli.sdk.backends import make_backend
from atropos_judge.prompts import BUILT_IN, NEEDED
from atropos_judge.scale import Scale

ACCESS = frozenset({"base_url", "api_key_env", "timeout", "concurrency", "retries", "cache", "refresh"})
"""How verdicts are got, not which: left out of the digest of a plan and of the key of a cached verdict."""
OFF = "off"


class JudgeConfig(Config):
    model: str | None = Field(
        default=None,
        min_length=1,
        description="Model that judges, in `score`; in runs the older name of --role.judge.model.",
    )
    base_url: str | None = Field(
        default=None, description="Base URL of its server. In runs: the older name of --role.judge.base-url."
    )
    api_key_env: str | None = Field(
        default=None,
        description="Environment variable that holds the API key; default: OPENAI_API_KEY for api.openai.com.",
    )
    prompt: str = Field(
        default="quality",
        validate_default=True,
        description="Built-in prompt (quality, correctness), a file, or a text with {completion} in it.",
    )
    scale: str = Field(default="0-10", description="LOW-HIGH or pass-fail; the reward is 0 at LOW and 1 at HIGH.")
    temperature: float = Field(default=0.0, ge=0, description="Sampling temperature.")
    max_tokens: int = Field(default=1024, ge=1, description="Most tokens a verdict may have, reasons included.")
    votes: int = Field(default=1, ge=1, description="Odd number of times to ask; the median (majority) is the verdict.")
    attempts: int = Field(
        default=2, ge=1, description="Times to ask until a vote can be read; all but the first recall the format."
    )
    backend: str = Field(default="openai", description="Backend through which the model is asked.")
    backend_options: JsonDict = Field(default_factory=dict, description="More options of that backend.")
    timeout: float = Field(default=120.0, gt=0, description="Seconds to wait for one answer.")
    concurrency: int = Field(default=16, ge=1, description="Requests to the judge in flight, per process.")
    retries: int = Field(default=5, ge=0, description="Retries of a request that failed for a passing reason.")
    cache: str = Field(
        default="auto", description="Folder of the verdicts; auto: `judge` in the cache folder of atropos; off: none."
    )
    refresh: bool = Field(
        default=False, description="Ask again for verdicts that are cached, and count those that flip."
    )

    @field_validator("prompt")
    @classmethod
    def _whole_prompt(cls, value: str) -> str:
        """The text itself: a plan holds all that a run needs, wherever it is carried out."""
        if value in BUILT_IN:
            return BUILT_IN[value]
        if any(name in value for name in NEEDED):
            return value
        try:
            text = Path(value).expanduser().read_text(encoding="utf-8")
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            known = ", ".join(BUILT_IN)
            raise ValueError(f"neither a built-in prompt ({known}) nor a file that can be read ({reason})") from None
        if not any(name in text for name in NEEDED):
            raise ValueError(f"the prompt in {value} shows the judge neither {' nor '.join(NEEDED)}")
        return text

    @field_validator("scale")
    @classmethod
    def _known_scale(cls, value: str) -> str:
        return str(Scale.of(value))

    @field_validator("votes")
    @classmethod
    def _odd(cls, value: int) -> int:
        if value % 2 == 0:
            raise ValueError("an even number of votes may be tied: give an odd one")
        return value

    @field_validator("base_url")
    @classmethod
    def _no_credentials(cls, value: str | None) -> str | None:
        if value is not None and "@" in urlsplit(value if "://" in value else f"http://{value}").netloc:
            raise ValueError("a user name or password has no place in a URL: use api_key_env")
        return value

    @model_validator(mode="after")
    def _check_backend(self) -> JudgeConfig:
        # Made and dropped: wrong options and literal secrets are refused before they reach a plan.
        if self.model is not None:
            make_backend(self.backend, self.all_backend_options(), model=self.model)
        elif self.base_url is not None:
            raise ValueError("base_url needs model: its name at that server")
        return self

    def all_backend_options(self) -> JsonDict:
        """Those of the backend, with the server and the key's variable where they are given."""
        own = {"base_url": self.base_url, "api_key_env": self.api_key_env}
        return {**self.backend_options, **{name: value for name, value in own.items() if value is not None}}

    def identity(self) -> JsonDict:
        """The options that decide a verdict, `votes` and `attempts` aside."""
        return self.model_dump(mode="json", exclude={*ACCESS, "votes", "attempts"})

    def identity_of(self, about: JsonDict) -> JsonDict:
        """The same where a role's model judges. about: the role's description of it."""
        model = {key: about.get(key) for key in ("name", "model", "sampling", "weights_version")}
        return {"prompt": self.prompt, "scale": self.scale, "role": model}

    def cache_folder(self) -> Path | None:
        """Where verdicts are kept; None when they are not."""
        if self.cache == OFF:
            return None
        if self.cache != "auto":
            return Path(self.cache).expanduser()
        chosen = os.environ.get("ATROPOS_CACHE_DIR")
        if chosen:
            return Path(chosen).expanduser() / "judge"
        home = os.environ.get("XDG_CACHE_HOME")
        return (Path(home).expanduser() if home else Path.home() / ".cache") / "atropos" / "judge"
