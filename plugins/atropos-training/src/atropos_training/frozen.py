"""Roles played by earlier weights of the policy: --role.NAME.refresh N renews them every N steps.

The weights of a period of N steps are those of its first rollouts. They are kept in the run's folder, so that a resumed
training continues against the same ones, also from an older checkpoint.
"""

from __future__ import annotations

import asyncio
import copy
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from atropos_cli.sdk import ConfigError
from atropos_cli.sdk.backends import InferenceBackend
from atropos_cli.sdk.engine import Abort, LoopThread, Registry, backend_of, close_part, open_backend
from atropos_cli.sdk.runs import Plan

FOLDER = "frozen"


class FrozenCopy:
    """A copy of the model, for the roles of one interval."""

    def __init__(self, every: int, folder: Path, backend: InferenceBackend, model: Any, tokenizer: Any) -> None:
        self.every = every
        self.backend = backend
        self._folder = folder / FOLDER / f"every-{every}"
        self._run = folder
        self._model = copy.deepcopy(model).eval()
        for parameter in self._model.parameters():
            parameter.requires_grad_(False)
        self._period: int | None = None
        backend.adopt(self._model, tokenizer)

    def renew(self, model: Any, step: int, loop: LoopThread, *, keeps: bool, resumed: bool) -> None:
        """Before the rollouts of a step: in a new period take the weights as they are now, or those that were kept.

        keeps: this process writes the file. resumed: no rollouts were made yet by this session.
        """
        period = step // self.every
        if period == self._period:
            return
        file = self._folder / f"{period}.pt"
        taken = self._kept(file, step) if resumed else None
        if taken is None:
            self._take(model)
            taken = step
            if keeps:
                self._keep(file, step)
                self._prune()
        self._period = period
        loop.call(self.backend.update_weights(None, version=taken))

    def _take(self, model: Any) -> None:
        self._put(_weights(model))

    def _put(self, theirs: Mapping[str, Any]) -> None:
        for name, own in _weights(self._model).items():
            own.copy_(theirs[name])

    def _kept(self, file: Path, step: int) -> int | None:
        """The step of the kept weights, which are loaded; None where there are none of before."""
        import torch

        if not file.is_file():
            return None
        try:
            data = torch.load(file, map_location="cpu", weights_only=True)
            if data["step"] > step:
                return None
            self._put(data["weights"])
        except (OSError, RuntimeError, KeyError, EOFError) as error:
            raise ConfigError(
                f"the weights of a role in {file} cannot be read: {error}", hint="--overwrite starts anew"
            ) from error
        return int(data["step"])

    def _keep(self, file: Path, step: int) -> None:
        import torch

        file.parent.mkdir(parents=True, exist_ok=True)
        writing = file.with_suffix(".writing")
        torch.save({"step": step, "weights": _weights(self._model)}, writing)
        writing.replace(file)

    def _prune(self) -> None:
        """Remove what no checkpoint of the run needs."""
        names = (re.fullmatch(r"step-(\d+)", path.name) for path in (self._run / "checkpoints").glob("step-*"))
        steps = [int(match[1]) for match in names if match]
        oldest = min(steps) // self.every if steps else 0
        for file in self._folder.glob("*.pt"):
            if file.stem.isdecimal() and int(file.stem) < oldest:
                file.unlink(missing_ok=True)


def _weights(model: Any) -> dict[str, Any]:
    """By the name in its state_dict. Quantised ones, which are whole numbers, are never trained: a copy has them."""
    stored = model.state_dict()
    named = [*model.named_parameters(remove_duplicate=False), *model.named_buffers(remove_duplicate=False)]
    return {name: value.detach() for name, value in named if name in stored and value.is_floating_point()}


class FrozenCopies:
    """All copies of a training."""

    def __init__(self, folder: Path, *, keeps: bool, resume: bool) -> None:
        self._folder = folder
        self._keeps = keeps
        self._resumed = resume
        self._copies: dict[int, FrozenCopy] = {}

    async def open(self, plans: Iterable[Plan], registry: Registry, model: Any, tokenizer: Any) -> None:
        """Make the copies that the plans need. model None: a server samples. Raises ConfigError and BackendError."""
        for plan in plans:
            for name, role in plan.roles.items():
                if role.refresh is None or role.refresh in self._copies:
                    continue
                if model is None:
                    raise ConfigError(
                        f"--role.{name}.refresh needs the policy in this process, not on a server",
                        hint=f"leave out --base-url, or give the role a model: --role.{name}.model CHECKPOINT",
                    )
                backend = backend_of(plan, registry)
                self._copies[role.refresh] = FrozenCopy(role.refresh, self._folder, backend, model, tokenizer)
                try:
                    await open_backend(backend, plan, lambda kind, message: None, asyncio.Event())
                except Abort as abort:
                    raise abort.error from abort

    def of(self, plan: Plan) -> Mapping[str, InferenceBackend]:
        """The backends of the plan's roles that are played by copies."""
        return {
            name: self._copies[role.refresh].backend for name, role in plan.roles.items() if role.refresh is not None
        }

    def renew(self, model: Any, step: int, loop: LoopThread) -> None:
        """Before the rollouts of a step."""
        for one in self._copies.values():
            one.renew(model, step, loop, keeps=self._keeps, resumed=self._resumed)
        self._resumed = False

    async def close(self) -> None:
        """Close the copies' backends."""
        copies, self._copies = list(self._copies.values()), {}
        for one in copies:
            await close_part(one.backend)
