"""Sampling beside a trainer and taking its weights: vLLM in process against the local backend, in CPU seconds.

    OMP_NUM_THREADS=1 python tests/benchmarks/handover.py MODEL_FOLDER [--rounds 3] [--prompts 8] [--samples 4]

A round is what a GRPO step asks for: samples of several prompts, then changed weights. Both backends sample from
the same float32 module; vLLM has to copy it.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import time
from typing import Any

os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")
TEXT = "A farmer has 17 sheep, buys 5 and sells 8. Explain step by step how many are left, case {}. "


async def rounds(backend: Any, model: Any, args: argparse.Namespace) -> dict[str, float]:
    import torch

    from atropos_cli.sdk import user
    from atropos_cli.sdk.backends import GenerateRequest, Sampling

    sampling = Sampling(max_tokens=args.tokens)
    requests = [
        GenerateRequest(messages=(user(TEXT.format(number) * 4),), n=args.samples, seed=number, sampling=sampling)
        for number in range(args.prompts)
    ]
    began = time.process_time()
    await backend.open(workers=args.prompts)
    found = {"start": time.process_time() - began}
    await backend.generate(requests[0])
    cpu = wall = 0.0
    tokens = 0
    for step in range(args.rounds):
        await backend.update_weights(None, version=step)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.mul_(1.0001)
        start, clock = time.process_time(), time.perf_counter()
        made = await asyncio.gather(*(backend.generate(request) for request in requests))
        cpu += time.process_time() - start
        wall += time.perf_counter() - clock
        tokens += sum(completion.completion_tokens for generation in made for completion in generation.completions)
    described = backend.describe()
    await backend.close()
    found |= {"round": cpu / args.rounds, "round_wall": wall / args.rounds, "per_cpu_second": tokens / cpu}
    found["handover_wall"] = described.get("weight_handover_seconds", 0.0)
    return found


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("model")
    for name, value in (("rounds", 3), ("prompts", 8), ("samples", 4), ("tokens", 64)):
        parser.add_argument(f"--{name}", type=int, default=value)
    args = parser.parse_args()
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from atropos_cli.sdk.backends import make_backend

    tokenizer = AutoTokenizer.from_pretrained(args.model)
    backends = {
        "local": make_backend("local", {"logprobs": "tempered"}, model="policy"),
        "vllm": make_backend("vllm", {"enforce_eager": True, "max_model_len": 1024}, model="policy"),
    }
    print("| backend | start | a round | of it weights (wall) | tokens per CPU s | wall s of a round |")
    print("|---|---|---|---|---|---|")
    for name, backend in backends.items():
        model = AutoModelForCausalLM.from_pretrained(args.model, dtype="float32").eval()
        backend.adopt(model, tokenizer)
        found = asyncio.run(rounds(backend, model, args))
        cells = (found["start"], found["round"], found["handover_wall"], found["per_cpu_second"], found["round_wall"])
        print(f"| {name} | " + " | ".join(f"{value:.3g}" for value in cells) + " |", flush=True)


if __name__ == "__main__":
    main()
