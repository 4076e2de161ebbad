"""Reports to trackers (W&B, TensorBoard, plugins): hung or broken ones never hold up a run."""
