// Page 1, second part: a selection of runs side by side.

import { get } from '../api.mjs'
import { commandBox, h, notice, replace, svg, table } from '../dom.mjs'
import * as format from '../format.mjs'
import { colourOf, figureCard } from '../chart.mjs'

const COLOURS = ['#2a6f97', '#e07a5f', '#3d8361', '#8e5ea2', '#c9a227', '#5c677d', '#b5446e', '#4ea8de', '#7f5539', '#1d3557']
const LOWER = ['RMSE', 'MAE', 'Calib']

export async function comparePage(main, query) {
  const ids = query.getAll('run')
  if (!ids.length) {
    replace(main, h('h1', {}, 'Compare'), notice('No run is selected. Select some in the table of runs.', 'info'))
    return undefined
  }
  const found = await get('/api/compare', { run: ids })
  const cards = found.figures.map((figure) => figureCard(figure, `compare-${figure.key.replace(/\W+/g, '-')}`))
  replace(main,
    h('div', { class: 'title' }, h('div', {}, h('h1', {}, `${found.methods.length} ${found.methods.length === 1 ? 'method' : 'methods'}, ${ids.length} ${ids.length === 1 ? 'run' : 'runs'}`),
      h('p', { class: 'quiet' }, 'Runs that differ in the seed alone are one method. ', h('a', { href: '#/runs' }, 'Change the selection'))),
    ),
    h('ul', { class: 'chips' }, found.methods.map((method, n) => chip(method, n, ids))),
    conclusion(found),
    cards.length ? h('div', { class: 'grid figures' }, cards) : notice('Trained in one step: there is no curve.', 'info'),
    h('div', { class: 'sides' }, h('div', {}, tests(found)), h('div', {}, metrics(found), settings(found))),
    commandBox(found.command),
    found.report !== found.command ? commandBox(found.report, 'Show these runs, without training them again') : null)
  return () => cards.forEach((card) => card.close())
}

function chip(method, n, ids) {
  const swatch = h('span', { class: 'swatch' })
  swatch.style.setProperty('background', colourOf(COLOURS[n % COLOURS.length]))
  const rest = ids.filter((id) => !method.runs.some((run) => run.id === id))
  const links = method.runs.map((run, k) => [k ? ', ' : '', h('a', { href: `#/run?run=${run.id}`, title: run.name }, String(method.seeds[k]))])
  return h('li', {}, swatch, h('strong', {}, method.label),
    h('span', { class: 'quiet small' }, method.runs.length > 1 ? 'seeds ' : 'seed ', links),
    rest.length ? h('a', { href: `#/compare?${rest.map((id) => `run=${id}`).join('&')}`, 'aria-label': `Leave out ${method.label}` }, '×') : null)
}

function conclusion(found) {
  if (found.not_tested) return notice(`No paired tests: ${found.not_tested}`)
  const lines = found.tested.summary
  if (!lines.length) return null
  return h('section', { class: 'card' }, h('h2', {}, 'In words'), lines.map((line) => h('p', {}, line)))
}

function tests(found) {
  const all = found.tested.tests ?? []
  if (!all.length) return null
  const reach = Math.max(...all.flatMap((test) => [Math.abs(test.low), Math.abs(test.high)])) || 1
  const rows = all.map((test) => [
    `${test.method} − ${test.other}`, test.metric.replace(/^full:/, 'full ranking: '),
    signed(test.difference), `${signed(test.low)} to ${signed(test.high)}`, forest(test, reach),
    probability(test.p_holm), String(test.seeds_ahead),
  ])
  const columns = [
    { title: 'Difference', lead: true }, { title: 'Metric' }, { title: 'Mean', kind: 'number' },
    { title: '95% interval', kind: 'number' }, { title: 'Interval around zero' },
    { title: 'p, corrected', kind: 'number' }, { title: 'Ahead', kind: 'number' }]
  return h('section', { class: 'card' }, h('h2', {}, `Paired tests over ${format.count(found.tested.users)} users, ${found.tested.unit}`),
    table(columns, rows), found.tested.notes.map((line) => h('p', { class: 'quiet small' }, line)))
}

function forest(test, reach) {
  const x = (value) => 100 + (95 * value) / reach
  const isClear = test.p_holm < 0.05
  const sign = LOWER.includes(test.metric.replace(/^full:/, '').split('@')[0]) ? -1 : 1
  const kind = !isClear ? '' : sign * test.difference > 0 ? 'better' : 'worse'
  return svg('svg', { class: `forest ${kind}`, viewBox: '0 0 200 20', preserveAspectRatio: 'none', role: 'img', 'aria-label': `${signed(test.difference)}, from ${signed(test.low)} to ${signed(test.high)}` },
    svg('line', { class: 'axis', x1: 100, x2: 100, y1: 0, y2: 20 }),
    svg('line', { class: 'span', x1: x(test.low), x2: x(test.high), y1: 10, y2: 10 }),
    // A line without length has round ends, which stay round however wide the picture is.
    svg('line', { class: 'mean', x1: x(test.difference), x2: x(test.difference), y1: 10, y2: 10 }))
}

function signed(value) {
  return `${value < 0 ? '−' : '+'}${Math.abs(value).toFixed(4)}`
}

function probability(p) {
  return p < 0.0001 ? '< 0.0001' : p.toFixed(4)
}

function metrics(found) {
  const shown = (one) => found.methods.map((_, n) => {
    const values = one.values[n]
    const spread = format.deviation(values)
    const text = format.metric(one.name, format.mean(values)) + (Number.isFinite(spread) ? ` ±${spread.toFixed(4)}` : '')
    return bestOf(one).has(n) ? h('span', { class: 'best' }, text) : text
  })
  const columns = [{ title: 'Metric', lead: true, kind: 'tight' }, { title: 'What it measures', lead: true }, ...found.methods.map((method) => ({ title: method.label, kind: 'number' }))]
  const rows = (list) => list.map((one) => [one.name, h('span', { class: 'quiet small' }, one.about), ...shown(one)])
  const others = found.metrics.filter((one) => !one.headline)
  return h('section', { class: 'card' }, h('h2', {}, 'Metrics'),
    table(columns, rows(found.metrics.filter((one) => one.headline))),
    others.length ? h('details', {}, h('summary', {}, `${others.length} more metrics`), table(columns, rows(others))) : null,
    h('p', { class: 'quiet small' }, captionOf(found)))
}

function captionOf(found) {
  const isRepeated = found.methods.some((method) => method.runs.length > 1)
  return [isRepeated && 'Mean and standard deviation over seeds.', found.methods.length > 1 && 'Bold: the best.'].filter(Boolean).join(' ')
}

function bestOf(one) {
  const means = one.values.map(format.mean)
  const known = means.filter(Number.isFinite)
  if (known.length < 2) return new Set()
  const best = LOWER.includes(one.name.split('@')[0]) ? Math.min(...known) : Math.max(...known)
  return new Set(means.flatMap((value, n) => (value === best ? [n] : [])))
}

function settings(found) {
  const columns = [{ title: 'Setting', lead: true }, ...found.methods.map((method) => ({ title: method.label }))]
  const rows = (values) => Object.keys(values).map((name) => [name, ...values[name].map((value) => value ?? h('span', { class: 'quiet' }, '–'))])
  const differing = rows(found.settings)
  const partial = rows(found.partial_settings)
  if (!differing.length && !partial.length) return null
  return h('section', { class: 'card' }, h('h2', {}, 'Settings that differ'),
    differing.length ? table(columns, differing) : null,
    partial.length ? h('details', {}, h('summary', {}, `${partial.length} settings that not every method has`), table(columns, partial)) : null)
}
