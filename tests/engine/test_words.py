# SPDX-License-Identifier: Apache-2.0
"""/tokenize, /detokenize and /tokenizer_info: what vLLM's clients ask about a model's words."""
import json

import pytest

import support

CHAT = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Grüße, 世界 🌍"}]


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with support.serving(
            tmp_path_factory.mktemp("words") / "state", "--model", "smollm2", "--max-model-len",
            "1024") as server:
        yield server


def ask(server, path, **body):
    return server.json("POST", path, body)


def test_the_tokens_of_a_prompt_are_those_of_the_command_and_come_back_as_its_text(server):
    text = "Hello, 世界! <|im_end|> 🌍"
    said = ask(server, "/tokenize", model="smollm2", prompt=text)
    assert said["tokens"] == json.loads(
        support.quern("tokenize", "--model", "smollm2", "--special", "--bos", input=text).stdout)
    assert said["count"] == len(
        said["tokens"]) and said["max_model_len"] == 1024 and said["token_strs"] is None
    texts = ask(server, "/tokenize", prompt=text, return_token_strs=True)["token_strs"]
    assert len(texts) == said["count"] and texts[0] == "Hello" and "<|im_end|>" in texts
    assert ask(server, "/detokenize", tokens=said["tokens"]) == {"prompt": text}
    assert ask(server, "/detokenize", tokens=said["tokens"] * 500)["prompt"] == text * 500
    assert ask(server, "/tokenize", prompt="")["tokens"] == [] == ask(
        server, "/tokenize", prompt="", add_special_tokens=False)["tokens"]
    assert ask(server, "/detokenize", tokens=[])["prompt"] == ""


def test_the_tokens_of_a_chat_are_those_that_its_request_has(server):
    said = ask(server, "/tokenize", model="smollm2", messages=CHAT)
    answer = ask(server,
                 "/v1/chat/completions",
                 model="smollm2",
                 messages=CHAT,
                 max_tokens=1,
                 return_token_ids=True)
    assert said["tokens"] == answer["prompt_token_ids"] and said["count"] == answer["usage"][
        "prompt_tokens"]
    less = ask(server, "/tokenize", messages=CHAT, add_generation_prompt=False)["tokens"]
    assert said["tokens"][:len(less)] == less and len(less) < said["count"]
    longer = ask(server, "/tokenize", messages=[{"role": "user", "content": "word " * 3000}])
    assert longer["count"] > 3000 > longer["max_model_len"]


def test_the_tokenizer_tells_its_special_tokens_and_its_template(server):
    said = server.json("GET", "/tokenizer_info")
    assert said == server.json("GET", "/tokenizer_info?model=smollm2")
    assert (said["bos_token"], said["eos_token"], said["model_max_length"]) == ("<|im_start|>",
                                                                                "<|im_end|>", 1024)
    assert "messages" in said["chat_template"] and said["vocab_size"] > 49000 and said[
        "tokenizer_class"]


@pytest.mark.parametrize("path,body,status,param", [
    ("/tokenize", {}, 400, "prompt"), ("/tokenize", {"prompt": 7}, 400, "prompt"),
    ("/tokenize", {"prompt": "x", "add_special_tokens": "yes"}, 400, "add_special_tokens"),
    ("/tokenize", {"messages": "x"}, 400, "messages"),
    ("/tokenize", {"model": "nope", "prompt": "x"}, 404, "model"),
    ("/tokenize", {"model": 3, "prompt": "x"}, 400, "model"), ("/detokenize", {}, 400, "tokens"),
    ("/detokenize", {"tokens": "x"}, 400, "tokens"),
    ("/detokenize", {"tokens": [1, -1]}, 400, "tokens"),
    ("/detokenize", {"tokens": [10**9]}, 400, "tokens"),
    ("/detokenize", {"tokens": [[1]]}, 400, "tokens"),
    ("/detokenize", {"tokens": [1.5]}, 400, "tokens")])
def test_wrong_questions_are_refused_by_name(server, path, body, status, param):
    got, data = server.call("POST", path, body)
    assert (got, json.loads(data)["error"]["param"]) == (status, param), data


def test_an_upstream_is_asked_and_a_server_of_several_models_wants_a_name(server, tmp_path):
    with support.serving(tmp_path / "state", "--upstream", f"far=http://127.0.0.1:{server.port}",
                         "--model", "e=echo") as front:
        assert ask(front, "/tokenize", model="smollm2", prompt="Hello") == ask(server,
                                                                               "/tokenize",
                                                                               prompt="Hello")
        assert ask(front, "/detokenize", model="smollm2", tokens=[1, 2]) == ask(server,
                                                                                "/detokenize",
                                                                                tokens=[1, 2])
        assert front.json("GET", "/tokenizer_info?model=smollm2")["eos_token"] == "<|im_end|>"
        status, data = front.call("POST", "/tokenize", {"prompt": "x"})
        assert status == 400 and json.loads(data)["error"]["param"] == "model"
        status, data = front.call("POST", "/tokenize", {"model": "e", "prompt": "x"})
        assert status == 400 and "no tokenizer" in data.decode()
