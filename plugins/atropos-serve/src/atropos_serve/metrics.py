"""`/metrics` for Prometheus."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from atropos_serve.exchange import Exchange

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

Requests = Counter[tuple[str, str, int]]

_TOTALS = {
    "groups": "groups received",
    "sequences": "sequences received",
    "buffered": "groups that had to wait for their complements",
    "duplicates": "requests whose key was known",
    "refused": "requests with groups that would never fit",
    "batches": "batches formed",
    "served": "groups that left in batches",
    "acknowledged": "batches acknowledged",
    "redelivered": "batches delivered again after their lease",
    "damaged": "groups that the disk lost",
}


class Metrics(Collector):
    """Reads the exchange when it is asked."""

    def __init__(self, exchange: Exchange, requests: Requests) -> None:
        self._exchange = exchange
        self._requests = requests
        self._registry = CollectorRegistry()
        self._registry.register(self)

    def text(self) -> bytes:
        return generate_latest(self._registry)

    def collect(self) -> Iterable[Metric]:
        exchange, queue = self._exchange, self._exchange.queue
        for name, text in _TOTALS.items():
            yield CounterMetricFamily(f"atropos_{name}", text, value=getattr(exchange.counts, name))
        yield GaugeMetricFamily("atropos_step", "step of the trainer", value=exchange.step)
        yield GaugeMetricFamily("atropos_queued_groups", "groups in the queue", value=queue.groups)
        yield GaugeMetricFamily("atropos_queued_sequences", "sequences in the queue", value=queue.sequences)
        yield GaugeMetricFamily(
            "atropos_waiting_groups",
            "groups that wait for complements or for a trainer",
            value=queue.buffered_groups + len(exchange.waiting),
        )
        yield GaugeMetricFamily("atropos_leased_batches", "batches with trainers", value=len(exchange.lent))
        yield from self._of_environments()
        asked = CounterMetricFamily("atropos_requests", "HTTP requests", labels=["method", "path", "status"])
        for (method, path, status), count in self._requests.items():
            asked.add_metric([method, path, str(status)], count)
        yield asked

    def _of_environments(self) -> Iterable[Metric]:
        exchange = self._exchange
        labels = ["env_id", "env"]
        live = GaugeMetricFamily("atropos_env_live", "1: heard of lately", labels=labels)
        queued = GaugeMetricFamily("atropos_env_queued_sequences", "sequences in the queue", labels=labels)
        groups = CounterMetricFamily("atropos_env_groups", "groups received", labels=labels)
        lag = CounterMetricFamily("atropos_env_lag_steps", "steps between arrival and batch, summed", labels=labels)
        served = CounterMetricFamily("atropos_env_served", "groups that left in batches", labels=labels)
        for env in exchange.envs:
            names = [str(env.id), env.name]
            live.add_metric(names, exchange.envs.lives(env))
            queued.add_metric(names, exchange.queue.sequences_of(env.id))
            groups.add_metric(names, env.groups)
            lag.add_metric(names, env.lag)
            served.add_metric(names, env.served)
        return [live, queued, groups, lag, served]
