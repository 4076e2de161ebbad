"""Inference servers: what they need of a machine, how SGLang and vLLM are called, their life."""
