"""The style sheet of all pages: of runs, comparisons and papers."""

STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; color: #1d2733; padding: 0 1.25rem }
p.about { color: #5c677d; margin-top: 0 }
.wide, pre { overflow-x: auto }
table { border-collapse: collapse; font-variant-numeric: tabular-nums }
th, td { padding: .35rem .6rem; text-align: right; white-space: nowrap }
th, td { border-bottom: 1px solid #e3e8ee }
th { font-weight: 600; color: #5c677d } th:first-child, td:first-child { text-align: left }
.texts :is(th, td) { text-align: left; white-space: normal }
body { max-width: 74rem; margin: 1.4rem auto }
h1 { font-size: 1.5rem; line-height: 1.25; margin: 0 0 .2rem }
h2 { font-size: 1.25rem; margin-top: 2rem; border-top: 2px solid #1d2733; padding-top: .5rem }
h3 { font-size: 1rem; margin: 1.6rem 0 .3rem }
.opening { display: grid; grid-template-columns: minmax(0, 1fr) minmax(0, 1fr); gap: 2rem }
.opening p, .opening ul { margin: .5rem 0 } .opening ul { padding-left: 1.1rem }
.opening li { margin-bottom: .35rem }
figure { margin: 0 } figure svg, .plots svg { max-width: 100%; height: auto; display: block }
figcaption { color: #5c677d; font-size: .85rem; margin-top: .3rem }
.scoreboard { border-top: 1px solid #e3e8ee; padding-top: .5rem; margin-top: .6rem }
.score { margin-bottom: .5rem } .score b { margin-right: .3rem }
nav {
  position: sticky; top: 0; background: #fff; padding: .5rem 0; margin-top: 1.2rem; z-index: 2;
  border-bottom: 1px solid #e3e8ee; display: flex; flex-wrap: wrap; gap: .2rem 1rem;
  font-size: .9rem }
a { color: #2a6f97; text-decoration: none }
.badge {
  border-radius: 1rem; padding: .05rem .6rem; font-size: .85rem; font-weight: 600;
  white-space: nowrap; display: inline-block }
.holds { background: #dff2e4; color: #1f6b3a } .part { background: #fdf1d3; color: #7a5a00 }
.not { background: #fbe0dc; color: #9b2c1a } .open { background: #e9ecf1; color: #4a5568 }
.ours { border: 1px solid #c3ccd6; border-radius: .3rem; padding: 0 .3rem; font-size: .78rem }
.claim {
  border-bottom: 1px solid #e3e8ee; padding: .55rem 0; display: grid; column-gap: 1.2rem;
  grid-template-columns: 10rem minmax(0, 1fr) minmax(0, 27.5rem); align-items: start }
.claim .where { color: #5c677d; font-size: .85rem }
.claim details { margin-top: .2rem; font-size: .9rem }
.claim ul { margin: .3rem 0; padding-left: 1.1rem }
.claim .plots .badge { margin: 0 .25rem .25rem 0; font-weight: 400 }
summary { cursor: pointer; color: #2a6f97 }
dl.methods { display: grid; grid-template-columns: 10rem minmax(0, 1fr); gap: .3rem 1.2rem }
dl.methods dt { font-weight: 600 } dl.methods dd { margin: 0 } dl.methods p { margin: 0 0 .2rem }
.methods, .settings { font-size: .92rem } .settings li { overflow-wrap: anywhere }
#notes td, #notes th { text-align: left; white-space: normal }
.figure { width: 100%; min-height: 380px }
.figures {
  display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 30rem), 1fr)); gap: 1rem }
.figures > * { min-width: 0 }
.metrics td:nth-child(2), .metrics th:nth-child(2) {
  text-align: left; white-space: normal; color: #5c677d; font-size: .9rem }
.choice td { white-space: nowrap }
.metrics th { min-width: 4.9rem; overflow-wrap: anywhere }
.metrics th:nth-child(2) { min-width: 9rem }
.forests {
  display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 24rem), 1fr)); gap: 1rem }
.forests > * { min-width: 0 }
.flag { background: #fbe0dc; padding: .7rem 1rem; border-radius: .5rem }
.badges { display: flex; flex-wrap: wrap; gap: .3rem }
h1, h2, h3, dd, li, p { overflow-wrap: anywhere }
.quick { background: #fdf1d3; padding: .7rem 1rem; border-radius: .5rem }
.wide th, .wide td { white-space: normal } th, td { vertical-align: top }
code, pre { overflow-wrap: anywhere } pre { white-space: pre-wrap }
@media (max-width: 60rem) {
  .claim { grid-template-columns: 8.5rem minmax(0, 1fr) }
  .claim .plots { grid-column: 1 / -1; margin-top: .4rem } }
@media (max-width: 48rem) {
  body { font-size: 14px; line-height: 1.4; margin: .8rem auto; padding: 0 .9rem }
  h1 { font-size: 1.15rem }
  .opening { grid-template-columns: minmax(0, 1fr); gap: .6rem }
  .opening p, .opening ul { margin: .35rem 0 } .opening li { margin-bottom: .2rem }
  .claim, dl.methods { grid-template-columns: minmax(0, 1fr) }
  nav { position: static }
  .wide { overflow: visible } .wide thead { display: none }
  .wide table, .wide tbody { display: block }
  .wide tr {
    display: flex; flex-wrap: wrap; gap: 0 1rem; padding: .3rem 0;
    border-bottom: 1px solid #e3e8ee }
  .wide td { border: 0; padding: 0; text-align: left; white-space: normal }
  .wide td:first-child { flex-basis: 100%; font-weight: 600 }
  .wide td:empty { display: none }
  .wide td:not(:first-child)::before { content: attr(data-label) " "; color: #5c677d } }
@media print {
  nav { display: none } details::details-content { content-visibility: visible; display: block }
  .claim, figure, .figure { break-inside: avoid } body { max-width: none } }
"""
