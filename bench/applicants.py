# SPDX-License-Identifier: Apache-2.0
"""Requests about drawn applicants, which ask for a score, a label and a short reason, and what
somebody else answered to half of them: for bench/evaluate-alone and bench/evaluate-kills."""
import json

import support

JOBS = ["engineer", "nurse", "teacher", "driver", "cook", "clerk", "welder", "editor"]
PLACES = ["a hospital", "a bank", "a school", "a bakery", "the railway", "a law firm", "a shipyard"]
SHAPE = {
    "type": "object", "required": ["score", "fit", "reason"], "additionalProperties": False,
    "properties": {
        "score": {"type": "integer", "minimum": 0, "maximum": 9}, "fit": {
            "enum": ["yes", "maybe", "no"]}, "reason": {"type": "string", "maxLength": 60}}}
RUBRIC = ("You rate applicants for a job at the front desk of a clinic. Give a score from 0 to 9, "
          "say whether the applicant fits, and name a reason in a few words. Years with people "
          "count, and so do languages. Answer with one JSON object.")


def result(name, answer):
    """A result line of another system."""
    return {
        "id": "r", "custom_id": name, "error": None, "response": {
            "status_code": 200, "request_id": "q", "body": {"choices": [{
                "index": 0, "finish_reason": "stop",
                "message": {"role": "assistant", "content": json.dumps(answer)}}]}}}


def drawn(rng, count):
    """The requests, and the results of somebody else."""
    lines, judged = [], []
    for number in range(count):
        profile = ", then ".join(f"{rng.randrange(1, 12)} years as {rng.choice(JOBS)} at "
                                 f"{rng.choice(PLACES)}" for _ in range(rng.randrange(1, 5)))
        lines.append(support.request(f"a-{number}", f"Applicant {number}: {profile}."))
        lines[-1]["body"] |= {
            "model": "any", "max_tokens": 60, "temperature": 0, "response_format": {
                "type": "json_schema", "json_schema": {"name": "rating", "schema": SHAPE}}}
        lines[-1]["body"]["messages"].insert(0, {"role": "system", "content": RUBRIC})
        if number % 2 == 0:
            judged.append(result(f"a-{number}", {
                "score": rng.randrange(10), "fit": rng.choice(["yes", "maybe", "no"]),
                "reason": rng.choice(["", "Years with people."])}))
    return lines, judged
