"""Inference servers: their needs of a machine, the commands of SGLang and vLLM, their life cycle."""
