// Requests to the server of this page. Writes carry the header that only this page knows.

import { early } from './early.mjs'

let session = { may_write: false, csrf: '' }
const listeners = new Set()

export class Refused extends Error {
  constructor(status, text) {
    super(text)
    this.status = status
  }
}

async function answer(path, options = {}) {
  try {
    return await (early(path) ?? fetch(path, { credentials: 'same-origin', cache: 'no-store', ...options }))
  } catch {
    throw new Refused(0, 'The console does not answer. Is it still running?')
  }
}

async function request(path, options = {}) {
  const reply = await answer(path, options)
  const body = await reply.json().catch(() => ({ error: `status ${reply.status}` }))
  if (!reply.ok) throw new Refused(reply.status, body.error ?? `status ${reply.status}`)
  return body
}

export function get(path, query = {}, options = {}) {
  const words = new URLSearchParams()
  for (const [name, value] of Object.entries(query)) {
    for (const each of Array.isArray(value) ? value : [value]) words.append(name, each)
  }
  const text = words.toString()
  return request(text ? `${path}?${text}` : path, options)
}

export async function getBytes(path, query) {
  const reply = await answer(`${path}?${new URLSearchParams(query)}`)
  if (!reply.ok) throw new Refused(reply.status, (await reply.json().catch(() => ({}))).error ?? `status ${reply.status}`)
  return reply.arrayBuffer()
}

export async function post(path, body) {
  try {
    return await request(path, {
      method: 'POST',
      headers: { 'content-type': 'application/json', 'x-coterie-csrf': session.csrf },
      body: JSON.stringify(body),
    })
  } catch (error) {
    // A console that was started again has another token.
    if (error.status === 403) await refreshSession()
    throw error
  }
}

export function mayWrite() {
  return session.may_write
}

export function onSession(listener) {
  listeners.add(listener)
  return () => listeners.delete(listener)
}

function changeSession(next) {
  session = next
  for (const listener of listeners) listener()
}

export async function refreshSession() {
  changeSession(await get('/api/session'))
}

export async function enterToken(token) {
  changeSession(await post('/api/session', { token }))
}
