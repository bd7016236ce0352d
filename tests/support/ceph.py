# SPDX-License-Identifier: Apache-2.0
"""A Ceph cluster of one monitor, one OSD in memory, and the S3 gateway, from Debian's packages
ceph-mon, ceph-osd, ceph-common and radosgw."""
import contextlib, os, pathlib, shutil, signal, socket, subprocess, time, urllib.request, uuid

import boto3
import botocore.config

PROGRAMS = ("ceph-mon", "ceph-osd", "radosgw", "radosgw-admin", "ceph-authtool", "monmaptool")
CONFIG = """[global]
fsid = {fsid}
mon host = [v1:127.0.0.1:{mon}]
public network = 127.0.0.0/8
auth cluster required = none
auth service required = none
auth client required = none
ms bind msgr2 = false
osd pool default size = 1
osd pool default min size = 1
osd pool default pg num = 4
osd crush chooseleaf type = 0
mon allow pool size one = true
osd objectstore = memstore
memstore device bytes = 4294967296
mon data = {folder}/mon
osd data = {folder}/osd.0
keyring = {folder}/keyring
run dir = {folder}
log file = {folder}/$name.log
mon cluster log file = {folder}/cluster.log
admin socket = {folder}/$name.asok
pid file = {folder}/$name.pid
rgw frontends = beast endpoint=127.0.0.1:{port}
"""


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


def is_installed():
    return all(shutil.which(program) for program in PROGRAMS)


class Gateway:
    key = ("QUERN0", "a/secret+with=signs")

    def __init__(self, folder):
        self.folder, self.config = folder, folder / "ceph.conf"
        self.url = f"http://127.0.0.1:{free_port()}"
        self.processes = []

    def call(self, *words, seconds=60):
        done = subprocess.run([*map(str, words)],
                              env={**os.environ, "CEPH_CONF": str(self.config)},
                              capture_output=True,
                              text=True,
                              timeout=seconds)
        assert done.returncode == 0, f"{words}: {done.stderr[-2000:]}"
        return done.stdout

    def run(self, *words):
        with open(self.folder / f"{words[0]}.out", "wb") as out:
            self.processes.append(
                subprocess.Popen([*words, "-f", "-c", str(self.config)], stdout=out, stderr=out))

    def start(self):
        fsid, osd, mon = uuid.uuid4(), uuid.uuid4(), free_port()
        self.config.write_text(
            CONFIG.format(fsid=fsid, mon=mon, folder=self.folder, port=self.url.rsplit(":", 1)[1]))
        keyring, monmap = self.folder / "keyring", self.folder / "monmap"
        (self.folder / "osd.0").mkdir()
        self.call("ceph-authtool", "--create-keyring", keyring, "--gen-key", "-n", "mon.", "--cap",
                  "mon", "allow *")
        for user in ("client.admin", "client.rgw"):
            self.call("ceph-authtool", keyring, "--gen-key", "-n", user, "--cap", "mon", "allow *",
                      "--cap", "osd", "allow *")
        self.call("monmaptool", "--create", "--addv", "a", f"[v1:127.0.0.1:{mon}]", "--fsid", fsid,
                  monmap)
        self.call("ceph-mon", "--mkfs", "-i", "a", "--monmap", monmap, "--keyring", keyring)
        self.run("ceph-mon", "-i", "a")
        self.call("ceph", "osd", "new", osd)
        self.call("ceph-osd", "-i", "0", "--mkfs", "--osd-uuid", osd)
        self.run("ceph-osd", "-i", "0")
        self.run("radosgw", "-n", "client.rgw")
        self.wait(120)
        self.call("radosgw-admin", "user", "create", "--uid", "quern", "--display-name", "quern",
                  "--access-key", self.key[0], "--secret-key", self.key[1])

    def wait(self, seconds):
        deadline = time.monotonic() + seconds
        while True:
            try:
                urllib.request.urlopen(self.url, timeout=2)
                return
            except OSError:
                logs = [path.read_text()[-800:] for path in self.folder.glob("*.log")]
                assert time.monotonic() < deadline, logs
                time.sleep(0.2)

    def client(self):
        return boto3.client("s3",
                            endpoint_url=self.url,
                            region_name="us-east-1",
                            aws_access_key_id=self.key[0],
                            aws_secret_access_key=self.key[1],
                            config=botocore.config.Config(s3={"addressing_style": "path"},
                                                          proxies={}))

    @property
    def environment(self):
        own = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
        return {**own, "AWS_ENDPOINT_URL": self.url, "AWS_ACCESS_KEY_ID": self.key[0],
                "AWS_SECRET_ACCESS_KEY": self.key[1], "AWS_CONFIG_FILE": "/dev/null",
                "no_proxy": "*"}


@contextlib.contextmanager
def serving(folder):
    gateway = Gateway(pathlib.Path(folder))
    try:
        gateway.start()
        yield gateway
    finally:
        for process in reversed(gateway.processes):
            process.send_signal(signal.SIGKILL)
            process.wait()
