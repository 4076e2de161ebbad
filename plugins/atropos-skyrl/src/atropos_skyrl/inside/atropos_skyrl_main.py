"""SkyRL's training with our generator: `python -m atropos_skyrl_main KEY=VALUE...`, from the folder's `code`.

As SkyRL's own `skyrl.train.entrypoints.main_base`, but for four things: the rows keep their order and none is left out,
episodes are played by our engine, the numbers of each step go to a file, and a complete export of weights is marked.
"""

from __future__ import annotations

import json
import math
import os
import sys
from pathlib import Path
from typing import Any

import ray
from atropos_skyrl_generator import AtroposGenerator, Lengths
from skyrl.backends.skyrl_train.inference_servers.utils import resolve_policy_model_name
from skyrl.train.config import SkyRLTrainConfig
from skyrl.train.dataset import PromptDataset
from skyrl.train.entrypoints.main_base import BasePPOExp
from skyrl.train.trainer import RayPPOTrainer
from skyrl.train.utils import validate_cfg
from skyrl.train.utils.tracking import Tracking
from skyrl.train.utils.utils import initialize_ray
from torchdata.stateful_dataloader import StatefulDataLoader

FOLDER = Path(__file__).resolve().parent.parent
METRICS = "ATROPOS_SKYRL_METRICS"


class Rows(PromptDataset):  # type: ignore[misc]
    """All rows of a file. SkyRL's own leaves out long prompts, and with them the order of the tasks."""

    def _read_files_and_tokenize(self) -> None:
        import datasets
        import pyarrow.parquet as pq

        self.dataframe = datasets.concatenate_datasets(
            [datasets.Dataset(pq.read_table(source)) for source in self.datasets]
        )


class Numbers(Tracking):  # type: ignore[misc]
    """The tracker that SkyRL was given, and a file with a line for each step."""

    def __init__(self, path: str | Path, **given: Any) -> None:
        super().__init__(**given)
        self._file = Path(path)

    def log(self, data: dict[str, Any], step: int, commit: bool = False) -> None:
        """See Tracking."""
        super().log(data, step, commit)
        numbers = {name: number for name, value in data.items() if (number := _number(value)) is not None}
        found = {name: number if math.isfinite(number) else None for name, number in numbers.items()}
        with self._file.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"step": step, "data": found}) + "\n")


class Ordered(RayPPOTrainer):  # type: ignore[misc]
    """Takes the rows in their order, and says which weights are complete."""

    def __init__(self, *, eval_dataset: Any = None, **given: Any) -> None:
        super().__init__(**given)
        self.eval_dataset = eval_dataset
        if eval_dataset is not None:
            self.eval_dataloader = _loader(eval_dataset, self.cfg.trainer.eval_batch_size, whole=False)

    def _build_train_dataloader_and_compute_training_steps(self) -> None:
        self.train_dataloader = _loader(self.train_dataset, self.cfg.trainer.train_batch_size, whole=True)
        self.total_training_steps = len(self.train_dataloader) * self.cfg.trainer.epochs

    def save_models(self) -> None:
        """See RayPPOTrainer."""
        super().save_models()
        latest = Path(self.cfg.trainer.export_path) / "latest"
        writing = latest.with_name(".latest")
        writing.write_text(str(self.global_step), encoding="utf-8")
        writing.replace(latest)


class Experiment(BasePPOExp):  # type: ignore[misc]
    """folder: what `atropos train --trainer skyrl` has prepared. metrics: the file of this session's numbers."""

    def __init__(self, cfg: Any, folder: str, metrics: str) -> None:
        self.folder, self.metrics = folder, metrics
        super().__init__(cfg)

    def get_train_dataset(self) -> Any:
        """See BasePPOExp."""
        return self._rows(self.cfg.data.train_data)

    def get_eval_dataset(self) -> Any:
        """See BasePPOExp."""
        return self._rows(self.cfg.data.val_data) if self.cfg.trainer.eval_interval > 0 else None

    def get_generator(self, cfg: Any, tokenizer: Any, inference_engine_client: Any) -> Any:
        """See BasePPOExp."""
        lengths = Lengths(cfg.trainer.max_prompt_length, cfg.generator.sampling_params.max_generate_length)
        model = resolve_policy_model_name(cfg)
        return AtroposGenerator(self.folder, tokenizer, inference_engine_client, model, lengths)

    def get_trainer(self, **given: Any) -> Any:
        """See BasePPOExp."""
        return Ordered(**given)

    def get_tracker(self) -> Any:
        """See BasePPOExp."""
        trainer = self.cfg.trainer
        given = {"project_name": trainer.project_name, "experiment_name": trainer.run_name, "config": self.cfg}
        return Numbers(self.metrics, backend=trainer.logger, tags=trainer.tags, **given)

    def _rows(self, files: list[str]) -> Any:
        return Rows(files, self.tokenizer, self.cfg.trainer.max_prompt_length)


@ray.remote(num_cpus=1)  # type: ignore[untyped-decorator]
def run(experiment: Any, cfg: Any, folder: str, metrics: str) -> None:
    """SkyRL's driver: a task of Ray's, as in SkyRL's own program."""
    experiment(cfg, folder, metrics).run()


def main(words: list[str], experiment: Any = Experiment) -> None:
    """Train to the end."""
    cfg = SkyRLTrainConfig.from_cli_overrides(words)
    validate_cfg(cfg)
    initialize_ray(cfg)
    ray.get(run.remote(experiment, cfg, str(FOLDER), os.environ[METRICS]))


def _loader(rows: Any, size: int, *, whole: bool) -> Any:
    """whole: leave out a last batch that is smaller."""
    return StatefulDataLoader(rows, batch_size=size, drop_last=whole, collate_fn=rows.collate_fn, num_workers=0)


def _number(value: Any) -> float | int | None:
    if hasattr(value, "item"):  # of torch or numpy
        try:
            value = value.item()
        except (ValueError, RuntimeError):  # more than one
            return None
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


if __name__ == "__main__":
    from atropos_skyrl_main import main as by_name  # Ray's workers find by name what they are sent

    by_name(sys.argv[1:])
