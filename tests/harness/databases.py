#!/usr/bin/env python3
"""Private SQL databases for tests: MariaDB and PostgreSQL, each in a folder of its own, reached by
a unix socket only, with default durability (each commit is synced).

    tests/harness/databases.py [--mariadb] [--postgres] -- COMMAND [ARGUMENT]...

The command finds them by FOREBAY_MYSQL and FOREBAY_POSTGRES (addresses as the option `sql` takes
them) and MARIADB_SOCKET. Exits as the command does.

Invariant: what was started is ended and its folder removed; the machine's own databases, if any
run, are not touched.
"""

import argparse
import os
import pathlib
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.parse

START_SECONDS_MAX = 60
STOP_SECONDS_MAX = 60


def find(name, *more):
    """A program, also where Debian hides it from the path."""
    for folder in [*os.environ.get("PATH", "").split(":"), "/usr/sbin", *more]:
        path = pathlib.Path(folder) / name
        if path.is_file():
            return str(path)
    raise SystemExit(f"{name} is not installed")


class Database:
    """A server process with a folder; what kinds have in common."""

    def __init__(self, options=None, folder=None, wrapper=()):
        """`options` are the server's own; `folder` is an empty one to be used instead of a new one
        (and then not removed); `wrapper` is a command that the server is started by."""
        self.options = dict(options or {})
        self.wrapper = list(wrapper)
        self.is_own_folder = folder is None
        self.folder = pathlib.Path(folder or tempfile.mkdtemp(prefix=f"forebay-{self.name}-"))
        self.process = None
        self.prepare()

    def start(self):
        with open(self.folder / "server.log", "ab") as log:
            self.process = subprocess.Popen(
                self.wrapper + self.command(), stdout=log, stderr=log, stdin=subprocess.DEVNULL,
                **self.identity())
        until = time.monotonic() + START_SECONDS_MAX
        while not self.answers():
            if time.monotonic() > until or self.process.poll() is not None:
                log = (self.folder / "server.log").read_text(errors="replace")[-3000:]
                self.stop()
                raise SystemExit(f"{self.name} does not start:\n{log}")
            time.sleep(0.05)
        return self

    def identity(self):
        return {}

    def kill(self):
        """kill -9 of everything, as when the power goes."""
        self.process.kill()
        self.process.wait()

    def stop(self):
        if self.process is None:
            return
        process, self.process = self.process, None
        process.send_signal(self.goodbye)
        try:
            process.wait(timeout=STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def remove_folder(self):
        if self.is_own_folder:
            shutil.rmtree(self.folder, ignore_errors=True)

    def __enter__(self):
        return self.start()

    def __exit__(self, *_):
        self.stop()
        self.remove_folder()


class MariaDb(Database):
    """MariaDB; `sql` runs statements by its own client."""

    name = "mariadb"
    goodbye = signal.SIGTERM

    def prepare(self):
        install = [find("mariadb-install-db"), "--no-defaults", f"--datadir={self.folder}/data",
                   "--skip-test-db", "--auth-root-authentication-method=normal", self.user()]
        install += [word for word in self.words() if "innodb_data_file_path" in word]
        done = subprocess.run(install, capture_output=True, text=True)
        if done.returncode != 0:
            raise SystemExit(done.stdout + done.stderr)

    def user(self):
        # It refuses to run as root unless told to.
        return f"--user={pwd.getpwuid(os.getuid()).pw_name}"

    def words(self):
        return [f"--{name}={value}" for name, value in self.options.items()]

    @property
    def socket(self):
        return self.folder / "mariadb.sock"

    def command(self):
        return [find("mariadbd"), "--no-defaults", f"--datadir={self.folder}/data",
                f"--socket={self.socket}", f"--pid-file={self.folder}/pid", "--skip-networking",
                self.user(), *self.words()]

    def client(self, *words):
        return [find("mariadb"), "--no-defaults", "--user=root", f"--socket={self.socket}",
                "--batch", "--skip-column-names", *words]

    def answers(self):
        return subprocess.run(self.client("-e", "SELECT 1"), capture_output=True).returncode == 0

    def sql(self, text, database=""):
        done = subprocess.run(self.client(database, "-e", text) if database else
                              self.client("-e", text), capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return [line.split("\t") for line in done.stdout.splitlines()]

    def make(self, database):
        """Makes an empty database; its address."""
        self.sql(f"CREATE DATABASE {database} CHARACTER SET utf8mb4")
        socket = urllib.parse.quote(str(self.socket), safe="")
        return f"mysql://root@localhost/{database}?socket={socket}"

    def environment(self):
        return {"MARIADB_SOCKET": str(self.socket), "FOREBAY_MYSQL": self.make("forebay")}


class Postgres(Database):
    """PostgreSQL, as the user `postgres` where the test runs as root: it refuses to be root."""

    name = "postgres"
    goodbye = signal.SIGINT

    def prepare(self):
        versions = sorted(pathlib.Path("/usr/lib/postgresql").glob("*/bin"))
        self.programs = [str(path) for path in reversed(versions)]
        os.chmod(self.folder, 0o755)
        if self.identity():
            shutil.chown(self.folder, "postgres", "postgres")
        done = subprocess.run(
            [find("initdb", *self.programs), "-D", f"{self.folder}/data", "-U", "root",
             "--auth=trust", "--encoding=UTF8", "--locale=C", "--no-instructions"],
            capture_output=True, text=True, cwd=self.folder, **self.identity())
        if done.returncode != 0:
            raise SystemExit(done.stdout + done.stderr)

    def identity(self):
        if os.getuid() != 0:
            return {}
        return {"user": "postgres", "group": "postgres", "extra_groups": []}

    def command(self):
        words = [f"{name}={value}" for name, value in self.options.items()]
        return [find("postgres", *self.programs), "-D", f"{self.folder}/data",
                "-k", str(self.folder), "-c", "listen_addresses=",
                *[part for word in words for part in ("-c", word)]]

    def kill(self):
        # The server processes would go on for a moment without their parent.
        children = subprocess.run(["ps", "-o", "pid=", "--ppid", str(self.process.pid)],
                                  capture_output=True, text=True).stdout.split()
        super().kill()
        for child in children:
            try:
                os.kill(int(child), signal.SIGKILL)
            except ProcessLookupError:
                pass
        for child in children:
            until = time.monotonic() + 5
            while pathlib.Path(f"/proc/{child}").exists() and time.monotonic() < until:
                if "State:\tZ" in status(child):
                    break
                time.sleep(0.01)
        (self.folder / "data/postmaster.pid").unlink(missing_ok=True)

    def client(self, database, text):
        return [find("psql", *self.programs), "-X", "-q", "-A", "-t", "-F", "\t", "-U", "root",
                "-h", str(self.folder), "-d", database, "-c", text]

    def answers(self):
        return subprocess.run(self.client("postgres", "SELECT 1"), capture_output=True,
                              cwd="/").returncode == 0

    def sql(self, text, database="postgres"):
        done = subprocess.run(self.client(database, text), capture_output=True, text=True, cwd="/")
        assert done.returncode == 0, done.stderr
        return [line.split("\t") for line in done.stdout.splitlines()]

    def make(self, database):
        """Makes an empty database; its address."""
        self.sql(f"CREATE DATABASE {database}")
        folder = urllib.parse.quote(str(self.folder), safe="")
        return f"postgres://root@/{database}?host={folder}"

    def environment(self):
        return {"FOREBAY_POSTGRES": self.make("forebay")}


def status(process):
    try:
        return pathlib.Path(f"/proc/{process}/status").read_text()
    except OSError:
        return ""


def main():
    parser = argparse.ArgumentParser(description="Runs a command with SQL databases beside it.")
    parser.add_argument("--mariadb", action="store_true")
    parser.add_argument("--postgres", action="store_true")
    parser.add_argument("command", nargs=argparse.REMAINDER)
    arguments = parser.parse_args()
    command = arguments.command[1:] if arguments.command[:1] == ["--"] else arguments.command
    if not command:
        parser.error("no command to run")
    # So that the clean-up below also runs where a time limit ends this program.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    kinds = [MariaDb] * arguments.mariadb + [Postgres] * arguments.postgres
    databases = []
    try:
        environment = dict(os.environ)
        for kind in kinds:
            databases.append(kind())
            environment |= databases[-1].start().environment()
        return subprocess.run(command, env=environment).returncode
    finally:
        for database in databases:
            database.stop()
            database.remove_folder()


if __name__ == "__main__":
    sys.exit(main())
