"""Trainers: what one implements, and the plan that it is given."""

from __future__ import annotations

from atropos_cli.domain.finish import finish_in
from atropos_cli.domain.methods import Learns
from atropos_cli.domain.tokendata import is_binary
from atropos_cli.domain.training import EvalSuite, HealthRules, Rule, TrainPlan
from atropos_cli.errors import TrainerError
from atropos_cli.ports.trainer import Play, TrainContext, Trainer, TrainResult
from atropos_cli.rollout.advantages import advantages, decided
from atropos_cli.serving.trainprofiles import TrainingProfile, cpu_profile, gpu_profile, training_profile

__all__ = [
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
    "finish_in",
    "gpu_profile",
    "is_binary",
    "training_profile",
]
