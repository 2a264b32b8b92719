// Azure Mobile Apps' own JavaScript client, as npm has it, against cached tables: what an app
// that was written for the cache article's server does. The client wants a browser's
// XMLHttpRequest; what it uses of that is made here from Node's http.

import assert from 'node:assert/strict'
import http from 'node:http'
import { createRequire } from 'node:module'
import { before, describe, test } from 'node:test'

const address = process.env.FOREBAY_TABLES
const tokens = (process.env.FOREBAY_TOKENS ?? '').split(' ')
if (!address) throw new Error('FOREBAY_TABLES is not set: run tests/tables/azure_client.py')

class Request {
  withCredentials = false
  readyState = 0
  status = 0
  responseText = ''
  #headers = {}
  #answered = {}
  #asked = null

  open(method, url) {
    this.#asked = { method, url }
  }

  setRequestHeader(name, value) {
    if (value !== undefined && value !== null) this.#headers[name] = value
  }

  getResponseHeader(name) {
    const value = this.#answered[name.toLowerCase()]
    return value === undefined ? null : String(value)
  }

  send(data) {
    const { method, url } = this.#asked
    const sent = http.request(url, { method, headers: this.#headers }, (answer) => {
      const pieces = []
      answer.on('data', (piece) => pieces.push(piece))
      answer.on('end', () => {
        this.#answered = answer.headers
        this.#end(answer.statusCode, Buffer.concat(pieces).toString())
      })
    })
    // As a browser does: status 0.
    sent.on('error', () => this.#end(0, ''))
    sent.end(data ?? undefined)
  }

  #end(status, text) {
    Object.assign(this, { status, statusText: String(status), responseText: text, readyState: 4 })
    this.onreadystatechange()
  }
}

globalThis.XMLHttpRequest = Request
const { MobileServiceClient } = createRequire(import.meta.url)('azure-mobile-apps-client')

// The client's promises are of its own kind.
const settled = (promise) => new Promise((resolve, reject) => promise.then(resolve, reject))
const refused = (promise) => settled(promise).then(
  () => assert.fail('it was not refused'),
  (error) => error,
)

describe('azure-mobile-apps-client', () => {
  let todo
  const due = new Date('2026-11-20T12:34:56.789Z')

  before(async () => {
    todo = new MobileServiceClient(address).getTable('todo')
    for (let rank = 0; rank < 12; rank += 1) {
      const [text, price, done] = [`it's ${rank}`, rank + 0.5, rank % 2 === 0]
      const made = await settled(todo.insert({ id: `a${rank}`, text, rank, price, done, due }))
      assert.equal(made.id, `a${rank}`)
      assert.ok(made.version && made.createdAt instanceof Date)
    }
  })

  test('a query with every operator that its library knows', async () => {
    const query = todo.where(function () {
      return (this.rank > 2 && this.done === false) || this.text === "it's 4"
    }).orderByDescending('rank').select('id', 'rank')
    for (let again = 0; again < 2; again += 1) {
      const rows = await settled(query.read())
      assert.deepEqual(rows.map((row) => [row.id, row.rank]),
        [['a11', 11], ['a9', 9], ['a7', 7], ['a5', 5], ['a4', 4]])
    }
  })

  test('functions of texts and dates', async () => {
    const byText = todo.where(function () {
      return this.text.indexOf('9') === 5 || this.text.toUpperCase() === "IT'S 8"
    })
    assert.deepEqual((await settled(byText.read())).map((row) => row.id).sort(), ['a8', 'a9'])
    const byDate = todo.where(function (year) {
      return this.due.getUTCFullYear() === year && this.rank < 2
    }, 2026)
    assert.deepEqual((await settled(byDate.read())).map((row) => row.id).sort(), ['a0', 'a1'])
    const [row] = await settled(todo.where({ id: 'a3', due }).read())
    assert.equal(row.due.getTime(), due.getTime())
  })

  test('the total comes with hits as well', async () => {
    for (let again = 0; again < 3; again += 1) {
      const rows = await settled(todo.where({ done: true }).includeTotalCount().take(2).read())
      assert.deepEqual([rows.length, rows.totalCount], [2, 6])
    }
  })

  test('pages follow each other by their links', async () => {
    const seen = []
    let rows = await settled(todo.orderBy('rank').read())
    for (let page = 0; page < 5; page += 1) {
      seen.push(...rows.map((row) => row.rank))
      if (!rows.nextLink) break
      rows = await settled(todo.read(rows.nextLink))
    }
    assert.deepEqual(seen, Array.from({ length: 12 }, (_, rank) => rank))
  })

  test('a change is seen by the next read', async () => {
    const query = todo.where({ id: 'a1' })
    for (let round = 0; round < 5; round += 1) {
      const [row] = await settled(query.read())
      const changed = await settled(todo.update({ id: 'a1', text: `round ${round}` }))
      assert.notEqual(changed.version, row.version)
      assert.equal((await settled(query.read()))[0].text, `round ${round}`)
      assert.equal((await settled(todo.lookup('a1'))).text, `round ${round}`)
    }
  })

  test('two who change one row: the second is told what is there', async () => {
    const mine = await settled(todo.lookup('a2'))
    const theirs = await settled(todo.update({ id: 'a2', text: 'theirs', version: mine.version }))
    const error = await refused(todo.update({ ...mine, text: 'mine' }))
    assert.equal(error.request.status, 412)
    assert.equal(error.serverInstance.text, 'theirs')
    const solved = await settled(todo.update({ id: 'a2', text: 'both', version: theirs.version }))
    assert.equal(solved.text, 'both')
  })

  test('deleted rows are gone until they are called back', async () => {
    await settled(todo.insert({ id: 'gone', text: 'soon', rank: 100 }))
    await settled(todo.del({ id: 'gone' }))
    assert.equal((await refused(todo.lookup('gone'))).request.status, 404)
    assert.deepEqual(await settled(todo.where({ rank: 100 }).read()), [])
    const marked = await settled(todo.where({ rank: 100 }).read({ __includeDeleted: true }))
    assert.deepEqual(marked.map((row) => [row.id, row.deleted]), [['gone', true]])
    // Of this operation the client knows nothing.
    const headers = { 'zumo-api-version': '2.0.0' }
    const called = await fetch(`${address}/tables/todo/gone`, { method: 'POST', headers })
    assert.equal(called.status, 200)
    assert.equal((await settled(todo.lookup('gone'))).text, 'soon')
    await settled(todo.del({ id: 'gone' }))
  })

  test('refusals say why', async () => {
    const duplicate = await refused(todo.insert({ id: 'a1', text: 'again' }))
    assert.equal(duplicate.request.status, 409)
    const unknown = await refused(todo.read('$filter=nothing eq 1'))
    assert.equal(unknown.request.status, 400)
    assert.match(unknown.message, /nothing/)
  })

  test('each caller has their own rows, hits included', async () => {
    const [ann, bob] = tokens.map((token) => {
      const client = new MobileServiceClient(address)
      client.currentUser = { userId: 'x', mobileServiceAuthenticationToken: token }
      return client.getTable('mine')
    })
    await settled(ann.insert({ id: 'of-ann', text: 'hers' }))
    await settled(bob.insert({ id: 'of-bob', text: 'his' }))
    for (let again = 0; again < 3; again += 1) {
      assert.deepEqual((await settled(ann.read())).map((row) => row.id), ['of-ann'])
      assert.deepEqual((await settled(bob.read())).map((row) => row.id), ['of-bob'])
    }
    const nobody = new MobileServiceClient(address).getTable('mine')
    assert.equal((await refused(nobody.read())).request.status, 401)
  })
})
