/**
 * Edits: the mask that is being drawn, and the queue in which edits travel to the server.
 *
 * The server confirms an edit with a new revision, and refuses one that was made on an older revision: another tab was
 * faster. Then this page takes the annotations as they are.
 */

import { getJson, Refused, request, sendJson } from "./api.js";
import { remember, shownLabels } from "./labels.js";
import { encodeIds } from "./png.js";
import { changed, project, set, store } from "./store.js";

/** @typedef {import("./types.js").ServerState} ServerState */
/** @typedef {import("./types.js").Point} Point */
/** @typedef {import("./masks.js").Mask} Mask */

/**
 * The mask that is drawn on, until the server has it; `open` while a stroke is under way.
 * @type {{ index: number, mask: Mask, objects: Set<number>, open: boolean } | null}
 */
let working = null;
/** @type {Promise<void>} */
let queue = Promise.resolve();
let newest = 0; // the newest revision that the server has told

/** @type {{ problem: (problem: import("./types.js").Problem) => void, note: (text: string) => void }} */
export const editorEvents = { problem: () => {}, note: () => {} };

/** The mask to show and to draw on; null while it is loading. @returns {Mask | null} */
export function currentMask() {
  if (working && working.index === store.index && !store.before) return working.mask;
  return shownLabels(store.index)?.mask ?? null;
}

/** Begin to draw: a mask that may be changed; null while it is loading. @returns {Mask | null} */
export function beginEdit() {
  if (store.before) set({ before: false });
  if (working?.index === store.index) {
    working.open = true;
    return working.mask;
  }
  const shown = shownLabels(store.index);
  if (!shown?.mask) return null;
  const open = project();
  const annotation = open?.frames[store.index];
  const objects = open?.pending.includes(store.index) ? (annotation?.objects ?? []) : [];
  working = { index: store.index, mask: shown.mask.copy(), objects: new Set(objects), open: true };
  return working.mask;
}

/** Give up what was drawn since the last edit. */
export function cancelEdit() {
  working = null;
  changed();
}

/** Keep what was drawn. @param {...number} objects  those that were changed */
export function commitEdit(...objects) {
  if (!working) return;
  working.open = false;
  for (const id of objects) working.objects.add(id);
  const { index, objects: touched } = working;
  const mask = working.mask.copy();
  enqueue(async () => {
    const png = await encodeIds(mask.ids, mask.width, mask.height);
    const path = `/api/masks/${index}?objects=${[...touched].join(",")}`;
    const headers = { "X-Revision": revision(), "Content-Type": "image/png" };
    const answer = await (await request(path, { method: "PUT", body: png, headers })).json();
    const name = answer.project?.frames[index]?.mask;
    if (name) remember(index, name, mask);
    return answer;
  });
}

/** @param {number} index @param {Record<string, Point>} points */
export function savePoints(index, points) {
  const open = project();
  if (open) {
    // Shown at once; the server's answer replaces it.
    open.frames[index] = { points };
    changed();
  }
  enqueue(() => sendJson(`/api/points/${index}`, { points }, { "X-Revision": revision() }, "PUT"));
}

/** @param {"kind" | "objects" | "skeleton"} key @param {unknown} value */
export function saveSetting(key, value) {
  return enqueue(() => sendJson(`/api/settings/${key}`, { value }, { "X-Revision": revision() }, "PUT"));
}

/** Remove what the person annotated on a frame. @param {number} index */
export function removeAnnotation(index) {
  working = null;
  return enqueue(() => sendJson(`/api/annotations/${index}`, {}, { "X-Revision": revision() }, "DELETE"));
}

/** @param {"undo" | "redo"} direction */
export function replay(direction) {
  return enqueue(async () => {
    const answer = await sendJson(`/api/${direction}`, {}, { "X-Revision": revision() });
    working = null;
    if (!answer.key) editorEvents.note(`Nothing to ${direction}`);
    const frame = /^frame\/(\d+)$/.exec(answer.key ?? "");
    if (frame) set({ index: Number(frame[1]) });
    return answer;
  });
}

function revision() {
  return String(project()?.revision ?? 0);
}

/** @param {() => Promise<ServerState>} edit */
function enqueue(edit) {
  set({ saving: store.saving + 1 });
  const done = queue.then(async () => {
    try {
      take(await edit());
    } catch (error) {
      working = null;
      if (error instanceof Refused) editorEvents.problem(error.problem);
      else throw error;
      if (error.status) await refresh();
    } finally {
      set({ saving: store.saving - 1 });
      if (!store.saving && working && !working.open) working = null;
    }
  });
  queue = done.catch(() => {});
  return done;
}

/** Take a state of the server, unless it is older than what is known. @param {ServerState} server */
export function take(server) {
  const known = project();
  if (known && server.project && known.key === server.project.key && server.project.revision < known.revision) return;
  newest = Math.max(newest, server.project?.revision ?? 0);
  set({ server });
}

/** Fetch the state of the server. */
export async function refresh() {
  take(await getJson("/api/state"));
}

/** Another page has changed the annotations. @param {number} told */
export function heardOf(told) {
  newest = Math.max(newest, told);
  queue = queue.then(async () => {
    const open = project();
    if (!open || open.revision >= newest) return;
    working = null;
    await refresh();
  });
}

/** Forget the mask of a frame that is not shown any more. */
export function leaveFrame() {
  if (working && working.index !== store.index && !store.saving) working = null;
}
