"""In the place of `side`: the same messages and files without LeRobot, for what happens around its process.

MODE in the folder of the run's checkpoints says what goes wrong: "error N", "die N", "noise N" (at step N).
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path

FRAMES = 60


def value_of(words: list[str], name: str, default: str = "") -> str:
    found = [word.partition("=")[2] for word in words if word.startswith(f"--{name}=")]
    return found[-1] if found else default


def say(what: object) -> None:
    print(json.dumps(what), flush=True)


def check() -> None:
    policy = {"device": os.environ.get("LOOP_DEVICE", "cpu"), "backbone_there": True, "base_there": True, "base": None}
    data = {"root": "/d", "episodes": 2, "frames": FRAMES, "used": FRAMES, "dropped": 0, "longest": 30}
    answer = {"lerobot": "0.6.1", "torch": "2.11", "devices": [], "flash_attn": None, "decoders": [], "lacks": []}
    answer |= {"policy": policy, "dataset": data}
    say(answer | json.loads(os.environ.get("LOOP_ANSWER", "{}")))


def train(words: list[str], checkpoints: Path) -> None:
    stopping: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, frame: stopping.append(number))
    what, at = os.environ.get("LOOP_MODE", "none -1").split()
    config = value_of(words, "config_path")
    begin = int(Path(config).parents[1].name.removeprefix("step-")) if config else 0
    steps, every = int(value_of(words, "steps")), int(value_of(words, "save_freq"))
    print("words for the log", file=sys.stderr, flush=True)
    for step in range(begin + 1, steps + 1):
        if step == int(at) and what == "error":
            say({"error": "OutOfMemoryError", "message": ["CUDA out of memory"]})
            sys.exit(1)
        if step == int(at) and what == "die":
            print("the last words", file=sys.stderr, flush=True)
            os.kill(os.getpid(), signal.SIGKILL)
        if step == int(at) and what == "noise":
            print("no JSON\n[1]\n\n{", flush=True)
        if step == int(at) and what == "slow":
            (checkpoints.parent / "slow").touch()
            time.sleep(20)  # until the signal
        values = {"steps": step, "episodes": 1.0, "epochs": step / 10, "loss": 1 / step, "lr": 0.1, "update_s": 2.0}
        say({"step": step, "metrics": {**values, "dataloading_s": 0.5, "name": "x"}})
        if step % every == 0 or step == steps or stopping:
            writing = Path(value_of(words, "output_dir")) / "checkpoints" / f"{step:06d}"
            (writing / "pretrained_model").mkdir(parents=True)
            (writing / "training_state").mkdir()
            (writing / "pretrained_model" / "model.safetensors").write_bytes(b"w" * step)
            (writing / "pretrained_model" / "train_config.json").write_text("{}")
            (writing / "training_state" / "training_step.json").write_text(json.dumps({"step": step}))
            checkpoints.mkdir(exist_ok=True)
            writing.rename(checkpoints / f"step-{step}")
            say({"checkpoint": step})
        if stopping:
            return


if __name__ == "__main__":
    if sys.argv[1] == "check":
        check()
    else:
        settings = json.loads(sys.argv[2])
        train(settings["arguments"], Path(settings["checkpoints"]))
