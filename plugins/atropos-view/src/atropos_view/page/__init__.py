"""A local page for browsing rollouts: rows read on demand, a small server, pages without a server."""
