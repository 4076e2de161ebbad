"""Plays one game with several alternatives for every reply, and makes a group of each turn.

    prompt -> N alternatives -> read -> (peek) -> choose one -> play it -> score, while the next turn is asked for

Groups come when the game is over, since a turn's credit depends on what came after it. An error in the middle
ends the game there: the turns before it are good, the turn it happened in becomes a group of failed rollouts.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Sequence

from atropos_cli.sdk import (
    AtroposError,
    GroupContext,
    Message,
    Rollout,
    RolloutFailure,
    ScoredGroup,
    Task,
    user,
)
from atropos_cli.sdk.backends import ContextOverflow, Generation
from atropos_cli.sdk.prompts import Prompt
from atropos_textworld import prompts
from atropos_textworld.agent.credit import total
from atropos_textworld.agent.history import History
from atropos_textworld.agent.judge import Judge
from atropos_textworld.agent.latro import Plan
from atropos_textworld.agent.notebook import Notebook
from atropos_textworld.agent.reply import for_history, read_reply
from atropos_textworld.agent.scoring import transcript
from atropos_textworld.agent.turn import Alternative, Credit, Turn, rollout, turn_metrics
from atropos_textworld.config import TextWorldConfig
from atropos_textworld.game import Play, PlayedGame, answer_to
from atropos_textworld.games.spec import GameSpec


class TurnLoop:
    """One game of one task. Use once: `async for group in TurnLoop(...).groups()`."""

    prompt: Prompt = prompts.PROMPT

    def __init__(self, task: Task, config: TextWorldConfig, play: Play, context: GroupContext, judge: Judge) -> None:
        self.task = task
        self.config = config
        self.context = context
        self.judge = judge
        self.game = PlayedGame(GameSpec.from_json(task.info), config, play, form=prompts.AGENT_FORM)
        self.turns: list[Turn] = []
        self._told: list[tuple[str, str]] = []
        self._predictions: list[str] = []
        self._first = ""
        self._judging: list[asyncio.Task[None]] = []
        self._failed: tuple[tuple[Message, ...], RolloutFailure] | None = None
        self._overflowed = False

    async def groups(self) -> AsyncIterator[ScoredGroup]:
        """Play, score, and give out the groups of all turns."""
        notebook = await Notebook.open(self.config, self.context.group_id)
        try:
            await self._play(notebook)
            await asyncio.gather(*self._judging)
        finally:
            for task in self._judging:
                task.cancel()
            await asyncio.gather(*self._judging, return_exceptions=True)
            await self.game.close()
            await notebook.close()
        credit = Credit(self.turns, self.game.seen, max_score=self.game.max_score, gamma=self.config.gamma)
        for turn in self.turns:
            rollouts = await self._rewarded(turn, credit, notebook)
            last = turn is self.turns[-1] and self._failed is None
            yield self.context.group(self.task, rollouts, episode_id=self.context.group_id, turn=turn.number, last=last)
        if self._failed is not None:
            yield self._failed_group(*self._failed)

    async def _play(self, notebook: Notebook) -> None:
        try:
            record = await self.game.start()
        except AtroposError as error:
            self._failed = ((), _failure("reset", error))
            return
        plan = Plan(record.plan)
        self._first = self.game.seen.text
        rules = prompts.instructions(self.prompt, "agent", record.forms, memory=self.config.memory)
        opening = (*rules, user(self.game.screen(self._first)))
        history = History(opening, self.config.history_tokens)
        while not self.game.over:
            turn = await self._ask(history, notebook)
            if turn is None:
                return
            self.turns.append(turn)
            gold = plan.next
            try:
                await self._act(turn, gold)
            except AtroposError as error:
                for alternative in turn.alternatives:
                    alternative.failure = alternative.failure or _failure("environment", error)
                return
            chosen = turn.chosen
            assert chosen is not None
            assert turn.answer is not None
            plan.played(chosen.reply.command, self.game.seen.acted)
            self._told.append((chosen.reply.command or "", turn.answer))
            if chosen.reply.prediction:
                self._predictions.append(chosen.reply.prediction)
            notebook.used(turn.hits, chosen.message.text, turn.before.text)
            if not self.game.over:
                shown = answer_to(chosen.message, self.game.screen(turn.answer))
                history.add(for_history(chosen.message, self.config.thinking_history), shown)
                told = turn.before.text, chosen.reply.command or "(none)", turn.answer
                await notebook.note(self.context, turn.number, chosen.reply.memory.memory, told)

    async def _ask(self, history: History, notebook: Notebook) -> Turn | None:
        """Alternatives for the next reply; None when the game ends here."""
        hits = notebook.find(self.game.seen.text)
        *earlier, last = history.messages()
        shown = prompts.with_memories(last.text, [hit.text for hit in hits])
        prompt = (*earlier, last.model_copy(update={"content": shown}))
        self.game.publish(prompt)
        try:
            generations = await self.context.sample(prompt, n=self.context.group_size)
        except AtroposError as error:
            if isinstance(error, ContextOverflow) and self.turns:
                self._overflowed = True
            else:
                self._failed = (prompt, _failure("generate", error))
            return None
        turn = self._read(prompt, generations)
        turn.hits = hits
        history.counted(turn.prompt_tokens)
        return turn

    def _read(self, prompt: tuple[Message, ...], generations: Sequence[Generation]) -> Turn:
        previous = self.game.commands[-1] if self.game.commands else None
        alternatives: list[Alternative] = []
        for generation in generations:
            for completion in generation.completions:
                message = completion.message.model_copy(update={"finish_reason": completion.finish_reason})
                reply = read_reply(message, previous, memory=self.config.memory)
                alternatives.append(Alternative(len(alternatives), generation, completion, message, reply))
        return Turn(
            number=len(self.turns),
            prompt=prompt,
            generations=tuple(generations),
            alternatives=alternatives,
            before=self.game.seen,
            transcript=transcript(self._first, self._told, self.config.vrcli_turns),
        )

    async def _act(self, turn: Turn, gold: str | None) -> None:
        """Find out what the alternatives lead to, choose one and play it. Raises EngineError."""
        if self.config.score_all:
            commands = list(dict.fromkeys(a.reply.command for a in turn.alternatives if a.reply.command is not None))
            seen = dict(zip(commands, await self.game.peek(commands), strict=True))
            for alternative in turn.alternatives:
                if alternative.reply.command is not None:
                    alternative.outcome = seen[alternative.reply.command]
        earlier = tuple(self._predictions)
        if self.config.choose == "best":
            await self.judge.judge(self.context, turn, gold, earlier)
        chosen = self._choose(turn)
        turn.answer = await self.game.act(chosen.reply.found)
        chosen.executed = True
        if chosen.reply.command is not None:
            for alternative in turn.alternatives:
                if alternative.reply.command == chosen.reply.command:
                    alternative.outcome = self.game.seen
        if self.config.choose != "best":
            # Overlaps with asking for the next turn.
            self._judging.append(asyncio.create_task(self.judge.judge(self.context, turn, gold, earlier)))

    def _choose(self, turn: Turn) -> Alternative:
        playable = [a for a in turn.alternatives if a.reply.command is not None] or turn.alternatives
        if self.config.choose == "first-valid":
            return playable[0]
        if self.config.choose == "sampled":
            return random.Random(f"{self.context.seed}/{turn.number}/choice").choice(playable)
        return max(playable, key=lambda alternative: self._now(turn, alternative))

    def _now(self, turn: Turn, alternative: Alternative) -> float:
        """What an alternative is worth as far as can be seen at once."""
        outcome, env = alternative.outcome, 0.0
        if outcome is not None:
            env = (outcome.score - turn.before.score) / self.game.max_score + outcome.won - outcome.lost
        return self._total(alternative, env)

    def _total(self, alternative: Alternative, env: float) -> float:
        return total(
            self.config,
            env=env,
            vrcli=alternative.value,
            form=alternative.reply.format,
            latro=alternative.latro or 0.0,
            tokens=alternative.completion.completion_tokens,
        )

    async def _rewarded(self, turn: Turn, credit: Credit, notebook: Notebook) -> list[Rollout]:
        """The turn's alternatives with their rewards; those that nobody tried have none."""
        made = [
            rollout(self.task, self.context.group_id, turn, alternative, credit.of(turn, alternative))
            for alternative in turn.alternatives
        ]
        chosen = turn.chosen
        if chosen is not None:
            made[chosen.number] = self._reported(made[chosen.number], turn, notebook)
        known = [a.number for a in turn.alternatives if a.known and a.failure is None]
        for number, scored in zip(
            known, await self.context.score(self.task, [made[number] for number in known]), strict=True
        ):
            made[number] = self._with_terms(scored, turn.alternatives[number])
        return made

    def _with_terms(self, scored: Rollout, alternative: Alternative) -> Rollout:
        """Add the agent's terms to the rewards of the plan."""
        if scored.reward is None:
            return scored
        terms = {"textworld_format": alternative.reply.format}
        if self.config.vrcli != "off":
            terms["textworld_vrcli"] = alternative.value
        if alternative.latro is not None:
            terms["textworld_latro"] = alternative.latro
        reward = self._total(alternative, scored.reward)
        return scored.model_copy(update={"rewards": {**scored.rewards, **terms}, "reward": reward})

    def _reported(self, made: Rollout, turn: Turn, notebook: Notebook) -> Rollout:
        """What is counted once a turn and, with the last one, once an episode."""
        metrics = {**made.metrics, **turn_metrics(turn)}
        changes: dict[str, object] = {"metrics": metrics}
        if turn is self.turns[-1]:
            metrics |= {**self.game.metrics(), **notebook.stats()}
            # Not its stop reason: the reply itself is whole, however the game ended.
            changes["info"] = {**made.info, **self.game.result(), "ended": self._ended()}
        return made.model_copy(update=changes)

    def _ended(self) -> str:
        """How the game ended, as a stop reason; "failed" when an error ended it."""
        if self._failed is not None:
            return "failed"
        if self._overflowed:
            return "context_length"
        return "step_limit" if self.game.cut_off else "done"

    def _failed_group(self, prompt: tuple[Message, ...], failure: RolloutFailure) -> ScoredGroup:
        turn = len(self.turns)
        rollouts = [
            Rollout(
                id=f"{self.context.group_id}.{turn}/{number}", task_id=self.task.id, messages=prompt, failure=failure
            )
            for number in range(self.context.group_size)
        ]
        return self.context.group(self.task, rollouts, episode_id=self.context.group_id, turn=turn)


def _failure(stage: str, error: Exception) -> RolloutFailure:
    return RolloutFailure(stage=stage, type=type(error).__name__, message=str(error)[:2000])  # type: ignore[arg-type]
