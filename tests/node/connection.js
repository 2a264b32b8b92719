// How the tests reach the server: the variables that with_server.py sets, and clients made from
// them. `classicClient` connects as the cache article does: port and host as arguments, the
// password as auth_pass, the name to ask for in tls.servername.

import { readFileSync } from 'node:fs'
import classic from 'redis-classic'
import { createClient } from 'redis'

function setting(name) {
  const value = process.env[name]
  if (!value) throw new Error(`${name} is not set: run this through ./test`)
  return value
}

export const host = setting('FOREBAY_HOST')
export const port = Number(setting('FOREBAY_PORT'))
export const password = setting('FOREBAY_PASSWORD')
export const tlsPort = Number(setting('FOREBAY_TLS_PORT'))
export const tlsName = setting('FOREBAY_TLS_NAME')
export const authority = readFileSync(setting('FOREBAY_TLS_CA'))

export function classicClient(authPass = password) {
  return classic.createClient(tlsPort, host, {
    auth_pass: authPass,
    tls: { servername: tlsName, ca: authority },
    retry_strategy: () => undefined,
  })
}

// A connected client of today's node-redis; `options.protocol` is 2 or 3.
export async function connect(options = {}) {
  const socket = options.tls
    ? { host, port: tlsPort, tls: true, servername: tlsName, ca: authority }
    : { host, port }
  const client = createClient({
    socket: { ...socket, reconnectStrategy: false },
    password: options.password ?? password,
    RESP: options.protocol ?? 2,
  })
  client.on('error', () => {}) // what fails also rejects its own promise
  return client.connect()
}
