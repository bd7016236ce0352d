# SPDX-License-Identifier: Apache-2.0
"""bench/gpu/vllm_drive.py and versus over a made-up vLLM: its weights, its options, its result
lines, and which of them count. The real one runs where minutes are few."""
import json, os, pathlib, subprocess, sys

import pytest

import support

BENCH = pathlib.Path(__file__).resolve().parents[2] / "bench/gpu"
LOADER = "vllm/model_executor/model_loader"
FILES = {
    "torch.py": """
def no_grad():
    return lambda function: function
def is_floating_point(param):
    return True
""", "vllm/model_executor/__init__.py": "", f"{LOADER}/__init__.py": "",
    f"{LOADER}/weight_utils.py": """
def initialize_single_dummy_weight(param, low=-1e-3, high=1e-3, seed=1234):
    param.filled = [low, high]
def initialize_dummy_weights(params, config, low=-1e-3, high=1e-3, seed=1234):
    for param in params:
        initialize_single_dummy_weight(param, low, high, seed)
""", f"{LOADER}/dummy_loader.py": """
from vllm.model_executor.model_loader.weight_utils import initialize_dummy_weights
from vllm.model_executor.model_loader.weight_utils import initialize_single_dummy_weight
def load(early, late):
    initialize_dummy_weights(early, None)
    for param in late: # weights that are made smaller when they are loaded
        initialize_single_dummy_weight(param)
""", "vllm/__init__.py": """
import json, os
from types import SimpleNamespace
from vllm.model_executor.model_loader import dummy_loader
__version__ = "made-up"
class Param:
    device = SimpleNamespace(type="cuda")
    filled = None
    def __init__(self, *shape):
        self.shape = shape
    def dim(self):
        return len(self.shape)
    def fill_(self, value):
        self.filled = value
class SamplingParams:
    def __init__(self, **options):
        self.__dict__.update(options)
class LLM:
    def __init__(self, **options):
        norm, scale, matrix, late = Param(64), Param(), Param(128, 48), Param(48, 192)
        dummy_loader.load([norm, scale, matrix], [late])
        said = {"options": options, "norm": norm.filled, "scale": scale.filled, "matrix": matrix.filled, "late": late.filled}
        open(os.environ["MADE_UP_VLLM_SAYS"], "w").write(json.dumps(said))
    def reset_prefix_cache(self):
        pass
    def generate(self, prompts, sampling, use_tqdm):
        sampling = sampling if isinstance(sampling, list) else [sampling] * len(prompts)
        output = lambda one: SimpleNamespace(token_ids=[1] * one.max_tokens,
                                             cumulative_logprob=-7.5)
        return [SimpleNamespace(outputs=[output(one)]) for one in sampling]
""", }


def make_up_vllm(tmp_path):
    """The environment in which Python has it."""
    for name, text in FILES.items():
        path = tmp_path / "site" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return {
        **os.environ, "PYTHONPATH": str(tmp_path / "site"),
        "MADE_UP_VLLM_SAYS": str(tmp_path / "said"), "PYTHONDONTWRITEBYTECODE": "1"}


def drive(tmp_path, model_type, options):
    """What the made-up vLLM was told, and the result line."""
    environment = make_up_vllm(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps({"model_type": model_type}))
    bodies = [{"prompt": [5, 6, 7], "max_tokens": tokens, "temperature": 0} for tokens in (4, 9)]
    (tmp_path / "in.jsonl").write_text("".join(
        json.dumps({"body": body}) + "\n" for body in bodies))
    done = subprocess.run([
        sys.executable, BENCH / "vllm_drive.py", tmp_path,
        json.dumps(options), tmp_path / "in.jsonl"],
                          capture_output=True,
                          text=True,
                          env=environment)
    assert done.returncode == 0, done.stderr
    line, = [
        json.loads(line[7:]) for line in done.stdout.splitlines() if line.startswith("RESULT ")]
    return json.loads((tmp_path / "said").read_text()), line


@pytest.mark.parametrize("model_type, norm", [("llama", 1.0), ("qwen3", 1.0), ("gemma3_text", 0.0)])
def test_its_weights_have_quern_s_distribution(tmp_path, model_type, norm):
    """Of norms, of a number alone, which stays unset, and of matrices: the root of 3 / 48 and of 3
    / 192, the numbers of their rows."""
    said, line = drive(tmp_path, model_type, {"kv_cache_dtype": "fp8"})
    assert said["norm"] == norm and said["scale"] is None
    assert said["matrix"] == pytest.approx([-0.25, 0.25]) and said["late"] == pytest.approx([
        -0.125, 0.125])
    assert not line["own_weights"] and line["first_logprob"] == -7.5


def test_its_own_weights_are_left_to_it(tmp_path):
    said, line = drive(tmp_path, "llama", {"own_weights": True})
    assert [said[name] for name in ("norm", "scale", "matrix", "late")
            ] == [[-1e-3, 1e-3]] * 4 and line["own_weights"]


def test_its_options_are_those_of_the_format_and_results_are_counted(tmp_path):
    said, line = drive(tmp_path, "llama", {"kv_cache_dtype": "fp8", "gpu_memory_utilization": 0.5})
    assert said["options"]["kv_cache_dtype"] == "fp8" and said["options"][
        "gpu_memory_utilization"] == 0.5 and "own_weights" not in said["options"]
    assert (line["n"], line["prompt_tokens"], line["completion_tokens"],
            line["is_whole"]) == (2, 6, 13, True)


def versus(tmp_path, formats, *more):
    """The lines of quern, of vLLM and of ratios, each by format."""
    environment = {
        **make_up_vllm(tmp_path), "QUERN_BINARY": str(support.BINARY),
        "QUERN_GPU_PLUGIN": str(support.plain_device())}
    done = subprocess.run([
        BENCH / "versus", "tiny", formats, "--kinds", "fix10/2", "--temperatures", "0", "--n", "3",
        *more, "--plugin",
        support.plain_device()],
                          capture_output=True,
                          text=True,
                          env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    return [{line["format"]: line
             for line in lines
             if line["engine"] == engine}
            for engine in ("quern", "vllm", "ratio")]


def test_versus_takes_the_best_of_the_formats_that_count(tmp_path):
    """Weights of 8 bits are compared with all, those of bf16 with both caches."""
    quern, vllm, ratios = versus(tmp_path, "bf16,fp8-kv,int8", "--peer", "vllm")
    assert list(quern) == ["bf16", "fp8-kv", "int8"] and list(vllm) == ["bf16", "fp8-kv", "fp8"]
    for form, rivals in (("bf16", ["bf16", "fp8-kv"]), ("fp8-kv", ["bf16", "fp8-kv"]), ("int8", [
            "bf16", "fp8-kv", "fp8"])):
        best = max(rivals, key=lambda rival: vllm[rival]["req_s"])
        line = ratios[form]
        assert (line["peers_measured"], line["peer_format"],
                line["peer_req_s"]) == (rivals, best, vllm[best]["req_s"]), line
        assert line["ratio"] == round(quern[form]["req_s"] / vllm[best]["req_s"],
                                      3) and line["source"] == "here"


def test_versus_says_which_formats_were_measured(tmp_path):
    _, vllm, ratios = versus(tmp_path, "int8", "--peer", "vllm")
    assert list(vllm) == ["fp8"] and ratios["int8"]["peers_measured"] == ["fp8"]


def test_versus_refuses_a_format_that_it_does_not_know():
    done = subprocess.run([BENCH / "versus", "tiny", "bf16,fp7"], capture_output=True, text=True)
    assert done.returncode == 2 and "invalid choice: 'fp7'" in done.stderr
