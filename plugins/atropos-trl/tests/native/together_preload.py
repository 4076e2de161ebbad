"""Imported once by the server that the processes of tests come from."""

import atropos_trl.native.policy
import atropos_trl.native.trainer
import native_support
import peft
import torch.distributed.fsdp
import torch.distributed.tensor
import transformers.models.llama.modeling_llama
from atropos_trl.common import publishing

__all__ = ["atropos_trl", "native_support", "peft", "publishing", "torch", "transformers"]
