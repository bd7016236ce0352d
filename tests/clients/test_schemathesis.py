# SPDX-License-Identifier: Apache-2.0
"""Schemathesis over the OpenAPI document that a server serves: every operation with good and bad
data, and chains of them, all checks."""
import os, pathlib, subprocess, sys

import pytest

SEED = os.environ.get("QUERN_SEED", "1")
EXAMPLES = os.environ.get("QUERN_EXAMPLES", "100")  # per operation and phase
# Operations whose good data no schema can tell: bytes of a file, ids that exist, models that are
# served, the operator's rules.
FREE = [
    "getHealth", "getPing", "getReady", "getVersion", "getOpenapi", "getMetrics", "listModels",
    "getTokenizerInfo"]
# They would take the server away from the tests: a first key locks them out, and an unloaded model
# answers none of them.
CLOSING = ["createKey", "revokeKey", "loadModel", "unloadModel"]
# They answer 501 on purpose, which Schemathesis takes for a failure of the server. Pulling does so
# because this server has a --model.
REFUSED = [
    "ollamaBlob", "ollamaCreate", "ollamaMe", "ollamaPull", "ollamaPush", "ollamaSignOut",
    "ollamaWebFetch", "ollamaWebSearch"]
# A target that breaks the schema may be too long as well, and 414 says so. Schemathesis's own list
# of refusals has no 414.
CONFIG = """[checks]
negative_data_rejection.expected-statuses = [
  400, 401, 403, 404, 405, 406, 409, 413, 414, 415, 422, 428, 429, "5xx"]
"""


def schemathesis(server, *arguments):
    (server.state.parent / "schemathesis.toml").write_text(CONFIG)
    # One worker: with two, CPython 3.11 now and then fails in ast.parse with "AST constructor
    # recursion depth mismatch".
    done = subprocess.run([
        pathlib.Path(sys.executable).with_name("schemathesis"), "run",
        f"http://127.0.0.1:{server.port}/openapi.json", "--checks", "all", "--seed", SEED,
        "--no-color", "--max-examples", EXAMPLES, *arguments],
                          capture_output=True,
                          text=True,
                          cwd=server.state.parent,
                          timeout=1500)
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-2000:]
    assert server.process.poll() is None and server.call("GET", "/health")[0] == 200


@pytest.mark.parametrize("kind, arguments", [("tiny", []),
                                             ("keyed", ["-H", "Authorization: Bearer sk-right"])])
def test_every_operation_answers_as_the_document_says(request, kind, arguments):
    left_out = [
        word for name in CLOSING + REFUSED if kind == "tiny"
        for word in ("--exclude-operation-id", name)]
    schemathesis(request.getfixturevalue(kind), "--exclude-checks", "positive_data_acceptance",
                 *left_out, *arguments)


def test_good_data_are_taken_where_a_schema_can_tell_them(tiny):
    schemathesis(tiny, "--phases", "examples,coverage,fuzzing",
                 *(word for name in FREE for word in ("--include-operation-id", name)))
