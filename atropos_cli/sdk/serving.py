"""Inference servers: their records, the machine they run on, servers beside the command of a job."""

from __future__ import annotations

from atropos_cli.network import get
from atropos_cli.ports.serving import ENGINES, TINKER, Engine, Serve, Served
from atropos_cli.serving.defaults import Defaults, cpu_cache_gib, defaults_for
from atropos_cli.serving.endpoints import addresses, all_ready, base_url, fronts
from atropos_cli.serving.platforms import Gpu, Platform
from atropos_cli.serving.platforms import detect as detect_platform
from atropos_cli.serving.record import ServerRecord
from atropos_cli.serving.state import (
    all_servers,
    default_name,
    held,
    read_server,
    running,
    server_folder,
    taken,
    write_record,
)

__all__ = [
    "ENGINES",
    "TINKER",
    "Defaults",
    "Engine",
    "Gpu",
    "Platform",
    "Serve",
    "Served",
    "ServerRecord",
    "addresses",
    "all_ready",
    "all_servers",
    "base_url",
    "cpu_cache_gib",
    "default_name",
    "defaults_for",
    "detect_platform",
    "fronts",
    "get",
    "held",
    "read_server",
    "running",
    "server_folder",
    "taken",
    "write_record",
]
