// Page 4: one user of a simulation: history, recommendations with why, what the server received,
// and what attackers infer from it.

import { get } from '../api.mjs'
import { figureCard } from '../chart.mjs'
import { commandBox, field, h, notice, replace, table } from '../dom.mjs'
import * as format from '../format.mjs'
import { chooseRun, recordCard, titleOf } from '../recording.mjs'

const ABOUT = 'One user of a simulation: history, recommendations, what the server received, and what attackers infer from it.'
const COLOURS = ['#2a6f97', '#e07a5f', '#3d8361', '#8e5ea2', '#c9a227', '#b5446e']
const FIRST_ITEMS = 24
const FIRST_UPDATES = 8
const PAUSE = 200

export async function userPage(main, query) {
  const run = query.get('run')
  if (!run) {
    await chooseRun(main, 'Users', ABOUT, 'user')
    return null
  }
  const user = query.get('user')
  if (user === null) return searchPage(main, run)
  let close = () => {}
  async function open() {
    close()
    const about = await get('/api/user', { run, user })
    document.title = `User ${about.user.id} of ${about.name} · Coterie console`
    close = show(main, about, open)
  }
  await open()
  return () => close()
}

async function searchPage(main, run) {
  let timer = null
  const input = h('input', { type: 'search', 'aria-label': 'Search users', placeholder: 'Search by user id' })
  const found = h('div', { 'aria-live': 'polite' })
  const first = await get('/api/users', { run })
  replace(main, titleOf('Users', first, h('a', { href: `#/clusters?run=${first.run}` }, 'Clusters')),
    h('div', { class: 'tools' }, input), found)
  list(first)
  input.addEventListener('input', () => {
    clearTimeout(timer)
    timer = setTimeout(async () => {
      try {
        list(await get('/api/users', { run, search: input.value.slice(0, 200) }))
      } catch (error) {
        replace(found, notice(error.message, 'bad'))
      }
    }, PAUSE)
  })

  function list(reply) {
    replace(found, h('section', { class: 'card' },
      h('h2', {}, `${format.count(reply.n_found)} ${reply.n_found === 1 ? 'user' : 'users'}`),
      reply.users.length ? h('ul', { class: 'found-users' }, reply.users.map((one) => h('li', {}, h('a', { href: `#/user?run=${reply.run}&user=${one.index}` }, one.id),
        h('span', { class: 'quiet small' }, `${format.count(one.items)} ${one.items === 1 ? 'item' : 'items'}`)))) : h('p', {}, 'No user id has this text in it.'),
      reply.n_found > reply.users.length ? h('p', { class: 'quiet small' }, `The first ${reply.users.length} are listed. Search to find others.`) : null))
  }
  return () => clearTimeout(timer)
}

function show(main, about, again) {
  const { user } = about
  const ends = []
  const recorder = about.is_recorded ? null : recordCard(about, again)
  if (recorder) ends.push(recorder.close)
  replace(main, titleOf(`User ${user.id}`, about,
    h('a', { href: `#/user?run=${about.run}` }, 'Other users'), about.why_not ? null : h('a', { href: `#/clusters?run=${about.run}&user=${user.index}` }, 'On the map')),
  tiles(about),
  h('div', { class: 'grid history-and-lists start' }, historyCard(user), recommendedCard(about)),
  recorder ?? [receivedCard(about), inferredCards(about, ends)],
  about.commands.map(({ title, command }) => commandBox(command, title)),
  about.is_recorded ? commandBox(about.command, 'Record this run on the command line') : null)
  return () => ends.forEach((end) => end())
}

function tiles({ user }) {
  const { received, inferred } = user
  if (!received && !inferred) return null
  const best = inferred && bestOf(inferred)
  return h('dl', { class: 'tiles' },
    field('History', format.count(user.n_history), user.n_history === 1 ? 'item' : 'items'),
    received ? field('Updates received', format.count(received.n_updates), format.size(received.n_bytes)) : null,
    received ? field('Item rows received', format.count(received.n_rows)) : null,
    inferred?.rate !== null && inferred?.rate !== undefined ? field('Disclosure rate π', inferred.rate.toFixed(2), 'mean over the rounds') : null,
    best ? field('Found by attacker', `${format.count(best.hits.at(-1))} of ${format.count(inferred.liked)}`, `${best.name}, ${format.count(best.claims.at(-1))} claims`) : null)
}

/** The attacker whose claims are best: by F1, since claiming everything finds everything. */
function bestOf({ attackers, liked }) {
  const quality = (one) => (2 * one.hits.at(-1)) / Math.max(one.claims.at(-1) + liked, 1)
  const seen = attackers.filter((one) => one.is_observed && one.claims.at(-1))
  return seen.length ? seen.reduce((best, one) => (quality(one) > quality(best) ? one : best)) : null
}

function nameOf({ id, title }) {
  return title && title !== id ? title : id
}

function chip(item, kind = '', before = '') {
  const hidden = before ? h('span', { class: 'announcer' }, `${before}: `) : null
  return h('li', { class: kind || null, title: item.title ? `Item ${item.id}` : null }, hidden, nameOf(item))
}

function historyCard(user) {
  const items = user.history
  const rest = items.slice(FIRST_ITEMS)
  return h('section', { class: 'card' }, h('h2', {}, 'History'),
    h('p', { class: 'quiet small' }, `${format.count(user.n_history)} ${user.n_history === 1 ? 'item' : 'items'} of this user in the training data.`),
    h('ul', { class: 'chips' }, items.slice(0, FIRST_ITEMS).map((item) => chip(item))),
    rest.length ? h('details', {}, h('summary', {}, `${format.count(user.n_history - FIRST_ITEMS)} more`),
      h('ul', { class: 'chips' }, rest.map((item) => chip(item))),
      user.n_history > items.length ? h('p', { class: 'quiet small' }, `The first ${format.count(items.length)} are listed.`) : null) : null)
}

function recommendedCard({ user, algorithm }) {
  const words = {
    contribution: 'Why: the items of the history that add most to the score, with their share of it.',
    similarity: 'Why: the items of the history whose rows are nearest, by cosine. They accompany the score; they do not cause it.',
    '': `${algorithm} does not compare items, so it cannot say why.`,
  }[user.why]
  const digits = digitsOf(user.recommended.map((item) => item.score))
  const rows = user.recommended.map((item, n) => [`${n + 1}. ${nameOf(item)}`, format.signed(item.score, digits), reasons(item.reasons, user.why)])
  const columns = [{ title: 'Item', lead: true }, { title: 'Score', kind: 'number' }, { title: 'Why', kind: 'rest' }]
  return h('section', { class: 'card' }, h('h2', {}, 'Recommendations'), h('p', { class: 'quiet small' }, words),
    rows.length ? table(columns, rows) : h('p', {}, 'The model does not serve this user: it had nothing to train on.'))
}

/** Decimals with which the largest of some scores has three digits. */
function digitsOf(scores) {
  const largest = Math.max(...scores.map(Math.abs))
  return largest > 0 ? Math.min(8, Math.max(3, 2 - Math.floor(Math.log10(largest)))) : 3
}

function reasons(found, kind) {
  if (!found.length) return h('span', { class: 'quiet small' }, kind ? 'nothing near in the history' : '–')
  return h('ul', { class: 'reasons' }, found.map((one) => h('li', {}, nameOf(one), ' ',
    h('span', { class: 'quiet small' }, !Number.isFinite(one.value) ? '' : kind === 'contribution' ? `${(100 * one.value).toFixed(0)} %` : format.signed(one.value, 2)))))
}

function receivedCard({ user, n_rounds: rounds, is_open: isOpen, algorithm }) {
  const { received } = user
  if (!isOpen || !received) {
    return h('section', { class: 'card' }, h('h2', {}, 'What the server received'),
      h('p', { class: 'explained' }, 'Under secure aggregation the server receives sums over groups of users, and no update of this user alone.'))
  }
  const columns = [{ title: 'Round', kind: 'number' }, { title: 'Item rows', kind: 'number' }, { title: 'In the history', kind: 'number' },
    { title: 'Samples', kind: 'number' }, { title: 'Size', kind: 'number' }, { title: 'Rows that changed most', lead: true }]
  const rowOf = (update) => [format.count(update.round), format.count(update.n_rows), format.count(update.n_liked),
    format.count(update.samples), format.size(update.n_bytes), h('ul', { class: 'chips small' }, update.items.map(rowChip))]
  const first = received.updates.slice(0, FIRST_UPDATES)
  const rest = received.updates.slice(FIRST_UPDATES)
  const late = received.until < rounds ? `The recording has the updates up to round ${format.count(received.until)} of ${format.count(rounds)}: later ones would make it too large.` : ''
  return h('section', { class: 'card' }, h('h2', {}, 'What the server received'),
    h('p', { class: 'explained' }, `Each update of ${algorithm} has the changes of some items’ rows, decoded from what was sent. It does not say which of them are of items in the history; `,
      h('span', { class: 'mark' }, 'this page marks them'), `. ${late}`),
    first.length ? table(columns, first.map(rowOf)) : h('p', {}, 'This user was never selected, or sent no item rows: the server received nothing.'),
    rest.length ? h('details', {}, h('summary', {}, `${format.count(received.n_updates - FIRST_UPDATES)} more updates`),
      table(columns, rest.map(rowOf)), received.n_updates > received.updates.length ? h('p', { class: 'quiet small' }, `The first ${format.count(received.updates.length)} are listed.`) : null) : null)
}

function rowChip(item) {
  return chip(item, item.liked ? 'true' : '', item.liked ? 'in the history' : '')
}

function inferredCards({ user, algorithm }, ends) {
  const { inferred } = user
  if (!inferred) {
    return h('section', { class: 'card' }, h('h2', {}, 'What attackers infer'),
      h('p', { class: 'explained' }, `There is no attacker for ${algorithm} yet. That is no proof of privacy: the updates above are all there for one. Attackers exist for sfpl, sfpl+, pfpl, pfpl+, fcf, fedals, fedease and fedslim.`))
  }
  const seen = inferred.attackers.filter((one) => one.is_observed)
  if (!seen.length) {
    return h('section', { class: 'card' }, h('h2', {}, 'What attackers infer'), h('p', {}, 'The attackers had nothing of this user.'))
  }
  const cards = [overRounds(inferred, seen), againstRate(inferred, seen)].filter(Boolean)
  cards.forEach((card) => ends.push(card.close))
  return [attackersCard(inferred, seen), h('div', { class: 'grid figures' }, cards)]
}

function attackersCard(inferred, seen) {
  const columns = [{ title: 'Attacker', lead: true }, { title: 'Claims', kind: 'number' }, { title: 'True', kind: 'number' }, { title: 'Precision', kind: 'number' },
    { title: 'Of the history', kind: 'number' }, { title: 'By popularity', kind: 'number' }, { title: 'Surest claims', lead: true }]
  const rows = seen.map((one) => {
    const claims = one.claims.at(-1)
    const hits = one.hits.at(-1)
    return [[h('strong', {}, one.name), h('span', { class: 'quiet small block' }, one.uses)], format.count(claims), format.count(hits),
      claims ? percent(hits / claims) : '–', percent(hits / Math.max(inferred.liked, 1)), claims ? percent(one.popular_hits.at(-1) / Math.max(inferred.liked, 1)) : '–',
      one.best.length ? h('ul', { class: 'chips small' }, one.best.map((item) => chip(item, item.liked ? 'true' : 'false', item.liked ? 'true' : 'wrong')))
        : h('span', { class: 'quiet small' }, claims ? 'all items that were never sent' : 'none')]
  })
  return h('section', { class: 'card' }, h('h2', {}, 'What attackers infer'),
    h('p', { class: 'explained' }, `After round ${format.count(inferred.after.at(-1))}, from what the server received and nothing else. A claim says that the user liked an item; `,
      h('span', { class: 'mark' }, 'marked claims are true'), '. “By popularity” is the share of the history that as many claims of the most popular items find.',
      inferred.rate === null ? '' : ` The disclosure rate π is ${inferred.rate.toFixed(2)}: that share of the history’s rows is sent. It is not a privacy guarantee.`),
    table(columns, rows))
}

function percent(share) {
  return `${(100 * share).toFixed(0)} %`
}

function overRounds(inferred, seen) {
  if (inferred.after.length < 2) return null
  const series = seen.map((one) => ({ name: one.name, low: [], high: [], xs: { rounds: inferred.after }, y: one.hits.map((hits) => hits / Math.max(inferred.liked, 1)) }))
  return figureCard({ title: 'Share of the history that is found', y_label: 'share of the history', axes: ['rounds'], series, fromZero: true,
    colours: seen.map((_, n) => COLOURS[n % COLOURS.length]), caption: 'By attacker, after some rounds.' }, 'inferred-over-rounds')
}

function againstRate(inferred, seen) {
  const one = seen.find((each) => each.others.rates.length)
  if (!one || inferred.rate === null || Math.min(...one.others.rates) === Math.max(...one.others.rates)) return null
  const axis = 'disclosure rate π'
  const own = one.hits.at(-1) / Math.max(inferred.liked, 1)
  const series = [
    { name: 'other users', dots: true, size: 4, low: [], high: [], xs: { [axis]: one.others.rates }, y: one.others.recalls },
    { name: 'this user', dots: true, size: 13, low: [], high: [], xs: { [axis]: [inferred.rate] }, y: [own] },
  ]
  return figureCard({ title: `Found by ${one.name}, against the disclosure rate`, y_label: 'share of the history', axes: [axis], series, fromZero: true,
    colours: ['#9aa5b1', '#e07a5f'], caption: 'Every user that the server had an update of.' }, 'inferred-by-rate')
}
