# SPDX-License-Identifier: Apache-2.0
"""The packages as `make deb` and `make wheel` build them, and a bare Debian whose service manager
runs in namespaces."""
import contextlib, ctypes, json, os, pathlib, re, shutil, signal, subprocess, time

import pytest

import support

BUILD = pathlib.Path(support.BINARY).resolve().parents[1]
HERE = pathlib.Path(__file__).parent
UNREACHABLE = re.compile(
    r"Could not resolve|Temporary failure|Cannot initiate the connection|Could not connect|Connection refused|Unable to connect"
)
LIBC = ctypes.CDLL(None, use_errno=True)
KEY = "sk-key-of-the-tests-0123456789"
MODEL = "SmolLM2-135M-Instruct.Q4_1.gguf"
MASKED = ("console-getty.service", "getty@.service", "systemd-sysctl.service",
          "systemd-modules-load.service", "systemd-udevd.service", "apt-daily.timer",
          "apt-daily-upgrade.timer", "dpkg-db-backup.timer", "e2scrub_all.timer", "fstrim.timer")


def built(kind):
    done = subprocess.run([support.ROOT / "tools" / kind, BUILD], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return [pathlib.Path(line.rsplit(" (", 1)[0]) for line in done.stdout.splitlines()]


@pytest.fixture(scope="session")
def deb():
    if not shutil.which("dpkg-shlibdeps"):
        pytest.skip("dpkg-dev is not installed")
    return built("deb")[0]


@pytest.fixture(scope="session")
def wheel():
    if not shutil.which("patchelf"):
        pytest.skip("patchelf is not installed")
    return built("wheel")[0]


def debootstrap(folder):
    """A minimal Debian 12 with systemd; skips where no registry can be reached."""
    done = subprocess.run([
        "mmdebstrap", "--quiet", "--variant=minbase",
        "--include=systemd,systemd-sysv,dbus,init-system-helpers", "bookworm", folder],
                          capture_output=True,
                          text=True)
    if done.returncode != 0 and UNREACHABLE.search(done.stderr):
        pytest.skip("no Debian can be fetched without network")
    assert done.returncode == 0, done.stderr[-3000:]


class Debian:
    """A folder with a Debian, and systemd in it once it is booted."""

    def __init__(self, folder):
        self.folder, self.process, self.pid = folder, None, None

    def boot(self):
        self.process = subprocess.Popen([HERE / "boot", self.folder],
                                        stdout=subprocess.DEVNULL,
                                        stderr=open(self.folder.parent / "boot.log", "a"))
        found = lambda: [
            pid for pid in self.descendants(self.process.pid) if self.name_of(pid) == "systemd"]
        support.until(lambda: found() or self.process.poll() is not None, 300)
        assert self.process.poll() is None, (self.folder.parent / "boot.log").read_text()
        self.pid = found()[0]
        support.until(
            lambda: self.run("systemctl", "is-system-running").stdout.strip() in
            ("running", "degraded"), 300)

    @staticmethod
    def name_of(pid):
        with contextlib.suppress(OSError):
            return pathlib.Path(f"/proc/{pid}/comm").read_text().strip()

    @classmethod
    def descendants(cls, pid):
        return [one for child in support.children(pid) for one in (child, *cls.descendants(child))]

    def power_off(self):
        """As a cut of the power, but for the disk: every process of it dies at once."""
        if self.pid:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)
            self.process.wait(300)
            self.pid = None

    def run(self, *command, **keywords):
        return subprocess.run(
            ["nsenter", "-t", str(self.pid), "-a", *map(str, command)],
            capture_output=True,
            text=True,
            **keywords)

    def good(self, *command):
        done = self.run(*command)
        assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}\n{self.run('journalctl', '-n', '60', '--no-pager').stdout}"
        return done.stdout

    def show(self, name):
        return self.good("systemctl", "show", "quern", "-p", name, "--value").strip()

    def write(self, path, text, mode=0o644):
        path = self.folder / path.lstrip("/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(mode)

    @contextlib.contextmanager
    def network(self):
        """This thread opens its sockets in the Debian's network."""
        with open("/proc/self/ns/net") as own, open(f"/proc/{self.pid}/ns/net") as its:
            assert LIBC.setns(its.fileno(), 0x40000000) == 0
            try:
                yield
            finally:
                assert LIBC.setns(own.fileno(), 0x40000000) == 0

    def server(self):
        return Service(self)


class Service(support.Server):
    """The client half of support.Server for the service in a Debian."""

    def __init__(self, debian):
        super().__init__(debian.folder / "var/lib/quern")
        self.debian, self.port = debian, 8080

    def call(self, method, path, body=None, kind="application/json", headers=None):
        with self.debian.network():
            return super().call(method, path, body, kind,
                                {"Authorization": f"Bearer {KEY}", **(headers or {})})

    def log_text(self):
        return self.debian.run("journalctl", "-u", "quern", "--no-pager").stdout


@pytest.fixture(scope="module")
def debian(deb, tmp_path_factory):
    """A booted Debian with the package and a model, its service not started."""
    if os.geteuid() != 0 or not shutil.which("mmdebstrap"):
        pytest.skip("needs root and mmdebstrap")
    folder = tmp_path_factory.mktemp("debian") / "root"
    debootstrap(folder)
    shutil.copy(deb, folder / "root")
    for command in (["apt-get", "update", "-qq"], [
            "apt-get", "install", "-y", "-qq", "--no-install-recommends", f"/root/{deb.name}"]):
        done = subprocess.run(["chroot", folder, *command],
                              capture_output=True,
                              text=True,
                              env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"})
        if done.returncode != 0 and UNREACHABLE.search(done.stderr):
            pytest.skip("no package can be fetched without network")
        assert done.returncode == 0, done.stdout + done.stderr
    for unit in MASKED:
        (folder / "etc/systemd/system" / unit).symlink_to("/dev/null")
    machine = Debian(folder)
    models = folder / "var/cache/quern/models"
    machine.boot()
    models.mkdir(parents=True, exist_ok=True)
    shutil.copy(pathlib.Path.home() / ".cache/quern/models" / MODEL, models / MODEL)
    (models / MODEL).chmod(0o644)
    machine.write("/etc/credstore/quern.api-keys", KEY + "\n", 0o600)
    try:
        yield machine
    finally:
        machine.power_off()
