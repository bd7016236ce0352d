# SPDX-License-Identifier: Apache-2.0
"""The requests of bench/gpu as token ids: prompts and the lengths of their answers, drawn from a
seed. Both engines get the same.

Kinds, each with 777 prompt tokens and 305 of an answer on average where no other number stands:
  300      one prefix of 300 tokens for all
  473      one of 473, and shorter rests: 788 tokens
  5x300s   five prefixes of 300, each request draws one
  none     no prefix
  fixI/O   I prompt tokens and O of an answer each, no prefix
The draws are those of the recorded runs of vLLM (record.py), so a recorded figure belongs to the
same requests."""
import json, random, re

KINDS = ("300", "473", "5x300s", "none")


def lines_of(count, seed):
    draw = random.Random(seed)
    prefix, lines = [draw.randrange(100, 30000) for _ in range(300)], []
    for _ in range(count):
        rest = max(32, min(3000, int(draw.lognormvariate(6.05, 0.5))))
        answer = max(16, min(2000, int(draw.lognormvariate(5.62, 0.45))))
        lines.append(([draw.randrange(100, 30000) for _ in range(rest)], answer))
    return prefix, lines


def work(kind, count, seed=7):
    """(prompt ids, answer tokens) of each request."""
    draw = random.Random(seed + 1000)
    tokens = lambda length: [draw.randrange(100, 30000) for _ in range(length)]
    if fixed := re.fullmatch(r"fix(\d+)/(\d+)", kind):
        return [(tokens(int(fixed[1])), int(fixed[2])) for _ in range(count)]
    prefix, lines = lines_of(count, seed)
    if kind == "300":
        return [(prefix + rest, answer) for rest, answer in lines]
    if kind == "473":
        prefix = tokens(473)
        return [(prefix + rest[:int(len(rest) * 315 / 477)], answer) for rest, answer in lines]
    if kind == "5x300s":
        prefixes = [tokens(300) for _ in range(5)]
        return [(draw.choice(prefixes) + rest, answer) for rest, answer in lines]
    if kind == "none":
        return [(tokens(300) + rest, answer) for rest, answer in lines]
    raise ValueError(f"no kind of work is called {kind}")


def write_requests(path, jobs, model, temperature=0.0, top_p=0.9):
    """A batch input file of completions; an answer has exactly the tokens that it is given."""
    drawn = {"temperature": temperature, "top_p": top_p} if temperature > 0 else {"temperature": 0}
    with open(path, "w") as out:
        for number, (prompt, answer) in enumerate(jobs):
            body = {
                "model": model, "prompt": prompt, "max_tokens": answer, "ignore_eos": True, **drawn}
            out.write(
                json.dumps(
                    {
                        "custom_id": f"r{number}", "method": "POST", "url": "/v1/completions",
                        "body": body},
                    separators=(",", ":")) + "\n")
    return path
