/** Masks as PNG with ids: exact, with 8 or 16 bits, which a canvas could not promise. */

const SIGNATURE = [137, 80, 78, 71, 13, 10, 26, 10];

/** @type {Uint32Array} */
const CRC_TABLE = Uint32Array.from({ length: 256 }, (_, byte) => {
  let value = byte;
  for (let bit = 0; bit < 8; bit++) value = value & 1 ? 0xedb88320 ^ (value >>> 1) : value >>> 1;
  return value >>> 0;
});

/** @param {Uint8Array} bytes */
function crc(bytes) {
  let value = 0xffffffff;
  for (const byte of bytes) value = (CRC_TABLE[(value ^ byte) & 255] ?? 0) ^ (value >>> 8);
  return (value ^ 0xffffffff) >>> 0;
}

/**
 * @param {Uint8Array<ArrayBuffer>} bytes
 * @param {CompressionStream | DecompressionStream} transform
 */
async function through(bytes, transform) {
  const stream = new Blob([bytes]).stream().pipeThrough(transform);
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

/**
 * Encode ids as a grey PNG, of 8 bits where they fit.
 * @param {Uint16Array} ids
 * @param {number} width
 * @param {number} height
 */
export async function encodeIds(ids, width, height) {
  let most = 0;
  for (const id of ids) if (id > most) most = id;
  const bytesPerPixel = most > 255 ? 2 : 1;
  const stride = width * bytesPerPixel;
  const rows = new Uint8Array(height * (stride + 1));
  for (let y = 0; y < height; y++) {
    const start = y * (stride + 1);
    rows[start] = 2; // each row is stored as its difference from the row above: mostly zeros
    for (let x = 0; x < width; x++) {
      const id = ids[y * width + x] ?? 0;
      const above = y ? (ids[(y - 1) * width + x] ?? 0) : 0;
      if (bytesPerPixel === 1) rows[start + 1 + x] = id - above;
      else {
        rows[start + 1 + 2 * x] = (id >> 8) - (above >> 8);
        rows[start + 2 + 2 * x] = (id & 255) - (above & 255);
      }
    }
  }
  const header = new Uint8Array(13);
  const view = new DataView(header.buffer);
  view.setUint32(0, width);
  view.setUint32(4, height);
  header.set([8 * bytesPerPixel, 0, 0, 0, 0], 8);
  const data = await through(rows, new CompressionStream("deflate"));
  return new Blob(
    [new Uint8Array(SIGNATURE), chunk("IHDR", header), chunk("IDAT", data), chunk("IEND", new Uint8Array(0))],
    { type: "image/png" },
  );
}

/**
 * @param {string} name
 * @param {Uint8Array} content
 */
function chunk(name, content) {
  const bytes = new Uint8Array(content.length + 12);
  const view = new DataView(bytes.buffer);
  view.setUint32(0, content.length);
  bytes.set([...name].map((letter) => letter.charCodeAt(0)), 4);
  bytes.set(content, 8);
  view.setUint32(content.length + 8, crc(bytes.subarray(4, content.length + 8)));
  return bytes;
}

/**
 * Decode the ids of a PNG with one value per pixel: grey of 8 or 16 bits, or a palette.
 * @param {ArrayBuffer} buffer
 * @returns {Promise<{ width: number, height: number, ids: Uint16Array }>}
 */
export async function decodeIds(buffer) {
  const view = new DataView(buffer);
  let width = 0, height = 0, bits = 0, kind = 0;
  /** @type {Uint8Array<ArrayBuffer>[]} */
  const parts = [];
  for (let at = 8; at + 8 <= buffer.byteLength; ) {
    const length = view.getUint32(at);
    const name = String.fromCharCode(...new Uint8Array(buffer, at + 4, 4));
    if (name === "IHDR") {
      [width, height] = [view.getUint32(at + 8), view.getUint32(at + 12)];
      [bits, kind] = [view.getUint8(at + 16), view.getUint8(at + 17)];
    } else if (name === "IDAT") parts.push(new Uint8Array(buffer, at + 8, length));
    at += length + 12;
  }
  if ((kind !== 0 && kind !== 3) || bits > 16) throw new Error(`a mask of PNG kind ${kind} cannot be shown`);
  const whole = new Uint8Array(await new Blob(parts).arrayBuffer());
  const rows = await through(whole, new DecompressionStream("deflate"));
  return { width, height, ids: unfiltered(rows, width, height, bits) };
}

/**
 * @param {Uint8Array} rows
 * @param {number} width
 * @param {number} height
 * @param {number} bits
 */
function unfiltered(rows, width, height, bits) {
  const step = Math.max(1, bits >> 3);
  const stride = Math.ceil((width * bits) / 8);
  const ids = new Uint16Array(width * height);
  let above = new Uint8Array(stride);
  for (let y = 0; y < height; y++) {
    const start = y * (stride + 1);
    const row = rows.slice(start + 1, start + 1 + stride);
    undoFilter(rows[start] ?? 0, row, above, step);
    for (let x = 0; x < width; x++) {
      if (bits === 8) ids[y * width + x] = row[x] ?? 0;
      else if (bits === 16) ids[y * width + x] = ((row[2 * x] ?? 0) << 8) | (row[2 * x + 1] ?? 0);
      else ids[y * width + x] = ((row[(x * bits) >> 3] ?? 0) >> (8 - bits - ((x * bits) & 7))) & ((1 << bits) - 1);
    }
    above = row;
  }
  return ids;
}

/**
 * @param {number} filter
 * @param {Uint8Array} row
 * @param {Uint8Array} above
 * @param {number} step
 */
function undoFilter(filter, row, above, step) {
  if (filter === 0) return;
  for (let i = 0; i < row.length; i++) {
    const left = i >= step ? (row[i - step] ?? 0) : 0;
    const up = above[i] ?? 0;
    const corner = i >= step ? (above[i - step] ?? 0) : 0;
    let guess = 0;
    if (filter === 1) guess = left;
    else if (filter === 2) guess = up;
    else if (filter === 3) guess = (left + up) >> 1;
    else {
      const [a, b, c] = [Math.abs(up - corner), Math.abs(left - corner), Math.abs(left + up - 2 * corner)];
      guess = a <= b && a <= c ? left : b <= c ? up : corner;
    }
    row[i] = (row[i] ?? 0) + guess;
  }
}
