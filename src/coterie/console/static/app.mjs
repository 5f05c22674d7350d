// The frame of the console: pages by the part of the address after #.

import { enterToken, onSession, refreshSession } from './api.mjs'
import { announce, h, notice, replace } from './dom.mjs'
import { runsPage } from './pages/runs.mjs'
import { showPermission } from './permission.mjs'

// Each page is a function (main, query) -> a function that ends it, or nothing. The first page is
// part of the frame; the others are loaded when they are opened, or after the first one.
const PAGES = {
  runs: { title: 'Runs', load: async () => runsPage, inMenu: true },
  compare: { title: 'Compare', load: async () => (await import('./pages/compare.mjs')).comparePage },
  run: { title: 'Run', load: async () => (await import('./pages/run.mjs')).runPage },
  clusters: { title: 'Clusters', load: async () => (await import('./pages/clusters.mjs')).clustersPage, inMenu: true },
  user: { title: 'Users', load: async () => (await import('./pages/user.mjs')).userPage, inMenu: true },
  start: { title: 'Start an experiment', load: async () => (await import('./pages/start.mjs')).startPage, inMenu: true },
  papers: { title: 'Papers', load: async () => (await import('./pages/papers.mjs')).papersPage, inMenu: true },
}
const SOON = 500

let close = () => {}
let opened = 0

async function route() {
  const [path, words = ''] = location.hash.replace(/^#\/?/, '').split('?')
  const name = path || 'runs'
  const page = PAGES[name] ?? PAGES.runs
  const number = ++opened
  close()
  close = () => {}
  showMenu(PAGES[name] ? name : 'runs')
  document.title = `${page.title} · Coterie console`
  const main = document.getElementById('main')
  replace(main, h('p', { class: 'quiet' }, 'Loading …'))
  try {
    const open = await page.load()
    const end = number === opened ? await open(main, new URLSearchParams(words)) : null
    // Another page may have been opened in the meantime.
    if (number === opened) close = end ?? (() => {})
    else end?.()
  } catch (error) {
    if (number === opened) replace(main, h('h1', {}, page.title), notice(error.message, 'bad'))
  }
  announce(page.title)
}

function showMenu(current) {
  const links = Object.entries(PAGES).filter(([, page]) => page.inMenu)
  const active = current === 'compare' || current === 'run' ? 'runs' : current
  replace(document.getElementById('pages'), links.map(([name, page]) => h('a', {
    href: `#/${name}`, 'aria-current': name === active ? 'page' : null,
  }, name === 'start' ? 'Start' : page.title)))
}

async function begin() {
  onSession(showPermission)
  const given = location.hash.match(/^#token=(.+)$/)
  if (given) {
    // The token must not stay in the address, where it could be copied with it.
    history.replaceState(null, '', '#/runs')
    await enterToken(decodeURIComponent(given[1])).catch((error) => announce(error.message))
  }
  refreshSession().catch(showPermission)
  window.addEventListener('hashchange', route)
  document.getElementById('skip').addEventListener('click', (event) => {
    event.preventDefault()
    document.getElementById('main').focus()
  })
  document.addEventListener('keydown', (event) => {
    const isTyping = event.target.closest?.('input, select, textarea, dialog')
    if (event.key === '/' && !isTyping) {
      const search = document.querySelector('input[type="search"]')
      if (search) {
        event.preventDefault()
        search.focus()
      }
    }
  })
  await route()
  setTimeout(loadOthers, SOON)
}

/** All pages, so that they open at once, also while the console is being started again. */
function loadOthers() {
  for (const page of Object.values(PAGES)) page.load().catch(() => {})
}

begin()
