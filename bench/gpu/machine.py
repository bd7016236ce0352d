# SPDX-License-Identifier: Apache-2.0
"""The machine that bench/gpu runs on: quern's programs, the GPU by NVML, and runs of quern. Only
the standard library is needed."""
import ctypes, json, os, pathlib, re, signal, subprocess, sys, tempfile, threading, time

ROOT = pathlib.Path(__file__).resolve().parents[2]
SKIPPED = 77  # exit status, as Meson's


class Skip(Exception):
    """What is missing for a measurement, a sentence."""


def skip(why):
    print(f"skip: {why}", flush=True)
    sys.exit(SKIPPED)


# Programs

def programs(quern=None, plugin=None):
    """(quern, plugin, check-plugin, cuda-kernels) and the environment of all: of the build folder,
    or of the folder that bench/gpu/pack made, which has the shared libraries too. The last two may
    be missing. QUERN_BINARY and QUERN_GPU_PLUGIN name others."""
    plugin = plugin or os.environ.get("QUERN_GPU_PLUGIN")
    build = pathlib.Path(os.environ.get("BUILD", ROOT / "build")).absolute()
    pack = pathlib.Path(os.environ.get("QUERN_GPU_PACK", ROOT / ".gpu")).absolute()
    checks = build / "tests/gpu/cuda"
    places = [(pathlib.Path(quern or os.environ.get("QUERN_BINARY") or build / "src/quern"),
               pathlib.Path(plugin or build / "src/inference/gpu/cuda/libquern-cuda.so"),
               checks / "check-plugin", checks / "cuda-kernels"),
              (pack / "bin/quern", pathlib.Path(plugin or pack / "bin/libquern-cuda.so"),
               pack / "bin/check-plugin", pack / "bin/cuda-kernels")]
    for place in places:
        if place[0].exists() and place[1].exists():
            environment = dict(os.environ)
            if place[0].is_relative_to(pack):
                environment["LD_LIBRARY_PATH"] = ":".join(
                    filter(None,
                           [str(pack / "lib"), os.environ.get("LD_LIBRARY_PATH")]))
            return *place, environment
    raise Skip(
        "neither a build with the CUDA plugin (make cuda) nor .gpu/ (bench/gpu/pack) is here")


def with_products(environment, plugin):
    """Puts a link to cuBLASLt next to the plugin where only Python's packages have the library."""
    if any(
            pathlib.Path(folder, f"libcublasLt.so.{major}").exists()
            for major in (13, 12)
            for folder in (plugin.parent, "/usr/local/cuda/lib64", "/opt/cuda/lib64",
                           "/usr/lib/x86_64-linux-gnu")):
        return
    for site in filter(None, [*sys.path, "/opt/torch/.venv/lib/python3.12/site-packages"]):
        for library in sorted(pathlib.Path(site).glob("nvidia/*/lib/libcublasLt.so.1[23]")):
            try:
                (plugin.parent / library.name).symlink_to(library)
            except OSError:
                environment["LD_LIBRARY_PATH"] = ":".join(
                    filter(None, [environment.get("LD_LIBRARY_PATH"),
                                  str(library.parent)]))
            return


# The GPU

class Memory(ctypes.Structure):
    _fields_ = [("version", ctypes.c_uint), ("total", ctypes.c_ulonglong),
                ("reserved", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong),
                ("used", ctypes.c_ulonglong)]


class Rates(ctypes.Structure):
    _fields_ = [("gpu", ctypes.c_uint), ("memory", ctypes.c_uint)]


class Card:
    """The first GPU, through NVML."""

    def __init__(self):
        try:
            self.nvml = ctypes.CDLL("libnvidia-ml.so.1")
        except OSError:
            raise Skip("no NVIDIA driver (libnvidia-ml.so.1)") from None
        if self.nvml.nvmlInit_v2() != 0:
            raise Skip("the NVIDIA driver does not start")
        self.handle = ctypes.c_void_p()
        # NVML knows nothing of CUDA's variable; the GPUs of one host have one order in both.
        first = re.match(r"\d+", os.environ.get("CUDA_VISIBLE_DEVICES", ""))
        if self.nvml.nvmlDeviceGetHandleByIndex_v2(int(first[0]) if first else 0,
                                                   ctypes.byref(self.handle)) != 0:
            raise Skip("no NVIDIA card")
        name = ctypes.create_string_buffer(96)
        self.nvml.nvmlDeviceGetName(self.handle, name, 96)
        self.name = name.value.decode()
        self.total = self.memory()[0]

    def memory(self):
        """(all bytes, bytes in use); memory that the driver keeps from everybody counts as
        neither."""
        memory = Memory(version=ctypes.sizeof(Memory) | 2 << 24)
        self.nvml.nvmlDeviceGetMemoryInfo_v2(self.handle, ctypes.byref(memory))
        return memory.total, memory.used

    def number(self, call, kind=ctypes.c_uint):
        value = kind()
        function = getattr(self.nvml, call, None)
        return value.value if function and function(self.handle, ctypes.byref(value)) == 0 else None

    def now(self):
        rates = Rates()
        self.nvml.nvmlDeviceGetUtilizationRates(self.handle, ctypes.byref(rates))
        return {
            "at": time.monotonic(), "used": self.memory()[1], "utilisation": rates.gpu,
            "mw": self.number("nvmlDeviceGetPowerUsage"), "mj": self.number(
                "nvmlDeviceGetTotalEnergyConsumption",
                ctypes.c_ulonglong), "celsius": self.celsius()}

    def celsius(self):
        value = ctypes.c_uint()
        return value.value if self.nvml.nvmlDeviceGetTemperature(self.handle, 0,
                                                                 ctypes.byref(value)) == 0 else None


class Watch:
    """Samples the GPU while it is open: memory every `pause` seconds, the rest every tenth of a
    second."""

    def __init__(self, card, pause=0.005):
        self.card, self.pause, self.samples, self.peak, self.count = card, pause, [], 0, 0
        self.base = card.memory()[1] if card else 0
        self.stop = threading.Event()
        self.thread = threading.Thread(target=self.run, daemon=True)

    def run(self):
        last = 0
        while not self.stop.wait(self.pause):
            self.peak, self.count = max(self.peak, self.card.memory()[1]), self.count + 1
            if time.monotonic() - last >= 0.1:
                last = time.monotonic()
                self.samples.append(self.card.now())

    def __enter__(self):
        if self.card:
            self.thread.start()
        return self

    def __exit__(self, *_):
        self.stop.set()
        if self.card:
            self.thread.join()

    def taken(self):
        """The most bytes that were in use beyond those before the watch began."""
        return max(0, self.peak - self.base)

    def figures(self, seconds=None, tokens=0):
        """Of the last seconds of the watch: mean power, utilisation, energy per 1,000 tokens."""
        samples = [
            sample for sample in self.samples
            if not seconds or sample["at"] >= self.samples[-1]["at"] - seconds]
        if len(samples) < 2:
            return {}
        mean = lambda key: sum(sample[key] or 0 for sample in samples) / len(samples)
        figures = {
            "watt": round(mean("mw") / 1000), "utilisation": round(mean("utilisation") / 100, 3),
            "celsius": max(sample["celsius"] or 0 for sample in samples)}
        if tokens and samples[0]["mj"] is not None:
            figures["joule_per_1000_tokens"] = round(
                (samples[-1]["mj"] - samples[0]["mj"]) / tokens, 2)
        return figures


def find_card(is_needed=True):
    try:
        return Card()
    except Skip:
        if is_needed:
            raise
        return None


def wait_for_memory(card, bytes_in_use=1 << 30, seconds=60):
    """Waits until processes that ended have given the GPU's memory back."""
    for _ in range(int(seconds / 0.1)):
        if not card or card.memory()[1] < bytes_in_use:
            return
        time.sleep(0.1)


# Processes

# A script that is told to end leaves no quern on the GPU.
signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))


def end(process):
    """Ends a process and all that it started."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        if process.poll() is not None:
            return
        os.killpg(process.pid, number)
        try:
            process.wait(15)
        except subprocess.TimeoutExpired:
            continue


def call(command, seconds, environment=None, **keywords):
    """(exit status or None after the time limit, stdout, stderr) of a program, which is ended at
    its limit."""
    process = subprocess.Popen([str(word) for word in command],
                               stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE,
                               text=True,
                               errors="replace",
                               stdin=subprocess.DEVNULL,
                               start_new_session=True,
                               env=environment,
                               **keywords)
    try:
        out, err = process.communicate(timeout=seconds)
        return process.returncode, out, err
    except subprocess.TimeoutExpired:
        end(process)
        out, err = process.communicate()
        return None, out, err
    finally:
        end(process)


# Options of a format for quern and for vLLM
QUERN_FORMATS = {
    "bf16": ["--quantization", "none", "--kv-cache-dtype", "bfloat16"], "file": [
        "--quantization", "file", "--kv-cache-dtype", "fp8"], "fp8-kv": [
        "--quantization", "none", "--kv-cache-dtype", "fp8"], "fp8": [
            "--quantization", "fp8", "--kv-cache-dtype", "fp8"], "int8": [
                "--quantization", "int8", "--kv-cache-dtype", "fp8"]}
VLLM_FORMATS = {
    "bf16": {}, "fp8-kv": {"kv_cache_dtype": "fp8"}, "fp8": {
        "quantization": "fp8", "kv_cache_dtype": "fp8", "max_num_seqs": 512}}


class Quern:
    def __init__(self, quern=None, plugin=None, device="cuda"):
        self.quern, self.plugin, self.check_device, self.cuda_kernels, self.environment = programs(
            quern, plugin)
        # the device of the tests has one form of numbers
        self.is_plain = "plain" in self.plugin.name
        self.device = ["--device", device, "--device-plugin", self.plugin, "--max-model-len", 8192]
        self.environment["XDG_CACHE_HOME"] = str(
            pathlib.Path(tempfile.gettempdir()) / "quern-bench-cache")
        with_products(self.environment, self.plugin)

    def run(self, requests, expected, folder, model, arguments, seconds, card):
        """One `quern run` from a cold start. req_s counts from the first request to the last
        durable result."""
        out = folder / "out.jsonl"
        wait_for_memory(card)
        with Watch(card) as watch:
            status, said, log = call([
                self.quern, "run", "-i", requests, "-o", out, "--model", model, "--overwrite",
                "--json", "--result-cache-bytes", 0, *self.device, *arguments], seconds,
                                     self.environment)
        if status not in (0, 1) or not said.strip():
            why = "its time limit" if status is None else f"status {status}"
            raise RuntimeError(f"quern run ended by {why}: {log[-1500:]}")
        figures = json.loads(said.strip().splitlines()[-1])
        ends = ends_of(out)
        n, took, tokens = len(expected), figures["seconds"], figures["completion_tokens"]
        wanted = sum(answer for _, answer in expected)
        running = [int(number) for number in re.findall(r", (\d+) running", log)]
        result = {
            "engine": "quern", "n": n, "failed": figures["failed"], "seconds": took,
            "load_seconds": figures["load_seconds"], "req_s": round(n / took, 3) if took else None,
            "prompt_tokens": figures["prompt_tokens"], "cached_tokens": figures["cached_tokens"],
            "completion_tokens": tokens, "output_tok_s": round(tokens / took) if took else None,
            "is_whole": figures["failed"] == 0 and tokens == wanted and len(ends) == n
            and set(ends.values()) == {200}, "running_max": max(
                running, default=None), "step_rows": rows_of(log), "card_bytes": watch.taken(), **watch.figures(
                    took, tokens)}
        if not result["is_whole"]:
            result[
                "trouble"] = f"{tokens} of {wanted} tokens, {len(ends)} of {n} results; {first_trouble(out)} {log[-600:]}".strip(
                )
        out.unlink()
        return result


def rows_of(log):
    """The rows of a step that trials chose, or None."""
    told = re.search(r"event=device_rows rows=(\d+)", log)
    return int(told[1]) if told else None


def ends_of(path):
    """{custom_id: HTTP status, 0 for an error record} of a result file."""
    ends = {}
    with open(path) as lines:
        for line in lines:
            result = json.loads(line)
            ends[result["custom_id"]] = (result["response"] or {}).get("status_code", 0)
    return ends


def first_trouble(path):
    with open(path) as lines:
        return next((line[:400].strip() for line in lines if '"status_code":200' not in line), "")


def commit():
    stamp = ROOT / ".gpu/commit"
    done = subprocess.run(["git", "-C", str(ROOT), "rev-parse", "--short", "HEAD"],
                          capture_output=True,
                          text=True)
    return done.stdout.strip() or (stamp.read_text().strip() if stamp.exists() else "unknown")
