// The real BullMQ package: ten thousand jobs through several workers, some of which fail and are
// tried again, wait for a delay or have a priority. Every job must run to its end exactly once.
// Runs against a server with several threads: BullMQ's scripts touch keys they do not declare.

import assert from 'node:assert/strict'
import { after, describe, test } from 'node:test'
import { Queue, Worker } from 'bullmq'

const JOBS = 10_000
const BATCH = 1000
const WORKERS = 4
const CONCURRENCY = 50
const DELAY_MS = 700
const SECONDS_MAX = 90

const connection = {
  host: process.env.FOREBAY_HOST,
  port: Number(process.env.FOREBAY_PORT),
  password: process.env.FOREBAY_PASSWORD || undefined,
  maxRetriesPerRequest: null,
}

// What a job does depends on its number alone. Only some kinds overlap, which is wanted.
const failsOnce = (number) => number % 20 === 4
const failsAlways = (number) => number % 500 === 1
const isDelayed = (number) => number % 10 === 3
const priority = (number) => (number % 7 === 0 ? 1 + (number % 5) : 0)

function job(number) {
  const options = {
    attempts: 3,
    backoff: { type: 'fixed', delay: 20 },
    delay: isDelayed(number) ? DELAY_MS : 0,
  }
  if (priority(number)) options.priority = priority(number)
  return { name: `job ${number}`, data: { number, text: 'ž'.repeat(number % 50) }, opts: options }
}

const open = []
after(async () => {
  for (const thing of open.reverse()) await thing.close()
})

function keep(thing) {
  thing.on('error', (error) => assert.fail(`${error}`))
  open.push(thing)
  return thing
}

async function until(what, isSo) {
  const began = Date.now()
  while (!(await isSo())) {
    if (Date.now() - began > SECONDS_MAX * 1000) assert.fail(`never: ${what}`)
    await new Promise((resolve) => setTimeout(resolve, 20))
  }
}

describe('BullMQ', () => {
  test(`${JOBS} jobs: none lost, none doubled`, async () => {
    const queue = keep(new Queue('many', { connection }))
    const runs = new Array(JOBS).fill(0)
    const ends = new Array(JOBS).fill(0)
    const early = []
    const byWorker = new Array(WORKERS).fill(0)
    for (let index = 0; index < WORKERS; index += 1) {
      const run = async ({ data, timestamp, attemptsMade }) => {
        runs[data.number] += 1
        assert.equal(data.text.length, data.number % 50)
        if (isDelayed(data.number) && Date.now() - timestamp < DELAY_MS) early.push(data.number)
        if (data.number % 11 === 0) await new Promise((resolve) => setTimeout(resolve, 1))
        if (failsAlways(data.number)) throw new Error(`job ${data.number} never works`)
        if (failsOnce(data.number) && attemptsMade === 0) throw new Error('not the first time')
        byWorker[index] += 1
        return data.number * 2
      }
      const worker = keep(new Worker('many', run, { connection, concurrency: CONCURRENCY }))
      worker.on('completed', ({ data }, result) => {
        assert.equal(result, data.number * 2)
        ends[data.number] += 1
      })
    }
    // Added while the workers already run.
    for (let first = 0; first < JOBS; first += BATCH) {
      await queue.addBulk(Array.from({ length: BATCH }, (_, index) => job(first + index)))
    }
    const hopeless = runs.map((_, number) => number).filter(failsAlways)
    await until('every job has ended', async () => {
      const { completed, failed } = await queue.getJobCounts('completed', 'failed')
      return completed + failed >= JOBS
    })
    await until('the last event', () => ends.reduce((a, b) => a + b) >= JOBS - hopeless.length)
    const wanted = (number) => (failsAlways(number) ? 3 : failsOnce(number) ? 2 : 1)
    const odd = runs.flatMap((count, number) => (count === wanted(number) ? [] : [[number, count]]))
    assert.deepEqual(odd, [], 'jobs with too many or too few runs')
    ends.forEach((count, number) => assert.equal(count, failsAlways(number) ? 0 : 1, `${number}`))
    assert.deepEqual(early, [], 'jobs that ran before their delay was over')
    assert.ok(byWorker.every((count) => count > 0), `work of each worker: ${byWorker}`)
    assert.deepEqual(await queue.getJobCounts(), {
      active: 0, completed: JOBS - hopeless.length, delayed: 0, failed: hopeless.length,
      paused: 0, prioritized: 0, waiting: 0, 'waiting-children': 0,
    })
    const failed = await queue.getFailed(0, -1)
    assert.deepEqual(failed.map(({ data }) => data.number).sort((a, b) => a - b), hopeless)
    for (const { data, failedReason, attemptsMade } of failed) {
      assert.equal(failedReason, `job ${data.number} never works`)
      assert.equal(attemptsMade, 3)
    }
  })

  test('priorities are kept, and equal ones in order of arrival', async () => {
    const queue = keep(new Queue('ranked', { connection }))
    await queue.pause()
    const jobs = Array.from({ length: 200 }, (_, number) => ({
      name: 'ranked', data: { number }, opts: { priority: 1 + ((number * 7) % 10) },
    }))
    await queue.addBulk(jobs)
    const seen = []
    keep(new Worker('ranked', async ({ data }) => seen.push(data.number), { connection }))
    await queue.resume()
    await until('all are done', () => seen.length === jobs.length)
    const rank = (number) => jobs[number].opts.priority * 1000 + number
    const sorted = jobs.map(({ data }) => data.number).sort((a, b) => rank(a) - rank(b))
    assert.deepEqual(seen, sorted)
  })

  test('cleaning up leaves nothing behind', async () => {
    const queue = keep(new Queue('many', { connection }))
    await queue.obliterate({ force: true, count: 2000 })
    assert.equal(await queue.getJobCountByTypes('completed', 'failed', 'waiting'), 0)
  })
})
