// Dark or light, as the system asks; paper is light and narrow. What is drawn by scripts is drawn
// anew when that changes.

const dark = window.matchMedia('(prefers-color-scheme: dark)')
const root = document.documentElement
const listeners = new Set()

export function isDark() {
  return dark.matches && !isPrinting()
}

export function isPrinting() {
  return root.classList.contains('printing')
}

/** Calls a function on every change; returns one that ends that. */
export function onTheme(listener) {
  listeners.add(listener)
  return () => listeners.delete(listener)
}

/** A colour of the style sheet. */
export function variable(name) {
  return getComputedStyle(root).getPropertyValue(name).trim()
}

function changed() {
  for (const listener of listeners) listener()
}

function printing(isOn) {
  root.classList.toggle('printing', isOn)
  changed()
}

dark.addEventListener('change', changed)
window.addEventListener('beforeprint', () => printing(true))
window.addEventListener('afterprint', () => printing(false))
