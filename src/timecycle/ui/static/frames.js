/**
 * Frames as pictures. One request is under way at a time, and the newest wish is served next: scrubbing over a hundred
 * frames asks for a few. Pictures are kept up to a limit, and freed when they leave.
 */

import { request } from "./api.js";
import { project } from "./store.js";

const MOST_BYTES = 160 << 20;

/** @type {Map<string, ImageBitmap>} */
const kept = new Map();
let bytes = 0;
/** @type {number | null} */
let wanted = null;
let loading = false;
/** @type {number[]} */
let ahead = [];

/** @type {{ loaded: (index: number) => void, failed: (error: Error) => void }} */
export const frameEvents = { loaded: () => {}, failed: () => {} };

/** @param {number} index */
function key(index) {
  return `${project()?.key}/${index}`;
}

/** The picture of a frame if it is here. @param {number} index */
export function frameAt(index) {
  return kept.get(key(index)) ?? null;
}

/**
 * Ask for a frame, and for others after it.
 * @param {number} index
 * @param {number[]} [others]
 */
export function want(index, others = []) {
  wanted = index;
  ahead = others;
  void load();
}

async function load() {
  if (loading) return;
  loading = true;
  try {
    for (let next = chosen(); next !== null; next = chosen()) {
      await loadOne(next);
    }
  } catch (error) {
    frameEvents.failed(/** @type {Error} */ (error));
  } finally {
    loading = false;
  }
}

/** @returns {number | null} */
function chosen() {
  if (!project()) return null;
  if (wanted !== null && !kept.has(key(wanted))) return wanted;
  return ahead.find((index) => !kept.has(key(index))) ?? null;
}

/** @param {number} index */
async function loadOne(index) {
  const name = key(index);
  const isWanted = index === wanted;
  try {
    const answer = await request(`/api/frames/${name}`);
    const picture = await createImageBitmap(await answer.blob());
    kept.set(name, picture);
    bytes += 4 * picture.width * picture.height;
    for (const [oldest, old] of kept) {
      if (bytes <= MOST_BYTES || oldest === name) break;
      kept.delete(oldest);
      bytes -= 4 * old.width * old.height;
      old.close();
    }
    frameEvents.loaded(index);
  } catch (error) {
    if (isWanted && index === wanted) wanted = null; // asked for again by the next wish
    ahead = [];
    throw error;
  }
}
