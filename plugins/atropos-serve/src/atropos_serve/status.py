"""What the exchange says about itself: to environments, to trainers, to the live page."""

from __future__ import annotations

from typing import Any

from atropos_serve.environments import Env
from atropos_serve.exchange import Exchange


def status(exchange: Exchange) -> dict[str, Any]:
    """`/status`: the two keys of the wire, and why there is no batch."""
    return {
        "current_step": exchange.step,
        "queue_size": exchange.queue.groups + len(exchange.waiting),
        "queued_sequences": exchange.queue.sequences + sum(row.size for row in exchange.waiting),
        "buffered_groups": exchange.queue.buffered_groups,
        "leased_batches": len(exchange.lent),
        "full": exchange.full(),
        "reason": reason(exchange),
    }


def reason(exchange: Exchange) -> str | None:
    """Why GET /batch has no batch; None if it has one."""
    if exchange.registration is None:
        return f"no trainer has registered; {len(exchange.waiting)} groups wait for one"
    if exchange.overdue():
        return None
    size = exchange.registration.batch_size
    queue = exchange.queue
    if queue.sequences < size:
        more = f"; {queue.buffered_groups} groups wait for their complements" if queue.buffered_groups else ""
        unfit = f"; {len(exchange.waiting)} groups are larger than a batch" if exchange.waiting else ""
        return f"{queue.sequences} of the {size} sequences of a batch are queued{more}{unfit}"
    if queue.blocked(size):
        sizes = ", ".join(f"{count} of {one}" for one, count in queue.sizes().items())
        return f"no groups in the queue add up to {size} sequences exactly: {sizes}"
    least = exchange.envs.minimums(size)
    missing = [
        _missing(exchange, env, count)
        for env in exchange.envs
        if (count := least.get(env.id, 0)) > queue.sequences_of(env.id)
    ]
    if not missing and queue.next(size, least) is None:
        missing = [f"no groups add up to {size} sequences with the minimum of each environment in them"]
    return "; ".join(missing) or None


def _missing(exchange: Exchange, env: Env, least: int) -> str:
    have, silent = exchange.queue.sequences_of(env.id), exchange.envs.silent_for(env)
    return (
        f"a batch needs {least} sequences of {env.name} (min_batch_allocation {env.minimum:g}): {have} are queued, "
        f"its last sign of life was {silent:.0f} s ago"
    )


def status_env(exchange: Exchange, env_id: int) -> dict[str, Any]:
    """`/status-env`: how far the trainer is and how full the queue, in groups of the environment's size.

    While the queued sizes make up no batch, it is reported as empty: more groups of any size end that, and a stock
    environment would stop at a full queue. For the same reason an environment whose minimum is missing hears of its own
    groups only. What others must have of each batch (their minimum) does not count. checkpoint_dir is not of the wire:
    another trainer may have registered since the environment did, with other weights.
    """
    env = exchange.envs.touch(env_id)
    queue = exchange.queue
    registered = exchange.registration
    group_size = 1 if env is None else env.group_size
    own = queue.sequences_of(env_id) + queue.buffered(env_id)
    least = {} if registered is None else exchange.envs.minimums(registered.batch_size)
    if registered is None:  # as after a reset: running environments must not fill the disk meanwhile
        counted = len(exchange.waiting) * group_size
    elif queue.blocked(registered.batch_size):
        counted = 0
    elif queue.sequences_of(env_id) < least.get(env_id, 0):
        counted = own
    else:
        reserved = sum(min(count, queue.sequences_of(other)) for other, count in least.items() if other != env_id)
        counted = queue.sequences + queue.buffered(env_id) - reserved
    return {
        "current_step": exchange.step,
        "queue_size": counted // group_size,
        "unallocated_fraction": exchange.envs.unallocated(),
        "self_queue_size": own // group_size,
        "max_group_size": max(queue.sizes(), default=1),
        "env_weight": 1.0 if env is None else exchange.envs.weight(env),
        "checkpoint_dir": None if registered is None else registered.checkpoint_dir,
    }


def live(exchange: Exchange, now: float) -> dict[str, Any]:
    """All that the live page shows."""
    counts, registered = exchange.counts, exchange.registration
    return {
        **status(exchange),
        "registration": None if registered is None else registered.model_dump(),
        "groups_per_minute": _rate(counts.recent, now),
        "received": counts.groups,
        "served": counts.served,
        "batches": counts.batches,
        "acknowledged": counts.acknowledged,
        "redelivered": counts.redelivered,
        "refused": counts.refused,
        "duplicates": counts.duplicates,
        "damaged": counts.damaged,
        "sizes": {str(size): count for size, count in exchange.queue.sizes().items()},
        "leases": [
            {"batch": batch, "seconds_left": round(expires - now, 1), "groups": groups, "sequences": sequences}
            for batch, (expires, groups, sequences) in exchange.lent.items()
        ],
        "environments": [_shown(exchange, env, now) for env in exchange.envs],
    }


def _shown(exchange: Exchange, env: Env, now: float) -> dict[str, Any]:
    return {
        "id": env.id,
        "name": env.name,
        "state": "live" if exchange.envs.lives(env) else "silent" if env.connected else "disconnected",
        "silent_for": round(exchange.envs.silent_for(env), 1),
        "weight": env.weight,
        "share": round(exchange.envs.weight(env), 4),
        "minimum": env.minimum,
        "group_size": env.group_size,
        "queued": exchange.queue.sequences_of(env.id),
        "buffered": exchange.queue.buffered(env.id),
        "groups": env.groups,
        "refused": env.refused,
        "groups_per_minute": _rate(env.recent, now),
        "lag": round(env.lag / env.served, 2) if env.served else None,
    }


def _rate(times: list[float], now: float) -> float:
    """Events of the last minute; from the last few when there are more than are remembered."""
    recent = [time for time in times if now - time < 60]
    if len(recent) < len(times) or len(times) < 256:
        return float(len(recent))
    span = now - recent[0]
    return round(60 * len(recent) / span, 1) if span > 0 else float(len(recent))
