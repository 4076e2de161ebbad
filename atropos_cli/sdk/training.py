"""Trainers: what one implements, and the plan that it is given."""

from __future__ import annotations

from atropos_cli.datasets.demonstrations import IGNORED, Demonstrations, demonstrations, is_cut, render_dialogue
from atropos_cli.domain.finish import finish_in
from atropos_cli.domain.methods import Learns
from atropos_cli.domain.tokendata import is_binary
from atropos_cli.domain.training import EvalSuite, HealthRules, Rule, TrainPlan
from atropos_cli.errors import TrainerError
from atropos_cli.ports.trainer import Play, TrainContext, Trainer, TrainResult
from atropos_cli.rollout.advantages import advantages, decided
from atropos_cli.serving.trainprofiles import TrainingProfile, cpu_profile, gpu_profile, training_profile

__all__ = [
    "IGNORED",
    "Demonstrations",
    "EvalSuite",
    "HealthRules",
    "Learns",
    "Play",
    "Rule",
    "TrainContext",
    "TrainPlan",
    "TrainResult",
    "Trainer",
    "TrainerError",
    "TrainingProfile",
    "advantages",
    "cpu_profile",
    "decided",
    "demonstrations",
    "finish_in",
    "gpu_profile",
    "is_binary",
    "is_cut",
    "render_dialogue",
    "training_profile",
]
