"""CPU seconds a step and peak memory of `train grpo` beside bare TRL doing the same job.

    python tests/benchmarks/train_overhead.py [STEPS]        OMP_NUM_THREADS=1 is set

The job: the 135M model, all weights, 8 prompts x 4 completions of 4 tokens, dr_grpo, sums in plain text. Bare TRL
samples with transformers' generate; ours samples through the engine and the local backend, scores by the
environment's reward and keeps records. Completions that end early end both. The first step is left out (it allocates).
"""

from __future__ import annotations

import itertools
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

os.environ["OMP_NUM_THREADS"] = "1"
os.environ.setdefault("PYTHONWARNINGS", "ignore")
PROMPTS, SIZE, TOKENS = 8, 4, 4
OPTIONS = {"kind": "add", "difficulty": "easy", "prompt_style": "plain", "few_shot": 0}


PEAKS: list[int] = []
"""Peak memory in MB after each step, before anything is saved."""


def peak() -> int:
    """This process's peak so far, in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024


def bare(steps: int) -> list[float]:
    """CPU seconds of each step of a GRPOTrainer."""
    from atropos_arithmetic.environment import ArithmeticConfig, ArithmeticEnvironment, extract
    from atropos_trl.common import models
    from datasets import Dataset
    from transformers import TrainerCallback
    from trl import GRPOConfig, GRPOTrainer

    stream = ArithmeticEnvironment(ArithmeticConfig.model_validate(OPTIONS)).tasks("train")
    tasks = [stream[number] for number in range(PROMPTS * steps)]
    rows = [{"prompt": task.prompt[0].text, "answer": task.answer} for task in tasks]
    model, tokenizer = models.load_model("smollm2"), models.load_tokenizer("smollm2")
    times: list[float] = []

    class Clock(TrainerCallback):
        def on_step_begin(self, *args: object, **kwargs: object) -> None:
            times.append(time.process_time())

        def on_step_end(self, *args: object, **kwargs: object) -> None:
            times[-1] = time.process_time() - times[-1]
            PEAKS.append(peak())

    arguments = GRPOConfig(
        tempfile.mkdtemp(),
        use_cpu=True,
        bf16=False,
        per_device_train_batch_size=PROMPTS * SIZE,
        num_generations=SIZE,
        max_completion_length=TOKENS,
        max_steps=steps,
        learning_rate=1e-5,
        lr_scheduler_type="constant",
        loss_type="dr_grpo",
        scale_rewards="none",
        logging_steps=1,
        report_to="none",
        save_strategy="no",
        gradient_checkpointing=False,
        disable_tqdm=True,
    )

    def reward(completions: list[str], answer: list[int], **columns: object) -> list[float]:
        return [float(extract(text.split("\n")[0]) == right) for text, right in zip(completions, answer, strict=True)]

    trainer = GRPOTrainer(
        model=model,
        reward_funcs=reward,
        args=arguments,
        train_dataset=Dataset.from_list(rows),
        processing_class=tokenizer,
        callbacks=[Clock()],
    )
    trainer.train()
    return times


def ours(steps: int) -> list[float]:
    """CPU seconds between the records of a run, evaluation and checkpoints left out (there are none)."""
    from atropos_training.run import run_train
    from atropos_trl.loop import LoopMixin
    from atropos_trl.trainer import TrlTrainer

    from atropos_cli.console.session import Session
    from atropos_cli.sdk.backends import Sampling
    from atropos_cli.sdk.runs import ComponentRef, Plan, RewardRef
    from atropos_cli.sdk.training import TrainPlan

    marks: list[float] = []
    begin, after = LoopMixin.begin, LoopMixin._after

    def begun(self: LoopMixin) -> None:
        begin(self)
        marks.append(time.process_time())

    def passed(self: LoopMixin, step: int) -> None:
        marks.append(time.process_time())  # before the checkpoint of the last step
        PEAKS.append(peak())
        after(self, step)

    LoopMixin.begin, LoopMixin._after = begun, passed  # type: ignore[method-assign]
    rollouts = Plan(
        atropos_version="0",
        environment=ComponentRef(name="arithmetic", config=OPTIONS),
        rewards=(RewardRef(name="arithmetic_exact"),),
        backend=ComponentRef(name="local", config={"logprobs": "tempered", "chat_template": "plain"}),
        model="smollm2",
        sampling=Sampling(max_tokens=TOKENS, temperature=1.0),
        logprobs="require",
        group_size=SIZE,
    )
    config = {"algorithm": "dr_grpo", "learning_rate": 1e-5, "allow_constant_reward": True}
    plan = TrainPlan(
        atropos_version="0",
        method="grpo",
        trainer=ComponentRef(name="trl", config=config),
        model="smollm2",
        rollouts=rollouts,
        steps=steps,
        prompts_per_step=PROMPTS,
        save_every=steps,
    )
    trainer = TrlTrainer(TrlTrainer.Config.model_validate(config))
    run_train(plan, trainer, folder=Path(tempfile.mkdtemp()) / "run", registry=Session().registry)
    return [late - early for early, late in itertools.pairwise(marks)]


def main() -> None:
    """Both in processes of their own, twice in turn; then the table."""
    if len(sys.argv) > 2:
        times = {"bare": bare, "ours": ours}[sys.argv[2]](int(sys.argv[1]))
        print(json.dumps({"times": times, "peak": PEAKS[-1], "saved": peak()}))
        return
    steps = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    print("| | CPU s a step (each) | mean | peak MB | with saving |\n|---|---|---|---|---|", flush=True)
    for name in ("bare", "ours"):
        done = subprocess.run(
            [sys.executable, __file__, str(steps), name], stdout=subprocess.PIPE, text=True, check=True
        )
        found = json.loads(done.stdout.splitlines()[-1])
        later = found["times"][1:]
        shown = ", ".join(f"{value:.1f}" for value in found["times"])
        print(f"| {name} | {shown} | {sum(later) / len(later):.2f} | {found['peak']} | {found['saved']} |", flush=True)


if __name__ == "__main__":
    main()
