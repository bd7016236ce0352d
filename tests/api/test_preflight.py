# SPDX-License-Identifier: Apache-2.0
"""POST /v1/batches/preflight: what is refused, and whose files are counted. The figures:
tests/engine/test_preflight.py."""
import json

import pytest

import support

PATH = "/v1/batches/preflight"


def ask(server, headers=None, **body):
    status, data = server.call("POST", PATH, body, headers=headers)
    return status, json.loads(data)


def file_of(server, models=("smollm2",)):
    return server.upload(
        support.jsonl([
            support.request(f"r{i}", "hello there", model=model, max_tokens=5)
            for i, model in enumerate(models)]))["id"]


def test_a_model_that_is_not_here_is_counted_by_guessing(echo_server):
    status, said = ask(echo_server,
                       input_file_id=file_of(echo_server, ["gpt-4"] * 3),
                       endpoint="/v1/chat/completions",
                       input_price=2,
                       output_price=4,
                       batch_discount=0.5)
    assert status == 200 and (said["object"], said["model"], said["token_counts"], said["requests"],
                              said["pilot"]) == ("preflight", "gpt-4", "estimated", 3, None)
    assert said["api_cost"]["mean"] == pytest.approx(
        (said["prompt_tokens"] * 2 + 15 * 4) * 0.5 / 1e6, rel=1e-4)


def test_faulty_lines_are_figures_and_no_error(echo_server):
    file = echo_server.upload(support.jsonl([support.request("a", "x")]) + b"\n{not json}\n")
    status, said = ask(echo_server, input_file_id=file["id"])
    assert status == 200 and (said["requests"], said["faulty"],
                              said["refused"]) == (2, 1, 1) and said["faults"][0]["line"] == 3
    line = support.request("a", "x", stream=True)
    said = ask(echo_server,
               input_file_id=echo_server.upload(support.jsonl([line,
                                                               support.request("a",
                                                                               "y")]))["id"])[1]
    assert [f["code"] for f in said["faults"]] == ["streaming_unsupported", "duplicate_custom_id"]


@pytest.mark.parametrize("change,status,param,code", [
    ({"input_file_id": None}, 400, "input_file_id", "missing_required_parameter"),
    ({"input_file_id": 7}, 400, "input_file_id", "invalid_type"),
    ({"input_file_id": "file-nobody"}, 404, "input_file_id", None),
    ({"endpoint": "/v1/nope"}, 400, "endpoint", "invalid_value"),
    ({"model": "nobody"}, 404, "model", "model_not_found"),
    ({"model": ""}, 400, "model", "string_below_min_length"),
    ({"pilot_lines": 1001}, 400, "pilot_lines", "integer_above_max_value"),
    ({"pilot_lines": 1.5}, 400, "pilot_lines", "invalid_type"),
    ({"watts": -1}, 400, "watts", "decimal_below_min_value"),
    ({"price_per_kwh": "much"}, 400, "price_per_kwh", "invalid_type"),
    ({"batch_discount": 1.01}, 400, "batch_discount", "decimal_above_max_value")])
def test_wrong_questions_are_refused_by_name(echo_server, change, status, param, code):
    got, said = ask(echo_server, **{"input_file_id": file_of(echo_server), **change})
    assert (got, said["error"]["param"], said["error"]["code"]) == (status, param, code), said


def test_a_file_for_something_else_and_one_of_several_models_are_refused(echo_server):
    status, said = ask(echo_server,
                       input_file_id=echo_server.upload(b"x", purpose="user_data")["id"])
    assert status == 400 and "user_data" in said["error"]["message"] and said["error"][
        "param"] == "input_file_id"
    file = file_of(echo_server, ["smollm2", "gpt-4"])
    status, said = ask(echo_server, input_file_id=file)
    assert status == 400 and said["error"]["param"] == "model" and "'smollm2' and 'gpt-4'" in said[
        "error"]["message"]
    assert ask(echo_server, input_file_id=file, model="org/name")[1]["model"] == "org/name"
    status, said = ask(echo_server,
                       input_file_id=echo_server.upload(b'{"custom_id": "a", "body": {}}\n')["id"])
    assert status == 400 and "names no model" in said["error"]["message"]
    assert echo_server.call("GET", PATH)[0] == 405


def test_another_owners_file_is_not_there_and_the_scope_is_asked_for(tmp_path):
    state = tmp_path / "state"
    keys = {}
    for name, scopes in (("alice", "files,batches"), ("bob", "files,batches"), ("carol", "files")):
        done = support.quern("key", "create", "--state-dir", state, "--name", name, "--owner", name,
                             "--scopes", scopes)
        assert done.returncode == 0, done.stderr
        keys[name] = {"Authorization": f"Bearer {done.stdout.strip()}"}
    with support.serving(state, "--model", "smollm2=echo") as server:
        content = support.jsonl([support.request("a", "x")])
        body = f'--B\r\nContent-Disposition: form-data; name="purpose"\r\n\r\nbatch\r\n--B\r\nContent-Disposition: form-data; name="file"; filename="a"\r\n\r\n{content.decode()}\r\n--B--\r\n'
        status, data = server.call("POST", "/v1/files", body, "multipart/form-data; boundary=B",
                                   keys["alice"])
        assert status == 200, data
        file = json.loads(data)["id"]
        assert ask(server, keys["alice"], input_file_id=file)[0] == 200
        status, said = ask(server, keys["bob"], input_file_id=file)
        assert status == 404 and said["error"]["message"] == f"No such File object: {file}"
        assert ask(server, keys["carol"], input_file_id=file)[0] == 403
