// Page 1: the table of runs, with search, filters, sorting, and a selection to compare.

import { get } from '../api.mjs'
import { announce, badge, commandBox, h, notice, replace } from '../dom.mjs'
import * as format from '../format.mjs'

const REFRESH = 5000
const MOST_SELECTED = 60
const FIRST_ROWS = 30
const MORE_ROWS = 120
// Milliseconds after which the first rows are on the screen.
const PAINTED = 100
const COLUMNS = [
  { key: 'name', title: 'Run' },
  { key: 'state', title: 'State' },
  { key: 'algorithm', title: 'Algorithm' },
  { key: 'dataset', title: 'Data' },
  { key: 'protocol', title: 'Protocol' },
  { key: 'seed', title: 'Seed', kind: 'number' },
  { key: 'value', title: 'Metric', kind: 'number' },
  { key: 'round', title: 'Steps', kind: 'number' },
  { key: 'seconds', title: 'Time', kind: 'number' },
  { key: 'n_bytes', title: 'Traffic', kind: 'number' },
  { key: 'changed', title: 'Changed', kind: 'number' },
]
const FILTERS = [['state', 'Any state'], ['algorithm', 'Any algorithm'], ['dataset', 'Any data']]

// What was chosen stays while other pages are open.
const chosen = { search: '', sort: 'changed', down: true, filters: {}, selected: new Set() }

export async function runsPage(main) {
  let runs = []
  let folders = []
  let last = ''
  let rest = null
  const search = h('input', { type: 'search', placeholder: 'Search runs ( / )', 'aria-label': 'Search runs', value: chosen.search })
  const selects = FILTERS.map(([key, title]) => [key, title, h('select', { 'aria-label': title })])
  const compare = h('button', { type: 'button', class: 'primary' }, 'Compare')
  const hint = h('span', { class: 'quiet small' }, 'Select finished runs to compare them')
  const clear = h('button', { type: 'button' }, 'Clear selection')
  const head = h('tr', {})
  const body = h('tbody', {})
  const count = h('p', { class: 'quiet small' })
  const empty = h('div', {})
  const commands = h('div', {})
  const tableCard = h('div', { class: 'card runs' },
    h('table', { class: 'stack runs-table', 'aria-label': 'Runs' }, h('thead', {}, head), body))

  search.addEventListener('input', () => { chosen.search = search.value; show() })
  for (const [key, , select] of selects) {
    select.addEventListener('change', () => { chosen.filters[key] = select.value; show() })
  }
  compare.addEventListener('click', () => {
    location.hash = `#/compare?${[...chosen.selected].map((id) => `run=${id}`).join('&')}`
  })
  clear.addEventListener('click', () => { chosen.selected.clear(); show() })

  async function load() {
    const found = await get('/api/runs')
    const text = JSON.stringify(found)
    if (text === last) return
    last = text
    runs = found.runs
    folders = found.folders
    const known = new Set(runs.map((run) => run.id))
    for (const id of chosen.selected) if (!known.has(id)) chosen.selected.delete(id)
    showFilters()
    show()
  }

  function showFilters() {
    for (const [key, title, select] of selects) {
      const values = [...new Set(runs.map((run) => run[key]).filter(Boolean))].sort()
      if (!values.includes(chosen.filters[key])) chosen.filters[key] = ''
      replace(select, h('option', { value: '' }, title), values.map((value) => h('option', { value }, value)))
      select.value = chosen.filters[key] ?? ''
    }
  }

  function show() {
    const shown = sorted(runs.filter(matches))
    showHead()
    showRows(shown)
    const running = runs.filter((run) => run.state === 'running').length
    count.textContent = `${format.count(shown.length)} of ${format.count(runs.length)} runs`
      + (running ? `, ${running} running` : '') + ` in ${folders.join(', ')}`
    const n = chosen.selected.size
    compare.disabled = !n || n > MOST_SELECTED
    compare.textContent = n ? `Compare ${n} ${n === 1 ? 'run' : 'runs'}` : 'Compare'
    clear.hidden = !n
    hint.hidden = n > 0 || !runs.length
    compare.hidden = !runs.length
    tableCard.hidden = !shown.length
    replace(empty, shown.length ? null : nothing(runs.length))
    replace(commands, n ? commandBox(reportOf(runs.filter((run) => chosen.selected.has(run.id))), 'Show the selected runs on the command line') : null)
  }

  /** The first rows at once; the others once those are painted, in turns, so that the page answers in between. */
  function showRows(shown) {
    clearTimeout(rest)
    replace(body, shown.slice(0, FIRST_ROWS).map((run) => row(run, show)))
    const append = (from, after) => {
      if (from >= shown.length) return
      rest = setTimeout(() => {
        body.append(...shown.slice(from, from + MORE_ROWS).map((run) => row(run, show)))
        append(from + MORE_ROWS, 0)
      }, after)
    }
    append(FIRST_ROWS, PAINTED)
  }

  function showHead() {
    replace(head, h('th', { scope: 'col' }, h('span', { class: 'announcer' }, 'Selected')),
      COLUMNS.map((column) => {
        const isSorted = chosen.sort === column.key
        const button = h('button', { type: 'button' }, titleOf(column, runs))
        button.addEventListener('click', () => {
          chosen.down = isSorted ? !chosen.down : column.kind === 'number'
          chosen.sort = column.key
          show()
          announce(`Sorted by ${column.title}, ${chosen.down ? 'descending' : 'ascending'}.`)
        })
        return h('th', { scope: 'col', class: column.kind, 'aria-sort': isSorted ? (chosen.down ? 'descending' : 'ascending') : null }, button)
      }))
  }

  replace(main,
    h('div', { class: 'title' }, h('div', {}, h('h1', {}, 'Runs'), count), h('div', { class: 'buttons' }, hint, clear, compare)),
    h('div', { class: 'tools' }, search, selects.map(([, , select]) => select)),
    empty, tableCard, commands)
  await load()
  const timer = setInterval(() => load().catch(() => {}), REFRESH)
  return () => {
    clearInterval(timer)
    clearTimeout(rest)
  }
}

function titleOf(column, runs) {
  if (column.key !== 'value') return column.title
  const names = new Set(runs.map((run) => run.metric).filter(Boolean))
  return names.size === 1 ? [...names][0] : column.title
}

function matches(run) {
  const words = chosen.search.toLowerCase().split(/\s+/).filter(Boolean)
  const text = [run.name, run.algorithm, run.dataset, run.protocol, run.state, `seed ${run.seed}`].join(' ').toLowerCase()
  const isFiltered = FILTERS.every(([key]) => !chosen.filters[key] || run[key] === chosen.filters[key])
  return isFiltered && words.every((word) => text.includes(word))
}

function sorted(runs) {
  const key = chosen.sort
  const order = chosen.down ? -1 : 1
  return [...runs].sort((one, other) => {
    const a = one[key]
    const b = other[key]
    const lacksA = a === null || a === ''
    const lacksB = b === null || b === ''
    if (lacksA || lacksB) return Number(lacksA) - Number(lacksB)
    return order * (typeof a === 'string' ? a.localeCompare(b, 'en', { numeric: true }) : a - b)
  })
}

function row(run, changed) {
  const box = h('input', { type: 'checkbox', 'aria-label': `Select ${run.name}`, checked: chosen.selected.has(run.id), disabled: run.state !== 'finished' || run.kind === 'federation' })
  box.addEventListener('change', () => {
    if (box.checked) chosen.selected.add(run.id)
    else chosen.selected.delete(run.id)
    changed()
  })
  const value = Number.isFinite(run.value) ? `${format.metric(run.metric, run.value)}` : '–'
  const cells = [
    ['Run', 'name lead', [h('a', { href: `#/run?run=${run.id}` }, run.name), run.kind === 'federation' ? h('span', { class: 'small quiet' }, 'federation') : null,
      run.error ? h('span', { class: 'small quiet' }, run.error) : null]],
    ['State', '', badge(run.state)],
    ['Algorithm', 'text', run.algorithm],
    ['Data', 'text', run.dataset],
    ['Protocol', 'text', run.protocol],
    ['Seed', 'number', run.seed === null ? '–' : String(run.seed)],
    [run.metric || 'Metric', 'number', value],
    [run.steps === 'epochs' ? 'Epochs' : run.steps === 'rounds' ? 'Rounds' : 'Steps', 'number', stepsOf(run)],
    ['Time', 'number', format.duration(run.seconds ?? NaN)],
    ['Traffic', 'number', run.n_bytes ? format.size(run.n_bytes) : '–'],
    ['Changed', 'number', format.ago(run.changed)],
  ]
  return h('tr', { 'aria-selected': String(chosen.selected.has(run.id)) },
    h('td', { class: 'pick' }, box),
    cells.map(([label, kind, content]) => h('td', { class: kind || null, 'data-label': kind.includes('lead') ? null : label }, content)))
}

/** How many rounds or epochs, of how many. */
function stepsOf(run) {
  const done = format.count(run.round ?? NaN)
  const known = run.rounds && run.rounds !== run.round ? `${done} / ${format.count(run.rounds)}` : done
  return run.steps === 'epochs' && Number.isFinite(run.round) ? `${known} epochs` : known
}

function nothing(total) {
  if (total) return notice('No run matches. Change the search or the filters.', 'info')
  return h('div', { class: 'card' }, h('h2', {}, 'No runs yet'),
    h('p', {}, 'Runs appear here as soon as they begin: ', h('a', { href: '#/start' }, 'start one'),
      ', or use the command line.'), h('pre', { class: 'wrap' }, 'coterie run fedfast --rounds 100'))
}

function reportOf(runs) {
  return ['coterie report', ...runs.map((run) => quoted(run.folder))].join(' ')
}

/** A word for the shell. */
function quoted(text) {
  return /^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\"'\"'")}'`
}
