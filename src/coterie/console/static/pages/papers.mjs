// Page 5: reproductions of papers with their scoreboards.

import { get } from '../api.mjs'
import { badge, commandBox, h, notice, replace } from '../dom.mjs'

const KINDS = { holds: 'holds', 'holds in part': 'part', 'does not hold': 'not', 'cannot be tested': 'open' }

export async function papersPage(main) {
  const papers = await get('/api/papers')
  replace(main, h('div', { class: 'title' }, h('div', {}, h('h1', {}, 'Papers'),
    h('p', { class: 'quiet' }, 'What each paper claims, and what was found when it was repeated here.'))),
  papers.length ? papers.map(paper) : nothing())
}

function nothing() {
  return h('div', { class: 'card' }, h('h2', {}, 'No reproductions yet'),
    h('p', {}, 'A reproduction in one of the folders appears here.'), h('pre', { class: 'wrap' }, 'coterie reproduce fedfast --quick'))
}

function paper(found) {
  if (found.error) return h('section', { class: 'card' }, h('h2', {}, found.name), notice(found.error, 'bad'))
  return h('article', {},
    h('section', { class: 'card' }, h('h2', {}, found.title), h('p', { class: 'quiet small' }, found.reference),
      found.quick ? notice('A quick run: fewer seeds and rounds than the paper.', 'info') : null,
      found.missing ? notice(found.missing) : null,
      h('div', { class: 'grid halves' }, found.scores.map(score)),
      found.items.map(item)),
    found.command ? commandBox(found.command) : null)
}

function score({ title, counts }) {
  const entries = Object.entries(counts).filter(([, n]) => n)
  return h('div', {}, h('h3', {}, title), h('div', { class: 'badges' }, entries.map(([verdict, n]) => badge(KINDS[verdict], `${n} ${verdict}`))))
}

function item(found) {
  return h('details', {}, h('summary', {}, found.title), found.about ? h('p', { class: 'quiet small' }, found.about) : null,
    h('table', { class: 'stack claims' }, h('tbody', {}, found.claims.map((claim) => h('tr', {},
      h('td', { class: 'lead' }, badge(KINDS[claim.verdict], claim.verdict)),
      h('td', { class: 'lead' }, claim.said, claim.ours ? h('span', { class: 'quiet' }, ' (our claim)') : null,
        h('details', {}, h('summary', { class: 'small' }, 'Evidence'), claim.evidence.map((each) => h('p', { class: 'small' }, h('strong', {}, `${each.on}: `), each.text)))))))))
}
