"""The interfaces that plugins implement. Abstract classes and protocols only; no I/O here."""
