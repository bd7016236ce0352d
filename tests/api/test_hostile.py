# SPDX-License-Identifier: Apache-2.0
import pathlib, re, subprocess, sys

import support


def test_no_case_of_the_raw_socket_suite_crashes_hangs_or_confuses_the_server(tmp_path, many_files):
    with support.serving(tmp_path / "state", "--model", "smollm2=echo") as server:
        done = subprocess.run([
            sys.executable,
            pathlib.Path(__file__).with_name("hostile.py"), "--port",
            str(server.port)],
                              capture_output=True,
                              text=True,
                              timeout=600)
        found = re.search(r"(\d+) passed, (\d+) failed", done.stdout)
        assert found, done.stdout[-3000:] + done.stderr[-3000:]
        print(found[0])
        assert int(found[2]) == 0, done.stdout[-4000:]
        assert int(found[1]) >= 160
    support.fsck(tmp_path / "state")
