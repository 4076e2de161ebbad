"""From stored attempts to training rows: `sft` and `dpo`, and the chat templates and tokenizers they need."""
