"""A small server of the Tinker API for tests: torch and peft behind the requests that the client sends.

    server = TinkerServer(model_folder, data_folder); server.start(); server.url

It computes: LoRA adapters on the real model, samples with their log-probabilities, the three losses, Adam. Checkpoints
are in its data folder; another server on the same folder continues from them.
"""

from __future__ import annotations

import copy
import io
import json
import tarfile
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import torch

ALPHA = 32


class TinkerServer:
    """One server. silent: it takes requests and never answers. refuses: the status of every answer."""

    def __init__(self, model: Path, data: Path) -> None:
        self.model, self.data = model, data
        self.data.mkdir(parents=True, exist_ok=True)
        self.silent = threading.Event()
        self.refuses: int | None = None
        self.seen: list[tuple[str, dict[str, Any]]] = []
        self.keys: set[str | None] = set()
        self._adapters: dict[str, _Adapter] = {}
        self._samplers: dict[str, str] = {}
        self._answers: dict[str, Any] = {}
        self._lock = threading.Lock()
        self._http: ThreadingHTTPServer | None = None

    @property
    def url(self) -> str:
        assert self._http is not None
        return f"http://127.0.0.1:{self._http.server_address[1]}"

    def start(self) -> TinkerServer:
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"server_": self}))
        self._http.daemon_threads = True
        threading.Thread(target=self._http.serve_forever, daemon=True).start()
        return self

    def stop(self) -> None:
        assert self._http is not None
        self._http.shutdown()
        self._http.server_close()

    def counts(self, path: str) -> int:
        return sum(name == path for name, _ in self.seen)

    # The requests -----------------------------------------------------------------------------------------------------

    def get(self, path: str) -> tuple[int, Any]:
        if path == "healthz":
            return 200, {"status": "ok"}
        if path == "get_server_capabilities":
            return 200, {"supported_models": [{"model_name": str(self.model), "max_context_length": 64}]}
        match path.split("/"):  # as SkyRL's: the name of a checkpoint without its kind
            case ["training_runs", _, "checkpoints", _, "archive"]:
                return 302, path.removesuffix("archive") + "download"
            case ["training_runs", run, "checkpoints", name, "download"]:
                return 200, self._archive(self._folder(run, "sampler_weights", name))
        return 404, {"detail": path}

    def delete(self, path: str) -> tuple[int, Any]:
        return 404, {"detail": path}

    def post(self, path: str, body: dict[str, Any]) -> tuple[int, Any]:
        self.seen.append((path, body))
        if path == "retrieve_future":
            status, answer = self._answers[body["request_id"]]
            return status, answer
        if path == "client/config":
            return 200, {}
        if path == "create_session":
            return 200, {"session_id": f"session{len(self.seen)}"}
        if path == "create_sampling_session":
            name = f"sampling{len(self.seen)}"
            self._samplers[name] = body["model_path"] or ""
            return 200, {"sampling_session_id": name}
        if path == "weights_info":
            state = self._state(body["tinker_path"])
            if state is None:
                return 404, {"detail": "Checkpoint not found"}
            return 200, {"base_model": str(self.model), "is_lora": True, "lora_rank": state["rank"]}
        work = getattr(self, f"_{path}", None)
        if work is None:
            return 200, {}
        with self._lock:
            try:
                answer = 200, work(body)
            except (ValueError, KeyError, RuntimeError) as error:
                answer = 400, {"detail": f"{type(error).__name__}: {error}"}
        number = str(len(self._answers))
        self._answers[number] = answer
        found = {"request_id": number, "future_id": number, "status": "pending"}
        return 200, {**found, **({"model_id": answer[1]["model_id"]} if path == "create_model" else {})}

    def _create_model(self, body: dict[str, Any]) -> Any:
        name = f"run{len(self._adapters)}x{len(list(self.data.iterdir()))}"
        config = body["lora_config"]
        self._adapters[name] = _Adapter(self.model, config["rank"], config.get("seed") or 0)
        (self.data / name).mkdir()
        return {"model_id": name, "type": "create_model"}

    def _forward_backward(self, body: dict[str, Any]) -> Any:
        given = body["forward_backward_input"]
        adapter, numbers = self._adapters[body["model_id"]], given.get("loss_fn_config")
        outputs = adapter.backward(given["data"], given["loss_fn"], numbers)
        return {"loss_fn_output_type": "ArrayRecord", "loss_fn_outputs": outputs, "metrics": {}}

    def _optim_step(self, body: dict[str, Any]) -> Any:
        return {"metrics": {"own/grad_norm": self._adapters[body["model_id"]].update(body["adam_params"])}}

    def _save_weights(self, body: dict[str, Any]) -> Any:
        folder = self._folder(body["model_id"], "weights", body["path"])
        self._adapters[body["model_id"]].save(folder, optimiser=True)
        return {"path": f"tinker://{body['model_id']}/weights/{body['path']}", "type": "save_weights"}

    def _save_weights_for_sampler(self, body: dict[str, Any]) -> Any:
        run, session = body["model_id"], None
        name = body.get("path") or f"ss{body['sampling_session_seq_id']}"
        self._adapters[run].save(self._folder(run, "sampler_weights", name), optimiser=False)
        path = f"tinker://{run}/{name}"  # as SkyRL names it
        if not body.get("path"):
            session = f"{run}-{name}"
            self._samplers[session] = path
        return {"path": None if session else path, "sampling_session_id": session, "type": "save_weights_for_sampler"}

    def _load_weights(self, body: dict[str, Any]) -> Any:
        state = self._state(body["path"])
        if state is None:
            raise ValueError("no such checkpoint")
        self._adapters[body["model_id"]].load(state)
        return {"type": "load_weights"}

    def _asample(self, body: dict[str, Any]) -> Any:
        path = self._samplers[body["sampling_session_id"]]
        adapter = self._adapters[path.removeprefix("tinker://").split("/")[0]] if path else _Adapter(self.model, 1, 0)
        ids = [token for chunk in body["prompt"]["chunks"] for token in chunk["tokens"]]
        found = adapter.sample(ids, body["num_samples"], body["sampling_params"])
        scored = adapter.logprobs(ids) if body.get("prompt_logprobs") else None
        return {"sequences": found, "prompt_logprobs": scored, "type": "sample"}

    def _folder(self, run: str, kind: str, name: str) -> Path:
        return self.data / run / kind / name

    def _state(self, path: str) -> dict[str, Any] | None:
        run, kind, name = path.removeprefix("tinker://").split("/")
        file = self._folder(run, kind, name) / "state.pt"
        return torch.load(file, weights_only=False) if file.exists() else None

    def _archive(self, folder: Path) -> bytes:
        """As servers write it: without the names of the layers."""
        file = io.BytesIO()
        with tarfile.open(fileobj=file, mode="w:gz") as packed:
            config = json.loads((folder / "adapter_config.json").read_text())
            (folder / "adapter_config.json").write_text(json.dumps({**config, "target_modules": None}))
            for name in ("adapter_config.json", "adapter_model.safetensors"):
                packed.add(folder / name, name)
        return file.getvalue()


class _Adapter:
    """An adapter on a copy of the model."""

    def __init__(self, folder: Path, rank: int, seed: int) -> None:
        from peft import LoraConfig, get_peft_model
        from transformers import AutoModelForCausalLM

        torch.manual_seed(seed)
        base = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
        names = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
        self.model = get_peft_model(base, LoraConfig(r=rank, lora_alpha=ALPHA, target_modules=names)).eval()
        self.rank = rank
        self._trained = [one for one in self.model.parameters() if one.requires_grad]
        self._adam = torch.optim.AdamW(self._trained)

    def logits(self, ids: list[int]) -> torch.Tensor:
        return self.model(input_ids=torch.tensor([ids])).logits[0].float()

    @torch.no_grad()
    def logprobs(self, ids: list[int]) -> list[float | None]:
        found = torch.log_softmax(self.logits(ids), -1)
        return [None, *(float(found[place, token]) for place, token in enumerate(ids[1:]))]

    def backward(self, data: list[Any], loss: str, numbers: dict[str, float] | None) -> list[Any]:
        found = []
        for item in data:
            inputs = {name: torch.tensor(one["data"]) for name, one in item["loss_fn_inputs"].items()}
            ids = [token for chunk in item["model_input"]["chunks"] for token in chunk["tokens"]]
            targets = inputs["target_tokens"].long()
            logp = torch.log_softmax(self.logits(ids), -1).gather(-1, targets[:, None])[:, 0]
            if loss == "cross_entropy":
                value = -(logp * inputs["weights"]).sum()
            else:
                ratio, advantages = (logp - inputs["logprobs"]).exp(), inputs["advantages"]
                value = -(ratio * advantages).sum()
                if loss == "ppo":
                    assert numbers is not None
                    clipped = ratio.clamp(numbers["clip_low_threshold"], numbers["clip_high_threshold"])
                    value = -torch.minimum(ratio * advantages, clipped * advantages).sum()
                elif loss == "cispo":
                    assert numbers is not None
                    clipped = ratio.clamp(numbers["clip_low_threshold"], numbers["clip_high_threshold"])
                    value = -(clipped.detach() * logp * advantages).sum()
            (value / len(data)).backward()
            values = logp.detach().tolist()
            found.append({"logprobs": {"data": values, "dtype": "float32", "shape": [len(values)]}})
        return found

    def update(self, given: dict[str, Any]) -> float:
        for group in self._adam.param_groups:
            group |= {"lr": given["learning_rate"], "betas": (given["beta1"], given["beta2"]), "eps": given["eps"]}
            group |= {"weight_decay": given["weight_decay"]}
        norm = torch.nn.utils.clip_grad_norm_(self._trained, given.get("grad_clip_norm") or float("inf"))
        self._adam.step()
        self._adam.zero_grad()
        return float(norm)

    @torch.no_grad()
    def sample(self, prompt: list[int], count: int, given: dict[str, Any]) -> list[Any]:
        found = []
        for number in range(count):
            chance = torch.Generator().manual_seed((given["seed"] or 0) + number)
            ids, logprobs, reason = list(prompt), [], "length"
            for _ in range(given["max_tokens"]):
                logits = self.logits(ids)[-1]
                if given["temperature"]:
                    chances = torch.softmax(logits / given["temperature"], -1)
                    token = int(torch.multinomial(chances, 1, generator=chance))
                else:
                    token = int(logits.argmax())
                ids.append(token)
                logprobs.append(float(torch.log_softmax(logits, -1)[token]))
                if token in (given["stop"] or ()):
                    reason = "stop"
                    break
            found.append({"tokens": ids[len(prompt) :], "logprobs": logprobs, "stop_reason": reason})
        return found

    def save(self, folder: Path, *, optimiser: bool) -> None:
        folder.mkdir(parents=True)
        if not optimiser:
            self.model.save_pretrained(folder)
            return
        state = {"rank": self.rank, "weights": [one.detach().clone() for one in self._trained]}
        torch.save({**state, "adam": copy.deepcopy(self._adam.state_dict())}, folder / "state.pt")

    def load(self, state: dict[str, Any]) -> None:
        with torch.no_grad():
            for own, kept in zip(self._trained, state["weights"], strict=True):
                own.copy_(kept)
        self._adam.load_state_dict(state["adam"])


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server_: TinkerServer

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing."""

    def do_GET(self) -> None:
        self._answer(self.server_.get)

    def do_DELETE(self) -> None:
        self._answer(self.server_.delete)

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers.get("Content-Length") or 0)) or b"{}")
        self._answer(lambda path: self.server_.post(path, body))

    def _answer(self, work: Any) -> None:
        self.server_.keys.add(self.headers.get("X-API-Key"))
        if self.server_.silent.is_set():
            threading.Event().wait(60)
        status, found = work(self.path.removeprefix("/api/v1/"))
        if self.server_.refuses is not None and not self.path.endswith("healthz"):
            status, found = self.server_.refuses, {"detail": "not with this key"}
        data = found if isinstance(found, bytes) else b"" if status == 302 else json.dumps(found).encode()
        self.send_response(status)
        if status == 302:
            self.send_header("Location", found if "://" in found else f"{self.server_.url}/api/v1/{found}")
        self.send_header("Content-Type", "application/octet-stream" if isinstance(found, bytes) else "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)
