"""The commands, each one function that holds its options."""
