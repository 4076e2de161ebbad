"""Rows for SFT and DPO from stored rollouts, with the chat templates and tokenizers they need."""
