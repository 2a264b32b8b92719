// Today's node-redis in both protocols: every data type, transactions with WATCH, pub/sub,
// blocking commands across connections, scanning, errors, and many commands in flight.

import assert from 'node:assert/strict'
import { after, before, beforeEach, describe, test } from 'node:test'
import { WatchError } from 'redis'
import { connect } from './connection.js'

for (const protocol of [2, 3]) {
  describe(`RESP${protocol}`, () => {
    let client
    let other
    before(async () => {
      client = await connect({ protocol })
      other = await connect({ protocol })
    })
    beforeEach(() => client.flushAll())
    after(async () => {
      await client.close()
      await other.close()
    })

    test('strings and numbers', async () => {
      assert.equal(await client.set('s', 'é\r\n\0'), 'OK')
      assert.equal(await client.get('s'), 'é\r\n\0')
      assert.equal(await client.get('none'), null)
      assert.equal(await client.incrBy('n', 40), 40)
      assert.equal(await client.set('s', 'x', { condition: 'NX' }), null)
      assert.deepEqual(await client.mGet(['s', 'none', 'n']), ['é\r\n\0', null, '40'])
    })

    test('hashes, lists, sets and sorted sets', async () => {
      assert.equal(await client.hSet('h', { a: '1', b: '2' }), 2)
      assert.deepEqual({ ...(await client.hGetAll('h')) }, { a: '1', b: '2' })
      assert.equal(await client.rPush('l', ['1', '2', '3']), 3)
      assert.deepEqual(await client.lRange('l', 0, -1), ['1', '2', '3'])
      assert.equal(await client.sAdd('set', ['a', 'b', 'a']), 2)
      assert.deepEqual([...(await client.sMembers('set'))].sort(), ['a', 'b'])
      const members = [{ value: 'low', score: 0.5 }, { value: 'high', score: Infinity }]
      assert.equal(await client.zAdd('z', members), 2)
      assert.deepEqual(await client.zRangeWithScores('z', 0, -1), members)
      assert.equal(await client.zScore('z', 'high'), Infinity)
      assert.equal(await client.zScore('z', 'none'), null)
    })

    test('MULTI, and WATCH when another connection writes', async () => {
      assert.deepEqual(await client.multi().set('t', '1').incr('t').get('t').exec(),
        ['OK', 2, '2'])
      await client.watch('t')
      await other.set('t', '9')
      await assert.rejects(client.multi().set('t', '3').exec(), WatchError)
      assert.equal(await client.get('t'), '9')
    })

    test('publish and subscribe, by channel, pattern and shard channel', async (context) => {
      const heard = []
      const listener = await connect({ protocol })
      context.after(() => listener.destroy())
      let tell
      const allHeard = new Promise((resolve) => (tell = resolve))
      const hear = (message, channel) => {
        if (heard.push([channel, message]) === 3) tell()
      }
      await listener.subscribe('news', hear)
      await listener.pSubscribe('w*', hear)
      await listener.sSubscribe('shard', hear)
      assert.equal(await client.publish('news', '1'), 1)
      assert.equal(await client.publish('weather', '2'), 1)
      assert.equal(await client.sPublish('shard', '3'), 1)
      assert.equal(await client.publish('nobody', '4'), 0)
      await allHeard
      assert.deepEqual(heard, [['news', '1'], ['weather', '2'], ['shard', '3']])
      await listener.unsubscribe('news')
      assert.equal(await client.publish('news', '5'), 0)
    })

    test('a blocked pop is woken by another connection', async () => {
      const popped = other.blPop('queue', 10)
      await client.rPush('queue', ['first', 'second'])
      assert.deepEqual({ ...(await popped) }, { key: 'queue', element: 'first' })
      assert.deepEqual(await client.lRange('queue', 0, -1), ['second'])
      assert.equal(await other.blPop('empty', 0.05), null)
    })

    test('scanning sees every key', async () => {
      const keys = Array.from({ length: 3000 }, (_, number) => `scan:${number}`)
      await client.mSet(keys.flatMap((key) => [key, '']))
      const seen = new Set()
      for await (const batch of client.scanIterator({ MATCH: 'scan:*', COUNT: 100 })) {
        batch.forEach((key) => seen.add(key))
      }
      assert.deepEqual([...seen].sort(), keys.sort())
    })

    test('errors come back as errors and the connection lives on', async () => {
      await client.set('s', 'x')
      await assert.rejects(client.incr('s'), /value is not an integer or out of range/)
      await assert.rejects(client.lPush('s', 'x'), /WRONGTYPE/)
      await assert.rejects(client.sendCommand(['NOSUCH']), /unknown command/)
      assert.equal(await client.ping(), 'PONG')
    })

    test('ten thousand commands in flight', async () => {
      const numbers = Array.from({ length: 10000 }, (_, number) => number)
      const counts = await Promise.all(numbers.map(() => client.incr('flights')))
      assert.deepEqual(counts, numbers.map((number) => number + 1))
    })

    test('a value of eight megabytes', async () => {
      const value = 'abcdefgh'.repeat(1 << 20)
      await client.set('large', value)
      assert.equal(await other.get('large'), value)
    })
  })
}
