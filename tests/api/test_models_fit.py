# SPDX-License-Identifier: Apache-2.0
"""`quern models fit`: which of the models that quern knows by name fit, before they are fetched."""
import json

import pytest

import support

# As their publishers say: parameters, and bytes of llama.cpp's Q4_K_M.
PARAMETERS = {
    "qwen3:0.6b": 596049920, "qwen3:4b": 4022468096, "qwen3:8b": 8190735360,
    "qwen3:30b": 30532122624, "llama3.2:1b": 1235814400, "llama3.1:8b": 8030261248,
    "llama3.1:70b": 70553706496, "qwen2.5:7b": 7615616512, "smollm2:135m": 134515008,
    "gemma3:1b": 999885952, "mistral:7b": 7248023552, "phi4:14b": 14659507200}
ROUGHLY = {
    "gpt-oss:20b": 20.9e9, "gpt-oss:120b": 117e9, "deepseek-v3:671b": 671e9, "gemma4:31b": 30.7e9,
    "gemma4:26b": 25.2e9, "deepseek-v2:16b": 15.7e9, "deepseek-v2:236b": 236e9,
    "granite4:tiny-h": 6.94e9, "granite4:small-h": 32.2e9, "qwen3.5:27b": 27e9,
    "qwen3.5:35b": 35e9, "lfm2.5-thinking:1.2b": 1.17e9}
Q4_K_M = {
    "llama3.1:8b": 4.92e9, "qwen3:8b": 5.03e9, "qwen3:4b": 2.5e9, "qwen2.5:7b": 4.68e9,
    "qwen3:32b": 19.76e9, "llama3.3:70b": 42.52e9, "qwen3:30b": 18.56e9}


def fit(*arguments):
    done = support.quern("models", "fit", *arguments, "--json")
    assert done.returncode == 0, done.stderr
    return {model["model"]: model for model in map(json.loads, done.stdout.splitlines())}


def form_of(model, name):
    return next(form for form in model["forms"] if form["form"] == name)


@pytest.fixture(scope="module")
def known():
    return fit("--device-memory-mib", "14745", "--max-model-len", "8192")


def test_sizes_are_those_that_are_published(known):
    for name, parameters in PARAMETERS.items():
        # Publishers count a few vectors more or less: norms of heads, biases.
        assert known[name]["parameters"] == pytest.approx(parameters, rel=1e-4), name
    for name, parameters in ROUGHLY.items():
        assert known[name]["parameters"] == pytest.approx(parameters, rel=0.012), name
    for name, size in Q4_K_M.items():
        assert form_of(known[name], "Q4_K_M")["bytes"] == pytest.approx(size, rel=0.01), name
    assert [form["form"] for form in known["gpt-oss:20b"]["forms"]] == ["MXFP4"]
    assert form_of(known["gpt-oss:20b"], "MXFP4")["bytes"] == pytest.approx(13.8e9, rel=0.01)


def test_a_model_is_told_as_its_file_is(known):
    done = support.quern("models", "inspect", "smollm2", "--json")
    file, told = json.loads(done.stdout), known["smollm2:135m"]
    for field in ("parameters", "context", "kv_bytes_per_token", "state_bytes"):
        assert told[field] == file[field], field


def test_keys_in_8_bits_have_a_scale_per_head_beside_their_numbers():
    file, = map(json.loads, support.quern("models", "inspect", "smollm2", "--json").stdout.splitlines())
    layers, heads, width = file["layers"], file["kv_heads"], file["head_dim"]
    assert file["kv_int8_bytes_per_token"] == 2 * layers * heads * (width + 4)
    page = support.quern("models", "inspect", "smollm2").stdout
    assert f"{file['kv_int8_bytes_per_token']} with --kv-cache-dtype int8_per_token_head" in page


def test_each_sequence_takes_its_keys_and_its_state():
    for name in ("qwen3:8b", "qwen3.5:4b", "deepseek-v2:16b"):
        one, = fit(name, "--max-model-len", "4096").values()
        many, = fit(name, "--max-model-len", "4096", "--sequences", "7").values()
        each = 4096 * one["kv_bytes_per_token"] + one["state_bytes"]
        for first, second in zip(one["forms"], many["forms"]):
            assert second["memory_needed_bytes"] - first["memory_needed_bytes"] == 6 * each
    windows, = fit("gemma3:1b", "--max-model-len", "8192").values()
    assert windows["kv_far_bytes_per_token"] < windows["kv_bytes_per_token"]


def test_what_fits_a_gpu_fits_a_larger_one(known):
    larger = fit("--device-memory-mib", "81920", "--max-model-len", "8192")
    count = 0
    for name, model in known.items():
        for small, large in zip(model["forms"], larger[name]["forms"]):
            assert large["fits_card"] or not small["fits_card"], name
            count += large["fits_card"] and not small["fits_card"]
            assert small["fits"] == (small["missing_bytes"] == 0), name
    assert count > 10
    assert not form_of(known["llama3.1:70b"], "Q4_K_M")["fits_card"]
    assert form_of(known["qwen3:4b"], "BF16")["fits_card"]


def bits(number):
    """Bytes per number of codes in groups of 32, with 4 bytes for each group."""
    return (number + 1) / 8


# The weights of a GPU in bytes, by hand: products in 8 bits have a scale of 2 bytes per row, which
# is left out, as are norms; an embedding is bf16 unless it stays in 4 bits; angles are float32.
BY_HAND = {
    ("llama3.1:8b", "Q8_0", "int8"):
        32 * 4096 * (4096 + 2048 + 4096 + 3 * 14336) + 3 * 128256 * 4096 + 131072 * 128 * 4,
    ("gpt-oss:20b", "MXFP4", "file"):
        24 * (32 * 3 * 2880 * 2880 * bits(4) + 2880 * (5120 + 4096 + 2 * 32)) +
        3 * 201088 * 2880 + 131072 * 64 * 4,
    # Rows of 1,408 and 10,944 numbers are no whole blocks of Q4_K: these down have 8 bits. Of half
    # of the shared experts down is Q6_K.
    ("deepseek-v2:16b", "Q4_K_M", "file"):
        26 * (64 * (2816 * 2048 * bits(4) + 2048 * 1408) + 64 * 2048 * 2) +
        27 * (2048 * (3072 + 576 + 2048) * bits(4) + 2 * 16 * 512 * 128 * 2) +
        26 * 2816 * 2048 * (2 * bits(4) + (bits(4) + bits(8)) / 2) +
        10944 * 2048 * (2 * bits(4) + 1) +
        102400 * 2048 * (bits(4) + 1) + 163840 * 64 * 4}


@pytest.mark.parametrize("name, file, weights", BY_HAND)
def test_what_a_gpu_of_16_gb_holds_is_counted_by_hand(name, file, weights):
    model, = fit(name, "--device-memory-mib", "15900", "--max-model-len", "4096").values()
    form = next(form for form in form_of(model, file)["card"]["forms"]
                if (form["weights"], form["kv"]) == (weights, "bfloat16"))
    assert form["weight_bytes"] == pytest.approx(BY_HAND[name, file, weights], rel=0.002)
    assert form["fits"] and form["experts_in_host_bytes"] == 0
    parts = sum(form[part + "_bytes"] for part in ("driver", "weight", "buffer", "states", "kv"))
    assert form["used_bytes"] == parts <= 15900 << 20
    assert form["sequences"] == form["kv_bytes"] // (4096 * form["kv_bytes_per_token"])


def test_the_table_says_in_words_what_fits_and_what_is_missing():
    done = support.quern("models", "fit", "--device-memory-mib", "14745")
    lines = {line.split()[0]: line for line in done.stdout.splitlines()[2:]}
    assert "on the GPU" in done.stdout.splitlines()[1]
    assert "is short of" in lines["llama3.3:70b"] and "at once" in lines["smollm2:135m"]
    large = lines["deepseek-r1:671b"]  # a machine may hold it, or all but its experts
    assert "from the file" in large or "at once" in large or large.count("is short of") == 2
    assert all(len(line) < 200 for line in lines.values())


def test_one_model_is_told_by_any_of_its_names():
    by_tag, = fit("qwen3:8b").values()
    by_id, = fit("Qwen/Qwen3-8B").values()
    assert by_tag["repository"] == by_id["repository"] == "Qwen/Qwen3-8B"


@pytest.mark.parametrize("arguments, status, sentence", [
    (("fit", "nothing:7b"), 4, "'nothing:7b' is no name that quern knows"),
    (("fit", "all-minilm"), 4, "the sizes of all-minilm are not known"),
    (("list", "--sequences", "2"), 2, "--sequences goes with fit"),
    (("fit", "--sequences", "0"), 2, "--sequences"), ])
def test_what_cannot_be_told_is_refused_by_one_sentence(arguments, status, sentence):
    done = support.quern("models", *arguments)
    assert done.returncode == status and sentence in done.stderr, done.stderr


def test_a_small_file_is_bf16_only_where_enough_sequences_have_room():
    for mib, forms in (("15900", {
            "mistral:7b": "int8", "qwen2.5:7b": "int8", "llama3.2:1b": "bfloat16"}), ("139000", {
                "mistral:7b": "bfloat16", "qwen2.5:7b": "bfloat16", "llama3.2:1b": "bfloat16"})):
        for name, weights in forms.items():
            model, = fit(name, "--device-memory-mib", mib, "--max-model-len", "4096").values()
            assert form_of(model, "Q8_0")["card"]["auto"] == weights, (name, mib)
            assert "auto" not in form_of(model, "BF16")["card"]
    model, = fit("gpt-oss:20b", "--device-memory-mib", "22000").values()
    assert form_of(model, "MXFP4")["card"]["auto"] == "file"  # its experts are not unpacked
