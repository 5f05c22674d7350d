// Page 6: start an experiment, by a form that the typed settings generate.

import { get, onSession, post, mayWrite } from '../api.mjs'
import { announce, commandBox, h, notice, replace, table } from '../dom.mjs'
import { askForToken, writeButton } from '../permission.mjs'

const PAUSE = 350

export async function startPage(main) {
  const choices = await get('/api/choices')
  const state = { algorithm: 'fedfast', dataset: 'synthetic', protocol: '', seed: '', settings: {}, columns: {}, encoding: '', delimiter: '', header: true, skip_bad_rows: false }
  const algorithm = select('algorithm', choices.algorithms.map((one) => [one.name, `${one.name} (${one.federated ? 'federated' : 'centralised'})`]), state.algorithm)
  const dataset = h('select', { id: 'dataset' },
    h('optgroup', { label: 'Datasets' }, choices.datasets.map((one) => h('option', { value: one.name }, one.here ? one.name : `${one.name} (not on this machine)`))),
    choices.files.length ? h('optgroup', { label: 'Files' }, choices.files.map((path) => h('option', { value: path }, path))) : null)
  dataset.value = state.dataset
  const protocol = h('select', { id: 'protocol' })
  const seed = h('input', { id: 'seed', type: 'text', inputmode: 'numeric', placeholder: '0' })
  const about = h('p', { class: 'quiet' })
  const groups = h('div', {})
  const look = h('div', {})
  const outcome = h('div', {})
  const start = writeButton('Start', begin, { class: 'primary' })
  let timer = null

  function request() {
    const { algorithm: name, dataset: data, ...rest } = state
    return { ...rest, algorithm: name, dataset: data, protocol: state.protocol || null, encoding: state.encoding || null, delimiter: state.delimiter || null }
  }

  async function showForm() {
    try {
      const form = await get('/api/form', { algorithm: state.algorithm, dataset: state.dataset })
      about.textContent = [capital(form.about), form.paper, form.tuned ? 'Defaults are tuned for this dataset.' : ''].filter(Boolean).join(' · ')
      replace(protocol, h('option', { value: '' }, `${form.protocol} (the dataset's)`), choices.protocols.filter((name) => name !== form.protocol).map((name) => h('option', { value: name }, name)))
      protocol.value = state.protocol
      const known = new Set(form.groups.flatMap((group) => group.inputs.map((each) => each.key)))
      state.settings = Object.fromEntries(Object.entries(state.settings).filter(([key]) => known.has(key)))
      replace(groups, form.groups.map((group, n) => groupOf(group, n === 0)))
    } catch (error) {
      replace(groups, notice(error.message, 'bad'))
    }
    check()
  }

  function groupOf(group, isOpen) {
    return h('details', { class: 'card', open: isOpen }, h('summary', {}, group.title, h('span', { class: 'quiet' }, ` · ${group.inputs.length} settings`)),
      h('div', { class: 'inputs' }, group.inputs.map(inputOf)))
  }

  function inputOf(setting) {
    const usual = textOf(setting.value)
    const id = `setting-${setting.key}`
    const control = controlOf(setting, id, state.settings[setting.key] ?? usual)
    const box = h('div', { class: `input ${setting.key in state.settings ? 'changed' : ''}` }, h('label', { for: id }, setting.key), control,
      h('p', { class: 'help' }, setting.help, setting.rule && setting.kind !== 'choice' ? ` ${sentence(setting.rule)}` : ''))
    control.addEventListener('input', () => {
      const text = control.type === 'checkbox' ? String(control.checked) : control.value
      if (text === usual) delete state.settings[setting.key]
      else state.settings[setting.key] = text
      box.classList.toggle('changed', setting.key in state.settings)
      later(check)
    })
    return box
  }

  function later(action) {
    clearTimeout(timer)
    timer = setTimeout(action, PAUSE)
  }

  async function check() {
    if (!mayWrite()) {
      replace(outcome, h('div', { class: 'notice info' }, 'To check and start an experiment, this browser needs the token of the terminal. ',
        h('button', { type: 'button', onclick: askForToken }, 'Enter token')))
      return
    }
    try {
      const found = await post('/api/check', request())
      replace(outcome, commandBox(found.command, 'The same on the command line'))
      start.disabled = false
    } catch (error) {
      replace(outcome, notice(error.message, 'bad'))
      start.disabled = true
    }
  }

  async function begin() {
    try {
      const found = await post('/api/start', request())
      announce('The run was started.')
      location.hash = `#/run?run=${found.run}`
    } catch (error) {
      replace(outcome, notice(error.message, 'bad'))
    }
  }

  async function preview() {
    replace(look, h('p', { class: 'quiet' }, 'Reading …'))
    try {
      const { dataset: data, columns, encoding, delimiter, header, skip_bad_rows } = request()
      showPreview(await post('/api/preview', { dataset: data, columns, encoding, delimiter, header, skip_bad_rows }))
    } catch (error) {
      replace(look, notice(error.message, 'bad'))
    }
  }

  function showPreview(found) {
    replace(look,
      found.error ? notice(found.error, 'bad') : null,
      found.facts ? h('dl', { class: 'settings' }, found.facts.map(([name, value]) => h('div', {}, h('dt', {}, name), h('dd', {}, value)))) : null,
      (found.reading ?? []).map((line) => h('p', { class: 'quiet small' }, line)),
      found.names ? [h('h3', {}, 'Columns'), h('div', { class: 'inputs' }, found.roles.map((role) => roleOf(role, found)), textOptions()),
        h('h3', {}, 'First rows'), table(found.names.map((title, n) => ({ title, lead: n === 0 })), found.rows.map((row) => found.names.map((_, n) => row[n] ?? '')))] : null)
  }

  function roleOf(role, found) {
    const isRequired = found.required.includes(role)
    const id = `role-${role}`
    const given = h('select', { id }, h('option', { value: '' }, 'guess'), isRequired ? null : h('option', { value: '-' }, 'no column'),
      found.names.map((name) => h('option', { value: name }, name)))
    given.value = state.columns[role] ?? ''
    given.addEventListener('change', () => {
      if (given.value) state.columns[role] = given.value
      else delete state.columns[role]
      preview()
      later(check)
    })
    const guessed = found.columns?.[role]
    return h('div', { class: 'input' }, h('label', { for: id }, role), given, h('p', { class: 'help' }, guessed ? `Uses column ${guessed}.` : isRequired ? 'Needed.' : 'Uses no column.'))
  }

  function textOptions() {
    const skip = h('input', { type: 'checkbox', id: 'skip', checked: state.skip_bad_rows })
    const header = h('input', { type: 'checkbox', id: 'header', checked: state.header })
    const encoding = h('input', { id: 'encoding', value: state.encoding, placeholder: 'utf-8' })
    const delimiter = h('input', { id: 'delimiter', value: state.delimiter, placeholder: 'as in the header' })
    const changes = { skip_bad_rows: skip, header, encoding, delimiter }
    for (const [key, control] of Object.entries(changes)) {
      control.addEventListener('change', () => {
        state[key] = control.type === 'checkbox' ? control.checked : control.value
        preview()
        later(check)
      })
    }
    const labelled = (id, text, control, help) => h('div', { class: 'input' }, h('label', { for: id }, text), control, h('p', { class: 'help' }, help))
    return [labelled('header', 'The file has a header', header, ''), labelled('skip', 'Skip invalid rows', skip, 'They are counted.'),
      labelled('encoding', 'Encoding', encoding, 'Such as latin-1.'), labelled('delimiter', 'Delimiter', delimiter, 'Such as ; or tab.')]
  }

  algorithm.addEventListener('change', () => { state.algorithm = algorithm.value; showForm() })
  dataset.addEventListener('change', () => {
    Object.assign(state, { dataset: dataset.value, columns: {}, encoding: '', delimiter: '', header: true, skip_bad_rows: false })
    replace(look)
    showForm()
  })
  protocol.addEventListener('change', () => { state.protocol = protocol.value; check() })
  seed.addEventListener('input', () => { state.seed = seed.value; later(check) })
  const forget = onSession(check)

  replace(main,
    h('div', { class: 'title' }, h('div', {}, h('h1', {}, 'Start an experiment'), h('p', { class: 'quiet' }, `The run goes into ${choices.out}.`)), h('div', { class: 'buttons' }, start)),
    h('section', { class: 'card' }, h('div', { class: 'inputs main' },
      labelledControl('algorithm', 'Algorithm', algorithm), labelledControl('dataset', 'Data', dataset),
      labelledControl('protocol', 'Protocol', protocol), labelledControl('seed', 'Seed', seed)), about,
    h('div', { class: 'buttons' }, writeButton('Look at the data', preview)), look),
    outcome, groups)
  await showForm()
  return () => {
    clearTimeout(timer)
    forget()
  }
}

function labelledControl(id, text, control) {
  return h('div', { class: 'input' }, h('label', { for: id }, text), control)
}

function select(id, options, value) {
  const control = h('select', { id }, options.map(([name, text]) => h('option', { value: name }, text)))
  control.value = value
  return control
}

function controlOf(setting, id, value) {
  if (setting.kind === 'choice') return select(id, [...(setting.optional ? [['', 'none']] : []), ...setting.choices.map((each) => [each, each])], value)
  if (setting.kind === 'yes or no') return h('input', { id, type: 'checkbox', checked: value === 'true' })
  return h('input', { id, type: 'text', value, inputmode: setting.kind === 'text' || setting.kind === 'list' ? null : 'decimal', placeholder: setting.optional ? 'none' : '' })
}

/** A rule, such as "at least 1", as a sentence. */
function sentence(rule) {
  return `${capital(rule)}.`
}

function capital(text) {
  return text.charAt(0).toUpperCase() + text.slice(1)
}

function textOf(value) {
  if (value === null || value === undefined) return ''
  return Array.isArray(value) || typeof value === 'object' ? JSON.stringify(value) : String(value)
}
