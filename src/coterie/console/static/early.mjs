// The list of runs, requested before the other modules are here: whoever opens the console sees it
// first.

const PATH = '/api/runs'
const isFirstPage = /^(#?|#\/|#\/runs)$/.test(location.hash)
let response = isFirstPage ? fetch(PATH, { credentials: 'same-origin', cache: 'no-store' }) : null
// A failure is for the page that asks for the response.
response?.catch(() => {})

/** The response to the early request of a path, once; null otherwise. */
export function early(path) {
  if (path !== PATH) return null
  const found = response
  response = null
  return found
}
