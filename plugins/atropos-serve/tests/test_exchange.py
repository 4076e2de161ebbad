"""Groups come in, batches go out: order, deadlocks, leases, and what a restart finds."""

from __future__ import annotations

from pathlib import Path

import orjson
import pytest
from atropos_serve.exchange import QueueFull
from atropos_serve.status import reason, status, status_env
from atropos_serve.store import Store
from atropos_serve.wire import GROUP_KEYS, Refused
from serve_support import Clock, env, group, opened, registration, started, tags

from atropos_cli.sdk import DataError


def test_first_in_first_out(tmp_path: Path) -> None:
    exchange = started(tmp_path, 8, batch_size=8)
    for tag in (1, 2, 3):
        exchange.add([group(8, tag, 0)])
    assert [tags(exchange.next_batch()) for _ in range(4)] == [[1], [2], [3], None]
    assert exchange.step == 3


def test_a_step_is_a_batch_that_was_served(tmp_path: Path) -> None:
    exchange = started(tmp_path, 8)
    exchange.add([group(8) for _ in range(6)])
    exchange.next_batch()
    assert status(exchange)["current_step"] == 1
    assert status(exchange)["queue_size"] == 4


def test_a_batch_has_all_keys_and_the_ones_not_given_are_null(tmp_path: Path) -> None:
    exchange = started(tmp_path, batch_size=2)
    exchange.add([group(2)])
    batch = exchange.next_batch()
    assert batch is not None
    found = orjson.loads(batch.groups[0].body or b"")
    assert tuple(found) == GROUP_KEYS
    assert {name for name in GROUP_KEYS if found[name] is not None} == {"tokens", "masks", "scores"}


# -- deadlocks of the peer


def test_batch_12_with_groups_of_8_is_refused_at_registration(tmp_path: Path) -> None:
    exchange = started(tmp_path, batch_size=12)
    with pytest.raises(Refused, match="group_size 8 does not divide the trainer's batch_size 12"):
        exchange.register_env(env(8))


def test_batch_12_is_refused_while_an_environment_with_groups_of_8_lives(tmp_path: Path) -> None:
    clock = Clock()
    exchange = started(tmp_path, 8, clock=clock)
    with pytest.raises(Refused, match="batch_size 12 is not a multiple of group_size 8 of e_0"):
        exchange.register(registration(batch_size=12))
    clock.now += 61
    exchange.register(registration(batch_size=12))


def test_batch_12_with_groups_of_8_that_no_environment_declared_says_why(tmp_path: Path) -> None:
    exchange = started(tmp_path, batch_size=12)
    for _ in range(6):
        exchange.add([group(8)])
    assert exchange.next_batch() is None
    assert reason(exchange) == "no groups in the queue add up to 12 sequences exactly: 6 of 8"
    with pytest.raises(Refused, match="48 such sequences of this environment wait already"):
        exchange.add([group(8)])
    exchange.add([group(4, 2)])
    assert tags(exchange.next_batch()) == [1, 2]


def test_group_size_3_beside_8_is_refused_and_its_pieces_hold_up_nothing(tmp_path: Path) -> None:
    exchange = started(tmp_path, 8)
    with pytest.raises(Refused, match="group_size 3"):
        exchange.register_env(env(3))
    for tag in range(10):
        exchange.add([group(3, 30 + tag)])
    exchange.add([group(8, 1, 0)])
    exchange.add([group(8, 2, 0)])
    assert tags(exchange.next_batch()) == [1, 2]


def test_sizes_4_and_3_in_a_batch_of_12_are_all_served(tmp_path: Path) -> None:
    exchange = started(tmp_path, 4, 3, batch_size=12)
    for _ in range(2):
        exchange.add([group(4, 4, 0)])
    for _ in range(3):
        exchange.add([group(3, 3, 1)])
    assert exchange.next_batch() is None
    assert reason(exchange) == "no groups in the queue add up to 12 sequences exactly: 3 of 3, 2 of 4"
    # a stock environment with max_batches_offpolicy 1 would stop at 17 queued sequences; it must not
    assert status_env(exchange, 0)["queue_size"] == status_env(exchange, 1)["queue_size"] == 0
    exchange.add([group(3, 3, 1)])
    assert tags(exchange.next_batch()) == [3, 3, 3, 3]
    assert status_env(exchange, 0)["queue_size"] == 2


def test_an_oversize_group_that_fits_is_served(tmp_path: Path) -> None:
    exchange = started(tmp_path, 8)
    assert exchange.add([group(16, 5, 0)]) == [True]
    assert tags(exchange.next_batch()) == [5]


def test_an_oversize_group_waits_for_its_complement(tmp_path: Path) -> None:
    exchange = started(tmp_path, 8)
    assert exchange.add([group(12, 1, 0)]) == [False]
    assert exchange.add([group(4, 2, 0)]) == [True]
    assert tags(exchange.next_batch()) == [1, 2]


def test_a_group_larger_than_a_batch_is_refused(tmp_path: Path) -> None:
    exchange = started(tmp_path, 8)
    with pytest.raises(Refused, match="a group of 24 sequences; a batch has 16"):
        exchange.add([group(24, 1, 0)])


def test_small_groups_are_released_together(tmp_path: Path) -> None:
    exchange = started(tmp_path, 8, batch_size=8)
    assert exchange.add([group(3, 1, 0)]) == [False]
    assert exchange.add([group(8, 2, 0)]) == [True]
    assert exchange.add([group(5, 3, 0)]) == [True]
    assert [tags(exchange.next_batch()) for _ in range(2)] == [[2], [1, 3]]


def test_a_dead_environment_with_a_minimum_does_not_stop_the_others(tmp_path: Path) -> None:
    clock = Clock()
    exchange = started(tmp_path, 8, clock=clock)
    assert exchange.register_env(env(8, desired_name="dead", min_batch_allocation=0.25)) is not None
    for _ in range(4):
        exchange.add([group(8, 1, 0)])
    assert exchange.next_batch() is None
    assert "a batch needs 8 sequences of dead_0 (min_batch_allocation 0.25): 0 are queued" in (reason(exchange) or "")
    clock.now += 61
    assert tags(exchange.next_batch()) == [1, 1]


def test_a_living_environment_without_data_is_waited_for_only_so_long(tmp_path: Path) -> None:
    clock = Clock()
    exchange = started(tmp_path, 8, clock=clock, allocation_timeout=100)
    assert exchange.register_env(env(8, min_batch_allocation=0.5)) is not None
    exchange.add([group(8, 1, 0) for _ in range(6)])
    for _ in range(10):
        assert exchange.next_batch() is None
        clock.now += 10
        status_env(exchange, 1)
    assert tags(exchange.next_batch()) == [1, 1]
    assert tags(exchange.next_batch()) == [1, 1]  # and not again for the next batch
    exchange.add([group(8, 2, 1)])
    assert tags(exchange.next_batch()) == [1, 2]


def test_a_minimum_is_kept(tmp_path: Path) -> None:
    exchange = started(tmp_path, 4)
    assert exchange.register_env(env(4, min_batch_allocation=0.5)) is not None
    exchange.add([group(4, 1, 0) for _ in range(8)])
    exchange.add([group(4, 2, 1) for _ in range(2)])
    assert tags(exchange.next_batch()) == [1, 1, 2, 2]


def test_data_before_the_trainer_is_kept_for_it(tmp_path: Path) -> None:
    exchange = opened(tmp_path)
    exchange.add([group(8, 1), group(8, 2)])
    assert exchange.next_batch() is None
    assert reason(exchange) == "no trainer has registered; 2 groups wait for one"
    exchange.close()
    exchange = opened(tmp_path)
    exchange.register(registration())
    assert tags(exchange.next_batch()) == [1, 2]


def test_a_foreign_reset_does_not_end_running_environments(tmp_path: Path) -> None:
    exchange = started(tmp_path, 8)
    exchange.add([group(8, 1, 0)])
    exchange.reset()
    assert status_env(exchange, 0)["queue_size"] == 0
    exchange.register(registration())
    assert exchange.next_batch() is None
    exchange.add([group(8, 2, 0)])
    again = exchange.register_env(env(4))
    assert again is not None
    assert again.id == 1  # the first one is still there, with its size
    exchange.add([group(8, 3, 0)])
    assert tags(exchange.next_batch()) == [2, 3]


def test_weight_minus_1_is_no_weight(tmp_path: Path) -> None:
    exchange = started(tmp_path, 8)
    assert exchange.register_env(env(8, weight=-1)) is not None
    assert [status_env(exchange, env)["env_weight"] for env in (0, 1)] == [1.0, 1.0]


def test_an_unknown_environment_gets_an_answer(tmp_path: Path) -> None:
    exchange = started(tmp_path, 8)
    assert status_env(exchange, 77)["queue_size"] == 0
    assert not exchange.disconnect(-1)
    assert exchange.envs.lives(next(iter(exchange.envs)))


def test_weights_are_shares_of_the_living(tmp_path: Path) -> None:
    clock = Clock()
    exchange = started(tmp_path, 8, clock=clock)
    assert exchange.register_env(env(8, weight=3)) is not None
    assert [status_env(exchange, env)["env_weight"] for env in (0, 1)] == [0.25, 0.75]
    clock.now += 61
    assert status_env(exchange, 1)["env_weight"] == 1.0


def test_another_batch_size_packs_the_queue_anew(tmp_path: Path) -> None:
    exchange = started(tmp_path, 4)
    exchange.add([group(4, tag, 0) for tag in range(6)])
    exchange.register(registration(batch_size=12, starting_step=7))
    assert tags(exchange.next_batch()) == [0, 1, 2]
    assert exchange.step == 8


# -- leases


def test_a_batch_that_is_lent_while_the_size_changes_is_queued_again_when_its_lease_ends(tmp_path: Path) -> None:
    clock = Clock()
    exchange = started(tmp_path, 4, clock=clock)
    exchange.add([group(4, tag, 0) for tag in range(12)])
    batches = [exchange.next_batch(30), exchange.next_batch(60)]
    lent = [batch.id for batch in batches if batch is not None and batch.id is not None]
    exchange.register(registration(batch_size=12))
    assert exchange.acknowledge(lent[1])  # its trainer still lives
    clock.now += 31
    assert [tags(exchange.next_batch(30)) for _ in range(3)] == [[0, 1, 2], [3, 8, 9], None]
    assert not exchange.acknowledge(lent[0])
    exchange.close()
    exchange = opened(tmp_path, clock)
    assert not exchange.acknowledge(lent[0])
    clock.now += 31
    assert tags(exchange.next_batch(30)) == [0, 1, 2]


def test_a_lease_that_ends_gives_the_same_batch_again(tmp_path: Path) -> None:
    clock = Clock()
    exchange = started(tmp_path, 8, clock=clock)
    exchange.add([group(8, tag, 0) for tag in range(4)])
    first = exchange.next_batch(30)
    assert first is not None
    assert tags(exchange.next_batch(30)) == [2, 3]
    assert exchange.next_batch(30) is None
    clock.now += 31
    again = exchange.next_batch(30)
    assert again is not None
    assert (again.id, tags(again)) == (first.id, [0, 1])
    assert exchange.step == 2


def test_an_acknowledged_batch_is_gone_and_may_be_acknowledged_again(tmp_path: Path) -> None:
    clock = Clock()
    exchange = started(tmp_path, 8, clock=clock)
    exchange.add([group(8), group(8)])
    batch = exchange.next_batch(30)
    assert batch is not None
    assert batch.id is not None
    assert exchange.acknowledge(batch.id)
    assert exchange.acknowledge(batch.id)
    assert not exchange.acknowledge(batch.id + 1)
    clock.now += 1000
    assert exchange.next_batch(30) is None


def test_a_late_acknowledgement_counts(tmp_path: Path) -> None:
    clock = Clock()
    exchange = started(tmp_path, 8, clock=clock)
    exchange.add([group(8), group(8)])
    batch = exchange.next_batch(30)
    assert batch is not None
    assert batch.id is not None
    clock.now += 31
    assert exchange.acknowledge(batch.id)
    assert exchange.next_batch(30) is None


def test_leases_and_the_queue_survive_a_restart(tmp_path: Path) -> None:
    clock = Clock()
    exchange = started(tmp_path, 8, clock=clock)
    exchange.add([group(8, tag, 0) for tag in range(6)])
    exchange.add([group(3, 7, 0)])
    batch = exchange.next_batch(30)
    assert batch is not None
    exchange.close()
    exchange = opened(tmp_path, clock)
    assert tags(exchange.next_batch(30)) == [2, 3]
    exchange.add([group(5, 8, 0)])
    clock.now += 31
    assert [tags(exchange.next_batch(30)) for _ in range(3)] == [[0, 1], [2, 3], [4, 5]]
    exchange.add([group(8, 9, 0)])
    assert tags(exchange.next_batch()) == [7, 8, 9]
    assert exchange.step == 4


def test_a_renewed_lease_lasts_and_one_of_0_seconds_ends(tmp_path: Path) -> None:
    clock = Clock()
    exchange = started(tmp_path, 8, clock=clock)
    exchange.add([group(8), group(8)])
    batch = exchange.next_batch(30)
    assert batch is not None
    assert batch.id is not None
    clock.now += 20
    assert exchange.renew(batch.id, 30) == clock.now + 30
    clock.now += 20
    assert exchange.next_batch(30) is None
    exchange.renew(batch.id, 0)
    assert exchange.next_batch(30) is not None
    assert exchange.renew(99, 5) is None


def test_batches_given_for_good_leave_nothing_on_disk(tmp_path: Path) -> None:
    exchange = started(tmp_path, 8)
    exchange.add([group(8), group(8)])
    exchange.next_batch()
    exchange.close()
    exchange = opened(tmp_path)
    assert status(exchange)["queue_size"] == 0
    assert exchange.add([group(8)]) == [True]


def test_a_key_is_stored_once(tmp_path: Path) -> None:
    exchange = started(tmp_path, 8)
    assert exchange.add([group(8)], key="run/1") == [True]
    assert exchange.add([group(8)], key="run/1") is None
    exchange.add([group(8)], key="run/2")
    exchange.next_batch()
    exchange.close()
    exchange = opened(tmp_path)
    assert exchange.add([group(8)], key="run/1") is None
    assert status(exchange)["queue_size"] == 0


def test_a_full_queue_takes_no_more(tmp_path: Path) -> None:
    exchange = started(tmp_path, 8, max_queue=2)
    exchange.add([group(8), group(8)])
    with pytest.raises(QueueFull):
        exchange.add([group(8)])
    exchange.next_batch()
    exchange.add([group(8)])


def test_a_body_that_the_disk_lost_is_skipped(tmp_path: Path) -> None:
    exchange = started(tmp_path, 8, batch_size=8)
    exchange.add([group(8, 1), group(8, 2)])
    segment = next(path for path in tmp_path.glob("groups-*.log") if path.stat().st_size)
    exchange.close()
    data = segment.read_bytes()
    segment.write_bytes(b"\0" * (len(data) // 2) + data[len(data) // 2 :])
    exchange = opened(tmp_path)
    assert tags(exchange.next_batch()) == [2]
    assert exchange.counts.damaged == 1


def test_a_failed_write_leaves_the_queue_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    exchange = started(tmp_path, 8)
    exchange.add([group(8, 1)])

    def full(*args: object) -> int:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("os.pwrite", full)
        with pytest.raises(OSError, match="No space"):
            exchange.add([group(8, 2)])
    assert status(exchange)["queue_size"] == 1
    exchange.add([group(8, 3)])
    assert tags(exchange.next_batch()) == [1, 3]


def test_segments_without_groups_are_deleted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("atropos_serve.store.SEGMENT_SIZE", 1000)
    exchange = started(tmp_path, 8, batch_size=8)
    exchange.add([group(8, tag) for tag in range(30)])
    assert len(list(tmp_path.glob("groups-*.log"))) > 5
    assert [tags(exchange.next_batch()) for _ in range(30)] == [[tag] for tag in range(30)]
    assert len(list(tmp_path.glob("groups-*.log"))) == 1


def test_two_servers_of_one_folder(tmp_path: Path) -> None:
    store = Store(tmp_path)
    with pytest.raises(DataError, match="another server uses"):
        Store(tmp_path)
    store.close()
    Store(tmp_path).close()
