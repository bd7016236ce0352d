# SPDX-License-Identifier: Apache-2.0
"""Ray Data on two cores, with quern's predictor and processor in its actors."""
import glob, os, pathlib, signal, subprocess, sys, threading

import pytest

MODULE = str(pathlib.Path(__file__).parents[2] / "packaging/python")
FOLDERS = [MODULE, str(pathlib.Path(__file__).parent), os.environ.get("PYTHONPATH", "")]
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, FOLDERS))  # for the actors
sys.path.insert(0, MODULE)

import ray, ray.data  # noqa: E402

import support  # noqa: E402
from quern.ray import QuernPredictor, QuernProcessorConfig, build_processor  # noqa: E402

ROWS = 2000


@pytest.fixture(scope="module", autouse=True)
def cluster(tmp_path_factory):
    os.environ["QUERN_BINARY"] = support.BINARY
    os.environ["TMPDIR"] = str(tmp_path_factory.mktemp("children"))
    ray.init(num_cpus=2, include_dashboard=False, object_store_memory=200 << 20,
             logging_level="error")
    ray.data.DataContext.get_current().enable_progress_bars = False
    yield
    ray.shutdown()


def children():
    """The servers that actors have started."""
    found = subprocess.run(["ps", "-wweo", "pid,args"], capture_output=True, text=True).stdout
    return [int(line.split()[0]) for line in found.splitlines()
            if " serve --model m=echo " in line and os.environ["TMPDIR"] in line]


def asked(row):
    wishes = {"max_tokens": 64}
    if row["id"] % 100 == 7:
        wishes["echo"] = {"status": 418}
    return {"messages": [{"role": "system", "content": "You answer."},
                         {"role": "user", "content": f"question {row['id']}"}],
            "sampling_params": wishes}


def test_a_processor_in_the_shape_of_ray_data_llm():
    processor = build_processor(
        QuernProcessorConfig(model_source="m=echo", batch_size=200, concurrency=2, num_cpus=0.5),
        preprocess=asked,
        postprocess=lambda row: {"id": row["id"], "answer": row["generated_text"].upper(),
                                 "tokens": row["num_generated_tokens"]},
        preprocess_map_kwargs={"num_cpus": 0.25},
        postprocess_map_kwargs={"num_cpus": 0.25})
    rows = sorted(processor(ray.data.range(ROWS)).take_all(), key=lambda row: row["id"])
    assert [row["id"] for row in rows] == list(range(ROWS))
    for row in rows:
        if row["id"] % 100 == 7:
            assert "418" in row["__inference_error__"] or "told" in row["__inference_error__"]
        else:
            assert row["answer"] == f"QUESTION {row['id']}" and row["__inference_error__"] == ""
            assert row["tokens"] > 0


def test_a_failed_row_may_end_the_job():
    processor = build_processor(QuernProcessorConfig(model_source="m=echo", num_cpus=0.5,
                                                     should_continue_on_error=False),
                                preprocess=asked)
    with pytest.raises(Exception, match="rows failed"):
        processor(ray.data.range(100)).take_all()


def kill_those_at_work(killed, ends):
    """Kills each server that has a result of a batch, four in all. One that is started in its place
    has one from its start."""
    while len(killed) < 4 and not ends.wait(0.05):
        if glob.glob(os.environ["TMPDIR"] + "/quern-children-*/*/state/**/seg-*", recursive=True):
            for pid in set(children()) - killed:
                os.kill(pid, signal.SIGKILL)
                killed.add(pid)


def test_map_batches_with_servers_that_are_killed_again_and_again():
    def slow(row):
        return {"id": row["id"], "prompt": f"p{row['id']}",
                "sampling_params": {"echo": {"each_ms": 5}}}

    dataset = ray.data.range(600, override_num_blocks=6).map(slow, num_cpus=0.25).map_batches(
        QuernPredictor, fn_constructor_kwargs={"model": "m=echo"}, batch_size=100, num_cpus=0.5,
        compute=ray.data.ActorPoolStrategy(size=1))
    killed, ends = set(), threading.Event()
    killer = threading.Thread(target=kill_those_at_work, args=(killed, ends))
    killer.start()
    rows = dataset.take_all()
    ends.set()
    killer.join()
    found = sorted((row["id"], row["generated_text"], row["error"]) for row in rows)
    assert found == [(number, f"p{number}", "") for number in range(600)] and killed


def test_no_server_outlives_its_actor():
    support.until(lambda: not children())
