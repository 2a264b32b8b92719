"""Scripts beside redis-server: conversions and errors must be the same bytes, in RESP2 and RESP3.

Redis 7.0 prints doubles with seventeen digits, so the numbers here are such that every version
prints them alike. `error({})` is not asked: it takes redis-server 7.0.15 down.
Without a redis-server there is nothing to compare with, and the tests say so.
"""

import shutil
import socket

import pytest

from server import Server, default_binary

REDIS = shutil.which("redis-server")

CONVERSIONS = r"""
return 1
return -1.9
return 3.99
return 2^53
return 1e300 * 0
return 0/0 == 0/0
return true
return false
return nil
return
return ''
return 'a\0b\r\n'
return {}
return {1, 2, nil, 3}
return {1, 'a', {2, {3}}, true, false, 4}
return {[2] = 1}
return {a = 1}
return {ok = 'FINE'}
return {ok = 'two\r\nlines'}
return {ok = 1}
return {err = 'MY own'}
return {err = 'noprefix'}
return {err = 'two\r\nlines'}
return {{err = 'MY inner'}, {ok = 'in'}}
return redis.status_reply('S')
return redis.error_reply('E x')
return redis.error_reply('-E x')
return redis.error_reply('x')
return {double = 1.5}
return {double = -0.5, ok = 'x'}
return {map = {a = 1}}
return {set = {a = true}}
return {big_number = '123456789012345678901234567890'}
return {big_number = 'a\r\nb'}
return {verbatim_string = {format = 'txt', string = 'x'}}
return KEYS
return ARGV
return {#KEYS, #ARGV, KEYS[2], ARGV[2]}
return function() end
return redis.call('SET', 'k', 'v')
return redis.call('GET', 'k')
return redis.call('GET', 'none')
return type(redis.call('GET', 'none'))
return type(redis.call('SET', 'k', 'v'))
return redis.call('SET', 'k', 'v')['ok']
return redis.call('HSET', 'h', 'f', 1, 'g', 2.5)
return redis.call('HGET', 'h', 'g')
return redis.call('HGETALL', 'h')
redis.setresp(3) return redis.call('HGET', 'h', 'f')
redis.setresp(3) return redis.call('HGETALL', 'none')
redis.setresp(3) return redis.call('GET', 'none')
redis.setresp(3) return redis.call('GET', 'none') == nil
redis.setresp(3) return redis.call('ZADD', 'z', 1.5, 'm')
redis.setresp(3) return redis.call('ZSCORE', 'z', 'm')
redis.setresp(3) return redis.call('ZSCORE', 'z', 'm').double
redis.setresp(3) return redis.call('HGETALL', 'h').map.f
redis.setresp(3) return redis.call('ZRANGE', 'z', 0, -1, 'WITHSCORES')
return redis.call('ZRANGE', 'z', 0, -1, 'WITHSCORES')
return redis.call('INCRBY', 'n', 2.0)
return redis.call('INCRBY', 'n', 10)
return tostring(redis.call('INCRBYFLOAT', 'fl', 0.5))
return redis.call('RPUSH', 'l', 1, 2, 3.5, 1e20)
return redis.call('LRANGE', 'l', 0, -1)
return tostring(1e15) .. tostring(2^53) .. tostring(0.1)
return cjson.encode({1, 2, {a = 1}, 'x\n"/é', 1.5, true, cjson.null})
return cjson.encode({})
return cjson.encode({[1] = 1, [3] = 3})
return cjson.decode('[1, 2.5, "a", null, {"b": [true, false]}]')[5].b
return tostring(cjson.decode('null'))
return cjson.decode('{"a": {"b": "\\u00e9\\ud83d\\ude00"}}').a.b
return cmsgpack.pack({1, -1, 300, 70000, 1.5, 'x', true, {a = 1}})
return cmsgpack.pack(1, 'two', 3)
return {cmsgpack.unpack(cmsgpack.pack(1, 'two', {3}))}
return {cmsgpack.unpack_one(cmsgpack.pack(1, 'two'))}
return {cmsgpack.unpack_limit(cmsgpack.pack(1, 2, 3), 2)}
return struct.pack('>I2i4c3', 7, -9, 'abc')
return {struct.unpack('>I2i4c3', struct.pack('>I2i4c3', 7, -9, 'abc'))}
return struct.size('>I2i4d')
return {bit.band(255, 15), bit.bor(1, 8), bit.bxor(5, 1), bit.bnot(0), bit.lshift(1, 31)}
return bit.tohex(255, 4)
return redis.sha1hex('')
return {redis.LOG_DEBUG, redis.LOG_WARNING, redis.REPL_ALL, redis.REPL_NONE, redis.REPL_AOF}
return redis.replicate_commands()
return redis.set_repl(redis.REPL_ALL)
return {type(string), type(loadstring), type(pcall), type(math.pi)}
return math.floor(3.7) .. string.rep('ab', 3) .. table.concat({1, 2}, '-')
return {pcall(function() error('x') end)}
return {pcall(function() error({err = 'T x'}) end)}
return select('#', unpack({1, 2, 3}))
"""

ERRORS = r"""
this is no Lua
return 'unfinished
return 1 +
error('plain')
error({err = 'MY table'})
error()
error(nil)
error(12)
return redis.call()
return redis.pcall()
return redis.call('NOSUCH')
return redis.pcall('NOSUCH')
return redis.call('GET')
return redis.call('GET', 'a', 'b')
return redis.pcall('GET').err
return redis.call('GET', {})
return redis.call('GET', true)
return redis.call('GET', nil)
return redis.call('INCR', 'k')
return redis.pcall('INCR', 'k')
return redis.call('LPUSH', 'k', 1)
return redis.call('EVAL', 'return 1', 0)
return redis.call('MULTI')
return redis.call('SUBSCRIBE', 'a')
return redis.call('CONFIG', 'GET', 'x')
x = 1
return x
return nosuch.field
return redis.nosuch()
redis.call = 1
redis = nil
string.upper = nil
_G.x = 1
setmetatable(_G, {})
rawset(_G, 'x', 1)
return rawget(_G, 'x')
return getmetatable('').__index == string
getmetatable('').__index = 1
return loadstring('return 7')()
return loadstring('\27Lua')
return redis.setresp(4)
return redis.setresp()
return redis.sha1hex()
return redis.sha1hex(1, 2)
return redis.error_reply()
return redis.error_reply(1)
return redis.status_reply({})
return redis.log('x')
return redis.log(10, 'x')
return redis.log('a', 'x')
return redis.set_repl(9)
return redis.set_repl()
return redis.acl_check_cmd()
return redis.acl_check_cmd('nosuch')
return redis.acl_check_cmd('get', 'x')
return cjson.encode(function() end)
return cjson.encode({[1] = 1, [1000000] = 2})
return cjson.decode('{"a":')
return cjson.decode('')
return cjson.decode('[1,]')
return cmsgpack.unpack('\193')
return cmsgpack.unpack('\146\1')
return cmsgpack.pack()
return cmsgpack.unpack_limit('\1', -1)
return struct.unpack('>I4', 'ab')
return struct.pack('>q', 1)
return bit.band()
return bit.lshift('a', 1)
local t = {} t[nil] = 1
return nil .. 'a'
return {} + 1
return #nil
return ('x'):rep(-1)
return string.format('%d', 'a')
local function f() return f() + 1 end return f()
return table.concat({{}})
return unpack({}, 1, 1e8)
"""

COMMANDS = [
    ["EVAL"], ["EVAL", "return 1"], ["EVAL", "return 1", "x"], ["EVAL", "return 1", "-1"],
    ["EVAL", "return 1", "2", "a"], ["EVALSHA", "x", "0"], ["EVALSHA", "f" * 40, "0"],
    ["EVALSHA", "e0e1f9fabfc9d4800c877a703b823ac0578ff8db", "0"],
    ["EVAL_RO", "return redis.call('GET', KEYS[1])", "1", "k"],
    ["EVAL_RO", "return redis.call('SET', KEYS[1], 1)", "1", "k"],
    ["EVAL", "#!lua\nreturn 1", "0"], ["EVAL", "#!lua flags=no-writes\nreturn 1", "0"],
    ["EVAL", "#!lua flags=no-writes\nreturn redis.call('SET', 'k', 1)", "0"],
    ["EVAL", "#!lua flags=nosuch\nreturn 1", "0"], ["EVAL", "#!python\nreturn 1", "0"],
    ["EVAL", "#!lua name=x\nreturn 1", "0"], ["EVAL", "#!lua", "0"],
    ["SCRIPT"], ["SCRIPT", "NOSUCH"], ["SCRIPT", "LOAD", "return 1"], ["SCRIPT", "LOAD", "bad bad"],
    ["SCRIPT", "EXISTS", "e0e1f9fabfc9d4800c877a703b823ac0578ff8db", "x"], ["SCRIPT", "KILL"],
    ["SCRIPT", "FLUSH", "x"], ["SCRIPT", "FLUSH", "SYNC"], ["SCRIPT", "EXISTS"],
    ["FUNCTION", "LOAD", "return 1"], ["FUNCTION", "LOAD", "#!lua name=a\nreturn 1"],
    ["FUNCTION", "LOAD", "#!lua\nreturn 1"], ["FUNCTION", "LOAD", "#!lua name=a b=c\n"],
    ["FUNCTION", "LOAD", "#!lua name=a\nredis.register_function('f', function() return 1 end)"],
    ["FUNCTION", "LOAD", "#!lua name=a\nredis.register_function('f', function() return 1 end)"],
    ["FUNCTION", "LOAD", "#!lua name=b\nredis.register_function('f', function() return 1 end)"],
    ["FUNCTION", "LOAD", "#!lua name=c\nredis.register_function('x y', function() end)"],
    ["FUNCTION", "LOAD", "#!lua name=c\nredis.register_function('x')"],
    ["FUNCTION", "LOAD", "#!lua name=c\nredis.call('GET', 'x')"],
    ["FCALL", "f", "0"], ["FCALL", "none", "0"], ["FCALL_RO", "f", "0"], ["FCALL", "f", "x"],
    ["FUNCTION", "LIST"], ["FUNCTION", "LIST", "LIBRARYNAME", "none"], ["FUNCTION", "LIST", "x"],
    ["FUNCTION", "DELETE", "none"], ["FUNCTION", "DELETE", "a"], ["FUNCTION", "KILL"],
    ["FUNCTION", "RESTORE", "x"], ["FUNCTION", "RESTORE", "", "NOSUCH"], ["FUNCTION", "FLUSH"],
]


# Differences that are known, by the script.
KNOWN = [
    # The strings' metatable shows scripts a protected stand-in for the table.
    ["return getmetatable('').__index == string"],
    # Redis 7.0 names the number of bytes where it means the limit; ours names the limit.
    ["return cmsgpack.unpack_limit('\\1', -1)"],
]


class Raw:
    """A connection that gives replies as the bytes that came."""

    def __init__(self, server, protocol):
        self.file = socket.create_connection((server.host, server.port), timeout=20).makefile("rwb")
        self.run(["FLUSHALL"])
        self.run(["SCRIPT", "FLUSH"])
        if protocol == 3:
            self.run(["HELLO", "3"])

    def run(self, words):
        encoded = [word.encode() for word in words]
        self.file.write(b"*%d\r\n" % len(encoded))
        for word in encoded:
            self.file.write(b"$%d\r\n%s\r\n" % (len(word), word))
        self.file.flush()
        return self.reply()

    def reply(self):
        line = self.file.readline()
        assert line.endswith(b"\r\n"), f"the connection ended: {line}"
        kind, rest = line[:1], line[1:-2]
        if kind in b"$=" and int(rest) >= 0:
            return line + self.file.read(int(rest) + 2)
        if kind in b"*~>%":
            count = max(int(rest), 0) * (2 if kind == b"%" else 1)
            return line + b"".join(self.reply() for _ in range(count))
        return line


@pytest.fixture(scope="module")
def pair():
    if not REDIS:
        pytest.skip("no redis-server here to compare with")
    with Server(default_binary()) as ours, Server(REDIS) as theirs:
        yield ours, theirs


def cases(text):
    return [["EVAL", line, "2", "k", "two", "arg", "2"] for line in text.strip().split("\n")]


@pytest.mark.parametrize("protocol", [2, 3])
@pytest.mark.parametrize("corpus", ["conversions", "errors", "commands"])
def test_the_same_bytes(pair, corpus, protocol):
    asked = {"conversions": cases(CONVERSIONS), "errors": cases(ERRORS), "commands": COMMANDS}
    ours, theirs = (Raw(server, protocol) for server in pair)
    for raw in (ours, theirs):
        raw.run(["SET", "k", "v"])
    differ = []
    for words in asked[corpus]:
        got, wanted = ours.run(words), theirs.run(words)
        if got != wanted and words[1:2] not in KNOWN:
            differ.append(f"{words}\n  ours   {got}\n  theirs {wanted}")
    assert not differ, "\n".join(differ)
