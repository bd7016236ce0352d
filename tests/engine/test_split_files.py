# SPDX-License-Identifier: Apache-2.0
"""A model in several GGUF files, as llama-gguf-split writes them: its first part opens the
others."""
import json, os, pathlib

import pytest

import gguf_keys, gguf_of, support
from gguf_keys import I32, U16

FAMILY = pathlib.Path(__file__).resolve().parent / "families/gemma2"
QUERY = json.dumps({"ids": [2] + [3 + i * 7 % 60 for i in range(30)], "positions": [-1], "top": 64})


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    path = tmp_path_factory.mktemp("whole") / "m.gguf"
    gguf_of.convert(FAMILY, path)
    return path


def keys_of(part, parts, tensors):
    return {
        "split.no": (U16, part), "split.count": (U16, parts), "split.tensors.count": (I32, tensors)}


def cut(whole, folder, cuts, name="m"):
    """Writes the parts; the first has the metadata."""
    pairs, tensors = gguf_keys.read(whole)
    cuts = [0, *cuts, len(tensors)]
    parts, paths = len(cuts) - 1, []
    for i in range(parts):
        keys = (pairs if i == 0 else {}) | keys_of(i, parts, len(tensors))
        paths.append(
            gguf_keys.write(folder / f"{name}-{i + 1:05}-of-{parts:05}.gguf", keys,
                            tensors[cuts[i]:cuts[i + 1]]))
    return paths


def ask(path):
    done = support.quern("logits", "--model", path, "--reference", input=QUERY)
    return done.stdout if done.returncode == 0 else done.stderr


@pytest.mark.parametrize("cuts", [[], [7], [0, 9], [5, 20]])
def test_the_first_part_opens_the_others(whole, tmp_path, cuts):
    first, *others = cut(whole, tmp_path, cuts)
    assert ask(first) == ask(whole)
    for number, other in enumerate(others, 2):
        assert f"this is part {number} of {len(cuts) + 1} of a model: open the first, {first.name}" in ask(
            other)


def test_each_part_is_checked(whole, tmp_path):
    first, second, third = cut(whole, tmp_path, [5, 20])
    pairs, tensors = gguf_keys.read(whole)
    data = third.read_bytes()
    third.unlink()
    assert f"part 3 of 3 is missing: there is no {third.name}" in ask(first)
    third.write_bytes(data[:-40])
    assert f"{third.name}: tensor" in ask(first)
    third.write_bytes(b"GG")
    assert f"{third.name}: this is no GGUF file" in ask(first)
    third.write_bytes(second.read_bytes())
    assert f"{third.name}: it is part 2 of 3" in ask(first)
    gguf_keys.write(third, keys_of(2, 3, len(tensors) + 1), tensors[20:])
    assert f"{third.name}: it is part 3 of 3 with {len(tensors) + 1} tensors in all" in ask(first)
    gguf_keys.write(third, keys_of(2, 3, len(tensors)), tensors[19:])
    assert f"{third.name}: tensor {tensors[19][0]} is in two parts" in ask(first)
    gguf_keys.write(third, keys_of(2, 3, len(tensors)), tensors[21:])
    assert f"the 3 parts have {len(tensors) - 1} tensors, not the {len(tensors)} that they state" in ask(
        first)
    third.write_bytes(data)
    assert ask(first) == ask(whole)


def test_a_part_under_another_name_is_refused(whole, tmp_path):
    first, second = cut(whole, tmp_path, [5])
    for name in ("other.gguf", "m-00001-of-00003.gguf", "m-1-of-2.gguf"):
        moved = first.rename(tmp_path / name)
        assert "this is part 1 of 2 of a model, but its name does not end in -00001-of-00002.gguf" in ask(
            moved)
        moved.rename(first)
    first.rename(tmp_path / "away")
    assert "split.no is 1 in the file m-00001-of-00002.gguf" in ask(second.rename(first))


def test_a_model_in_parts_is_listed_once_and_served_by_its_name(whole, tmp_path):
    folder = tmp_path / "quern/models"
    folder.mkdir(parents=True)
    paths = cut(whole, folder, [5, 20], "tiny")
    environment = os.environ | {
        "XDG_CACHE_HOME": str(tmp_path), "OLLAMA_MODELS": str(tmp_path / "none"),
        "HF_HUB_CACHE": str(tmp_path / "none")}
    lines = support.quern("models", "--json", env=environment).stdout.splitlines()
    listed, = [json.loads(line) for line in lines]
    assert listed["bytes"] == sum(path.stat().st_size
                                  for path in paths) and listed["path"] == str(paths[0])
    for name in ("tiny-00001-of-00003", "tiny-00001-of-00003.gguf"):
        done = support.quern("logits", "--model", name, input=QUERY, env=environment)
        assert done.returncode == 0, done.stderr
    assert support.quern("models", "inspect", paths[0], env=environment).returncode == 0
