// Follows a run by server-sent events. The id of the last event is kept, so that a new connection,
// to this console or to one that was started again, goes on where the last one ended.

const RETRY = 1000

export function follow(run, on) {
  let last = 0
  let source = null
  let timer = null
  let isClosed = false

  function connect() {
    source = new EventSource(`/api/events?run=${encodeURIComponent(run)}&after=${last}`)
    source.addEventListener('open', () => on.lost(false))
    for (const name of ['begin', 'round', 'state']) source.addEventListener(name, (event) => received(name, event))
    source.addEventListener('error', () => {
      on.lost(true)
      // The browser itself would repeat the first address; ours names the last event.
      source.close()
      clearTimeout(timer)
      if (!isClosed) timer = setTimeout(connect, RETRY)
    })
  }

  function received(name, event) {
    const id = Number(event.lastEventId)
    if (name !== 'state') {
      if (id <= last) return
      last = id
    }
    on[name](JSON.parse(event.data))
  }

  // A browser has six connections to a server; a page that nobody sees needs none.
  function seen() {
    source?.close()
    clearTimeout(timer)
    if (!document.hidden) connect()
  }

  document.addEventListener('visibilitychange', seen)
  connect()
  return () => {
    isClosed = true
    document.removeEventListener('visibilitychange', seen)
    clearTimeout(timer)
    source?.close()
  }
}
