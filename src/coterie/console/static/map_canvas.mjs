// Draws up to 10,000 users at once: discs are written into the pixels of the canvas, which takes a
// few milliseconds on one core, where drawing shapes one by one takes many times as long.

const SHADES = 20
const RING = 1.3
// How much a disc covers what is below it, of 256.
const FAINT = 154
const FULL = 256

/** Radius of a user's disc: smaller where there are many. */
export function radiusOf(users) {
  return Math.min(4, Math.max(2.2, 80 / Math.sqrt(users)))
}

export function colourOfCluster(cluster, isDark) {
  if (cluster < 0) return isDark ? [111, 183, 224] : [42, 111, 151]
  // Neighbours in number are far apart in hue.
  const hue = (cluster * 137.508) % 360
  const light = isDark ? [0.66, 0.56, 0.74][Math.floor(cluster / SHADES) % 3] : [0.44, 0.34, 0.54][Math.floor(cluster / SHADES) % 3]
  return fromHsl(hue, 0.6, light)
}

export function asCss([red, green, blue]) {
  return `rgb(${red} ${green} ${blue})`
}

function fromHsl(hue, saturation, light) {
  const range = saturation * Math.min(light, 1 - light)
  const channel = (n) => {
    const k = (n + hue / 30) % 12
    return Math.round(255 * (light - range * Math.max(-1, Math.min(k - 3, 9 - k, 1))))
  }
  return [channel(0), channel(8), channel(4)]
}

/**
 * The pixels around a point that a disc with soft edges covers, as distances in the bytes of an
 * image of some width, and how much of each it covers, of 256.
 */
function disc(width, outer, inner = 0) {
  const offsets = []
  const shares = []
  const reach = Math.ceil(outer)
  for (let y = -reach; y <= reach; y++) {
    for (let x = -reach; x <= reach; x++) {
      const distance = Math.hypot(x, y)
      const covered = Math.min(1, Math.max(0, outer + 0.5 - distance)) * (inner ? Math.min(1, Math.max(0, distance - inner + 0.5)) : 1)
      if (covered <= 0.02) continue
      offsets.push(4 * (y * width + x))
      shares.push(Math.round(256 * covered))
    }
  }
  return { reach, offsets: Int32Array.from(offsets), shares: Int32Array.from(shares) }
}

/**
 * Writes one disc for each user of a list. This is one loop over whole numbers in flat arrays, in a
 * function that refers to nothing else: browsers compile it to machine code soon and reliably.
 * `colours` has three bytes for each cluster, with those of no cluster first; or one colour for all.
 */
function writeDiscs(bytes, width, height, screen, users, clusters, first, colours, strength, shape) {
  const { reach, offsets, shares } = shape
  const isOne = colours.length === 3
  for (let k = 0; k < users.length; k++) {
    const n = users[k]
    const x = (screen[2 * n] + 0.5) | 0
    const y = (screen[2 * n + 1] + 0.5) | 0
    // The margin of the map keeps discs inside, unless the window is tiny.
    if (x < reach || y < reach || x >= width - reach || y >= height - reach) continue
    const centre = 4 * (y * width + x)
    const colour = isOne ? 0 : 3 * (clusters[first + n] + 1)
    const red = colours[colour]
    const green = colours[colour + 1]
    const blue = colours[colour + 2]
    for (let p = 0; p < offsets.length; p++) {
      const at = centre + offsets[p]
      const share = (shares[p] * strength) >> 8
      bytes[at] += ((red - bytes[at]) * share) >> 8
      bytes[at + 1] += ((green - bytes[at + 1]) * share) >> 8
      bytes[at + 2] += ((blue - bytes[at + 2]) * share) >> 8
    }
  }
}

/**
 * `data` has users, places (Uint16, two for each user of a frame), clusters (Int16), selections
 * (Uint8) and centres (of each frame, as places among its users).
 */
export function mapCanvas(canvas, data) {
  const context = canvas.getContext('2d', { alpha: false })
  const box = boundsOf(data.places)
  const screen = new Float32Array(2 * data.users)
  let image = null
  let bytes = null
  let words = null
  let width = 1
  let height = 1
  let ratio = 1
  let stamps = null
  let theme = null
  let palette = []
  let colours = null
  let text = null
  let separated = -1
  let selected = new Int32Array(0)
  let others = new Int32Array(0)

  function resize() {
    ratio = Math.min(window.devicePixelRatio || 1, 2)
    width = Math.max(1, Math.round(canvas.clientWidth * ratio))
    height = Math.max(1, Math.round(canvas.clientHeight * ratio))
    if (image && canvas.width === width && canvas.height === height) return
    canvas.width = width
    canvas.height = height
    image = context.createImageData(width, height)
    bytes = new Uint8Array(image.data.buffer)
    words = new Uint32Array(bytes.buffer)
    const dot = radiusOf(data.users)
    const selected = dot + 1.2
    stamps = { dot: disc(width, dot * ratio), selected: disc(width, selected * ratio), ring: disc(width, (selected + RING) * ratio, selected * ratio) }
  }

  function setTheme(next) {
    theme = next
    const largest = data.clusters.reduce((most, each) => Math.max(most, each), -1)
    palette = Array.from({ length: largest + 2 }, (_, n) => colourOfCluster(n - 1, theme.isDark))
    colours = Uint8Array.from(palette.flat())
    text = Uint8Array.from(theme.text)
  }

  /** The selected users of a frame, and the others; the same as before for the same frame. */
  function separate(frame) {
    if (frame === separated) return
    separated = frame
    const all = Int32Array.from({ length: data.users }, (_, n) => n)
    selected = all.filter((n) => data.selections[frame + n])
    others = all.filter((n) => !data.selections[frame + n])
  }

  /** Places between two frames, where `position` is not whole. */
  function place(position) {
    const first = Math.floor(position)
    const share = position - first
    const a = first * 2 * data.users
    const b = Math.min(first + 1, data.frames - 1) * 2 * data.users
    const scale = Math.min(width / (box.width || 1), height / (box.height || 1))
    const left = (width - box.width * scale) / 2 - box.left * scale
    const top = (height - box.height * scale) / 2 - box.top * scale
    for (let n = 0; n < 2 * data.users; n += 2) {
      screen[n] = left + scale * (data.places[a + n] * (1 - share) + data.places[b + n] * share)
      screen[n + 1] = top + scale * (data.places[a + n + 1] * (1 - share) + data.places[b + n + 1] * share)
    }
  }

  function draw(position, marked = -1) {
    place(position)
    const [red, green, blue] = theme.background
    // The order of bytes in a word is that of every computer with a browser: little end first.
    words.fill((255 << 24) | (blue << 16) | (green << 8) | red)
    const frame = Math.min(Math.round(position), data.frames - 1) * data.users
    separate(frame)
    const write = (users, colours, strength, shape) => writeDiscs(bytes, width, height, screen, users, data.clusters, frame, colours, strength, shape)
    write(others, colours, FAINT, stamps.dot)
    write(selected, text, FULL, stamps.ring)
    write(selected, colours, FULL, stamps.selected)
    paint()
    context.lineWidth = 2 * ratio
    context.strokeStyle = asCss(theme.text)
    for (const n of data.centres[frame / data.users] ?? []) if (n >= 0) drawCentre(n, palette[data.clusters[frame + n] + 1])
    if (marked >= 0) drawMark(marked)
  }

  /** Puts the pixels on the canvas. While a page is printed, a browser keeps pictures and no pixels. */
  function paint() {
    if (!theme.isPaper) {
      context.putImageData(image, 0, 0)
      return
    }
    const picture = new OffscreenCanvas(width, height)
    picture.getContext('2d').putImageData(image, 0, 0)
    context.drawImage(picture, 0, 0)
  }

  function drawCentre(n, colour) {
    const size = 7 * ratio
    const [x, y] = [screen[2 * n], screen[2 * n + 1]]
    context.beginPath()
    context.moveTo(x, y - size)
    context.lineTo(x + size, y)
    context.lineTo(x, y + size)
    context.lineTo(x - size, y)
    context.closePath()
    context.fillStyle = asCss(colour)
    context.fill()
    context.stroke()
  }

  function drawMark(n) {
    context.beginPath()
    context.arc(screen[2 * n], screen[2 * n + 1], 10 * ratio, 0, 2 * Math.PI)
    context.stroke()
  }

  /** The user nearest to a point of the window, within some pixels; -1 if there is none. */
  function userAt(event) {
    const frame = canvas.getBoundingClientRect()
    const x = (event.clientX - frame.left) * ratio
    const y = (event.clientY - frame.top) * ratio
    let best = -1
    let nearest = (12 * ratio) ** 2
    for (let n = 0; n < data.users; n++) {
      const distance = (screen[2 * n] - x) ** 2 + (screen[2 * n + 1] - y) ** 2
      if (distance < nearest) [best, nearest] = [n, distance]
    }
    return best
  }

  /** Where the users are now, in pixels of the canvas, for pictures without pixels. */
  function points() {
    return Array.from({ length: data.users }, (_, n) => [screen[2 * n], screen[2 * n + 1]])
  }

  return { resize, setTheme, draw, userAt, points }
}

/** The part of the plane that has users in any frame, with a margin. */
function boundsOf(places) {
  let [left, right, top, bottom] = [65535, 0, 65535, 0]
  for (let n = 0; n < places.length; n += 2) {
    left = Math.min(left, places[n])
    right = Math.max(right, places[n])
    top = Math.min(top, places[n + 1])
    bottom = Math.max(bottom, places[n + 1])
  }
  const margin = Math.max(right - left, bottom - top) * 0.03 + 1
  return { left: left - margin, top: top - margin, width: right - left + 2 * margin, height: bottom - top + 2 * margin }
}
