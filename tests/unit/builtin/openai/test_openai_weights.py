"""New weights reach every server, or the reason is told."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from atropos_authoring.mock_server import MockServer

from atropos_cli.errors import FatalBackendError

from .openai_support import ask, opened


@pytest.fixture
def weights(tmp_path: Path) -> str:
    """A folder that looks like a model's."""
    (tmp_path / "config.json").write_text("{}")
    return str(tmp_path)


@pytest.mark.parametrize("flavor", ["vllm", "sglang"])
async def test_whole_weights_reach_every_server(flavor: Any, weights: str) -> None:
    with MockServer(flavor=flavor) as one, MockServer(flavor=flavor) as two:
        one.model.weight_updates = two.model.weight_updates = True
        async with opened(one, two) as backend:
            assert backend.capabilities.weight_sync
            await backend.update_weights(weights, version=3)
            await backend.generate(ask())
            assert backend.model == "mock-model"
            assert backend.describe()["counts"]["weights_version"] == 3
        assert one.model.weights == two.model.weights == [weights]
    if flavor == "vllm":
        paths = [request.path for request in one.requests if "weight" in request.path or request.method == "POST"]
        assert paths[:4] == ["/pause", "/collective_rpc", "/reset_prefix_cache", "/resume"]


@pytest.mark.parametrize("flavor", ["vllm", "sglang"])
async def test_an_adapter_is_loaded_again_and_asked_for_by_its_name(flavor: Any, tmp_path: Path) -> None:
    (tmp_path / "adapter_config.json").write_text("{}")
    with MockServer(flavor=flavor) as server:
        server.model.weight_updates = True
        async with opened(server) as backend:
            for version in (1, 2):
                await backend.update_weights(str(tmp_path), version=version)
            await backend.generate(ask())
        assert len(server.model.weights) == 2
        assert server.generations[-1].json["model"] == "mock-model-policy"


async def test_a_server_without_the_paths_says_how_to_start_it(weights: str) -> None:
    with MockServer(flavor="vllm") as server:
        async with opened(server) as backend:
            with pytest.raises(FatalBackendError, match="/pause") as caught:
                await backend.update_weights(weights, version=1)
    assert "VLLM_SERVER_DEV_MODE=1" in (caught.value.hint or "")


async def test_an_answer_that_means_no_is_an_error(weights: str) -> None:
    with MockServer(flavor="sglang") as server:
        async with opened(server) as backend:
            server.script(
                [
                    {
                        "status": 200,
                        "json": {"success": False, "message": "no such folder"},
                        "path": "/update_weights_from_disk",
                    }
                ]
            )
            with pytest.raises(FatalBackendError, match="no such folder"):
                await backend.update_weights(weights, version=1)


async def test_vllm_goes_on_when_the_weights_are_refused(weights: str) -> None:
    with MockServer(flavor="vllm") as server:
        server.model.weight_updates = True
        refusal = {"error": {"message": "bad weights"}}
        server.script([{"status": 500, "json": refusal, "path": "/collective_rpc"}])
        async with opened(server) as backend:
            with pytest.raises(FatalBackendError, match="bad weights"):
                await backend.update_weights(weights, version=1)
        assert [request.path for request in server.requests][-1] == "/resume"


async def test_other_servers_are_told_apart(weights: str) -> None:
    with MockServer() as server:
        async with opened(server) as backend:
            assert not backend.capabilities.weight_sync
            with pytest.raises(FatalBackendError, match="no known way"):
                await backend.update_weights(weights, version=1)


async def test_a_folder_without_a_model_is_not_offered_to_a_server(tmp_path: Path) -> None:
    with MockServer(flavor="vllm") as server:
        server.model.weight_updates = True
        async with opened(server) as backend:
            with pytest.raises(FatalBackendError, match="holds no model"):
                await backend.update_weights(str(tmp_path / "nowhere"), version=1)
        assert not [request for request in server.requests if request.path == "/pause"]


async def test_sglang_is_found_by_the_name_it_was_started_with(weights: str) -> None:
    """After new weights it lists their folder instead; its settings keep the name."""
    script = [
        {"path": "/server_info", "json": {"served_model_name": "org/first"}, "times": -1},
        {"path": "/model_info", "json": {"model_path": weights, "weight_version": "3"}, "times": -1},
    ]
    with MockServer(script, flavor="sglang", models=(weights,)) as server:
        async with opened(server, model="org/first") as backend:
            assert backend.model == "org/first"
            assert (await backend.identity() or {})["weights"] == [{"path": weights, "version": "3"}]
        with pytest.raises(FatalBackendError, match="has no model 'org/other'"):
            async with opened(server, model="org/other"):
                pass


async def test_another_server_is_found_by_what_it_lists_only(weights: str) -> None:
    settings = {"path": "/server_info", "json": {"served_model_name": "org/first"}, "times": -1}
    with (
        MockServer([settings], flavor="vllm", models=(weights,)) as server,
        pytest.raises(FatalBackendError, match="has no model 'org/first'"),
    ):
        async with opened(server, model="org/first"):
            pass


@pytest.mark.parametrize("variable", ["VLLM_API_KEY", "SGLANG_API_KEY"])
async def test_a_refusal_names_the_variable_that_is_set(variable: str, monkeypatch: pytest.MonkeyPatch) -> None:
    refused = {"path": "/models", "status": 401, "json": {"error": "Unauthorized"}, "times": -1}
    for name in ("VLLM_API_KEY", "SGLANG_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    with MockServer([refused]) as server:
        for said in ("--api-key-env NAME", f"--api-key-env {variable}"):
            with pytest.raises(FatalBackendError) as caught:
                async with opened(server):
                    pass
            assert said in (caught.value.hint or "")
            monkeypatch.setenv(variable, "key-of-a-server")
