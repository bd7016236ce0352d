# SPDX-License-Identifier: Apache-2.0
"""Owners of keys share the engine and not its cached prefixes: what one has sent does not show in
another's usage (I13)."""
import json

import support

TEXT = "A long beginning that both of them send, word for word, as a system prompt would be. " * 6


def make_key(state, owner):
    done = support.quern("key", "create", "--state-dir", state, "--name", owner, "--owner", owner)
    assert done.returncode == 0, done.stderr
    return {"Authorization": f"Bearer {done.stdout.strip()}"}


def cached(server, key, salt=None):
    body = {
        "model": "smollm2", "max_tokens": 1, "messages": [{"role": "user", "content": TEXT}],
        **({"cache_salt": salt} if salt else {})}
    status, data = server.call("POST", "/v1/chat/completions", body, headers=key)
    assert status == 200, data
    return (json.loads(data)["usage"].get("prompt_tokens_details") or {}).get("cached_tokens", 0)


def test_a_prefix_is_cached_for_its_owner_only(tmp_path):
    state = tmp_path / "state"
    alice, bob = make_key(state, "alice"), make_key(state, "bob")
    with support.serving(state, "--model", "smollm2") as server:
        assert cached(server, alice) == 0
        assert cached(server, alice) > 0
        assert cached(server, bob) == 0
        assert cached(server, bob) > 0
        assert cached(server, alice, "salt") == 0 and cached(
            server, bob, "salt") == 0, "one's salt is not another's"
        assert cached(server, alice, "salt") > 0
