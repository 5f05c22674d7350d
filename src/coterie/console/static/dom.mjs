// Builds elements. Every text becomes a text node, so that no title, id, setting or file name is
// ever read as markup. There is no other way in this console to put text on a page.

const SVG = 'http://www.w3.org/2000/svg'

export function h(tag, attributes = {}, ...children) {
  return filled(document.createElement(tag), attributes, children)
}

export function svg(tag, attributes = {}, ...children) {
  return filled(document.createElementNS(SVG, tag), attributes, children)
}

function filled(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue
    if (name.startsWith('on')) element.addEventListener(name.slice(2), value)
    else if (name === 'value' || name === 'checked' || name === 'disabled') element[name] = value
    else element.setAttribute(name, value === true ? '' : String(value))
  }
  element.append(...children.flat(Infinity).filter(isShown).map(asNode))
  return element
}

function isShown(child) {
  return child !== null && child !== undefined && child !== false && child !== ''
}

function asNode(child) {
  return child instanceof Node ? child : document.createTextNode(String(child))
}

export function replace(element, ...children) {
  element.replaceChildren(...children.flat(Infinity).filter(isShown).map(asNode))
  return element
}

export function announce(text) {
  document.getElementById('announcer').textContent = text
}

export function notice(text, kind = '') {
  return h('p', { class: `notice ${kind}`, role: kind === 'bad' ? 'alert' : null }, text)
}

export function badge(state, text = state) {
  return h('span', { class: `badge ${state}` }, text)
}

export function field(term, value, more) {
  return h('div', { class: 'tile' }, h('dt', {}, term), h('dd', {}, value, more ? h('small', {}, more) : null))
}

/** A table with labelled cells, which becomes a list of cards on a narrow screen. */
export function table(columns, rows, attributes = {}) {
  const head = columns.map((column) => h('th', { scope: 'col', class: column.kind }, column.title))
  const body = rows.map((cells) => h('tr', {}, cells.map((cell, n) => h('td', {
    class: [columns[n].kind, columns[n].lead ? 'lead' : ''].filter(Boolean).join(' ') || null,
    'data-label': columns[n].lead ? null : columns[n].title,
  }, cell))))
  return h('table', { ...attributes, class: `stack ${attributes.class ?? ''}` },
    h('thead', {}, h('tr', {}, head)), h('tbody', {}, body))
}

/** A command line with a button that copies it. */
export function commandBox(command, title = 'Repeat this on the command line') {
  const button = h('button', { type: 'button' }, 'Copy')
  button.addEventListener('click', async () => {
    await copied(command)
    button.textContent = 'Copied'
    announce('The command line was copied.')
    setTimeout(() => { button.textContent = 'Copy' }, 1500)
  })
  return h('section', { class: 'card' }, h('h2', {}, title),
    h('div', { class: 'command' }, h('pre', { class: 'command-line' }, wordsOf(command)), button))
}

/** Lines break between words, and within a word only if it is wider than the box. */
function wordsOf(command) {
  return command.split(' ').flatMap((word, n) => [n ? ' ' : null, word ? h('span', { class: 'word' }, word) : null])
}

async function copied(text) {
  if (navigator.clipboard && window.isSecureContext) {
    await navigator.clipboard.writeText(text)
    return
  }
  const area = h('textarea', { value: text, class: 'announcer' })
  document.body.append(area)
  area.select()
  document.execCommand('copy')
  area.remove()
}
