# SPDX-License-Identifier: Apache-2.0
import pathlib, resource, sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parent / "support"))
import shared_data, support

NEEDS_MODEL = {"real", "model", "embedding_server", "embedder", "model_server", "minilm_server"}


def pytest_configure(config):
    for marker in ("model: the test needs a real model; set by its fixtures",
                   "slow: takes more than two seconds",
                   "alone: measures time or memory and runs without company"):
        config.addinivalue_line("markers", marker)


def pytest_collection_modifyitems(items):
    for item in items:
        if NEEDS_MODEL & set(item.fixturenames):
            item.add_marker("model")
        path = None if support.SHARED.exists() else shared_data.missing_for(item)
        if path:
            item.add_marker(pytest.mark.skip(f"{path} is not here"))


@pytest.fixture(scope="module")
def many_files():
    """Room for thousands of connections, for the test and for the servers that it starts."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 8192) if hard > 0 else 8192, hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.fixture(scope="session")
def echo_server(tmp_path_factory):
    """One server with the echo worker for all tests that need no model. It answers to a few
    names."""
    with support.serving(
            tmp_path_factory.mktemp("echo") / "state", "--model", "smollm2=echo", "--model",
            "gpt-4=echo", "--model", "org/name=echo") as server:
        yield server


@pytest.fixture(scope="session")
def model_server(tmp_path_factory):
    """One server with the real default model."""
    with support.serving(tmp_path_factory.mktemp("model") / "state", "--model",
                         "smollm2") as server:
        yield server


@pytest.fixture(scope="session")
def minilm_server(tmp_path_factory):
    """One server with the real embeddings model."""
    with support.serving(tmp_path_factory.mktemp("minilm") / "state", "--model",
                         support.MINILM) as server:
        yield server


@pytest.fixture(scope="session", autouse=False)
def base_url(echo_server):
    return echo_server.url
