# SPDX-License-Identifier: Apache-2.0
"""Of two equal keys in a JSON object one reader takes the first, another the last. Where they
decide something they are refused."""
import json

import pytest

CHAT = '"messages":[{"role":"user","content":"hi"}]'
LONG = '"pad":"' + "x" * 2000000 + '"'


@pytest.mark.parametrize("path,body", [
    ("/v1/chat/completions", '{"model":"no","model":"smollm2",' + CHAT + "}"),
    ("/v1/chat/completions", '{"model":"smollm2",' + CHAT + ',"temperature":1,"temperature":0}'),
    ("/v1/chat/completions", '{"model":"smollm2",' + CHAT + ',"stream":true,"stre\\u0061m":false}'),
    ("/v1/chat/completions",
     '{"model":"smollm2","messages":[{"role":"user","role":"system","content":"hi"}]}'),
    ("/v1/chat/completions", '{"model":"no",' + LONG + ',"model":"smollm2",' + CHAT + "}"),
    ("/v1/batches",
     '{"input_file_id":"a","input_file_id":"b","endpoint":"/v1/chat/completions","completion_window":"24h"}'
     ),
    ("/v1/batches",
     '{"input_file_id":"a","endpoint":"/v1/chat/completions","completion_window":"24h","metadata":{"a":"1","a":"2"}}'
     ), ("/v1/batches/preflight", '{"input_file_id":"a","input_file_id":"b"}'),
    ("/v1/batches/batch_1/retry", '{"statuses":[500],"statuses":[400]}'),
    ("/v1/embeddings", '{"model":"smollm2","input":"a","input":"b"}'),
    ("/v1/decisions", '{"model":"no","model":"smollm2","input":"a","questions":[]}'),
    ("/tokenize", '{"model":"smollm2","prompt":"a","prompt":"b"}'),
    ("/detokenize", '{"model":"smollm2","tokens":[1],"tokens":[2]}'),
    ("/v1/uploads",
     '{"bytes":3,"bytes":4,"filename":"a","mime_type":"text/plain","purpose":"batch"}'), ])
def test_in_a_body(echo_server, path, body):
    status, answer = echo_server.call("POST", path, body)
    assert status == 400, answer
    assert "twice" in json.loads(answer)["error"]["message"] or "duplicate" in json.loads(
        answer)["error"]["message"]


@pytest.mark.parametrize("line,param", [
    ('{"custom_id":"a","custom_id":"b","method":"POST","url":"/v1/chat/completions","body":{"model":"smollm2",'
     + CHAT + "}}", "custom_id"),
    ('{"custom_id":"a","method":"POST","url":"/v1/chat/completions","body":{"model":"no","model":"smollm2",'
     + CHAT + "}}", "body.model"), ])
def test_in_a_batch_line(echo_server, line, param):
    batch = echo_server.wait(echo_server.create(line.encode() + b"\n")["id"])
    assert batch["status"] == "failed"
    assert [(error["param"], error["line"]) for error in batch["errors"]["data"]] == [(param, 1)]
