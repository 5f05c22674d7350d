// Page 3: users' embeddings in two dimensions, round by round, with selections and clusters.

import { get, getBytes } from '../api.mjs'
import { download, figureCard, save } from '../chart.mjs'
import { announce, commandBox, field, h, notice, replace, table } from '../dom.mjs'
import * as format from '../format.mjs'
import { asCss, colourOfCluster, mapCanvas, radiusOf } from '../map_canvas.mjs'
import { chooseRun, recordCard, titleOf } from '../recording.mjs'
import { isDark, isPrinting, onTheme, variable } from '../theme.mjs'

const ABOUT = 'Users’ embeddings in two dimensions, round by round: who was selected, and how clusters change.'
const SECONDS = 15
const SLOWEST = 2
const still = window.matchMedia('(prefers-reduced-motion: reduce)')

export async function clustersPage(main, query) {
  const run = query.get('run')
  if (!run) {
    await chooseRun(main, 'Clusters', ABOUT, 'clusters', (one) => one.is_federated)
    return null
  }
  let close = () => {}
  async function open() {
    close()
    const about = await get('/api/map', { run })
    document.title = `Clusters of ${about.name} · Coterie console`
    if (!about.map) {
      const card = recordCard(about, open)
      replace(main, titleOf('Clusters', about), card)
      close = card.close
      return
    }
    close = show(main, about, dataOf(about.map, await getBytes('/api/map/points', { run })), query.get('user'))
  }
  await open()
  return () => close()
}

/** The arrays of the map; the server sends them one after the other. */
function dataOf(map, bytes) {
  const frames = map.rounds.length
  const users = map.users.length
  const cells = frames * users
  const places = map.indices.length ? new Map(map.indices.map((index, n) => [index, n])) : new Map()
  return {
    frames, users,
    places: new Uint16Array(bytes, 0, 2 * cells),
    clusters: new Int16Array(bytes, 4 * cells, cells),
    selections: new Uint8Array(bytes, 6 * cells, cells),
    centres: map.centres.map((row) => row.map((index) => places.get(index) ?? -1)),
  }
}

function show(main, about, data, user) {
  const { map } = about
  const page = {
    about, map, data, position: 0, marked: map.indices.indexOf(Number(user ?? -1)), isPlaying: false, request: 0,
    canvas: h('canvas', { class: 'map', role: 'img', 'aria-label': 'Map of users' }),
    slider: h('input', { type: 'range', id: 'round', min: 0, max: data.frames - 1, step: 1, value: 0 }),
    play: h('button', { type: 'button', class: 'primary play' }, 'Play'),
    round: h('output', { for: 'round', class: 'round-count' }), rate: h('span', { class: 'quiet small rate' }),
    tiles: h('div', {}), user: h('div', { class: 'picked', 'aria-live': 'polite' }), clusters: h('div', {}), card: null,
    changes: changesOf(data),
  }
  page.drawing = mapCanvas(page.canvas, data)
  page.card = data.frames > 1 ? figureCard(changesFigure(page), 'cluster-changes') : null
  replace(main, titleOf('Clusters', about, h('a', { href: `#/user?run=${about.run}` }, 'Users')),
    h('div', { class: 'map-page' }, mapCard(page), h('div', {}, page.tiles,
      map.clusters ? h('details', { class: 'card' }, h('summary', {}, 'Clusters in this round'), h('div', { class: 'scroll', tabindex: 0, role: 'region', 'aria-label': 'Clusters in this round' }, page.clusters)) : null,
      page.card), aboutCard(page)),
    commandBox(about.command, 'Record this run on the command line'))
  return listen(page)
}

function mapCard(page) {
  const { map } = page
  const search = h('input', { type: 'search', id: 'find-user', autocomplete: 'off', placeholder: 'User id' })
  search.addEventListener('change', () => find(page, search.value.trim()))
  const has = { centres: page.data.centres.some((row) => row.length), clusters: map.clusters > 0 }
  return h('section', { class: 'card map-card' },
    h('div', { class: 'head' }, h('h2', {}, 'Map of users'),
      h('div', { class: 'find' }, h('label', { for: 'find-user' }, 'Find a user'), search)),
    h('ul', { class: 'legend' },
      h('li', {}, h('span', { class: 'dot small-dot' }), has.clusters ? 'a user, in the colour of its cluster' : 'a user'),
      h('li', {}, h('span', { class: 'dot' }), 'selected'),
      has.centres ? h('li', {}, h('span', { class: 'dot diamond' }), 'centre of a cluster') : null),
    page.canvas,
    h('div', { class: 'scrubber' }, page.play, h('label', { for: 'round', class: 'announcer' }, 'Round'), page.slider, page.round),
    h('div', { class: 'below' }, page.user, page.rate,
      h('div', { class: 'buttons' },
        saveButton('SVG', () => save('users.svg', 'image/svg+xml', asSvg(page))),
        saveButton('PNG', () => download('users.png', page.canvas.toDataURL('image/png'))),
        saveButton('CSV', () => save('users.csv', 'text/csv', asCsv(page))))))
}

function saveButton(kind, action) {
  return h('button', { type: 'button', class: 'plain', 'aria-label': `Save the map as ${kind}`, onclick: action }, kind)
}

function aboutCard({ map, about, data }) {
  const [x, y] = map.explained.map((share) => `${(100 * share).toFixed(0)} %`)
  const same = map.difference === 0 ? 'The model that the run saved is the replay’s, bit for bit.'
    : map.difference === null ? '' : `The model that the run saved differs from the replay’s by up to ${map.difference.toExponential(1)}.`
  const thinned = data.frames < map.rounds.at(-1) + 1 ? `The map has ${data.frames} of ${format.count(map.rounds.at(-1) + 1)} rounds; a user counts as selected if it was since the round before on the map.` : ''
  const sampled = data.users < map.all_users ? `It shows ${format.count(data.users)} of ${format.count(map.all_users)} users.` : ''
  return h('section', { class: 'card' }, h('h2', {}, 'How to read it'),
    h('p', { class: 'explained' }, `Both axes are principal components of the embeddings of all rounds together, so a point moves only where its embedding does. They have ${x} and ${y} of the variance; users who are near on the map may differ in the rest. ${sampled} ${thinned}`),
    h('p', { class: 'explained' }, `The data is a replay of the run, which took ${format.duration(map.seconds)}. ${same}`),
    h('p', { class: 'explained' }, `Only a simulation can show this: here ${about.algorithm} had all users in one place. In a deployment histories and private embeddings stay on the users’ devices.`))
}

/** For every frame: users whose cluster is another one than in the frame before, and selected users. */
function changesOf({ frames, users, clusters, selections }) {
  const changed = new Array(frames).fill(0)
  const selected = new Array(frames).fill(0)
  for (let t = 0; t < frames; t++) {
    for (let n = t * users; n < (t + 1) * users; n++) {
      if (t && clusters[n] !== clusters[n - users]) changed[t]++
      if (selections[n]) selected[t]++
    }
  }
  return { changed, selected }
}

function changesFigure({ map, changes }) {
  const xs = { rounds: map.rounds.slice(1) }
  const series = [{ name: 'selected', y: changes.selected.slice(1), xs, low: [], high: [] }]
  if (map.clusters) series.unshift({ name: 'changed their cluster', y: changes.changed.slice(1), xs, low: [], high: [] })
  return { title: 'Users who were selected, or changed their cluster', y_label: 'users', axes: ['rounds'], fromZero: true, series,
    colours: ['#2a6f97', '#e07a5f'].slice(-series.length), caption: 'Of the users on the map.' }
}

function frameOf(page) {
  return Math.min(Math.round(page.position), page.data.frames - 1)
}

function listen(page) {
  const { canvas, slider, play } = page
  const themed = () => {
    page.drawing.setTheme({ isDark: isDark(), isPaper: isPrinting(), background: channels('--card'), text: channels('--text') })
    draw(page)
  }
  const sized = new ResizeObserver(() => {
    page.drawing.resize()
    draw(page)
  })
  page.drawing.resize()
  sized.observe(canvas)
  const forget = onTheme(themed)
  slider.addEventListener('input', () => {
    pause(page)
    page.position = Number(slider.value)
    draw(page)
  })
  play.addEventListener('click', () => (page.isPlaying ? pause(page) : start(page)))
  canvas.addEventListener('click', (event) => mark(page, page.drawing.userAt(event)))
  themed()
  if (page.marked >= 0) mark(page, page.marked)
  return () => {
    pause(page)
    sized.disconnect()
    forget()
    page.card?.close()
  }
}

/** The numbers of a colour of the style sheet. */
function channels(name) {
  const text = variable(name)
  const hex = text.length === 4 ? [...text.slice(1)].map((digit) => digit + digit).join('') : text.slice(1)
  return [0, 2, 4].map((at) => Number.parseInt(hex.slice(at, at + 2), 16))
}

function start(page) {
  const { data } = page
  const speed = Math.max(SLOWEST, data.frames / SECONDS)
  if (page.position >= data.frames - 1) page.position = 0
  page.isPlaying = true
  page.play.textContent = 'Pause'
  let last = performance.now()
  let since = last
  let frames = 0
  let busy = 0
  const step = (now) => {
    page.position = Math.min(page.position + ((now - last) / 1000) * speed, data.frames - 1)
    last = now
    frames++
    if (now - since >= 1000) {
      showRate(page, (1000 * frames) / (now - since), busy / frames)
      since = now
      frames = 0
      busy = 0
    }
    const began = performance.now()
    draw(page)
    busy += performance.now() - began
    if (page.position >= data.frames - 1) pause(page)
    else page.request = requestAnimationFrame(step)
  }
  page.request = requestAnimationFrame(step)
}

function showRate(page, rate, milliseconds) {
  page.canvas.dataset.rate = rate.toFixed(1)
  page.canvas.dataset.milliseconds = milliseconds.toFixed(1)
  page.rate.textContent = `${rate.toFixed(0)} frames a second`
}

function pause(page) {
  if (!page.isPlaying) return
  cancelAnimationFrame(page.request)
  page.isPlaying = false
  page.play.textContent = 'Play'
  draw(page)
}

function draw(page) {
  page.drawing.draw(still.matches || !page.isPlaying ? frameOf(page) : page.position, page.marked)
  const frame = frameOf(page)
  if (page.shown === frame) return
  page.shown = frame
  page.slider.value = frame
  const { map, changes } = page
  const round = map.rounds[frame]
  const words = frame ? `${format.count(changes.selected[frame])} selected` : 'before the first round'
  page.round.textContent = `Round ${format.count(round)} of ${format.count(map.rounds.at(-1))}`
  page.slider.setAttribute('aria-valuetext', `Round ${round}, ${words}`)
  page.canvas.setAttribute('aria-label', `Map of ${page.data.users} users in round ${round}, ${words}${map.clusters ? `, ${sizesOf(page, frame).filter(Boolean).length} clusters` : ''}`)
  showTiles(page, frame)
  showClusters(page, frame)
  showUser(page)
}

function sizesOf({ data, map }, frame) {
  const sizes = new Array(map.clusters).fill(0)
  for (let n = frame * data.users; n < (frame + 1) * data.users; n++) if (data.clusters[n] >= 0) sizes[data.clusters[n]]++
  return sizes
}

function showTiles(page, frame) {
  const { map, changes, data } = page
  const share = (n) => `${((100 * n) / data.users).toFixed(1)} % of the users`
  const sizes = sizesOf(page, frame).filter(Boolean)
  replace(page.tiles, h('dl', { class: 'tiles' },
    field('Selected', format.count(changes.selected[frame]), share(changes.selected[frame])),
    map.clusters ? field('Changed cluster', frame ? format.count(changes.changed[frame]) : '–', frame ? share(changes.changed[frame]) : 'no round before') : null,
    map.clusters ? field('Clusters', format.count(sizes.length), `${format.count(Math.min(...sizes))} to ${format.count(Math.max(...sizes))} users`) : null,
    field('Users on the map', format.count(data.users), data.users < map.all_users ? `of ${format.count(map.all_users)}` : 'all that take part')))
}

function showClusters(page, frame) {
  const { map, data } = page
  if (!map.clusters) return
  const rows = Array.from({ length: map.clusters }, () => ({ size: 0, selected: 0, joined: 0, left: 0 }))
  for (let n = 0; n < data.users; n++) {
    const now = data.clusters[frame * data.users + n]
    const before = frame ? data.clusters[(frame - 1) * data.users + n] : now
    if (now >= 0) {
      rows[now].size++
      if (data.selections[frame * data.users + n]) rows[now].selected++
      if (now !== before) rows[now].joined++
    }
    if (now !== before && before >= 0) rows[before].left++
  }
  const numbers = ['Users', 'Selected', 'Joined', 'Left'].map((title) => ({ title, kind: 'number' }))
  replace(page.clusters, table([{ title: 'Cluster', lead: true }, ...numbers], rows.map((row, n) => {
    const swatch = h('span', { class: 'swatch inline' })
    swatch.style.setProperty('background', asCss(colourOfCluster(n, isDark())))
    return [[swatch, ` ${n + 1}`], ...[row.size, row.selected, row.joined, row.left].map(format.count)]
  })))
}

function find(page, id) {
  if (!id) {
    mark(page, -1)
    return
  }
  const n = page.map.users.indexOf(id)
  if (n < 0) replace(page.user, notice(`No user on the map has the id ${id}.`, 'bad'))
  else mark(page, n)
}

function mark(page, n) {
  page.marked = n
  showUser(page)
  draw(page)
}

function showUser(page) {
  const { marked: n, map, data, about } = page
  if (n < 0) {
    if (page.user.textContent !== '') replace(page.user)
    return
  }
  const at = frameOf(page) * data.users + n
  const words = [data.clusters[at] >= 0 && `cluster ${data.clusters[at] + 1}`, data.selections[at] ? 'selected' : 'not selected'].filter(Boolean).join(', ')
  replace(page.user, h('strong', {}, `User ${map.users[n]}`), `: ${words}. `, h('a', { href: `#/user?run=${about.run}&user=${map.indices[n]}` }, 'Inspect this user'))
}

function asCsv(page) {
  const { map, data } = page
  const frame = frameOf(page)
  const lines = map.users.map((id, n) => {
    const at = frame * data.users + n
    const text = /^[=+\-@\t\r]/.test(id) ? `'${id}` : id
    return [`"${text.replaceAll('"', '""')}"`, map.rounds[frame], data.places[2 * at], 65535 - data.places[2 * at + 1], data.clusters[at] + 1 || '', data.selections[at]].join(',')
  })
  return `user_id,round,x,y,cluster,selections\r\n${lines.join('\r\n')}\r\n`
}

function asSvg(page) {
  const { data, canvas } = page
  const frame = frameOf(page) * data.users
  const radius = radiusOf(data.users)
  const dots = page.drawing.points().map(([x, y], n) => {
    const isSelected = data.selections[frame + n]
    const fill = asCss(colourOfCluster(data.clusters[frame + n], isDark()))
    return `<circle cx="${x.toFixed(1)}" cy="${y.toFixed(1)}" r="${isSelected ? radius + 1.2 : radius}" fill="${fill}"${isSelected ? ` stroke="${asCss(channels('--text'))}"` : ' opacity="0.6"'}/>`
  })
  announce('The map was saved.')
  return `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${canvas.width} ${canvas.height}"><rect width="100%" height="100%" fill="${asCss(channels('--card'))}"/>${dots.join('')}</svg>`
}
