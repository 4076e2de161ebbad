"""The commands `atropos launch-vllm` and `atropos launch-sglang`."""
