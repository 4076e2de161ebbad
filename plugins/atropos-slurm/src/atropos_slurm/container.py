"""What a cluster's profile adds to the plan of every job: variables, the network interface, the container."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

from atropos_cli.sdk.data import home
from atropos_cli.sdk.launchers import Component, JobPlan
from atropos_slurm.config import Container, SlurmConfig


def adapted(plan: JobPlan, profile: SlurmConfig, folder: Path) -> JobPlan:
    """The plan as the profile wants it. Variables of the job win over the profile's."""
    components = plan.components
    if profile.interface:
        network = {"NCCL_SOCKET_IFNAME": profile.interface, "GLOO_SOCKET_IFNAME": profile.interface}
        components = tuple(
            item.replace(env={**item.env, **network}) if "NNODES" in item.env else item for item in components
        )
    if profile.container is not None:
        cwd = Path(plan.cwd or folder)
        components = tuple(contained(item, profile.container, folder, cwd) for item in components)
    changed: JobPlan = plan.replace(components=components, env={**profile.env, **plan.env}, interface=profile.interface)
    return changed


def contained(item: Component, container: Container, folder: Path, cwd: Path) -> Component:
    """The component inside the profile's container."""
    if item.role != "service" and container.components == "services":
        return item
    mounts = [*(":".join(map(home, mount.split(":"))) for mount in container.mounts), str(folder), str(cwd)]
    image = home(container.image)
    changed: Component
    if container.runtime == "apptainer":
        binds = [word for mount in dict.fromkeys(mounts) for word in ("--bind", mount)]
        nvidia = ["--nv"] if item.gpus != () else []
        argv = ("apptainer", "exec", *nvidia, *binds, *container.options, image, *item.argv)
        changed = item.replace(argv=argv)
        return changed
    spec = find_spec("atropos_cli")
    package = Path((spec and spec.origin) or "").resolve().parent
    pairs = [mount if ":" in mount else f"{mount}:{mount}" for mount in dict.fromkeys([*mounts, str(package)])]
    options = (f"--container-image={image}", f"--container-mounts={','.join(pairs)}", *container.options)
    changed = item.replace(step_options=options, python=container.python)
    return changed
