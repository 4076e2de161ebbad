"""Reading and writing: durable append, run folders, file formats."""
