# SPDX-License-Identifier: Apache-2.0
"""`make install` and `make uninstall` into a folder, the Debian package and the wheel, each tried
from clean."""
import json, os, pathlib, re, shutil, subprocess, sys

import pytest

import support
from conftest import BUILD, built

LINES = support.ROOT / "examples/candidates-100.jsonl"


def make(*words):
    done = subprocess.run(["make", "-s", f"BUILD={BUILD}", *map(str, words)],
                          cwd=support.ROOT,
                          capture_output=True,
                          text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def files_of(folder):
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def runs(program, folder):
    """100 lines through the echo worker: every library that the program needs is there."""
    done = subprocess.run(
        [program, "run", "-i", LINES, "-o", folder / "out.jsonl", "--model", "smollm2=echo"],
        capture_output=True,
        text=True,
        env={"HOME": str(folder), "PATH": "/usr/bin:/bin"})
    assert done.returncode == 0, done.stderr
    assert len((folder / "out.jsonl").read_text().splitlines()) == 100


def test_what_make_install_puts_somewhere_make_uninstall_takes_away(tmp_path):
    make("install", f"DESTDIR={tmp_path}", "PREFIX=/opt/quern")
    root = tmp_path / "opt/quern"
    pages = {f"share/man/man1/{path.name}" for path in (support.ROOT / "docs/man").glob("*.1")}
    assert files_of(root) >= pages | {
        "bin/quern", "lib/systemd/system/quern.service", "lib/sysusers.d/quern.conf",
        "lib/tmpfiles.d/quern.conf", "share/bash-completion/completions/quern",
        "share/zsh/site-functions/_quern", "share/fish/vendor_completions.d/quern.fish",
        "share/doc/quern/examples/quern.env", "share/doc/quern/LICENSE",
        "share/doc/quern/examples/quern.service.d/gpu.conf",
        "share/doc/quern/examples/quern.service.d/network.conf"}
    assert "ExecStart=/opt/quern/bin/quern serve\n" in (
        root / "lib/systemd/system/quern.service").read_text()
    assert "#QUERN_STATE_DIR=/var/lib/quern\n" in (
        root / "share/doc/quern/examples/quern.env").read_text()
    runs(root / "bin/quern", tmp_path)
    make("uninstall", f"DESTDIR={tmp_path}", "PREFIX=/opt/quern")
    assert files_of(root) == set() and not (root / "share/doc/quern").exists()


def test_the_debian_package_is_clean_and_the_same_each_time(deb, tmp_path):
    first = deb.read_bytes()
    assert built("deb")[0].read_bytes() == first
    control = subprocess.run(["dpkg-deb", "-f", deb, "Package", "Version", "Depends"],
                             capture_output=True,
                             text=True).stdout
    assert "Package: quern\n" in control and "libc6 (>=" in control and "libsqlite3-0" in control
    subprocess.run(["dpkg-deb", "-x", deb, tmp_path], check=True)
    runs(tmp_path / "usr/bin/quern", tmp_path)
    if shutil.which("lintian"):
        done = subprocess.run(["lintian", "--allow-root", "--fail-on=error,warning", deb],
                              capture_output=True,
                              text=True)
        assert done.returncode == 0, done.stdout + done.stderr


def test_the_wheel_brings_the_command_and_its_libraries(wheel, tmp_path):
    first = wheel.read_bytes()
    assert built("wheel")[0].read_bytes() == first
    assert re.fullmatch(r"quern-[\d.]+-py3-none-manylinux_2_\d+_x86_64\.whl", wheel.name)
    venv = tmp_path / "venv"
    subprocess.run([sys.executable, "-m", "venv", venv], check=True)
    done = subprocess.run([venv / "bin/pip", "install", "-q", "--no-index", wheel],
                          capture_output=True,
                          text=True)
    assert done.returncode == 0, done.stderr
    linked = subprocess.run(["ldd", venv / "bin/quern"], capture_output=True, text=True).stdout
    for name, path in re.findall(r"^\s*(\S+) => (\S+)", linked, re.M):
        assert path.startswith(str(venv)) or re.match(r"lib(c|m|dl|pthread|rt|resolv|util)\.so",
                                                      name), f"{name} is the system's: {path}"
    runs(venv / "bin/quern", tmp_path)
    code = """from quern import Batch, LLM
with Batch(models="smollm2=echo", progress=False) as batch:
    batch.add_to_batch(model="smollm2", messages=[{"role": "user", "content": "hello"}])
    result, output_path, error_path = batch.submit_wait_download()
hello = [{"role": "user", "content": "hello"}]
answer = LLM("smollm2=echo").chat(hello, use_tqdm=False)[0].outputs[0].text
print(result.request_counts.completed, error_path, answer)
"""
    done = subprocess.run([venv / "bin/python", "-I", "-c", code],
                          capture_output=True,
                          text=True,
                          cwd=tmp_path,
                          env={"PATH": "/usr/bin:/bin"})
    assert done.stdout == "1 None hello\n", done.stderr
    done = subprocess.run([venv / "bin/quern-parquet", "rows", "x.parquet"],
                          capture_output=True,
                          text=True)
    assert done.returncode == 1 and "pip install 'quern[parquet]'" in done.stderr
    assert (venv / "share/man/man1/quern-run.1").exists()
    done = subprocess.run([venv / "bin/pip", "uninstall", "-q", "-y", "quern"],
                          capture_output=True,
                          text=True)
    assert done.returncode == 0 and not (venv / "bin/quern").exists() and not (
        venv / "lib/quern").exists() and not (venv / "bin/quern-parquet").exists(), done.stderr
