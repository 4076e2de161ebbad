"""Scores the alternatives of a turn by the model: VR-CLI with its controls, and LaTRO."""

from __future__ import annotations

import logging
import random

from atropos_cli.sdk import AtroposError, GroupContext, RolloutFailure
from atropos_cli.sdk.backends import FatalBackendError
from atropos_textworld.agent.latro import answer_logprob, with_truncation
from atropos_textworld.agent.options import AgentOptions
from atropos_textworld.agent.scorer_server import ScorerServer
from atropos_textworld.agent.scoring import BLANK, Outcome, OutcomeScorer
from atropos_textworld.agent.turn import Alternative, Turn
from atropos_textworld.agent.vrcli import UnscorableError

log = logging.getLogger("atropos.textworld")


class Judge:
    """One for a run."""

    def __init__(self, options: AgentOptions) -> None:
        self._options = options
        self._scorer: ScorerServer | None = None
        self._outcomes = OutcomeScorer(options)

    async def open(self, workers: int) -> None:
        """Connect to the server that scores predictions, if it is not the run's own model. Raises BackendError."""
        if self._options.scorer_url and self._scorer is None:
            log.warning("--scorer-url is the older way: --role.scorer.base-url gives the scorer limits and retries")
            self._scorer = await ScorerServer.open(self._options.scorer_url, self._options.scorer_model, workers)

    async def close(self) -> None:
        """Disconnect."""
        scorer, self._scorer = self._scorer, None
        if scorer is not None:
            await scorer.close()

    async def judge(self, context: GroupContext, turn: Turn, gold: str | None, earlier: tuple[str, ...]) -> None:
        """Fill in the scores of the alternatives whose outcome is known; what cannot be scored fails at stage "score".

        gold: the winning command for LaTRO. earlier: predictions of earlier turns, for the shuffled control.
        """
        if self._options.vrcli != "off":
            await self._vrcli(context, turn, earlier)
        if self._options.latro_weight and gold is not None:
            await self._latro(context, turn, gold)

    async def _vrcli(self, context: GroupContext, turn: Turn, earlier: tuple[str, ...]) -> None:
        by_command: dict[str, list[Alternative]] = {}
        for alternative in turn.alternatives:
            if alternative.known:
                alternative.vrcli = BLANK
            if alternative.outcome is not None and alternative.reply.command and alternative.reply.prediction:
                by_command.setdefault(alternative.reply.command, []).append(alternative)
        control = self._control(context, turn, earlier)
        for command, alternatives in by_command.items():
            try:
                await self._one_command(context, turn, command, alternatives, control)
            except (AtroposError, UnscorableError) as error:
                _fail(alternatives, error)

    async def _one_command(
        self, context: GroupContext, turn: Turn, command: str, alternatives: list[Alternative], control: str | None
    ) -> None:
        outcome = alternatives[0].outcome
        assert outcome is not None
        predictions = [alternative.reply.prediction for alternative in alternatives]
        judged = await self._outcomes.judge(
            self._scorer or context.models["scorer"],
            Outcome(turn.transcript, command, outcome.text),
            predictions if control is None else [*predictions, control],
            turn.spent,
            repeat=self._options.vrcli_control == "null",
        )
        for alternative in alternatives:
            alternative.vrcli = judged.scores[alternative.reply.prediction]
            alternative.value = self._outcomes.value(alternative.vrcli)
            if control is not None:
                alternative.control = judged.scores[control]
        if judged.noise is not None:
            turn.noise = max(turn.noise or 0.0, abs(judged.noise))

    def _control(self, context: GroupContext, turn: Turn, earlier: tuple[str, ...]) -> str | None:
        """The text that stands for the prediction in the control; None when there is no control."""
        if self._options.vrcli_control == "null":
            return ""
        if self._options.vrcli_control == "shuffled" and earlier:
            return random.Random(f"{context.seed}/{turn.number}/control").choice(earlier)
        return None

    async def _latro(self, context: GroupContext, turn: Turn, gold: str) -> None:
        if turn.prompt_ids is None:
            raise FatalBackendError(
                "LaTRO needs the tokens of the prompt, and this backend does not give them",
                hint="serve the model with vLLM or SGLang, or use a local backend; or --latro-weight 0",
            )
        scored = [alternative for alternative in turn.alternatives if alternative.known]
        try:
            values = {}
            for thinking in dict.fromkeys(alternative.reply.thinking for alternative in scored):
                values[thinking] = await answer_logprob(context, turn.prompt_ids, thinking, gold, turn.spent)
        except (AtroposError, ValueError) as error:
            _fail(scored, error)
            return
        rewards = [values[alternative.reply.thinking] for alternative in scored]
        finished = [not alternative.truncated for alternative in scored]
        for alternative, reward in zip(scored, with_truncation(rewards, finished), strict=True):
            alternative.latro = reward


def _fail(alternatives: list[Alternative], error: Exception) -> None:
    for alternative in alternatives:
        alternative.failure = RolloutFailure(stage="score", type=type(error).__name__, message=str(error)[:2000])
