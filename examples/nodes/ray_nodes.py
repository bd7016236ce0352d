#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Nodes of a quern server as actors of Ray: Ray places them, quern gives them work and commits.

    python examples/nodes/ray_nodes.py --queue redis://queue.lan/ --model m.gguf --nodes 8

An actor that Ray restarts is a new node. Ray stores no request and no result."""
import argparse, signal, subprocess


class QuernNode:
    """A `quern worker` for as long as the actor lives."""

    def __init__(self, queue, model, arguments=()):
        self.command = ["quern", "worker", "--queue", queue, "--model", model, *arguments]
        self.process = None

    def run(self):
        """Ends with the node; an error makes Ray start the actor again."""
        self.process = subprocess.Popen(self.command)
        status = self.process.wait()
        if status != 0:
            raise RuntimeError(f"quern worker ended with status {status}")

    def drain(self, seconds=60):
        """Gives back what has not begun, and finishes the rest."""
        if self.process and self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            self.process.wait(seconds)


def main():
    import ray
    parser = argparse.ArgumentParser()
    parser.add_argument("--queue", required=True)
    parser.add_argument("--model", required=True)
    parser.add_argument("--nodes", type=int, default=1)
    parser.add_argument("--gpus", type=float, default=1, help="GPUs per node")
    chosen = parser.parse_args()
    ray.init()
    # Two calls at a time: `drain` comes while `run` waits.
    actor = ray.remote(QuernNode).options(num_gpus=chosen.gpus, max_restarts=-1,
                                          max_task_retries=-1, max_concurrency=2)
    nodes = [actor.remote(chosen.queue, chosen.model) for _ in range(chosen.nodes)]
    try:
        ray.get([node.run.remote() for node in nodes])
    except KeyboardInterrupt:
        ray.get([node.drain.remote() for node in nodes])


if __name__ == "__main__":
    main()
