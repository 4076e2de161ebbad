"""Language models on this machine, for all plugins that load one: names, prompts, waiting threads."""
