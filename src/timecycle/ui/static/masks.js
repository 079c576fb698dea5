/** Operations on masks: arrays with the id of an object at every pixel. Each returns the rectangle it changed. */

/** @typedef {import("./types.js").Rect} Rect */
/** @typedef {import("./types.js").Position} Position */

/** A mask of one frame. */
export class Mask {
  /**
   * @param {number} width
   * @param {number} height
   * @param {Uint16Array} [ids]
   */
  constructor(width, height, ids) {
    this.width = width;
    this.height = height;
    this.ids = ids ?? new Uint16Array(width * height);
  }

  copy() {
    return new Mask(this.width, this.height, this.ids.slice());
  }

  /** @param {number} id */
  has(id) {
    return this.ids.includes(id);
  }
}

/**
 * Join rectangles; null stands for an empty one.
 * @param {Rect | null} a
 * @param {Rect | null} b
 * @returns {Rect | null}
 */
export function union(a, b) {
  if (!a || !b) return a ?? b;
  return {
    x0: Math.min(a.x0, b.x0), y0: Math.min(a.y0, b.y0), x1: Math.max(a.x1, b.x1), y1: Math.max(a.y1, b.y1),
  };
}

/**
 * Give the pixels of a thick line to an object; `from`: only those that have one of these ids now.
 * @param {Mask} mask
 * @param {Position} a
 * @param {Position} b
 * @param {number} radius
 * @param {number} id
 * @param {number | null} from
 * @returns {Rect | null}
 */
export function drawLine(mask, a, b, radius, id, from = null) {
  const x0 = Math.max(0, Math.floor(Math.min(a.x, b.x) - radius));
  const y0 = Math.max(0, Math.floor(Math.min(a.y, b.y) - radius));
  const x1 = Math.min(mask.width, Math.ceil(Math.max(a.x, b.x) + radius) + 1);
  const y1 = Math.min(mask.height, Math.ceil(Math.max(a.y, b.y) + radius) + 1);
  if (x0 >= x1 || y0 >= y1) return null;
  const [dx, dy] = [b.x - a.x, b.y - a.y];
  const length = dx * dx + dy * dy || 1;
  for (let y = y0; y < y1; y++) {
    for (let x = x0; x < x1; x++) {
      const along = Math.min(1, Math.max(0, ((x - a.x) * dx + (y - a.y) * dy) / length));
      const [ox, oy] = [x - a.x - along * dx, y - a.y - along * dy];
      const at = y * mask.width + x;
      if (ox * ox + oy * oy <= radius * radius && (from === null || mask.ids[at] === from)) mask.ids[at] = id;
    }
  }
  return { x0, y0, x1, y1 };
}

/**
 * Fill a polygon (even-odd rule).
 * @param {Mask} mask
 * @param {Position[]} corners
 * @param {number} id
 * @returns {Rect | null}
 */
export function fillPolygon(mask, corners, id) {
  if (corners.length < 3) return null;
  const ys = corners.map((corner) => corner.y);
  const y0 = Math.max(0, Math.ceil(Math.min(...ys)));
  const y1 = Math.min(mask.height, Math.floor(Math.max(...ys)) + 1);
  for (let y = y0; y < y1; y++) {
    /** @type {number[]} */
    const crossings = [];
    corners.forEach((a, i) => {
      const b = corners[(i + 1) % corners.length] ?? a;
      if (a.y <= y !== b.y <= y) crossings.push(a.x + ((y - a.y) * (b.x - a.x)) / (b.y - a.y));
    });
    crossings.sort((one, other) => one - other);
    for (let i = 0; i + 1 < crossings.length; i += 2) {
      const start = Math.max(0, Math.ceil(crossings[i] ?? 0));
      const end = Math.min(mask.width - 1, Math.floor(crossings[i + 1] ?? 0));
      if (start <= end) mask.ids.fill(id, y * mask.width + start, y * mask.width + end + 1);
    }
  }
  return y0 < y1 ? { x0: 0, y0, x1: mask.width, y1 } : null;
}

/**
 * Flood fill: give the connected pixels of one id, around a position, to an object.
 * @param {Mask} mask
 * @param {Position} start
 * @param {number} id
 * @returns {Rect | null}
 */
export function floodFill(mask, start, id) {
  const { width, height, ids } = mask;
  const [sx, sy] = [Math.round(start.x), Math.round(start.y)];
  if (sx < 0 || sy < 0 || sx >= width || sy >= height) return null;
  const old = ids[sy * width + sx];
  if (old === id) return null;
  const stack = [sy * width + sx];
  /** @type {Rect} */
  const changed = { x0: sx, y0: sy, x1: sx + 1, y1: sy + 1 };
  while (stack.length) {
    const at = /** @type {number} */ (stack.pop());
    if (ids[at] !== old) continue;
    const y = Math.floor(at / width);
    let left = at - y * width;
    while (left > 0 && ids[y * width + left - 1] === old) left--;
    let x = left;
    for (; x < width && ids[y * width + x] === old; x++) {
      ids[y * width + x] = id;
      if (y > 0 && ids[(y - 1) * width + x] === old) stack.push((y - 1) * width + x);
      if (y + 1 < height && ids[(y + 1) * width + x] === old) stack.push((y + 1) * width + x);
    }
    changed.x0 = Math.min(changed.x0, left);
    changed.x1 = Math.max(changed.x1, x);
    changed.y0 = Math.min(changed.y0, y);
    changed.y1 = Math.max(changed.y1, y + 1);
  }
  return changed;
}

/**
 * Replace an object within a region by what was segmented there; other objects keep their pixels.
 * @param {Mask} mask
 * @param {Rect} region
 * @param {Uint16Array} inside  zeros and ones of the region
 * @param {number} id
 * @returns {Rect}
 */
export function putRegion(mask, region, inside, id) {
  const width = region.x1 - region.x0;
  for (let y = region.y0; y < region.y1; y++) {
    for (let x = region.x0; x < region.x1; x++) {
      const at = y * mask.width + x;
      const is = inside[(y - region.y0) * width + x - region.x0];
      if (is && !mask.ids[at]) mask.ids[at] = id;
      else if (!is && mask.ids[at] === id) mask.ids[at] = 0;
    }
  }
  return region;
}

/**
 * Remove an object from a mask.
 * @param {Mask} mask
 * @param {number} id
 * @returns {Rect}
 */
export function removeObject(mask, id) {
  for (let at = 0; at < mask.ids.length; at++) if (mask.ids[at] === id) mask.ids[at] = 0;
  return { x0: 0, y0: 0, x1: mask.width, y1: mask.height };
}
