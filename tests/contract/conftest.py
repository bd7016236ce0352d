# SPDX-License-Identifier: Apache-2.0
"""Servers for the cases of the wire contract, each started once: with the echo worker where no
model matters."""
import openai
import pytest

import support


def pytest_configure(config):
    config.addinivalue_line(
        "markers",
        "not_there_yet(reason): the case does not apply yet; the test asserts the clear refusal")


@pytest.fixture(scope="session")
def echo(tmp_path_factory):
    """Without keys, with quern's own rules."""
    yield from support.server_of_session(tmp_path_factory, "echo", "--model", "smollm2=echo",
                                         "--model", "gpt-4=echo", "--model", "org/name x=echo")


@pytest.fixture(scope="session")
def strict(tmp_path_factory):
    yield from support.server_of_session(tmp_path_factory, "strict", "--profile", "openai",
                                         "--model", "smollm2=echo", "--model", "gpt-4=echo")


@pytest.fixture(scope="session")
def small(tmp_path_factory):
    """One model, small files, long windows."""
    yield from support.server_of_session(tmp_path_factory, "small", "--model", "smollm2=echo",
                                         "--max-file-bytes", "100000", "--extended-windows")


@pytest.fixture(scope="session")
def keyed(tmp_path_factory):
    keys = tmp_path_factory.mktemp("keys") / "keys"
    keys.write_text("sk-right\nsk-other\n")
    keys.chmod(0o600)
    yield from support.server_of_session(tmp_path_factory, "keyed", "--model", "smollm2=echo",
                                         "--api-key-file", str(keys))


@pytest.fixture(scope="session")
def real(tmp_path_factory):
    """The default model."""
    yield from support.server_of_session(tmp_path_factory, "real", "--model", "smollm2")


@pytest.fixture(scope="session")
def embedding_server(tmp_path_factory):
    """The embeddings model."""
    yield from support.server_of_session(tmp_path_factory, "embedding", "--model", support.MINILM)


@pytest.fixture(scope="session")
def embedder(embedding_server):
    return openai.OpenAI(base_url=embedding_server.url, api_key="none", max_retries=0, timeout=300)


@pytest.fixture(scope="session")
def client(echo):
    return openai.OpenAI(base_url=echo.url, api_key="none", max_retries=0, timeout=120)


@pytest.fixture(scope="session")
def model(real):
    """The client of the default model."""
    return openai.OpenAI(base_url=real.url, api_key="none", max_retries=0, timeout=300)
