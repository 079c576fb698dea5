/** What the page knows, in one object. Modules change it with `set` and are told once per animation frame. */

/** @typedef {import("./types.js").ServerState} ServerState */
/** @typedef {import("./types.js").Run} Run */
/** @typedef {import("./types.js").Project} Project */
/** @typedef {import("./types.js").Labelled} Labelled */

/** @type {Run} */
export const NO_RUN = {
  status: "none", names: {}, frames: 0, corrections: 0, source: [], confidence: [], objects: {}, queue: null,
  version: "", formats: [], audit: null,
};

export const store = {
  /** @type {ServerState | null} */
  server: null,
  run: NO_RUN,
  index: 0,
  tool: "assist",
  objectId: 1,
  brushPx: 24,
  opacity: 0.5,
  showLabels: true,
  /** @type {Set<number>} */
  hidden: new Set(),
  before: false,
  /** @type {"annotate" | "propagate" | "review" | "export"} */
  step: "annotate",
  preset: "default",
  direction: "both",
  playing: 0, // frames of the video per frame of its own time: 1 is real time, -1 backwards
  saving: 0, // edits that the server has not confirmed
  connected: true,
};

/** @type {Set<() => void>} */
const listeners = new Set();
let scheduled = false;

/** @param {Partial<typeof store>} changes */
export function set(changes) {
  Object.assign(store, changes);
  changed();
}

/** Tell everybody, once per animation frame. */
export function changed() {
  if (scheduled) return;
  scheduled = true;
  const tell = () => {
    scheduled = false;
    for (const listener of listeners) listener();
  };
  if (document.hidden) setTimeout(tell, 100); // a hidden tab has no animation frames
  else requestAnimationFrame(tell);
}

/** @param {() => void} listener */
export function subscribe(listener) {
  listeners.add(listener);
}

/** @returns {Project | null} */
export function project() {
  return store.server?.project ?? null;
}

/** The number by which people and files call a frame. @param {number} index */
export function frameNumber(index) {
  return project()?.video.numbers?.[index] ?? index;
}

/** @param {Labelled} one */
export function displayName(one) {
  const kind = project()?.kind;
  if (kind === "parts") return one.name || `part ${Math.floor(one.id / PART)}`;
  return one.name || (kind === "keypoints" ? `point ${one.id}` : `object ${one.id}`);
}

/** The object that tools draw. @returns {Labelled | null} */
export function currentObject() {
  const objects = project()?.objects ?? [];
  return objects.find((one) => one.id === store.objectId) ?? objects[0] ?? null;
}

// The id of a part is part * 1000 + person: the same part has one colour on every person.
export const PART = 1000;

// Until the server has told its colours: those of the first objects, which stand out for colour-blind people too.
const FIRST = [[238, 51, 119], [51, 187, 238], [238, 119, 51], [0, 153, 136], [0, 119, 187], [204, 51, 17]];

/** @param {number} id @returns {[number, number, number]} */
export function colourOf(id) {
  const table = store.server?.colours.length ? store.server.colours : FIRST;
  const number = project()?.kind === "parts" ? Math.floor(id / PART) : id;
  const [red, green, blue] = table[(number - 1) % table.length] ?? [128, 128, 128];
  return [red ?? 0, green ?? 0, blue ?? 0];
}

/** @param {number} id */
export function cssColour(id) {
  return `rgb(${colourOf(id).join(" ")})`;
}
