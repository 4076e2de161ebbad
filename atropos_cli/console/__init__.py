"""Talking to a person at a terminal: output, sessions, status lines, how a command ends, options over stored data.

Everything here may be used by a command, ours or a plugin's. Nothing here knows a particular command.
"""
