// Page 2: one run or federation, while it trains and afterwards.

import { get, post } from '../api.mjs'
import { announce, badge, commandBox, field, h, notice, replace, table } from '../dom.mjs'
import { figureCard } from '../chart.mjs'
import * as format from '../format.mjs'
import { writeButton } from '../permission.mjs'
import { follow } from '../stream.mjs'

const COLOUR = '#2a6f97'
const RECENT = 12
// Figures of a federation's status that have a place of their own on the page.
const PLACED = ['state', 'round', 'rounds', 'refused', 'last_refused', 'metrics', 'updates', 'dropped', 'bytes_up', 'bytes_down',
  'epsilon', 'epsilon_spent', 'nodes', 'enrolled', 'silent', 'users', 'seconds_per_round', 'last_contact', 'note', 'least_nodes']

export async function runPage(main, query) {
  const id = query.get('run') ?? ''
  const parts = Object.fromEntries(['title', 'problem', 'progress', 'tiles', 'figure', 'refused', 'nodes', 'points', 'result', 'about']
    .map((name) => [name, h('div', {})]))
  const page = { id, parts, summary: null, federation: {}, begin: null, lines: [], points: [], card: null, error: '', details: null }
  const { title, problem, progress, tiles, figure, refused, nodes, points, result, about } = parts
  replace(main, title, problem, progress, tiles, h('div', { class: 'sides' }, h('div', {}, figure, refused, nodes, points), result, about))
  await showDetails(page)
  if (page.summary?.state === 'finished') return () => page.card?.close()
  const stop = follow(id, {
    begin: (line) => { began(page, line); show(page) },
    round: (line) => { received(page, line); show(page) },
    state: (state) => { changed(page, state); show(page) },
    lost: (isLost) => { page.isLost = isLost; showProblem(page) },
  })
  return () => {
    stop()
    page.card?.close()
  }
}

async function showDetails(page) {
  const found = await get('/api/run', { run: page.id })
  page.details = found
  page.error = found.error
  if (found.summary) page.summary = found.summary
  if (found.federation) page.federation = found.federation
  // The curve of a finished run is of all users; while it trains, it may be of a sample.
  const isFinal = page.summary?.state === 'finished'
  if (found.curve?.length && (isFinal || !page.points.length)) page.points = found.curve.map(pointOfCurve)
  show(page)
  showResult(page)
}

function pointOfCurve(line) {
  const { round, seconds, part, updates, bytes_up, bytes_down, ...metrics } = line
  return { round, seconds, part, updates, bytes_up, bytes_down, metrics }
}

/** Training begins or resumes: what was measured after that round is measured again. */
function began(page, line) {
  if (!page.begin) page.points = []
  page.begin = line
  page.points = page.points.filter((point) => point.round <= line.after)
  page.lines = []
}

function received(page, line) {
  page.lines.push(line)
  page.lines = page.lines.slice(-RECENT)
  if (!line.metrics) return
  const others = page.points.filter((point) => point.round !== line.round || point.part !== line.part)
  page.points = [...others, line]
}

function changed(page, state) {
  const before = page.summary?.state
  page.summary = state.summary
  page.federation = state.federation
  page.error = state.error
  if (before && before !== page.summary.state) {
    announce(`The run is ${page.summary.state}.`)
    showDetails(page).catch(() => {})
  }
}

function show(page) {
  if (!page.summary) {
    replace(page.parts.title, h('h1', {}, 'Starting …'))
    showProblem(page)
    return
  }
  showTitle(page)
  showProblem(page)
  showProgress(page)
  showTiles(page)
  showFigure(page)
  showRefused(page)
  showNodes(page)
  showPoints(page)
}

function showTitle(page) {
  const run = page.summary
  const isActive = run.state === 'running' || run.state === 'starting'
  const canResume = run.state === 'stopped' && run.kind === 'run' && !page.error
  const key = JSON.stringify([run.state, run.name, canResume])
  if (page.titleKey === key) return
  page.titleKey = key
  document.title = `${run.name} · Coterie console`
  const stop = writeButton('Stop', () => act(page, '/api/stop'), { class: 'danger' })
  const resume = writeButton('Resume', () => act(page, '/api/resume'), { class: 'primary' })
  const where = run.kind === 'federation' ? ', a federation of nodes' : run.dataset && ` on ${run.dataset}`
  const what = [run.algorithm, where].filter(Boolean).join('')
  const about = [what, run.protocol && `evaluated by ${run.protocol}`, run.seed !== null && `seed ${run.seed}`]
  replace(page.parts.title, h('div', { class: 'title' },
    h('div', {}, h('h1', {}, run.name), h('p', { class: 'quiet' }, about.filter(Boolean).join(', '))),
    h('div', { class: 'buttons' }, badge(run.state), isActive ? stop : null, canResume ? resume : null,
      run.state === 'finished' && run.kind === 'run' ? h('a', { href: `#/compare?run=${run.id}` }, 'Figures and tests') : null,
      // Users of a federation are on their nodes: there is nothing to show here.
      run.state === 'finished' && run.kind === 'run' && run.is_federated ? h('a', { href: `#/clusters?run=${run.id}` }, 'Clusters') : null,
      run.state === 'finished' && run.kind === 'run' ? h('a', { href: `#/user?run=${run.id}` }, 'Users') : null)))
}

async function act(page, path) {
  try {
    await post(path, { run: page.id })
    page.error = ''
    announce('Done.')
  } catch (error) {
    page.error = error.message
  }
  showProblem(page)
}

function showProblem(page) {
  const run = page.summary
  const { note, state, nodes, least_nodes: least } = page.federation ?? {}
  const isWaiting = run?.state === 'running' && state === 'waiting' && least
  replace(page.parts.problem,
    page.isLost ? notice('The console does not answer. This page goes on once it does.', 'info') : null,
    page.error ? notice(page.error, 'bad') : null,
    run?.error && run.error !== page.error ? notice(run.error, 'bad') : null,
    isWaiting ? notice(`Waiting for nodes: ${format.count(nodes)} of ${format.count(least)} have joined.`, 'info') : null,
    note && run?.state !== 'finished' ? notice(note) : null)
}

function showProgress(page) {
  const run = page.summary
  const round = roundOf(page) ?? 0
  const total = page.begin?.rounds ?? run.rounds
  const step = run.steps === 'epochs' ? 'Epoch' : 'Round'
  if (run.state === 'finished' || !total) {
    replace(page.parts.progress)
    return
  }
  const left = secondsLeft(page.lines, total)
  const words = run.state === 'running' && left !== null ? `about ${format.duration(left)} left` : ''
  replace(page.parts.progress, h('section', { class: 'card progress', 'aria-label': 'Progress' },
    h('div', { class: 'words' }, h('strong', { class: 'round-count' }, `${step} ${format.count(round)} of ${format.count(total)}`), h('span', { class: 'quiet' }, words)),
    h('progress', { max: total, value: round, 'aria-label': `${step}s` })))
}

/** The status of a federation has every round, and rounds that were undone; the log has some rounds. */
function roundOf(page) {
  return page.federation?.round ?? page.lines.at(-1)?.round ?? page.begin?.after ?? page.summary.round
}

/** By the speed of the last lines. */
function secondsLeft(lines, total) {
  const last = lines.at(-1)
  if (lines.length < 2) return null
  const first = lines[0]
  const rounds = last.round - first.round
  return rounds > 0 ? ((total - last.round) * (last.at - first.at)) / rounds : null
}

function showTiles(page) {
  const run = page.summary
  const status = page.federation ?? {}
  const last = page.lines.at(-1) ?? page.points.at(-1) ?? {}
  const result = page.details?.result ?? {}
  // The log counts bytes as if every user had a device; the server of a federation counts those sent.
  const up = status.bytes_up ?? last.bytes_up ?? result.bytes_up
  const down = status.bytes_down ?? last.bytes_down ?? result.bytes_down
  const sender = run.kind === 'federation' ? 'nodes' : 'clients'
  const step = run.steps === 'epochs' ? 'epoch' : 'round'
  const rounds = roundOf(page)
  const name = page.begin?.begin.metric ?? run.metric
  const latest = page.points.at(-1)
  const value = run.state === 'finished' && Number.isFinite(run.value) ? run.value : latest?.metrics[name]
  const measured = !Number.isFinite(value) ? (status.epsilon ? 'not reported under a privacy budget' : 'not measured yet')
    : run.state === 'finished' ? 'all tested users' : `${step} ${format.count(latest.round)}`
  const epsilon = status.epsilon ?? result.privacy?.epsilon ?? page.details?.settings?.epsilon
  const spent = status.epsilon_spent ?? last.epsilon_spent ?? result.privacy?.epsilon_spent
  const perStep = (bytes) => (rounds ? `${format.size(bytes / rounds)} ${step === 'epoch' ? 'an epoch' : 'a round'}` : '')
  const tiles = [
    name ? field(name, format.metric(name, value ?? NaN), measured) : null,
    down ? field('Accepted', format.count(status.updates ?? last.updates ?? result.updates), 'updates') : null,
    down ? field('Refused', format.count(sum(refusedOf(page))), 'updates') : null,
    down ? field('Dropped out', format.count(status.dropped ?? last.dropped ?? result.dropped ?? NaN), 'clients') : null,
    down ? field(`Sent by ${sender}`, format.size(up), perStep(up)) : null,
    down ? field(`Sent to ${sender}`, format.size(down), perStep(down)) : null,
    status.nodes !== undefined ? field(run.state === 'running' ? 'Nodes connected' : 'Nodes at the end', format.count(status.nodes), status.enrolled !== undefined ? `${format.count(status.enrolled)} enrolled` : '') : null,
    status.users !== undefined ? field('Users', format.count(status.users)) : null,
    field('Training time', format.duration(last.seconds ?? run.seconds ?? NaN), rounds ? `${format.count(rounds)} ${step}${rounds === 1 ? '' : 's'}` : ''),
    epsilon || Number.isFinite(spent) ? field('Privacy spent', Number.isFinite(spent) ? spent.toFixed(2) : '–', epsilon ? `of ε = ${Number(epsilon)}` : 'ε') : null,
  ]
  replace(page.parts.tiles, h('dl', { class: 'tiles' }, tiles))
}

function sum(counts) {
  return Object.values(counts).reduce((total, each) => total + each, 0)
}

function refusedOf(page) {
  const found = page.federation?.refused ?? page.lines.at(-1)?.refused ?? page.details?.result?.refused ?? {}
  return typeof found === 'object' && found ? found : {}
}

function showFigure(page) {
  const name = page.begin?.begin.metric ?? page.summary.metric
  const points = page.points.filter((point) => Number.isFinite(point.metrics?.[name]))
  const key = `${name} ${points.length} ${points.at(-1)?.round} ${points.at(-1)?.metrics[name]}`
  if (!points.length || page.figureKey === key) return
  page.figureKey = key
  const figure = figureOf(name, points, page.summary.steps)
  if (page.card) {
    page.card.update(figure)
    return
  }
  page.card = figureCard(figure, `${page.summary.name.replace(/\W+/g, '-')}-curve`)
  replace(page.parts.figure, page.card)
}

function figureOf(name, points, steps) {
  const xs = { [steps]: points.map((point) => point.round) }
  if (points.every((point) => point.bytes_down)) xs.megabytes = points.map((point) => (point.bytes_up + point.bytes_down) / 1e6)
  if (points.every((point) => Number.isFinite(point.seconds))) xs.seconds = points.map((point) => point.seconds)
  const part = points.at(-1).part
  return {
    title: `${name} during training`, y_label: name, axes: Object.keys(xs), colours: [COLOUR], fromZero: true,
    series: [{ name, y: points.map((point) => point.metrics[name]), xs, low: [], high: [] }],
    caption: part === 'test' ? 'Measured on the test part, for inspection only: no model is selected by it.' : `Measured on the ${part} part.`,
  }
}

function showRefused(page) {
  const refused = Object.entries(refusedOf(page))
  const last = page.federation?.last_refused ?? {}
  replace(page.parts.refused, refused.length ? h('section', { class: 'card' }, h('h2', {}, 'Refused updates'),
    table([{ title: 'Reason', lead: true }, { title: 'Number', kind: 'number' }, { title: 'Last', kind: 'rest' }],
      refused.map(([reason, count]) => [reason, format.count(count), last[reason] ?? '']))) : null)
}

function showNodes(page) {
  const status = page.federation ?? {}
  if (page.summary.kind !== 'federation') return
  const silent = new Set(Array.isArray(status.silent) ? status.silent : [])
  const isRunning = page.summary.state === 'running'
  const stateOf = (node) => (silent.has(node) ? badge('stopped', 'silent') : isRunning ? badge('finished', 'answers') : h('span', { class: 'quiet' }, 'the server has ended'))
  const contacts = Object.entries(status.last_contact ?? {})
  const others = Object.entries(status).filter(([key, value]) => !PLACED.includes(key) && isShort(value))
  replace(page.parts.nodes,
    contacts.length ? h('section', { class: 'card' }, h('h2', {}, 'Nodes'),
      table([{ title: 'Node', lead: true }, { title: 'State' }, { title: 'Last contact' }],
        contacts.map(([node, at]) => [node, stateOf(node), format.ago(Date.parse(at) / 1000)]))) : null,
    others.length ? h('details', { class: 'card' }, h('summary', {}, 'Status of the server'),
      h('dl', { class: 'settings' }, others.map(([key, value]) => h('div', {}, h('dt', {}, key.replaceAll('_', ' ')), h('dd', {}, text(value)))))) : null)
}

function isShort(value) {
  return typeof value !== 'object' || Array.isArray(value)
}

function text(value) {
  if (Array.isArray(value)) return value.join(', ') || 'none'
  return typeof value === 'number' ? (Number.isInteger(value) ? format.count(value) : value.toFixed(4)) : String(value ?? '–')
}

function showPoints(page) {
  const name = page.begin?.begin.metric ?? page.summary.metric
  const key = `${name} ${page.points.length} ${page.points.at(-1)?.round} ${page.points.at(-1)?.metrics[name]}`
  if (!page.points.length || page.pointsKey === key) return
  page.pointsKey = key
  const isOpen = page.parts.points.querySelector('details')?.open
  const rows = page.points.map((point) => [String(point.round), format.metric(name, point.metrics[name] ?? NaN), format.duration(point.seconds ?? NaN),
    point.bytes_down ? format.size(point.bytes_up + point.bytes_down) : '–'])
  replace(page.parts.points, h('details', { class: 'card measurements', open: isOpen }, h('summary', {}, `${page.points.length} ${page.points.length === 1 ? 'measurement' : 'measurements'}`),
    table([{ title: page.summary.steps === 'epochs' ? 'Epoch' : 'Round', kind: 'number' }, { title: name, kind: 'number' }, { title: 'Time', kind: 'number' }, { title: 'Traffic', kind: 'number' }], rows)))
}

function showResult(page) {
  const { result = {}, words = {}, settings = {}, command, resume } = page.details
  const names = Object.keys(result.metrics ?? {})
  const columns = [{ title: 'Metric', lead: true, kind: 'tight' }, { title: 'What it measures', lead: true }, { title: page.summary?.protocol ?? 'Value', kind: 'number' }, { title: 'Full ranking', kind: 'number' }, { title: 'Most popular items', kind: 'number' }]
  const rows = names.map((name) => [name, h('span', { class: 'quiet small' }, words[name]), value(result.metrics, name), value(result.full, name), value(result.popular, name)])
  const below = result.below_popular ?? []
  replace(page.parts.result,
    below.length ? notice(`Recommending the most popular items to everybody scores more on ${below.join(', ')}.`) : null,
    names.length ? h('section', { class: 'card' }, h('h2', {}, 'Result'), table(columns, rows),
      h('p', { class: 'quiet small' }, `${format.count(result.tested_users)} users tested; trained on ${format.count(result.training_interactions)} interactions of ${format.count(result.users)} users; ${format.count(result.items)} items.`)) : null,
    received_by_server(result))
  const entries = Object.entries(settings).filter(([, each]) => each !== '')
  replace(page.parts.about,
    resume ? commandBox(resume, 'Resume the federation where its keys are') : null,
    command ? commandBox(command, page.summary?.kind === 'federation' ? 'Simulate it on data in one place' : undefined) : null,
    entries.length ? h('details', { class: 'card' }, h('summary', {}, `${entries.length} settings`),
      h('dl', { class: 'settings' }, entries.map(([key, each]) => h('div', {}, h('dt', {}, key), h('dd', {}, each))))) : null,
    page.summary ? h('p', { class: 'quiet small wrap' }, page.summary.folder) : null)
}

function received_by_server(result) {
  const lines = result.server_receives ?? result.in_the_clear ?? []
  if (!Array.isArray(lines) || !lines.length) return null
  return h('section', { class: 'card' }, h('h2', {}, 'What the server receives of each user'), h('ul', {}, lines.map((line) => h('li', {}, line))))
}

function value(values, name) {
  return Number.isFinite(values?.[name]) ? format.metric(name, values[name]) : '–'
}
