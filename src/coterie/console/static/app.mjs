// The frame of the console: pages by the part of the address after #.

import { enterToken, onSession, refreshSession } from './api.mjs'
import { announce, h, notice, replace } from './dom.mjs'
import { clustersPage } from './pages/clusters.mjs'
import { comparePage } from './pages/compare.mjs'
import { papersPage } from './pages/papers.mjs'
import { runPage } from './pages/run.mjs'
import { runsPage } from './pages/runs.mjs'
import { startPage } from './pages/start.mjs'
import { userPage } from './pages/user.mjs'
import { showPermission } from './permission.mjs'

// Each page is a function (main, query) -> a function that ends it, or nothing.
const PAGES = {
  runs: { title: 'Runs', open: runsPage, inMenu: true },
  compare: { title: 'Compare', open: comparePage },
  run: { title: 'Run', open: runPage },
  clusters: { title: 'Clusters', open: clustersPage, inMenu: true },
  user: { title: 'Users', open: userPage, inMenu: true },
  start: { title: 'Start an experiment', open: startPage, inMenu: true },
  papers: { title: 'Papers', open: papersPage, inMenu: true },
}

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
    const end = await page.open(main, new URLSearchParams(words))
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
}

begin()
