"""RDB files between Forebay and Debian's redis-server, both ways; redis-check-rdb on ours.

A data set with every type and encoding is written by one server, saved, and loaded by the other;
everything is read back by ordinary commands and compared. DUMP and RESTORE are tried the same way,
key by key.
"""

import pathlib
import random
import shutil
import subprocess
import sys
import time

import pytest
import redis

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "harness"))
from server import Server, default_binary  # noqa: E402 (found by the line above)

REDIS = shutil.which("redis-server")
CHECK = shutil.which("redis-check-rdb")
LOAD_SECONDS_MAX = 60
FAR_MS = 4_000_000_000_000
WAYS = ["forebay to redis", "redis to forebay", "forebay to forebay"]
WRITINGS = [
    {"rdbcompression": "yes", "rdbchecksum": "yes"},
    {"rdbcompression": "no", "rdbchecksum": "no"},
    {"maxmemory-policy": "allkeys-lru"},
    {"maxmemory-policy": "volatile-lfu"},
]


def binaries(way):
    """Who writes and who reads."""
    of = {"forebay": default_binary(), "redis": REDIS}
    return [of[name] for name in way.split(" to ")]


def connect(server):
    """A client of a server that has loaded its file."""
    client = redis.Redis(server.host, server.port, socket_timeout=20)
    deadline = time.monotonic() + LOAD_SECONDS_MAX
    while time.monotonic() < deadline:
        try:
            client.ping()
            return client
        except redis.BusyLoadingError:
            time.sleep(0.02)
    raise AssertionError("still loading")


def words(count, length, seed):
    """Words that are alike and not alike: some compress well, some do not."""
    source = random.Random(seed)
    for number in range(count):
        if number % 3 == 0:
            yield f"member {number:06} ".encode() * (length // 14 + 1)
        elif number % 3 == 1:
            yield source.randbytes(length)
        else:
            yield str(source.randrange(-(2**40), 2**40)).encode()


def fill_strings(pipe):
    for bits in (0, 6, 7, 8, 14, 15, 16, 31, 32, 33, 62, 63):
        for number in (2**bits - 1, -(2**bits), 2**bits - 2):
            pipe.set(f"number {number}", number)
    for text in ("", "-0", "007", " 1", "1.5", "9223372036854775808", "x" * 11, "x" * 21):
        pipe.set(f"text {text}", text)
    for length in (1, 20, 21, 63, 64, 16383, 16384, 100_000, 1_500_000):
        pipe.set(f"run {length}", b"ab" * (length // 2) + b"z")
        pipe.set(f"noise {length}", random.Random(length).randbytes(length))
    pipe.set(random.Random(1).randbytes(40), "a key of any bytes")
    pipe.set("k" * 300, "a long key that compresses")
    pipe.append("appended", "12").append("appended", "34")
    pipe.setbit("bits", 1000, 1)
    pipe.pfadd("sparse", *range(50))
    pipe.pfadd("dense", *range(20000))


def fill_collections(pipe):
    for count, length in ((1, 5), (3, 5), (100, 20), (129, 5), (600, 30), (5000, 40), (2, 9000)):
        some = list(dict.fromkeys(words(count, length, count)))
        pipe.rpush(f"list {count} {length}", *some)
        pipe.sadd(f"set {count} {length}", *some)
        pipe.hset(f"hash {count} {length}", mapping={word: word[::-1] for word in some})
        scores = {word: number * 0.37 - 50 for number, word in enumerate(some)}
        pipe.zadd(f"zset {count} {length}", scores)
    for width, count in ((10, 20), (20, 20), (40, 20), (10, 513), (40, 511)):
        numbers = [(number - count // 2) * 2**width for number in range(count)]
        pipe.sadd(f"ints {width} {count}", *numbers)
    scores = {"inf": "inf", "-inf": "-inf", "zero": 0, "third": 1 / 3, "big": 1e300, "tiny": 5e-324,
              "whole": 2**53, "half": -0.5, "same a": 7, "same b": 7}
    pipe.zadd("scores", scores)
    pipe.zadd("scores large", scores | {f"m{number}": number / 7 for number in range(300)})


def fill(client):
    """A data set with every type, encoding, and way to expire."""
    pipe = client.pipeline(transaction=False)
    fill_strings(pipe)
    fill_collections(pipe)
    for number in range(300):
        pipe.set(f"expires {number}", "x", pxat=FAR_MS + number)
    pipe.hset("hash expires", "f", "v").pexpireat("hash expires", FAR_MS)
    pipe.set("gone soon", "x", px=1)
    for db in (1, 9, 15):
        pipe.select(db).set("db", db).rpush("list", db, db)
    pipe.select(0)
    pipe.execute()
    fill_streams(client)


def fill_streams(client):
    """Streams of all kinds, where the server has them."""
    try:
        client.xadd("stream", {"field": "value"}, id="1-1")
    except redis.ResponseError as error:
        if "unknown command" in str(error):
            return
        raise
    pipe = client.pipeline(transaction=False)
    for number in range(500):
        pipe.xadd("stream long", {"a": number, "b" * (number % 3 + 1): "x" * 50}, id=f"{number}-7")
    pipe.xadd("stream empty", {"a": 1}, id="5-5").xdel("stream empty", "5-5")
    pipe.xdel("stream long", *[f"{number}-7" for number in range(0, 300, 3)])
    pipe.xgroup_create("stream long", "group", id="0")
    pipe.xgroup_create("stream long", "idle", id="$")
    pipe.xreadgroup("group", "alice", {"stream long": ">"}, count=20)
    pipe.xreadgroup("group", "bob", {"stream long": ">"}, count=5)
    pipe.xack("stream long", "group", "1-7", "4-7")
    pipe.xgroup_createconsumer("stream long", "group", "nobody")
    pipe.execute()

def stream(client, key):
    """Everything that a stream tells, without times."""
    info = client.xinfo_stream(key)
    kept = ("length", "last-generated-id", "max-deleted-entry-id", "entries-added",
            "recorded-first-entry-id")
    groups = []
    for group in client.xinfo_groups(key):
        name = group["name"]
        pending = client.xpending_range(key, name, "-", "+", 1000)
        pending = [(row["message_id"], row["consumer"], row["times_delivered"]) for row in pending]
        consumers = [(row["name"], row["pending"]) for row in client.xinfo_consumers(key, name)]
        groups.append((tuple(group.items()), pending, sorted(consumers)))
    return [info[name] for name in kept], client.xrange(key), groups


READERS = {
    b"string": lambda client, key: client.get(key),
    b"list": lambda client, key: client.lrange(key, 0, -1),
    b"set": lambda client, key: sorted(client.smembers(key)),
    b"hash": lambda client, key: sorted(client.hgetall(key).items()),
    b"zset": lambda client, key: client.zrange(key, 0, -1, withscores=True),
    b"stream": stream,
}


def contents(server):
    """Every key of every database, with its value and its time to live."""
    found = {}
    client = connect(server)
    for db in range(16):
        client.select(db)
        for key in client.keys():
            kind = client.type(key)
            found[db, key] = kind, READERS[kind](client, key), client.pexpiretime(key)
    return found


def compare(got, wanted):
    assert got.keys() == wanted.keys()
    for key, value in wanted.items():
        assert got[key] == value, key


def transfer(writer, reader):
    """Lets one server save and another load."""
    connect(writer).save()
    shutil.copy(writer.folder / "dump.rdb", reader.folder / "dump.rdb")
    reader.start()


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("writing", WRITINGS, ids=lambda options: "-".join(options.values()))
def test_files_cross(way, writing):
    one, other = binaries(way)
    debug = {"enable-debug-command": "yes"}
    with Server(one, writing | debug) as writer:
        fill(connect(writer))
        time.sleep(0.01)
        wanted = contents(writer)
        reader = Server(other, debug)
        try:
            transfer(writer, reader)
            compare(contents(reader), wanted)
            assert digest(reader) == digest(writer)
        finally:
            reader.stop()
            reader.remove_folder()
        if way.startswith("forebay") and CHECK:
            path = str(writer.folder / "dump.rdb")
            checked = subprocess.run([CHECK, path], capture_output=True, text=True)
            assert checked.returncode == 0, checked.stdout
            assert r"\o/ RDB looks OK! \o/" in checked.stdout


@pytest.mark.parametrize("way", WAYS)
def test_payloads_cross(way):
    one, other = binaries(way)
    with Server(one) as writer, Server(other) as reader:
        fill(connect(writer))
        time.sleep(0.01)
        wanted = contents(writer)
        source, sink = connect(writer), connect(reader)
        for (db, key), (_, _, expire_at) in wanted.items():
            source.select(db)
            sink.select(db)
            payload = source.dump(key)
            sink.restore(key, max(expire_at, 0), payload, absttl=True)
        compare(contents(reader), wanted)


def test_the_background_saves_what_was_there():
    with Server() as server:
        client = connect(server)
        fill(client)
        time.sleep(0.01)
        wanted = contents(server)
        client.config_set("rdb-key-save-delay", 1000)
        assert client.bgsave()
        with pytest.raises(redis.ResponseError, match="Background save already in progress"):
            client.bgsave()
        # What is written from here on is not in the file.
        pipe = client.pipeline(transaction=False)
        for number in range(300):
            pipe.set(f"expires {number}", "changed").rpush("list 3 5", number)
            pipe.set(f"new {number}", "x").delete(f"number {number}")
        pipe.execute()
        client.swapdb(0, 9)
        client.flushdb()
        deadline = time.monotonic() + LOAD_SECONDS_MAX
        while client.info("persistence")["rdb_bgsave_in_progress"]:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        assert client.info("persistence")["rdb_last_bgsave_status"] == "ok"
        server.process.kill()
        server.process.wait()
        server.process = None
        server.start()
        compare(contents(server), wanted)


def test_a_clean_end_saves_by_the_rules():
    with Server(options={"save": "3600 1"}) as server:
        connect(server).set("key", "value")
        server.restart()
        assert connect(server).get("key") == b"value"
        with pytest.raises(redis.ConnectionError):
            connect(server).shutdown(nosave=True)
            connect(server).get("key")


@pytest.mark.parametrize("damage", ["cut", "flip", "empty"])
def test_a_damaged_file_is_refused_with_a_reason(damage):
    with Server() as server:
        client = connect(server)
        client.mset({f"key {number}": "value" * 10 for number in range(100)})
        client.save()
        path = server.folder / "dump.rdb"
        whole = path.read_bytes()
        server.stop()
        middle = len(whole) // 2
        flipped = whole[:middle] + bytes([whole[middle] ^ 0x10]) + whole[middle + 1:]
        path.write_bytes({"cut": whole[:middle], "flip": flipped, "empty": b""}[damage])
        with open(server.log_path, "ab") as log:
            ended = subprocess.run(server.command(), stdout=log, stderr=log, cwd=server.folder,
                                   timeout=20)
        assert ended.returncode == 1
        log = server.log_path.read_text(errors="replace")
        assert "Fatal error loading the DB, check server logs. Exiting." in log
        if damage != "flip":
            assert "Short read or OOM loading DB. Unrecoverable error, aborting now." in log
        assert "at offset " in log
        # What is sound is found.
        tool = [server.binary, "check", "rdb", str(path)]
        checked = subprocess.run(tool, capture_output=True, text=True)
        assert checked.returncode == 1
        assert "offset" in checked.stdout


@pytest.mark.parametrize("name", ["forebay", "redis"])
def test_import_and_export(name, tmp_path):
    tool = default_binary()
    binary = {"forebay": tool, "redis": REDIS}[name]
    path = str(tmp_path / "all.rdb")

    def run(*words):
        ran = subprocess.run([tool, *words], capture_output=True, text=True, timeout=60)
        assert ran.returncode == 0, ran.stderr

    debug = {"enable-debug-command": "yes"}
    servers = [Server(binary, debug) for _ in range(3)]
    with servers[0] as source, servers[1] as sink, servers[2] as last:
        fill(connect(source))
        time.sleep(0.01)
        wanted = contents(source)
        run("export", path, "--server", f"127.0.0.1:{source.port}")
        run("import", path, "--server", f"127.0.0.1:{sink.port}")
        run("import", f"redis://127.0.0.1:{sink.port}", "--server", f"127.0.0.1:{last.port}")
        for server in (sink, last):
            found = contents(server)
            assert found.keys() == wanted.keys()
            for key, (kind, value, expire_at) in wanted.items():
                assert found[key][:2] == (kind, value), key
                assert abs(found[key][2] - expire_at) < 2000, key
            assert digest(server) == digest(source)


def digest(server):
    client = connect(server)
    # redis-server counts a key past its time until it has been removed; to look at it removes it.
    client.exists("gone soon")
    return client.execute_command("DEBUG", "DIGEST")
