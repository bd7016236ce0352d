# SPDX-License-Identifier: Apache-2.0
import os, pathlib, subprocess, sys, time, urllib.request

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import support

PEERS = pathlib.Path(os.environ.get("QUERN_PEERS", pathlib.Path.home() / ".cache/quern-peers"))
MODEL = pathlib.Path(os.environ.get(
    "XDG_CACHE_HOME",
    pathlib.Path.home() / ".cache")) / "quern/models/SmolLM2-135M-Instruct.Q4_1.gguf"
VECTORS = support.SHARED / "vectors/smollm2.json"

MAKE_VLLM_MODEL = """
import json, sys
from transformers import AutoTokenizer
folder, gguf, vectors = sys.argv[1:]
place, name = gguf.rsplit("/", 1)
AutoTokenizer.from_pretrained(place, gguf_file=name).save_pretrained(folder)
config = json.load(open(vectors))["config"]
config.update(architectures=["LlamaForCausalLM"], model_type="llama", torch_dtype="bfloat16", bos_token_id=1, eos_token_id=2)
json.dump(config, open(folder + "/config.json", "w"))
"""


def needed(*paths):
    for path in paths:
        if not path.exists():
            pytest.skip(f"{path} is not there")


def wait_for(url, process, log, seconds):
    deadline = time.monotonic() + seconds
    while True:
        try:
            urllib.request.urlopen(url, timeout=2)
            return
        except OSError:
            assert process.poll() is None and time.monotonic() < deadline, log.read_text()[-3000:]
            time.sleep(0.3)


class Peer:
    """A server of somebody else's, which can be killed and started again."""

    def __init__(self, folder, name, port, command, environment, seconds):
        self.log, self.seconds = folder / f"{name}.log", seconds
        self.command, self.environment = command, environment
        self.url = f"http://127.0.0.1:{port}"
        self.start()

    def start(self):
        with open(self.log, "a") as log:
            self.process = subprocess.Popen([str(part) for part in self.command],
                                            stdout=log,
                                            stderr=log,
                                            env={**os.environ, **self.environment})
        wait_for(self.url + "/health", self.process, self.log, self.seconds)

    def kill(self):
        self.process.kill()
        self.process.wait()

    def stop(self):
        self.process.terminate()
        try:
            self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.kill()


@pytest.fixture(scope="session")
def llama(tmp_path_factory):
    needed(PEERS / "llama-server", MODEL)
    peer = Peer(tmp_path_factory.mktemp("llama"), "llama-server", 18084, [
        PEERS / "llama-server", "-m", MODEL, "--port", "18084", "--alias", "smol", "-np", "8", "-c",
        "8192", "-t", "2", "--no-webui"], {}, 300)
    yield peer
    peer.stop()


@pytest.fixture(scope="session")
def vllm(tmp_path_factory):
    """It reads no Q4_1, so it runs the model's shapes with random weights."""
    needed(PEERS / "vllm/bin/python", MODEL, VECTORS)
    folder = tmp_path_factory.mktemp("vllm")
    model, python = folder / "model", PEERS / "vllm/bin/python"
    model.mkdir()
    subprocess.run([python, "-c", MAKE_VLLM_MODEL, model, MODEL, VECTORS],
                   check=True,
                   stdout=subprocess.DEVNULL)
    peer = Peer(
        folder, "vllm", 18085, [
            python, "-m", "vllm.entrypoints.openai.api_server", "--model", model, "--port", "18085",
            "--load-format", "dummy", "--dtype", "bfloat16", "--max-num-seqs", "16",
            "--max-model-len", "1024", "--served-model-name", "smol"], {
                "VLLM_CPU_KVCACHE_SPACE": "1",
                "VLLM_CPU_OMP_THREADS_BIND": f"0-{os.cpu_count() - 1}", "HF_HUB_OFFLINE": "1"}, 900)
    yield peer
    peer.stop()
