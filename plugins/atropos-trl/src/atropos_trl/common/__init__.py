"""What both trainers share: machine, models, LoRA, checkpoints, seeds. Heavy imports happen inside functions."""
