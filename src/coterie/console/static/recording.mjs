// What the pages of recorded runs share: the choice of a run, and the button that records it.

import { get, post } from './api.mjs'
import { announce, badge, commandBox, h, notice, replace, table } from './dom.mjs'
import * as format from './format.mjs'
import { writeButton } from './permission.mjs'

const POLL = 1500

/** Links to the runs of a page that was opened without one; `isFor` says which of them it can show. */
export async function chooseRun(main, title, about, page, isFor = () => true) {
  const { runs } = await get('/api/runs')
  const shown = runs.filter((run) => (run.state === 'finished' || run.kind === 'federation') && isFor(run))
  const rows = shown.map((run) => [h('a', { href: `#/${page}?run=${run.id}` }, run.name), run.algorithm, run.dataset,
    run.kind === 'federation' ? 'deployment' : run.is_federated ? 'simulation' : 'centralised',
    run.is_recorded ? badge('finished', 'recorded') : h('span', { class: 'quiet' }, 'not recorded'), format.ago(run.changed)])
  const columns = [{ title: 'Run', lead: true }, { title: 'Algorithm' }, { title: 'Data' }, { title: 'Kind' }, { title: 'Recording' }, { title: 'Changed', kind: 'number' }]
  replace(main, h('div', { class: 'title' }, h('div', {}, h('h1', {}, title), h('p', { class: 'quiet' }, about))),
    h('section', { class: 'card' }, h('h2', {}, 'Choose a run'),
      rows.length ? table(columns, rows) : h('p', { class: 'quiet' }, 'The folders have no finished run that this page can show.')))
}

/** The head of a page about a run. */
export function titleOf(title, about, ...buttons) {
  return h('div', { class: 'title' },
    h('div', {}, h('h1', {}, title), h('p', { class: 'quiet' },
      h('a', { href: `#/run?run=${about.run}` }, about.name), `, ${[about.algorithm, about.dataset && `on ${about.dataset}`].filter(Boolean).join(' ')}`)),
    h('div', { class: 'buttons' }, buttons))
}

/** Why there is no recording, or how to get one. `again` is called once there is one. */
export function recordCard(about, again) {
  let timer = null
  const status = h('div', { 'aria-live': 'polite' })
  const button = writeButton('Record this run', begin, { class: 'primary' })
  const took = Number.isFinite(about.seconds_of_the_run) ? ` Training took ${format.duration(about.seconds_of_the_run)}; a replay often takes a few times as long.` : ''
  const card = h('div', {},
    about.why_not ? h('section', { class: 'card' }, h('h2', {}, 'This run cannot be recorded'), h('p', { class: 'explained' }, about.why_not)) : [
      h('section', { class: 'card' }, h('h2', {}, 'This run is not recorded yet'),
        h('p', { class: 'explained' }, `A run folder has no embeddings and no updates of single rounds. Its config and seed repeat every round bit for bit, so a replay has them all.${took}`),
        h('div', { class: 'buttons' }, button), status),
      commandBox(about.command, 'The same on the command line')])

  function show() {
    button.hidden = about.is_recording
    replace(status, about.is_recording ? playedSoFar(about) : null,
      about.error ? notice(about.error, 'bad') : null)
    clearTimeout(timer)
    if (about.is_recording) timer = setTimeout(poll, POLL)
  }

  async function begin() {
    try {
      await post('/api/record', { run: about.run })
      about = { ...about, is_recording: true, played: null, error: '' }
    } catch (error) {
      about = { ...about, error: error.message }
    }
    show()
  }

  async function poll() {
    try {
      const found = await get('/api/map', { run: about.run })
      about = { ...about, is_recording: found.is_recording, played: found.played, error: found.error }
      if (found.is_recorded && !found.is_recording) {
        announce('The run is recorded.')
        again()
        return
      }
    } catch {
      // The console may be starting again: ask once more.
    }
    show()
  }

  card.close = () => clearTimeout(timer)
  show()
  return card
}

/** How far a replay is, with the time left by its speed so far. */
function playedSoFar({ played }) {
  const known = played ?? { round: 0, rounds: 0, seconds: 0 }
  const left = known.round ? ((known.rounds - known.round) * known.seconds) / known.round : NaN
  const words = known.round ? `Replaying round ${format.count(known.round)} of ${format.count(known.rounds)}` : 'The replay begins: it reads the data'
  return h('div', { class: 'progress' },
    h('div', { class: 'words' }, h('strong', {}, words), h('span', { class: 'quiet' }, Number.isFinite(left) ? `about ${format.duration(left)} left` : '')),
    h('progress', { max: known.rounds || 1, value: known.round, 'aria-label': 'Rounds that were replayed' }),
    h('p', { class: 'quiet small' }, 'This page goes on by itself.'))
}
