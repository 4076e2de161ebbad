"""The memory store: what is found, in which order, what is kept in a file, and that no network is needed."""

from __future__ import annotations

import json
import logging
import multiprocessing
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from atropos_textworld.agent import embedding
from atropos_textworld.agent.embedding import CachedEmbedder, HashEmbedder, load_embedder
from atropos_textworld.agent.memory import MemoryOptions, open_store, share_used
from atropos_textworld.agent.memory_file import Note, add_notes, read_notes

from atropos_cli.sdk import ConfigError, DataError

NOTES = (
    ("The brass key is in the cellar.", "The cellar door is locked. You need a key."),
    ("The kitchen has a stove and a fridge.", "You are in the kitchen. A stove hums."),
    ("Attic: the copper door to the north is locked.", "-= Attic =- You see a locked copper door leading north."),
    ("I must deliver the red box to the wizard in the tower.", "You enter the tower. A wizard looks at you."),
)


@pytest.mark.parametrize("name", ["wordllama", "hash"])
def test_each_memory_is_found_by_the_scene_it_is_about(name: Any) -> None:
    store = open_store(MemoryOptions(embeddings=name, threshold=0.2))
    for turn, (note, _) in enumerate(NOTES):
        store.add(note, episode="e1", turn=turn)
    for turn, (note, scene) in enumerate(NOTES):
        hits = store.search(scene)
        assert len(hits) <= 3
        assert note in [hit.text for hit in hits[:2]]
        assert [hit.similarity for hit in hits] == sorted((hit.similarity for hit in hits), reverse=True)
        assert {(hit.episode, hit.turn) for hit in hits if hit.text == note} == {("e1", turn)}


@pytest.mark.parametrize("name", ["wordllama", "hash"])
def test_similarity_is_the_cosine(name: Any) -> None:
    store = open_store(MemoryOptions(embeddings=name, threshold=-1.0))
    first, second = "a brass key", "the brass door"
    store.add(first, episode="e", turn=0)
    embedder = load_embedder(name)
    a, b = embedder.embed(first), embedder.embed(second)
    expected = float(a @ b / (np.linalg.norm(a) * np.linalg.norm(b)))
    assert store.search(second)[0].similarity == pytest.approx(expected, abs=1e-5)
    assert store.search(first)[0].similarity == pytest.approx(1.0, abs=1e-5)


def test_the_vectors_are_the_models_own() -> None:
    package = embedding._import_wordllama()
    model = package.WordLlama.load(cache_dir=Path(package.__file__).parent, disable_download=True)
    text = "The brass key opens the cellar door; é, 鑰 and 🗝 too."
    assert np.allclose(model.embed(text, norm=True)[0], load_embedder("wordllama").embed(text), atol=1e-5)


def test_nothing_below_the_threshold_and_at_most_k() -> None:
    store = open_store(MemoryOptions(embeddings="hash", threshold=0.5, top_k=2))
    for turn in range(5):
        store.add(f"the copper key number {turn}", episode="e", turn=turn)
    assert len(store.search("the copper key number")) == 2
    assert len(store.search("the copper key number", k=4)) == 4
    assert store.search("the copper key number", k=0) == []
    assert store.search("nothing alike at all") == []
    assert store.search("") == []


def test_of_equal_memories_the_newer_is_first_and_decay_prefers_it() -> None:
    options = {"embeddings": "hash", "threshold": 0.1, "top_k": 1}
    for half_life, expected in ((0.0, "old"), (1.0, "new")):
        store = open_store(MemoryOptions(**options, half_life=half_life))
        store.add("copper key in the attic, old", episode="e", turn=0)
        for turn in range(4):
            store.add(f"unrelated words {turn} go here", episode="e", turn=turn)
        store.add("key, attic: new", episode="e", turn=9)
        assert expected in store.search("copper key in the attic")[0].text


def test_importance_counts_only_where_it_is_asked_for() -> None:
    for used, expected in ((False, "copper key in the attic"), (True, "copper key")):
        store = open_store(MemoryOptions(embeddings="hash", threshold=0.1, use_importance=used))
        store.add("copper key in the attic", episode="e", turn=0, importance=0.01)
        store.add("copper key", episode="e", turn=1, importance=1.0)
        assert store.search("copper key in the attic")[0].text == expected


@pytest.mark.parametrize("importance", [-1.0, float("nan"), float("inf")])
def test_an_importance_is_a_number_from_0_on(importance: float) -> None:
    with pytest.raises(ValueError, match="importance"):
        open_store(MemoryOptions(embeddings="hash")).add("a key", episode="e", turn=0, importance=importance)


def test_the_same_text_is_stored_once_and_becomes_new_again() -> None:
    store = open_store(MemoryOptions(embeddings="hash", threshold=0.0))
    for turn in range(3):
        store.add("the key is in the cellar", episode="e", turn=turn)
    assert len(store) == 1
    (hit,) = store.search("the key is in the cellar")
    assert hit.turn == 2
    assert store.stats()["memory_repeated"] == 2


def test_statistics() -> None:
    store = open_store(MemoryOptions(embeddings="hash", threshold=0.9))
    assert store.stats() == {"memory_notes": 0.0, "memory_repeated": 0.0, "memory_searches": 0.0}
    store.add("one brass key", episode="e", turn=0)
    store.add("a tall wizard", episode="e", turn=1)
    store.search("one brass key")
    store.search("something else")
    stats = store.stats()
    assert stats["memory_hits"] == 0.5
    assert stats["memory_hit_rate"] == 0.5
    assert stats["memory_similarity"] == pytest.approx(1.0, abs=1e-5)
    assert stats["memory_notes"] == 2.0


@pytest.mark.parametrize("text", ["", " ", "\x00\ud800 lone", "🗝" * 3, "key " * 5000])
@pytest.mark.parametrize("name", ["wordllama", "hash"])
def test_any_text_can_be_stored_and_searched(name: Any, text: str) -> None:
    store = open_store(MemoryOptions(embeddings=name, threshold=0.01))
    store.add(text, episode="e", turn=0)
    store.add("a brass key", episode="e", turn=1)
    for hit in store.search(text):
        assert -1.0 <= hit.similarity <= 1.0


def test_memories_outlive_their_episode_in_a_file(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "memory.jsonl"
    options = MemoryOptions(embeddings="hash", threshold=0.1, file=path)
    first = open_store(options)
    first.add("the brass key is in the cellar", episode="e1", turn=4, importance=0.5)
    assert not path.exists()
    first.close()
    first.close()
    second = open_store(options)
    (hit,) = second.search("brass key")
    assert (hit.episode, hit.turn) == ("e1", 4)
    assert second.stats()["memory_notes"] == 0
    second.add("the wizard wants a box", episode="e2", turn=1)
    second.close()
    assert [(note.episode, note.importance) for note in read_notes(path)] == [("e1", 0.5), ("e2", None)]
    assert sorted(file.name for file in path.parent.iterdir()) == ["memory.jsonl", "memory.jsonl.lock"]


def test_the_file_holds_the_newest(tmp_path: Path) -> None:
    path = tmp_path / "memory.jsonl"
    for number in range(12):
        add_notes(path, [Note(f"memory {number}", "e", number), Note("always", "e", number)], most=5)
    notes = read_notes(path)
    assert [note.text for note in notes] == ["memory 8", "memory 9", "memory 10", "memory 11", "always"]
    assert notes[-1].turn == 11


def _write(path: Path, writer: int) -> None:
    for number in range(20):
        add_notes(path, [Note(f"memory {writer}-{number}", "e", number)], most=1000)


def test_many_processes_write_one_file(tmp_path: Path) -> None:
    path = tmp_path / "memory.jsonl"
    context = multiprocessing.get_context("fork")
    processes = [context.Process(target=_write, args=(path, writer)) for writer in range(4)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert len(read_notes(path)) == 80


@pytest.mark.parametrize(
    "line", ["{", "[]", "null", json.dumps({"text": 1, "episode": "e", "turn": 0, "importance": None}), "[" * 10000]
)
def test_another_file_is_refused_with_its_line(tmp_path: Path, line: str) -> None:
    path = tmp_path / "memory.jsonl"
    add_notes(path, [Note("fine", "e", 0)], most=10)
    with path.open("a") as file:
        file.write(line + "\n")
    with pytest.raises(DataError, match=r"memory\.jsonl:2: not a memory"):
        open_store(MemoryOptions(embeddings="hash", file=path))


def test_a_folder_is_no_memory_file(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="cannot be read"):
        open_store(MemoryOptions(embeddings="hash", file=tmp_path))


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "wordllama", None)
    monkeypatch.setattr(embedding, "_LOADED", {})
    with pytest.raises(ConfigError) as raised:
        open_store(MemoryOptions())
    assert raised.value.hint == "pip install 'atropos-textworld[memory]', or --memory-embeddings hash"
    monkeypatch.setitem(sys.modules, "faiss", None)
    with pytest.raises(ConfigError, match="faiss"):
        open_store(MemoryOptions(embeddings="hash"))


def test_one_model_for_all_stores_and_a_bounded_cache() -> None:
    assert load_embedder("wordllama") is load_embedder("wordllama")
    cached = CachedEmbedder(HashEmbedder(), size=3)
    vectors = [cached.embed(f"text {number}") for number in range(10)]
    assert len(cached._known) == 3
    assert cached.embed("text 9") is vectors[9]
    assert cached.embed("text 0") is not vectors[0]


def test_the_model_loads_with_no_network_and_leaves_logging_alone() -> None:
    code = """
        import logging, socket
        def refuse(*args, **kwargs):
            raise OSError("a connection was made")
        socket.socket.connect = socket.getaddrinfo = refuse
        from atropos_textworld.agent.memory import MemoryOptions, open_store
        store = open_store(MemoryOptions())
        store.add("the brass key", episode="e", turn=0)
        print(len(store.search("a key of brass")), logging.getLogger().handlers, logging.getLogger().level)
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, check=True, timeout=120
    )
    assert done.stdout == f"1 [] {logging.WARNING}\n"
    assert done.stderr == ""


def test_hashing_is_the_same_in_any_process() -> None:
    code = "from atropos_textworld.agent.embedding import *; print(HashEmbedder().embed('the brass key').nonzero())"
    outputs = {
        subprocess.run(
            [sys.executable, "-c", code],
            capture_output=True,
            text=True,
            check=True,
            timeout=120,
            env={"PYTHONHASHSEED": seed},
        ).stdout
        for seed in ("1", "2")
    }
    assert len(outputs) == 1


def test_use_is_taking_up_a_word_that_the_observation_lacks() -> None:
    store = open_store(MemoryOptions(embeddings="hash", threshold=-1.0))
    store.add("the brass key is in the cellar", episode="e", turn=0)
    store.add("the wizard wants a box", episode="e", turn=1)
    hits = store.search("locked door")
    assert share_used(hits, "I go to the cellar for it", "A locked door.") == 0.5
    assert share_used(hits, "I go to the cellar for it", "A locked door. Cellar: down.") == 0.0
    assert share_used(hits, "Then I do what there is to do with it", "") == 0.0
    assert share_used([], "anything", "") == 0.0
