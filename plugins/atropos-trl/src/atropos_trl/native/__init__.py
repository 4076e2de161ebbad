"""The trainer `native`: policy gradients in plain PyTorch, on rows of any number and length."""
