# SPDX-License-Identifier: Apache-2.0
"""The OpenAPI document, and Schemathesis over it: every operation with good and bad data, and
chains of them."""
import json, os, pathlib, subprocess, sys

import pytest

import support
from cases import plain

SEED = os.environ.get("QUERN_SEED", "1")
# What cannot be told by a schema makes good data bad here: bytes of a file, ids that exist, the
# operator's rules.
LEFT_OUT = "positive_data_acceptance"


def test_the_document_is_printed_and_served_alike(echo, keyed):
    printed = support.quern("openapi")
    assert printed.returncode == 0, printed.stderr
    document = json.loads(printed.stdout)
    assert json.loads(plain(keyed, "GET",
                            "/openapi.json")[2]) == document and document["openapi"] == "3.1.0"
    served = json.loads(plain(echo, "GET", "/openapi.json")[2])
    without = json.loads(printed.stdout)
    for operation in (operation for path in without["paths"].values()
                      for operation in path.values()):
        operation["security"] = []  # a server without keys asks for none
    assert served == without
    operations = [operation for path in document["paths"].values() for operation in path.values()]
    names = [operation["operationId"] for operation in operations]
    assert len(names) == len(set(names)) and {
        "createFile", "createBatch", "addUploadPart", "createChatCompletion"} <= set(names)
    for operation in operations:
        assert "200" in operation["responses"] and operation["summary"]


@pytest.mark.slow
def test_every_operation_answers_as_the_document_says(keyed):
    # One worker: with two, CPython 3.11 now and then fails in ast.parse with "AST constructor
    # recursion depth mismatch".
    command = [
        pathlib.Path(sys.executable).parent / "schemathesis", "run",
        f"http://127.0.0.1:{keyed.port}/openapi.json", "-H", "Authorization: Bearer sk-right",
        "--checks", "all", "--exclude-checks", LEFT_OUT, "--max-examples", "20", "--seed", SEED,
        "--no-color"]
    done = subprocess.run(command,
                          capture_output=True,
                          text=True,
                          cwd=keyed.state.parent,
                          timeout=600)
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-2000:]
    assert keyed.process.poll() is None and plain(keyed, "GET", "/health")[0] == 200
