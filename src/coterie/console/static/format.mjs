// Numbers in words. The same rules as the reports: four decimals for metrics, short sizes.

const UNITS = [['B', 1], ['kB', 1e3], ['MB', 1e6], ['GB', 1e9], ['TB', 1e12], ['PB', 1e15]]
const WHOLE = ['IC']
// Made once: toLocaleString makes one for every number, which takes a tenth of a second in long tables.
const COUNTS = new Intl.NumberFormat('en-GB', { maximumFractionDigits: 0 })
const SIZES = new Intl.NumberFormat('en-GB', { minimumFractionDigits: 1, maximumFractionDigits: 1 })

export function metric(name, value) {
  if (!Number.isFinite(value)) return '–'
  if (WHOLE.includes(name.split('@')[0])) return count(value)
  return Math.abs(value) > 0 && Math.abs(value) < 0.001 ? value.toFixed(5) : value.toFixed(4)
}

export function count(value) {
  return Number.isFinite(value) ? COUNTS.format(Math.round(value)) : '–'
}

/** A number with a true minus sign. */
export function signed(value, digits) {
  return `${value < 0 ? '−' : ''}${Math.abs(value).toFixed(digits)}`
}

export function size(bytes) {
  if (!Number.isFinite(bytes)) return '–'
  if (!bytes) return '0 MB'
  const [unit, factor] = UNITS.find(([, each]) => bytes < 999.95 * each) ?? UNITS.at(-1)
  return `${(unit === 'B' ? COUNTS : SIZES).format(bytes / factor)} ${unit}`
}

export function duration(seconds) {
  if (!Number.isFinite(seconds)) return '–'
  if (seconds > 0 && seconds < 0.01) return '< 0.01 s'
  if (seconds < 10) return `${seconds.toFixed(seconds < 1 ? 2 : 1)} s`
  if (seconds < 90) return `${Math.round(seconds)} s`
  const minutes = Math.round(seconds / 60)
  if (minutes < 90) return `${minutes} min`
  const hours = Math.floor(minutes / 60)
  if (hours < 48) return `${hours} h ${minutes % 60} min`
  return `${Math.floor(hours / 24)} days ${hours % 24} h`
}

export function ago(unixSeconds) {
  if (!unixSeconds) return '–'
  const seconds = Math.max(0, Date.now() / 1000 - unixSeconds)
  if (seconds < 60) return 'just now'
  if (seconds < 86400 * 2) return `${duration(seconds)} ago`
  return new Date(unixSeconds * 1000).toISOString().slice(0, 10)
}

export function mean(values) {
  const known = values.filter(Number.isFinite)
  return known.length ? known.reduce((sum, value) => sum + value, 0) / known.length : NaN
}

export function deviation(values) {
  const known = values.filter(Number.isFinite)
  if (known.length < 2) return NaN
  const centre = mean(known)
  return Math.sqrt(known.reduce((sum, value) => sum + (value - centre) ** 2, 0) / (known.length - 1))
}
