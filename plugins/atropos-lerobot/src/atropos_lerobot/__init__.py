"""Robot policies by LeRobot, in a Python of its own: `atropos train lerobot` and `atropos train groot`.

This module is the plugin's manifest. It imports nothing heavy.

config, trainer        the options, and the trainer: preflight, command, end
dataset, preflight     the checks before the first second on a GPU: the dataset's own files, then LeRobot's answers
command                the arguments of lerobot-train
place                  LeRobot's Python, and `atropos env add lerobot`
child, checkpoints     its process, and its files in the run folder
side                   runs under LeRobot's Python
"""

from __future__ import annotations

from collections.abc import Iterable

from atropos_cli.sdk import ComponentSpec, Method, hookimpl

LEROBOT = Method(
    "lerobot", "Train a robot policy on a LeRobot dataset by imitation: act, diffusion, smolvla or groot.", "own"
)
GROOT = Method("groot", "Fine-tune GR00T N1.5 or N1.7 on a LeRobot dataset, by LeRobot.", "own")


@hookimpl
def atropos_register_trainers() -> Iterable[ComponentSpec]:
    """LeRobot's training loop."""
    yield ComponentSpec(
        kind="trainer",
        name="lerobot",
        target="atropos_lerobot.trainer:LeRobotTrainer",
        summary="ACT, diffusion policy, SmolVLA and GR00T by LeRobot, in a Python of its own.",
        methods=(LEROBOT, GROOT),
    )
