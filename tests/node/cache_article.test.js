// The cache article's use: a table controller that asks the cache by the request's path, and on a
// miss runs the query and stores its result with SETEX. Through node-redis as it was when the
// article was written (callbacks, auth_pass) and as it is now.

import assert from 'node:assert/strict'
import { promisify } from 'node:util'
import { after, before, describe, test } from 'node:test'
import { classicClient, connect } from './connection.js'

const EXPIRY_SECONDS = 21600

// The article's read: from the cache where it is there, else from the database and into the cache.
async function readThroughCache(cache, request, execute) {
  const key = JSON.stringify(request)
  const cached = await cache.get(key)
  if (cached) return JSON.parse(cached)
  const rows = await execute()
  await cache.setex(key, EXPIRY_SECONDS, JSON.stringify(rows))
  return rows
}

async function checkCacheAside(cache) {
  let queries = 0
  const rows = Array.from({ length: 500 }, (_, id) => ({ id, name: `Zoë ${id}`, price: id / 7 }))
  const execute = async () => {
    queries += 1
    return rows
  }
  const request = '/tables/products?$filter=price gt 3&$orderby=name'
  const narrower = `${request}&$top=5`
  await cache.del([JSON.stringify(request), JSON.stringify(narrower)])
  for (let round = 0; round < 20; round += 1) {
    assert.deepEqual(await readThroughCache(cache, request, execute), rows)
  }
  assert.equal(queries, 1)
  const left = await cache.ttl(JSON.stringify(request))
  assert.ok(left > EXPIRY_SECONDS - 60 && left <= EXPIRY_SECONDS, `time to live ${left}`)
  await readThroughCache(cache, narrower, execute)
  assert.equal(queries, 2)
}

describe('the client of the article (auth_pass, tls.servername)', () => {
  let client
  let cache
  before(() => {
    client = classicClient()
    const call = (name) => promisify(client[name]).bind(client)
    cache = { get: call('get'), setex: call('setex'), del: call('del'), ttl: call('ttl') }
  })
  after(() => client.quit())

  test('cache-aside over TLS with a password', () => checkCacheAside(cache))

  test('many callbacks in flight keep their order', async () => {
    const sent = Array.from({ length: 2000 }, (_, number) => String(number))
    const set = promisify(client.set).bind(client)
    await Promise.all(sent.map((number) => set(`order:${number}`, number)))
    const found = await Promise.all(sent.map((number) => cache.get(`order:${number}`)))
    assert.deepEqual(found, sent)
  })

  test('MULTI with callbacks', async () => {
    const multi = client.multi().set('article:n', '41').incr('article:n').get('article:n')
    assert.deepEqual(await promisify(multi.exec).call(multi), ['OK', 42, '42'])
  })

  test('a wrong password is refused in words', async () => {
    const refused = classicClient('not it')
    const error = await new Promise((resolve) => refused.on('error', resolve))
    refused.end(false)
    assert.match(`${error} ${error.origin ?? ''}`, /WRONGPASS|invalid password/)
  })
})

describe("today's node-redis", () => {
  for (const protocol of [2, 3]) {
    test(`cache-aside over TLS, RESP${protocol}`, async (context) => {
      const client = await connect({ tls: true, protocol })
      context.after(() => client.close())
      await checkCacheAside({
        get: (key) => client.get(key),
        setex: (key, seconds, value) => client.setEx(key, seconds, value),
        del: (keys) => client.del(keys),
        ttl: (key) => client.ttl(key),
      })
    })
  }

  test('a wrong password is refused in words', async () => {
    await assert.rejects(connect({ password: 'not it' }), /WRONGPASS/)
  })
})
