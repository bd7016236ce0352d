# SPDX-License-Identifier: Apache-2.0
"""Run in an environment with litellm: a batch through its SDK. Prints one line of JSON a provider.

  litellm_flow.py BASE_URL INPUT.jsonl
"""
import json, sys, time

import litellm

for provider in ("hosted_vllm", "openai"):
    where = {"custom_llm_provider": provider, "api_base": sys.argv[1], "api_key": "none"}
    with open(sys.argv[2], "rb") as file:
        made = litellm.create_file(file=file, purpose="batch", **where)
    batch = litellm.create_batch(completion_window="24h",
                                 endpoint="/v1/chat/completions",
                                 input_file_id=made.id,
                                 metadata={"a": "b"},
                                 **where)
    while batch.status not in ("completed", "failed", "expired", "cancelled"):
        time.sleep(0.05)
        batch = litellm.retrieve_batch(batch_id=batch.id, **where)
    text = litellm.file_content(file_id=batch.output_file_id, **where).text
    print(
        json.dumps({
            "provider": provider, "status": batch.status, "metadata": batch.metadata,
            "total": batch.request_counts.total, "lines": [
                json.loads(line) for line in text.splitlines()]}))
