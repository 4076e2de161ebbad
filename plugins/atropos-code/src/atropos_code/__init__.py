"""Python programs as verifiable tasks, run in a sandbox.

`plugin` registers the components; `sandbox` runs programs; `suite` judges them by tests;
`environments`, `game` and `rewards` are built on that. `inside` is what runs within the sandbox.
Nothing is imported here, because every sandboxed process imports this module first.
"""
