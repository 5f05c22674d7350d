// Figures by plotly, which the server has from the installed package. Each can be saved as SVG,
// PNG and CSV, and is drawn over rounds, megabytes or seconds.

import { announce, h, notice, replace } from './dom.mjs'
import { isDark, isPrinting, onTheme, variable } from './theme.mjs'

const ON_DARK = {
  '#2a6f97': '#6fb7e0', '#e07a5f': '#f0937a', '#3d8361': '#6cc497', '#8e5ea2': '#c297d8',
  '#c9a227': '#e2c04f', '#5c677d': '#a9b4c6', '#b5446e': '#e37fa4', '#4ea8de': '#8ccdf3',
  '#7f5539': '#c79a7b', '#1d3557': '#8aa9d6', '#9aa5b1': '#7b8794',
}
const SAVED = { width: 900, height: 540 }
// Within the margins of a page, and within a card.
const ON_PAPER = { width: 620, height: 330 }
let loading = null

function plotly() {
  loading ??= new Promise((resolve, reject) => {
    // With this id and class, plotly adds no inline styles, which the content policy forbids.
    const styles = h('link', { rel: 'stylesheet', href: '/static/plotly.css', id: 'plotly.js-style-global', class: 'no-inline-styles' })
    const script = h('script', { src: '/static/plotly.js' })
    script.addEventListener('load', () => resolve(window.Plotly))
    script.addEventListener('error', () => reject(new Error('plotly cannot be loaded')))
    document.head.append(styles, script)
  })
  return loading
}

export function colourOf(colour) {
  return isDark() ? ON_DARK[colour] ?? colour : colour
}

/** Plotly reads tags such as <b> in texts: show them as they are. */
export function plain(text) {
  return String(text).replaceAll('&', '&amp;').replaceAll('<', '&lt;').replaceAll('>', '&gt;')
}

/**
 * A figure with its buttons. `figure` has title, y_label, series, axes, colours and caption, as the
 * server sends it. `update` draws it anew.
 */
export function figureCard(figure, name) {
  let current = figure
  let axis = figure.axes[0] ?? ''
  const plot = h('div', { class: 'plot', role: 'img' })
  const axes = h('div', { class: 'buttons', role: 'group', 'aria-label': 'Horizontal axis' })
  const legend = h('ul', { class: 'legend' })
  const caption = h('p', { class: 'caption' })
  const card = h('section', { class: 'card figure' },
    h('div', { class: 'head' }, h('h2', {}, figure.title), axes),
    legend, plot,
    h('div', { class: 'foot' }, caption, h('div', { class: 'buttons' },
      saveButton('SVG', () => saveImage('svg')),
      saveButton('PNG', () => saveImage('png')),
      saveButton('CSV', () => save(`${name}.csv`, 'text/csv', asCsv(current, axis))))))

  function saveButton(kind, action) {
    return h('button', { type: 'button', class: 'plain', 'aria-label': `Save ${figure.title} as ${kind}`, onclick: action }, kind)
  }

  async function saveImage(format) {
    const drawing = await plotly()
    const box = h('div', { class: 'announcer' })
    document.body.append(box)
    const layout = { ...layoutOf(current, axis), ...SAVED, showlegend: true, paper_bgcolor: variable('--card'),
      title: { text: plain(current.title), font: { size: 16 } }, margin: { l: 70, r: 20, t: 50, b: 90 },
      legend: { orientation: 'h', y: -0.2 } }
    await drawing.newPlot(box, tracesOf(current, axis), layout, { staticPlot: true })
    const address = await drawing.toImage(box, { format, ...SAVED, scale: format === 'png' ? 2 : 1 })
    drawing.purge(box)
    box.remove()
    download(`${name}.${format}`, address)
  }

  async function draw() {
    if (!current.axes.includes(axis)) axis = current.axes[0] ?? ''
    replace(axes, current.axes.length > 1 ? current.axes.map((each) => h('button', {
      type: 'button', 'aria-pressed': String(each === axis), onclick: () => { axis = each; draw() },
    }, each)) : null)
    replace(legend, current.series.length < 2 ? null : current.series.map((series, n) => {
      const swatch = h('span', { class: 'swatch' })
      swatch.style.setProperty('background', colourOf(current.colours[n]))
      return h('li', {}, swatch, series.name)
    }))
    caption.textContent = current.caption ?? ''
    plot.setAttribute('aria-label', `${current.title} over ${axis}: ${current.series.map((one) => one.name).join(', ')}`)
    try {
      const drawing = await plotly()
      await drawing.react(plot, tracesOf(current, axis), layoutOf(current, axis),
        { responsive: true, displayModeBar: false })
    } catch (error) {
      replace(plot, notice(error.message, 'bad'))
    }
  }

  card.update = (next) => {
    current = next
    return draw()
  }
  const forget = onTheme(draw)
  card.close = () => {
    forget()
    window.Plotly?.purge(plot)
  }
  card.drawn = draw()
  return card
}

function tracesOf(figure, axis) {
  return figure.series.flatMap((series, n) => {
    const colour = colourOf(figure.colours[n])
    if (series.level || !series.xs[axis]) return [levelOf(figure, series, axis, colour)]
    const x = series.xs[axis]
    const line = { type: 'scatter', name: plain(series.name), x, y: series.y, legendgroup: String(n),
      mode: series.dots ? 'markers' : x.length <= 40 ? 'lines+markers' : 'lines', line: { color: colour, width: 2 }, marker: { color: colour, size: series.size ?? 6 } }
    return series.low?.length ? [...bandOf(series, x, colour, n), line] : [line]
  })
}

function bandOf(series, x, colour, n) {
  // Edges tell bands apart where they overlap.
  const edge = { type: 'scatter', mode: 'lines', x, line: { width: 1, color: `${colour}59` }, showlegend: false, hoverinfo: 'skip', legendgroup: String(n) }
  return [{ ...edge, y: series.low }, { ...edge, y: series.high, fill: 'tonexty', fillcolor: `${colour}21` }]
}

function levelOf(figure, series, axis, colour) {
  const all = figure.series.flatMap((one) => one.xs[axis] ?? [])
  const ends = all.length ? [Math.min(...all), Math.max(...all)] : [0, 1]
  const value = series.y.at(-1)
  return { type: 'scatter', mode: 'lines', name: plain(series.name), x: ends, y: [value, value], line: { color: colour, width: 1.5, dash: 'dash' } }
}

function layoutOf(figure, axis) {
  const text = variable('--text')
  const grid = variable('--grid')
  const lines = { gridcolor: grid, zerolinecolor: grid, linecolor: grid, automargin: true }
  return {
    ...(isPrinting() ? ON_PAPER : { autosize: true }),
    margin: { l: 58, r: 14, t: 8, b: 46 }, showlegend: false, hovermode: figure.series.some((series) => series.dots) ? 'closest' : 'x unified',
    hoverlabel: { bgcolor: variable('--raised'), bordercolor: variable('--line'), font: { color: text } },
    paper_bgcolor: 'rgba(0,0,0,0)', plot_bgcolor: 'rgba(0,0,0,0)',
    font: { family: 'system-ui, sans-serif', size: 12, color: text },
    xaxis: { ...lines, title: { text: plain(axis) }, rangemode: figure.fromZero ? 'tozero' : 'normal' },
    // With a standoff the title is placed beside the tick labels, however long they are.
    yaxis: { ...lines, title: { text: plain(figure.y_label), standoff: 10 }, ...aroundOneValue(figure) },
  }
}

/** Around a single value plotly would show one more and one less, also of a share. */
function aroundOneValue({ series }) {
  const values = new Set(series.flatMap((one) => [...one.y, ...one.low ?? [], ...one.high ?? []]).filter(Number.isFinite))
  const [value] = values
  return values.size === 1 && value > 0 ? { range: [0, 1.5 * value] } : {}
}

/** One row a point. A cell that a spreadsheet would calculate is quoted. */
export function asCsv(figure, axis) {
  const rows = [['series', axis, figure.y_label, 'low', 'high']]
  for (const series of figure.series) {
    const xs = series.xs[axis] ?? series.y.map(() => '')
    series.y.forEach((y, n) => rows.push([series.name, xs[n], y, series.low?.[n] ?? '', series.high?.[n] ?? '']))
  }
  return `${rows.map((row) => row.map(cell).join(',')).join('\r\n')}\r\n`
}

function cell(value) {
  if (typeof value === 'number') return String(value)
  const text = String(value ?? '')
  const safe = /^[=+\-@\t\r]/.test(text) ? `'${text}` : text
  return /[",\r\n]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe
}

export function save(name, kind, text) {
  const address = URL.createObjectURL(new Blob([text], { type: kind }))
  download(name, address)
  setTimeout(() => URL.revokeObjectURL(address), 1000)
}

export function download(name, address) {
  const link = h('a', { href: address, download: name })
  document.body.append(link)
  link.click()
  link.remove()
  announce(`Saved ${name}.`)
}
