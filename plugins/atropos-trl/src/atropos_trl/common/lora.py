"""LoRA adapters by peft."""

from __future__ import annotations

from typing import Any

from atropos_cli.sdk import ConfigError


def lora_config(*, r: int, alpha: int | None, dropout: float, target_modules: str, model: Any) -> Any:
    """A peft LoraConfig. target_modules: "all-linear" or module names with commas between. alpha: None is 2 r.

    Raises ConfigError when a named module is not in the model.
    """
    from peft import LoraConfig

    names: str | list[str] = target_modules
    if target_modules != "all-linear":
        names = [name.strip() for name in target_modules.split(",") if name.strip()]
        present = {name.rpartition(".")[2] for name, _ in model.named_modules()}
        missing = [name for name in names if name.rpartition(".")[2] not in present]
        if missing or not names:
            import torch

            linear = sorted({n.rpartition(".")[2] for n, m in model.named_modules() if isinstance(m, torch.nn.Linear)})
            raise ConfigError(
                f"lora_target_modules: the model has no module {missing[0] if missing else target_modules!r}",
                hint=f"give all-linear, or some of: {', '.join(linear)}",
            )
    return LoraConfig(
        r=r,
        lora_alpha=2 * r if alpha is None else alpha,
        lora_dropout=dropout,
        target_modules=names,
        task_type="SEQ_CLS" if getattr(model.config, "num_labels", None) == 1 else "CAUSAL_LM",
    )
