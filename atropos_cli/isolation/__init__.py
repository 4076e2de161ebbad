"""Python processes shut in: no network, a read-only view of the system, limits, killable at any time."""
