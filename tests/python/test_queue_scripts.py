"""Scripts as job queues write them, on a server with several threads: cjson and cmsgpack, keys that
are not declared, and clients that block in BZPOPMIN beside the scripts that feed them.

Every job must come out exactly once, and what a script counts must agree with what came out.
"""

import json
import threading

import pytest
import redis

from server import Server

JOBS = 2000
PRODUCERS = 4
CONSUMERS = 4
BATCH = 10
THREADS = 4

# As BullMQ's addJob: only the prefix is known to the caller, every key is made in the script.
ADD = """
local prefix = ARGV[1]
local jobs = cmsgpack.unpack(ARGV[2])
local ids = {}
for _, job in ipairs(jobs) do
    local id = redis.call('INCR', prefix .. 'id')
    local key = prefix .. 'job:' .. id
    redis.call('HSET', key, 'data', cjson.encode(job), 'opts', cmsgpack.pack({n = job.n, runs = 0}))
    redis.call('ZADD', prefix .. 'waiting', job.priority * 100000 + id, id)
    redis.call('HINCRBY', prefix .. 'sums', 'added', job.n)
    ids[#ids + 1] = id
end
redis.call('XADD', prefix .. 'events', 'MAXLEN', '~', 1000, '*', 'added', #ids)
return ids
"""

# As BullMQ's moveToFinished: what was popped becomes done, and both sums move together.
FINISH = """
local prefix, id = ARGV[1], ARGV[2]
local key = prefix .. 'job:' .. id
local data = redis.call('HGET', key, 'data')
if not data then return redis.error_reply('ERR Missing key for job ' .. id) end
local job = cjson.decode(data)
local opts = cmsgpack.unpack(redis.call('HGET', key, 'opts'))
if opts.n ~= job.n then return redis.error_reply('ERR torn job ' .. id) end
opts.runs = opts.runs + 1
redis.call('HSET', key, 'opts', cmsgpack.pack(opts))
redis.call('ZADD', prefix .. 'done', 'INCR', 1, id)
redis.call('HINCRBY', prefix .. 'sums', 'done', job.n)
return cjson.encode({n = job.n, runs = opts.runs, tags = job.tags})
"""

# Sees the whole queue at one moment: nothing may be between two states but what a client holds.
LOOK = """
local prefix = ARGV[1]
local waiting = redis.call('ZCARD', prefix .. 'waiting')
local done = redis.call('ZCARD', prefix .. 'done')
local id = tonumber(redis.call('GET', prefix .. 'id') or 0)
local keys = 0
for number = 1, id do keys = keys + redis.call('EXISTS', prefix .. 'job:' .. number) end
return {waiting, done, id, keys}
"""


@pytest.fixture(scope="module")
def busy():
    with Server(threads=THREADS) as running:
        yield running


def connect(server):
    return redis.Redis(server.host, server.port, decode_responses=True, socket_timeout=30)


def packed(jobs):
    """MessagePack, as much of it as the jobs here need."""
    def pack(value):
        if isinstance(value, dict):
            body = b"".join(pack(key) + pack(item) for key, item in value.items())
            return bytes([0x80 | len(value)]) + body
        if isinstance(value, list):
            return b"\xdc" + len(value).to_bytes(2, "big") + b"".join(map(pack, value))
        if isinstance(value, int):
            return b"\xce" + value.to_bytes(4, "big")
        raw = value.encode()
        return b"\xd9" + bytes([len(raw)]) + raw
    return pack(jobs)


class Tasks:
    """Threads whose first error fails the test."""

    def __init__(self):
        self.threads, self.errors = [], []

    def start(self, work, *arguments):
        def run():
            try:
                work(*arguments)
            except BaseException as error:  # shown by join()
                self.errors.append(error)
        self.threads.append(threading.Thread(target=run))
        self.threads[-1].start()

    def join(self):
        for thread in self.threads:
            thread.join(120)
            assert not thread.is_alive()
        if self.errors:
            raise self.errors[0]


def produce(server, prefix, which):
    client = connect(server)
    add = client.register_script(ADD)
    for first in range(which, JOBS, PRODUCERS * BATCH):
        numbers = range(first, min(JOBS, first + PRODUCERS * BATCH), PRODUCERS)
        jobs = [{"n": n, "priority": n % 5, "tags": ["a", f"ž{n}"]} for n in numbers]
        assert len(add(args=[prefix, packed(jobs)])) == len(jobs)


def consume(server, prefix, seen):
    client = connect(server)
    finish = client.register_script(FINISH)
    while True:
        popped = client.bzpopmin(f"{prefix}waiting", timeout=10)
        assert popped is not None, "nobody woke this client"
        if popped[1] == "stop":
            return
        job = json.loads(finish(args=[prefix, popped[1]]))
        assert job["runs"] == 1 and job["tags"] == ["a", f"ž{job['n']}"]
        seen.append(job["n"])


def look(server, prefix, is_over):
    client = connect(server)
    script = client.register_script(LOOK)
    while not is_over.is_set():
        waiting, done, last, keys = script(args=[prefix])
        assert keys == last, "a job is there as a whole or not at all"
        assert 0 <= last - waiting - done <= CONSUMERS, "more is held than there are holders"


def test_jobs_come_out_once(busy):
    prefix, seen, is_over = "q:{bull}:", [], threading.Event()
    tasks, producers, watcher = Tasks(), Tasks(), Tasks()
    for _ in range(CONSUMERS):
        tasks.start(consume, busy, prefix, seen)
    for which in range(PRODUCERS):
        producers.start(produce, busy, prefix, which)
    watcher.start(look, busy, prefix, is_over)
    producers.join()
    is_over.set()
    watcher.join()
    client = connect(busy)
    for number in range(CONSUMERS):
        # One each: the markers come after every job, and a marker wakes whoever waits.
        client.eval("redis.call('ZADD', ARGV[1], ARGV[2], 'stop'); return 1", 0,
                    f"{prefix}waiting", 10**9 + number)
        while client.zscore(f"{prefix}waiting", "stop") is not None:
            pass
    tasks.join()
    assert sorted(seen) == list(range(JOBS))
    total = sum(range(JOBS))
    assert client.hgetall(f"{prefix}sums") == {"added": str(total), "done": str(total)}
    assert client.zcard(f"{prefix}done") == JOBS
    assert client.zrangebyscore(f"{prefix}done", "(1", "+inf") == []
    assert not client.exists(f"{prefix}waiting")


def test_a_script_wakes_those_who_block_on_keys_it_made_up(busy):
    client = connect(busy)
    client.flushall()
    names = [f"wake:{number}" for number in range(8)]
    got, tasks = {}, Tasks()

    def wait(name):
        got[name] = connect(busy).bzpopmin(name, timeout=20)

    for name in names:
        tasks.start(wait, name)
    while client.info("clients")["blocked_clients"] < len(names):
        pass
    made = "for i = 0, 7 do redis.call('ZADD', 'wake:' .. i, i, cjson.encode({i})) end return 8"
    assert client.eval(made, 0) == 8
    tasks.join()
    assert got == {name: (name, f"[{i}]", float(i)) for i, name in enumerate(names)}
    assert client.dbsize() == 0


def test_a_script_that_pops_and_pushes_itself_wakes_nobody_in_between(busy):
    client = connect(busy)
    client.flushall()
    tasks, got = Tasks(), []
    tasks.start(lambda: got.append(connect(busy).bzpopmin("shy", timeout=1)))
    while client.info("clients")["blocked_clients"] < 1:
        pass
    for _ in range(50):
        client.eval("redis.call('ZADD', 'shy', 1, 'a'); redis.call('ZREM', 'shy', 'a')", 0)
    tasks.join()
    assert got == [None]


def test_a_script_does_not_block_itself(busy):
    # Since Redis 7.2; before that scripts may not call blocking commands at all.
    client = connect(busy)
    client.flushall()
    assert client.eval("return redis.call('BZPOPMIN', 'none', 0)", 0) is None
    client.zadd("some", {"a": 1})
    assert client.eval("return redis.call('BZPOPMIN', KEYS[1], 0)", 1, "some") == ["some", "a", "1"]


def test_scripts_and_info_tell_one_version(busy):
    client = connect(busy)
    version = client.info("server")["redis_version"]
    major, minor, patch = map(int, version.split("."))
    number = major << 16 | minor << 8 | patch
    told = client.eval("return {redis.REDIS_VERSION, redis.REDIS_VERSION_NUM}", 0)
    assert told == [version, number]


def test_scripts_of_eval_make_room_and_info_counts_them(busy):
    client = connect(busy)
    client.script_flush()
    before = client.info("stats")["evicted_scripts"]
    kept = client.script_load("return 'kept'")
    for number in range(600):
        assert client.eval(f"return {number}", 0) == number
    known = client.info("memory")["number_of_cached_scripts"]
    assert known <= 501
    assert client.info("stats")["evicted_scripts"] - before == 601 - known
    assert client.evalsha(kept, 0) == "kept"
