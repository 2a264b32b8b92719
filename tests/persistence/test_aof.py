"""Append-only files between Forebay and Debian's redis-server, both ways, and functions in every
kind of file; redis-check-aof and redis-check-rdb on what Forebay wrote.

The log that crosses has a base file in RDB form and commands after it: one data set lies in the
base, another in the incremental file.
"""

import shutil
import subprocess
import time

import pytest
import redis

from test_rdb import (
    CHECK, LOAD_SECONDS_MAX, WAYS, Server, binaries, compare, connect, contents, digest, fill,
)

CHECK_AOF = shutil.which("redis-check-aof")
AOF = {"appendonly": "yes", "enable-debug-command": "yes", "appendfsync": "everysec",
       "auto-aof-rewrite-percentage": 0}

LIBRARY = """#!lua name=mine
local calls = 0
redis.register_function('put', function(keys, args)
    calls = calls + 1
    redis.call('SET', keys[1], cjson.encode({args[1], calls}))
    return calls
end)
redis.register_function{function_name='look', callback=function(keys)
    return redis.call('GET', keys[1])
end, flags={'no-writes'}, description='what is there'}
"""
OTHER = """#!lua name=other
redis.register_function('three', function() return {1, {ok='ž'}, 3} end)
"""


def wait_for_rewrite(client):
    """Until no rewrite runs or is to run; it must have ended well."""
    deadline = time.monotonic() + LOAD_SECONDS_MAX
    while True:
        info = client.info("persistence")
        if not info["aof_rewrite_in_progress"] and not info["aof_rewrite_scheduled"]:
            break
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert info["aof_last_bgrewrite_status"] == "ok"


def rewrite(client):
    client.bgrewriteaof()
    wait_for_rewrite(client)


def change(client):
    """Commands for the incremental file, among them those that are logged as something else."""
    pipe = client.pipeline(transaction=False)
    pipe.set("number 63 -1", "changed").incrbyfloat("float", "0.1").incrbyfloat("float", "1e10")
    pipe.hincrbyfloat("hash float", "f", "3.25").spop("set 100 20", 7).spop("set 3 5")
    pipe.set("soon", "x", ex=100_000).getex("soon", ex=200_000).expire("appended", 300_000)
    pipe.lpop("list 600 30", 300).linsert("list 100 20", "before", "none", "x")
    pipe.lmove("list 5000 40", "list moved", "LEFT", "RIGHT")
    pipe.zadd("scores", {"incremented": 1}, incr=True).zpopmin("zset 600 30", 20)
    pipe.zunionstore("union", {"scores": 2, "zset 129 5": 0.5}, aggregate="MAX")
    pipe.geoadd("places", [13.361389, 38.115556, "Palermo", 15.087269, 37.502669, "Catania"])
    pipe.sort("ints 10 20", store="sorted").copy("bits", "bits copied").rename("text 1.5", "named")
    pipe.bitfield("fields").set("u8", "#3", 200).incrby("i16", 100, -5).execute()
    pipe.eval("for i = 1, 50 do redis.call('RPUSH', 'scripted', i, redis.sha1hex(i)) end", 0)
    pipe.eval("redis.call('SET', 'at random', redis.call('SRANDMEMBER', 'set 129 5'))", 0)
    pipe.execute()
    with client.pipeline(transaction=True) as multi:
        multi.set("multi", 1).rpush("multi list", 1, 2).delete("multi").set("multi", 2)
        multi.execute()
    blocked = client.pipeline(transaction=False)
    blocked.xadd("stream long", {"late": 1}, id="9999-1").xtrim("stream long", maxlen=200)
    blocked.xreadgroup("group", "carol", {"stream long": ">"}, count=3)
    blocked.xclaim("stream long", "group", "dave", 0, ["2-7"]).xack("stream long", "group", "5-7")
    blocked.xgroup_setid("stream long", "idle", "100-0")
    blocked.swapdb(1, 9)
    blocked.execute()


def give_log(writer, reader):
    """Lets another server start from what this one wrote."""
    writer.stop()
    shutil.copytree(writer.folder / "appendonlydir", reader.folder / "appendonlydir")
    reader.start()


def check_files(folder):
    """What Redis's own tools say of a log."""
    manifest = next(folder.glob("*.manifest"))
    checked = subprocess.run([CHECK_AOF, str(manifest)], capture_output=True, text=True)
    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert "All AOF files and manifest are valid" in checked.stdout
    for base in folder.glob("*.base.rdb"):
        checked = subprocess.run([CHECK, str(base)], capture_output=True, text=True)
        assert checked.returncode == 0, checked.stdout
        assert r"\o/ RDB looks OK! \o/" in checked.stdout


def commands_of(server):
    """The words of the commands in the incremental file, roughly."""
    files = (server.folder / "appendonlydir").glob("*.incr.aof")
    return b"".join(path.read_bytes() for path in files)


@pytest.mark.parametrize("threads", [1, 4])
@pytest.mark.parametrize("way", WAYS)
def test_logs_cross(way, threads):
    one, other = binaries(way)
    writer, reader = (Server(binary, AOF, threads=threads) for binary in (one, other))
    try:
        client = connect(writer.start())
        fill(client)
        time.sleep(0.01)
        client.exists("gone soon")
        rewrite(client)
        change(client)
        wanted, wanted_digest = contents(writer), digest(writer)
        give_log(writer, reader)
        log = commands_of(writer)
        assert b"scripted" in log and b"carol" in log and b"SPOP" not in log.upper()
        compare(contents(reader), wanted)
        assert digest(reader) == wanted_digest
        check_files(writer.folder / "appendonlydir")
        # And it goes on from there: what the reader writes is read as well.
        rewrite(connect(reader))
        connect(reader).rpush("list moved", "last")
        wanted = contents(reader)
        reader.restart()
        compare(contents(reader), wanted)
        check_files(reader.folder / "appendonlydir")
    finally:
        for server in (writer, reader):
            server.stop()
            server.remove_folder()


@pytest.mark.parametrize("preamble", ["yes", "no"])
def test_a_log_without_a_base_crosses(preamble):
    """What was never rewritten, and what is rewritten as commands."""
    options = AOF | {"aof-use-rdb-preamble": preamble}
    for way in WAYS:
        one, other = binaries(way)
        writer, reader = Server(one, options), Server(other, options)
        try:
            client = connect(writer.start())
            fill(client)
            time.sleep(0.01)
            client.exists("gone soon")
            if preamble == "no":
                rewrite(client)
            wanted, wanted_digest = contents(writer), digest(writer)
            give_log(writer, reader)
            compare(contents(reader), wanted)
            assert digest(reader) == wanted_digest
            check_files(writer.folder / "appendonlydir")
        finally:
            for server in (writer, reader):
                server.stop()
                server.remove_folder()


def load_library(client):
    assert client.function_load(LIBRARY) == b"mine"
    assert client.function_load(OTHER) == b"other"


def check_library(client):
    """The functions are there, and are those that were loaded."""
    listed = client.execute_command("FUNCTION", "LIST", "WITHCODE")
    codes = {row[1]: row[row.index(b"library_code") + 1].decode() for row in listed}
    assert codes == {b"mine": LIBRARY, b"other": OTHER}
    # The count is the library's own: it begins anew with each loading.
    calls = client.fcall("put", 1, "by function", "ž")
    assert calls >= 1
    assert client.fcall_ro("look", 1, "by function") == f'["ž",{calls}]'.encode()
    with pytest.raises(redis.ResponseError, match="with write flag"):
        client.fcall_ro("put", 1, "by function", "x")
    assert client.fcall("three", 0) == [1, "ž".encode(), 3]


@pytest.mark.parametrize("threads", [1, 4])
def test_functions_survive_a_restart(threads):
    for options, prepare in (
        ({"save": "3600 1"}, lambda client: None),
        ({}, lambda client: client.save()),
        (AOF, lambda client: None),
        (AOF, rewrite),
        (AOF | {"aof-use-rdb-preamble": "no"}, rewrite),
    ):
        with Server(options=options, threads=threads) as server:
            client = connect(server)
            load_library(client)
            client.function_load("#!lua name=gone\nredis.register_function('g', function() end)")
            client.function_delete("gone")
            client.set("key", 1)
            prepare(client)
            server.restart()
            assert connect(server).get("key") == b"1"
            check_library(connect(server))
            # Deleted and flushed stays so.
            connect(server).function_flush()
            prepare(connect(server))
            server.restart()
            if options != {}:
                assert connect(server).execute_command("FUNCTION", "LIST") == []


def test_functions_survive_kill():
    with Server(options=AOF | {"appendfsync": "always"}) as server:
        load_library(connect(server))
        server.process.kill()
        server.process.wait()
        server.process = None
        server.start()
        check_library(connect(server))


@pytest.mark.parametrize("way", WAYS)
def test_functions_cross(way):
    """By payload, by RDB file and by log."""
    one, other = binaries(way)
    with Server(one) as writer, Server(other) as reader:
        source, sink = connect(writer), connect(reader)
        load_library(source)
        payload = source.execute_command("FUNCTION", "DUMP")
        sink.function_load("#!lua name=old\nredis.register_function('old', function() end)")
        sink.execute_command("FUNCTION", "RESTORE", payload, "FLUSH")
        check_library(sink)
        with pytest.raises(redis.ResponseError, match="Library (mine|other) already exists"):
            sink.execute_command("FUNCTION", "RESTORE", payload)
        sink.execute_command("FUNCTION", "RESTORE", payload, "REPLACE")
        check_library(sink)
        for damage in range(0, len(payload), 7):
            broken = bytearray(payload)
            broken[damage] ^= 0x21
            with pytest.raises(redis.ResponseError, match="DUMP payload version or checksum"):
                sink.execute_command("FUNCTION", "RESTORE", bytes(broken), "REPLACE")
        check_library(sink)
        source.save()
        saved = writer.folder / "dump.rdb"
        reader.stop()
        shutil.copy(saved, reader.folder / "dump.rdb")
        reader.start()
        check_library(connect(reader))
    for rewritten in (False, True):
        writer, reader = Server(one, AOF), Server(other, AOF)
        try:
            client = connect(writer.start())
            load_library(client)
            if rewritten:
                rewrite(client)
            give_log(writer, reader)
            check_library(connect(reader))
            check_files(writer.folder / "appendonlydir")
        finally:
            for server in (writer, reader):
                server.stop()
                server.remove_folder()


def test_turning_off_cancels_a_rewrite_and_another_can_be_asked_for_at_once():
    slow = AOF | {"rdb-key-save-delay": 10_000_000}
    with Server(options=slow) as server, redis.Redis(server.host, server.port) as client:
        client.mset({f"key:{number}": number for number in range(10)})
        for _ in range(20):
            client.config_set("rdb-key-save-delay", 10_000_000)
            assert client.bgrewriteaof()
            client.config_set("appendonly", "no")
            client.config_set("rdb-key-save-delay", 0)
            # The rewrite that was cancelled is gone for clients, though it may need a moment more.
            assert client.bgrewriteaof()
            wait_for_rewrite(client)
            client.config_set("appendonly", "yes")
            wait_for_rewrite(client)
            assert client.info("persistence")["aof_enabled"] == 1


def test_a_rewrite_while_the_log_is_off_leaves_nothing_of_the_old_log():
    with Server(options=AOF) as server, redis.Redis(server.host, server.port) as client:
        client.set("key", "in the old log")
        client.config_set("appendonly", "no")
        client.delete("key")
        client.set("other", "only in memory")
        rewrite(client)
        client.execute_command("DEBUG", "LOADAOF")
        assert client.keys() == [b"other"]
        client.config_set("appendonly", "yes")
        wait_for_rewrite(client)
        client.set("third", "in the new log")
        client.execute_command("DEBUG", "LOADAOF")
        assert sorted(client.keys()) == [b"other", b"third"]


def test_a_snapshot_can_be_asked_for_while_a_cancelled_rewrite_ends():
    with Server(options=AOF) as server, redis.Redis(server.host, server.port) as client:
        client.mset({f"key:{number}": number for number in range(10)})
        for _ in range(20):
            saves = client.info("persistence")["rdb_saves"]
            client.config_set("rdb-key-save-delay", 10_000_000)
            client.execute_command("BGREWRITEAOF")
            client.config_set("appendonly", "no")
            client.config_set("rdb-key-save-delay", 0)
            assert client.bgsave()
            deadline = time.monotonic() + LOAD_SECONDS_MAX
            while client.info("persistence")["rdb_saves"] == saves:
                assert time.monotonic() < deadline
                time.sleep(0.01)
            client.config_set("appendonly", "yes")
            wait_for_rewrite(client)


def test_the_first_client_of_an_empty_log_need_not_wait():
    for _ in range(10):
        with Server(options=AOF) as server, redis.Redis(server.host, server.port) as client:
            assert client.set("key", "value")


def test_a_rewrite_among_increments_neither_loses_nor_doubles_any():
    """What integration/aof-race of Redis's suite is about, which itself cannot pass: that suite
    deletes the files between its two servers."""
    with Server(options=AOF | {"appendfsync": "always"}) as server:
        with redis.Redis(server.host, server.port) as client:
            words = ["-p", str(server.port), "-c", "20", "-n", "20000", "-q", "incr", "foo"]
            bench = subprocess.Popen(["redis-benchmark", *words], stdout=subprocess.DEVNULL)
            while int(client.get("foo") or 0) < 2000:
                time.sleep(0.001)
            while bench.poll() is None:
                rewrite(client)
            assert bench.returncode == 0
            assert int(client.get("foo")) == 20000
        server.process.kill()
        server.process.wait()
        server.process = None
        server.start()
        with redis.Redis(server.host, server.port) as client:
            while client.info("persistence")["loading"]:
                time.sleep(0.01)
            assert int(client.get("foo")) == 20000
