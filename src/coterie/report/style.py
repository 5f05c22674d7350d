"""The style sheet of all pages: of runs, comparisons and papers. Light, dark and printed."""

from coterie.report.dots import CENTRAL, OURS, POPULAR, TUNED
from coterie.report.figures import COLOURS
from coterie.report.forest import BETTER, WORSE
from coterie.report.svg import FAINT, INK, MUTED

PALETTE = """
:root {
  color-scheme: light dark;
  --paper: #fff; --ink: #1d2733; --muted: #5c677d; --line: #e3e8ee; --edge: #c3ccd6;
  --link: #2a6f97; --card: #f6f8fa;
  --holds: #dff2e4; --on-holds: #1f6b3a; --part: #fdf1d3; --on-part: #7a5a00;
  --not: #fbe0dc; --on-not: #9b2c1a; --open: #e9ecf1; --on-open: #4a5568 }
"""
DARK_PALETTE = """
:root {
  --paper: #12171e; --ink: #e6ebf2; --muted: #a3b0c2; --line: #2c3644; --edge: #4a586b;
  --link: #7cc0e8; --card: #1a212b;
  --holds: #17382a; --on-holds: #8fdcae; --part: #3a3010; --on-part: #f0cf7a;
  --not: #43201a; --on-not: #f5a899; --open: #263040; --on-open: #b9c4d4 }
.figure { background: #fff; border-radius: .3rem }
"""
DARK_MARKS = {
    "#fff": "var(--paper)",
    INK: "var(--ink)",
    FAINT: "var(--line)",
    "#c3ccd6": "var(--edge)",
    OURS: "#5fb0dc",
    TUNED: "#f0967d",
    CENTRAL: "#6cc495",
    POPULAR: "#c79bdb",
    MUTED: "var(--muted)",
    BETTER: "#5cc089",
    WORSE: "#ef8a72",
    COLOURS[6]: "#e27fa3",
    COLOURS[8]: "#c08a68",
    COLOURS[9]: "#8aa8d8",
}
"""Colours of pictures, and what is drawn in their place on a dark screen."""
RULES = """
body {
  font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper);
  padding: 0 1.25rem }
p.about { color: var(--muted); margin-top: 0 }
.wide, pre { overflow-x: auto }
table { border-collapse: collapse; font-variant-numeric: tabular-nums }
th, td { padding: .35rem .6rem; text-align: right; white-space: nowrap }
th, td { border-bottom: 1px solid var(--line) }
th { font-weight: 600; color: var(--muted) } th:first-child, td:first-child { text-align: left }
.texts :is(th, td) { text-align: left; white-space: normal }
.sortable button {
  font: inherit; color: inherit; background: none; border: 0; padding: 0; cursor: pointer }
.sortable [aria-sort=ascending] button::after { content: " ▲" }
.sortable [aria-sort=descending] button::after { content: " ▼" }
body { max-width: 74rem; margin: 1.4rem auto }
h1 { font-size: 1.5rem; line-height: 1.25; margin: 0 0 .2rem }
h2 { font-size: 1.25rem; margin-top: 2rem; border-top: 2px solid var(--ink); padding-top: .5rem }
h3 { font-size: 1rem; margin: 1.6rem 0 .3rem } .figures h3:first-child { margin-top: 0 }
.opening { display: grid; grid-template-columns: minmax(0, 1fr) minmax(0, 1fr); gap: 2rem }
.opening p, .opening ul { margin: .5rem 0 } .opening ul { padding-left: 1.1rem }
.opening li { margin-bottom: .35rem }
figure { margin: 0 } figure svg, .plots svg { max-width: 100%; height: auto; display: block }
figcaption { color: var(--muted); font-size: .85rem; margin-top: .3rem }
.scoreboard { border-top: 1px solid var(--line); padding-top: .5rem; margin-top: .6rem }
.score { margin-bottom: .5rem } .score b { margin-right: .3rem }
nav {
  position: sticky; top: 0; background: var(--paper); padding: .5rem 0; margin-top: 1.2rem;
  z-index: 2; border-bottom: 1px solid var(--line); display: flex; flex-wrap: wrap;
  gap: .2rem .9rem; font-size: .87rem }
section { scroll-margin-top: 3rem }
a { color: var(--link); text-decoration: none } nav a:hover { text-decoration: underline }
:focus-visible { outline: 2px solid var(--link); outline-offset: 2px }
.badge {
  border-radius: 1rem; padding: .05rem .6rem; font-size: .85rem; font-weight: 600;
  white-space: nowrap; display: inline-block }
.holds { background: var(--holds); color: var(--on-holds) }
.part { background: var(--part); color: var(--on-part) }
.not { background: var(--not); color: var(--on-not) }
.open { background: var(--open); color: var(--on-open) }
.ours { border: 1px solid var(--edge); border-radius: .3rem; padding: 0 .3rem; font-size: .78rem }
.claim {
  border-bottom: 1px solid var(--line); padding: .55rem 0; display: grid; column-gap: 1.2rem;
  grid-template-columns: 10rem minmax(0, 1fr) minmax(0, 27.5rem); align-items: start }
.claim .where { color: var(--muted); font-size: .85rem }
.claim details { margin-top: .2rem; font-size: .9rem }
.claim ul { margin: .3rem 0; padding-left: 1.1rem }
.claim .plots .badge { margin: 0 .25rem .25rem 0; font-weight: 400 }
summary { cursor: pointer; color: var(--link) }
details > summary { margin: .4rem 0 }
dl.methods { display: grid; grid-template-columns: 10rem minmax(0, 1fr); gap: .3rem 1.2rem }
dl.methods dt { font-weight: 600 } dl.methods dd { margin: 0 } dl.methods p { margin: 0 0 .2rem }
.methods, .settings { font-size: .92rem } .settings li { overflow-wrap: anywhere }
#notes td, #notes th { text-align: left; white-space: normal }
.figure { width: 100%; min-height: 380px }
.figures {
  display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 30rem), 1fr)); gap: 1rem }
.figures > * { min-width: 0 }
.figures figure svg { width: 100% }
.figures > p { grid-column: 1 / -1; margin: 0 }
.metrics td:nth-child(2), .metrics th:nth-child(2) {
  text-align: left; white-space: normal; color: var(--muted); font-size: .9rem }
.choice td { white-space: nowrap }
.metrics th { min-width: 4.9rem; overflow-wrap: anywhere }
.metrics th:nth-child(2) { min-width: 9rem }
.forests {
  display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 24rem), 1fr)); gap: 1rem }
.forests > * { min-width: 0 }
.flag { background: var(--not); padding: .7rem 1rem; border-radius: .5rem }
.badges { display: flex; flex-wrap: wrap; gap: .3rem }
.headlines { display: grid; grid-template-columns: repeat(auto-fit, minmax(8rem, 1fr)); gap: .8rem }
.headline { background: var(--card); border-radius: .5rem; padding: .6rem .9rem; margin: 0 }
.headline dt { color: var(--muted); font-size: .85rem }
.headline dd { margin: 0 } .headline .value { font-size: 1.7rem; line-height: 1.2 }
.headline .meaning { color: var(--muted); font-size: .85rem }
h1, h2, h3, dt, dd, li, p, figcaption { overflow-wrap: anywhere }
.badges .badge { white-space: normal; overflow-wrap: anywhere }
.wide td:first-child { overflow-wrap: anywhere; min-width: 5.5rem }
.quick { background: var(--part); padding: .7rem 1rem; border-radius: .5rem }
.wide th, .wide td { white-space: normal } th, td { vertical-align: top }
code, pre { overflow-wrap: anywhere } pre { white-space: pre-wrap }
@media (max-width: 60rem) {
  .claim { grid-template-columns: 8.5rem minmax(0, 1fr) }
  .claim .plots { grid-column: 1 / -1; margin-top: .4rem } }
@media screen and (max-width: 48rem) {
  body { font-size: 14px; line-height: 1.4; margin: .8rem auto; padding: 0 .9rem }
  h1 { font-size: 1.15rem }
  .opening { grid-template-columns: minmax(0, 1fr); gap: .6rem }
  .opening p, .opening ul { margin: .35rem 0 } .opening li { margin-bottom: .2rem }
  .claim, dl.methods { grid-template-columns: minmax(0, 1fr) }
  nav { position: static } section { scroll-margin-top: 0 }
  .wide { overflow: visible } .wide thead { display: none }
  .wide table, .wide tbody { display: block }
  .wide tr {
    display: flex; flex-wrap: wrap; gap: 0 1rem; padding: .3rem 0;
    border-bottom: 1px solid var(--line) }
  .wide td { border: 0; padding: 0; text-align: left; overflow-wrap: anywhere; min-width: 0 }
  .wide td:first-child { flex-basis: 100%; font-weight: 600 }
  .wide td:empty { display: none }
  .wide td:not(:first-child)::before { content: attr(data-label) " "; color: var(--muted) }
  .metrics td:nth-child(2) { flex-basis: 100% }
  .metrics td:nth-child(2)::before { content: none } }
@media print {
  @page { margin: 13mm }
  :root { font-size: 13px } .figures { grid-template-columns: minmax(0, 1fr) minmax(0, 1fr) }
  nav { display: none } details::details-content { content-visibility: visible; display: block }
  .claim, figure, .figure, tr, .headline { break-inside: avoid } body { max-width: none }
  h2, h3 { break-after: avoid } body { font-size: 12px } }
"""


def _dark_marks() -> str:
    """Rules that recolour hand-made pictures, whose colours are attributes."""
    return "".join(
        f'svg[role=img] [{kind}="{light}"] {{ {kind}: {dark} }}\n'
        for light, dark in DARK_MARKS.items()
        for kind in ("fill", "stroke")
    )


STYLE = (
    PALETTE
    + RULES
    # A page is printed in light colours whatever the screen has.
    + f"@media screen and (prefers-color-scheme: dark) {{{DARK_PALETTE}{_dark_marks()}}}\n"
)
