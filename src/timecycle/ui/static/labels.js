/** The labels to show on a frame: what the person annotated there, or what the run propagated. */

import { getJson, request } from "./api.js";
import { Mask } from "./masks.js";
import { decodeIds } from "./png.js";
import { changed, project, store } from "./store.js";

/** @typedef {import("./types.js").Point} Point */
/** @typedef {{ mask: Mask | null, points: Record<string, Point> | null, from: "person" | "run" | "nothing" }} Shown */

const MOST = 24; // frames whose labels are kept

/** @type {Map<string, Shown>} */
const kept = new Map();
/** @type {Set<string>} */
const loading = new Set();

/** @param {number} index */
export function runHas(index) {
  return store.run.status !== "none" && index < store.run.frames;
}

/**
 * Where the labels of a frame come from: the key under which they are kept, and their address.
 * @param {number} index
 * @returns {{ key: string, path: string | null, from: "person" | "run" | "nothing" }}
 */
function source(index) {
  const open = project();
  const annotation = open?.frames[index];
  const isNew = annotation && (open?.pending.includes(index) || !runHas(index));
  const version = `${open?.key}:${store.run.version}:${index}`;
  if (store.before && runHas(index)) return { key: `b:${version}`, path: `/api/labels/${index}?before=1`, from: "run" };
  if (annotation?.mask && isNew) {
    return { key: personKey(index, annotation.mask), path: `/api/masks/${index}?v=${annotation.mask}`, from: "person" };
  }
  if (runHas(index)) return { key: `r:${version}`, path: `/api/labels/${index}`, from: "run" };
  return { key: "nothing", path: null, from: annotation ? "person" : "nothing" };
}

/** @param {number} index @param {string} name */
function personKey(index, name) {
  return `p:${project()?.key}:${index}:${name}`;
}

/**
 * The labels of a frame; null while they are loading.
 * @param {number} index
 * @returns {Shown | null}
 */
export function shownLabels(index) {
  const open = project();
  if (!open) return null;
  const { key, path, from } = source(index);
  if (path === null) {
    const size = open.video;
    const mask = open.kind !== "keypoints" ? new Mask(size.width_px, size.height_px) : null;
    return { mask, points: withPerson(index, {}), from };
  }
  const here = kept.get(key);
  if (!here) {
    void load(key, path, from);
    return null;
  }
  return here.points ? { ...here, points: store.before ? here.points : withPerson(index, here.points) } : here;
}

/**
 * The points of the run, replaced by those that the person placed.
 * @param {number} index
 * @param {Record<string, Point>} points
 */
function withPerson(index, points) {
  return { ...points, ...(project()?.frames[index]?.points ?? {}) };
}

/**
 * Keep what was just saved, so that it is not loaded again.
 * @param {number} index
 * @param {string} name
 * @param {Mask} mask
 */
export function remember(index, name, mask) {
  put(personKey(index, name), { mask, points: null, from: "person" });
}

/**
 * @param {string} key
 * @param {Shown} labels
 */
function put(key, labels) {
  kept.delete(key);
  kept.set(key, labels);
  for (const oldest of kept.keys()) {
    if (kept.size <= MOST) break;
    kept.delete(oldest);
  }
}

/**
 * @param {string} key
 * @param {string} path
 * @param {"person" | "run" | "nothing"} from
 */
async function load(key, path, from) {
  if (loading.has(key)) return;
  loading.add(key);
  try {
    if (project()?.kind === "keypoints") {
      put(key, { mask: null, points: (await getJson(path)).points, from });
    } else {
      const { width, height, ids } = await decodeIds(await (await request(path)).arrayBuffer());
      put(key, { mask: new Mask(width, height, ids), points: null, from });
    }
  } catch {
    // A frame that is just being written: the next drawing asks again.
    setTimeout(changed, 500);
    return;
  } finally {
    loading.delete(key);
  }
  changed();
}
