"""Starts the server under test, for every client test and both outside suites.

The server is whatever FOREBAY_SERVER names (or --server), by default target/release/forebay.
It is always started through a link called `redis-server`, because Forebay behaves as `forebay
serve` under that name: so one command line starts Forebay and Debian's redis-server alike, and
a test can be tried against either.

Invariant: what start() started, stop() ends, and everything a server writes lies in its folder.
"""

import os
import pathlib
import shutil
import signal
import socket
import subprocess
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
START_SECONDS_MAX = 20
STOP_SECONDS_MAX = 20
# The name the certificate is made out to: nothing has to resolve it, clients send it as SNI.
TLS_NAME = "cache.forebay.test"


def default_binary():
    """The server to test: FOREBAY_SERVER, or the release build of this checkout."""
    return os.environ.get("FOREBAY_SERVER") or str(ROOT / "target/release/forebay")


def free_port():
    """A TCP port that nothing listened on a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def make_certificates(folder):
    """Makes a certificate authority and a server certificate signed by it, with openssl."""
    folder = pathlib.Path(folder)
    (folder / "names.cnf").write_text(
        f"subjectAltName=DNS:{TLS_NAME},DNS:localhost,IP:127.0.0.1\n"
        "extendedKeyUsage=serverAuth,clientAuth\nbasicConstraints=CA:FALSE\n"
    )
    key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    commands = [
        ["openssl", "req", "-x509", *key, "-keyout", "ca.key", "-out", "ca.crt", "-days", "2",
         "-subj", "/CN=Forebay test authority",
         "-addext", "keyUsage=critical,keyCertSign,cRLSign"],
        ["openssl", "req", *key, "-keyout", "server.key", "-out", "server.csr",
         "-subj", f"/CN={TLS_NAME}"],
        ["openssl", "x509", "-req", "-in", "server.csr", "-CA", "ca.crt", "-CAkey", "ca.key",
         "-CAcreateserial", "-out", "server.crt", "-days", "2", "-extfile", "names.cnf"],
    ]
    for command in commands:
        subprocess.run(command, cwd=folder, check=True, capture_output=True)


class Server:
    """One running server. `options` are redis.conf options, name to value; `threads` is for
    Forebay alone: redis-server has one."""

    def __init__(self, binary=None, options=None, tls=False, password=None, unix_socket=False,
                 threads=None):
        self.binary = shutil.which(binary or default_binary()) or ""
        if not self.binary:
            wanted = binary or default_binary()
            raise SystemExit(f"no server at {wanted}: build it, or say --server")
        self.extra_options = dict(options or {})
        if threads and self.is_forebay:
            self.extra_options["threads"] = threads
        self.password = password
        self.has_tls = tls
        self.has_unix_socket = unix_socket
        self.process = None
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="forebay-test-"))
        self.host = "127.0.0.1"
        self.port = 0
        self.tls_port = 0
        self.unix_path = str(self.folder / "s.sock")
        if tls:
            make_certificates(self.folder)

    @property
    def is_forebay(self):
        return pathlib.Path(self.binary).resolve().name == "forebay"

    @property
    def name(self):
        """What reports call it: Forebay, or the other program's own name."""
        return "Forebay" if self.is_forebay else pathlib.Path(self.binary).name

    @property
    def log_path(self):
        return self.folder / "server.log"

    def command(self):
        """The command line: the same for Forebay and redis-server, but for the HTTP port."""
        options = {
            "port": self.port, "bind": self.host, "dir": self.folder, "save": "",
            "appendonly": "no",
        }
        if self.is_forebay:
            options["http-port"] = 0
        if self.password:
            options["requirepass"] = self.password
        if self.has_unix_socket:
            options["unixsocket"] = self.unix_path
        if self.has_tls:
            options |= {
                "tls-port": self.tls_port,
                "tls-cert-file": self.folder / "server.crt",
                "tls-key-file": self.folder / "server.key",
                "tls-ca-cert-file": self.folder / "ca.crt",
                "tls-auth-clients": "no",
            }
        link = self.folder / "redis-server"
        if not link.exists():
            link.symlink_to(pathlib.Path(self.binary).resolve())
        words = [str(link)]
        for name, value in (options | self.extra_options).items():
            words += [f"--{name}", str(value)]
        return words

    def start(self):
        """Starts the process and returns once it answers PING."""
        self.port = self.port or free_port()
        if self.has_tls:
            self.tls_port = self.tls_port or free_port()
        with open(self.log_path, "ab") as log:
            self.process = subprocess.Popen(
                self.command(), cwd=self.folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        deadline = time.monotonic() + START_SECONDS_MAX
        while time.monotonic() < deadline:
            if self.answers():
                return self
            if self.process.poll() is not None:
                break
            time.sleep(0.02)
        log_end = self.log_path.read_text(errors="replace")[-2000:]
        self.stop()
        raise SystemExit(f"the server did not start: {' '.join(self.command())}\n{log_end}")

    def answers(self, seconds_max=2):
        """Whether PING gets an answer, be it that a password is wanted."""
        try:
            with socket.create_connection((self.host, self.port), timeout=seconds_max) as wire:
                wire.sendall(b"PING\r\n")
                return wire.recv(16)[:1] in (b"+", b"-")
        except OSError:
            return False

    def is_running(self):
        return self.process is not None and self.process.poll() is None

    def stop(self):
        """Ends the process by SIGTERM and returns its exit code; None where it had to be killed."""
        if self.process is None:
            return None
        process, self.process = self.process, None
        process.send_signal(signal.SIGTERM)
        try:
            return process.wait(timeout=STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            return None

    def restart(self):
        """The same server, empty, on the same port."""
        self.stop()
        return self.start()

    def remove_folder(self):
        shutil.rmtree(self.folder, ignore_errors=True)

    def __enter__(self):
        return self.start()

    def __exit__(self, *_):
        self.stop()
        self.remove_folder()

    def environment(self):
        """What the tests written in other languages read to find the server."""
        found = {
            "FOREBAY_HOST": self.host,
            "FOREBAY_PORT": str(self.port),
            "FOREBAY_ADDRESS": f"{self.host}:{self.port}",
        }
        if self.password:
            found["FOREBAY_PASSWORD"] = self.password
        if self.has_unix_socket:
            found["FOREBAY_UNIX_SOCKET"] = self.unix_path
        if self.has_tls:
            found |= {
                "FOREBAY_TLS_PORT": str(self.tls_port),
                "FOREBAY_TLS_NAME": TLS_NAME,
                "FOREBAY_TLS_CA": str(self.folder / "ca.crt"),
            }
        return found
