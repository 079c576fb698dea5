/** The tools, their options, and the list of objects. */

import { assistMode, clearMarks, setAssistMode } from "./assist.js";
import { byId, fill, icon, make } from "./dom.js";
import { beginEdit, commitEdit, saveSetting } from "./editor.js";
import { removeObject } from "./masks.js";
import { cssColour, currentObject, displayName, PART, project, set, store } from "./store.js";
import { TOOLS, togglePointVisible } from "./tools.js";
import { draw, pointName, repaint } from "./view.js";

/** @typedef {import("./types.js").Labelled} Labelled */

const ICONS = {
  assist: "M4 4h5M4 4v5M20 4h-5M20 4v5M4 20h5M4 20v-5M20 20h-5M20 20v-5M9 13l2 2 4-5",
  brush: "M4 20c3 0 5-1 5-4l9-10 2 2-10 9c-1 3-3 4-6 3z",
  eraser: "M8 19l-4-4 9-10 6 6-8 8zM8 19h11",
  polygon: "M5 9l8-5 6 7-3 8-9-1z",
  fill: "M5 12l7-7 7 7-7 7zM5 12h14M20 16c2 3 0 4 0 4s-2-1 0-4",
  point: "M12 3v6M12 15v6M3 12h6M15 12h6M12 12h.01",
  pan: "M12 3v18M3 12h18M12 3l-3 3M12 3l3 3M12 21l-3-3M12 21l3-3M3 12l3-3M3 12l3 3M21 12l-3-3M21 12l-3 3",
};

/** @param {string} name */
export function chooseTool(name) {
  if (!TOOLS[name]?.kinds.includes(project()?.kind ?? "masks")) return;
  TOOLS[store.tool]?.cancel?.();
  set({ tool: name });
}

/** The tools of the kind that is annotated. */
export function toolNames() {
  const kind = project()?.kind ?? "masks";
  return Object.keys(TOOLS).filter((name) => TOOLS[name]?.kinds.includes(kind));
}

export function drawTools() {
  const names = toolNames();
  if (!names.includes(store.tool)) set({ tool: names[0] ?? "pan" });
  fill(byId("tools"), `${names.join()}:${store.tool}`, () =>
    names.map((name) => {
      const tool = TOOLS[name];
      return make(
        "button",
        {
          type: "button", title: `${tool?.title} (${tool?.key.toUpperCase()})`, "data-name": name,
          "aria-pressed": store.tool === name, onclick: () => chooseTool(name),
        },
        icon(ICONS[/** @type {keyof typeof ICONS} */ (name)]),
        tool?.title ?? "",
      );
    }),
  );
}

export function drawOptions() {
  const key = [store.tool, store.brushPx, store.opacity, store.showLabels, assistMode(), project()?.kind].join();
  fill(byId("options"), key, () => {
    const tool = TOOLS[store.tool];
    return [
      make("span", { className: "hint", id: "hint" }, tool?.hint ?? ""),
      store.tool === "assist" && assistOptions(),
      (store.tool === "brush" || store.tool === "eraser") &&
        slider("Size", "brush-size", store.brushPx, 1, 200, 1, (value) => set({ brushPx: value })),
      slider("Opacity", "opacity", store.opacity, 0, 1, 0.05, (value) => set({ opacity: value })),
      make(
        "button",
        {
          type: "button", "data-name": "labels", "aria-pressed": store.showLabels, title: "Show or hide labels (V)",
          onclick: () => set({ showLabels: !store.showLabels }),
        },
        "Labels",
      ),
    ];
  });
}

function assistOptions() {
  const modes = /** @type {const} */ ([["box", "Box"], ["inside", "+ Inside"], ["outside", "− Outside"]]);
  return make(
    "span", { role: "group", "aria-label": "What the next drag marks" },
    ...modes.map(([mode, title]) =>
      make(
        "button",
        {
          type: "button", "data-name": `assist-${mode}`, "aria-pressed": assistMode() === mode,
          onclick: () => setAssistMode(mode),
        },
        title,
      ),
    ),
  );
}

/**
 * @param {string} title
 * @param {string} name
 * @param {number} value
 * @param {number} min
 * @param {number} max
 * @param {number} step
 * @param {(value: number) => void} change
 */
function slider(title, name, value, min, max, step, change) {
  const input = make("input", {
    type: "range", min: String(min), max: String(max), step: String(step), value: String(value), id: name,
    "data-name": name,
  });
  input.addEventListener("input", () => change(Number(input.value)));
  return make("label", { className: "slider" }, title, input);
}

/** @param {number} id */
export function chooseObject(id) {
  clearMarks();
  set({ objectId: id });
}

/** Add an object with the next free id. */
export function addObject() {
  const open = project();
  if (!open) return;
  const last = Math.max(0, ...open.objects.map((one) => one.id));
  const id = open.kind === "parts" ? last + PART : last + 1;
  void saveSetting("objects", [...open.objects, { id, name: "" }]).then(() => {
    chooseObject(id);
    requestAnimationFrame(() => requestAnimationFrame(() => document.getElementById(`name-${id}`)?.focus()));
  });
}

/** @param {Labelled} one @param {HTMLInputElement} input */
async function rename(one, input) {
  const name = input.value;
  if (name.trim() === one.name) return;
  await saveSetting("objects", project()?.objects.map((other) => (other.id === one.id ? { ...one, name } : other)));
  input.value = project()?.objects.find((other) => other.id === one.id)?.name ?? ""; // the old one if it was refused
}

/** Remove the chosen object from this frame. */
export function clearObject() {
  const object = currentObject();
  const mask = object && beginEdit();
  if (!mask || !object) return;
  removeObject(mask, object.id);
  clearMarks();
  repaint();
  draw();
  commitEdit(object.id);
}

/** @param {Labelled} one */
function isAnnotated(one) {
  return Object.values(project()?.frames ?? {}).some((frame) => frame.pixels?.[one.id] || frame.points?.[pointName(one)]);
}

export function drawObjects() {
  const open = project();
  if (!open) return;
  const key = JSON.stringify([open.objects, open.kind, open.skeleton, store.objectId, [...store.hidden],
    store.server?.colours.length, Object.keys(open.frames).length > 0, store.run.status]);
  fill(byId("objects"), key, () => {
    const points = open.kind === "keypoints";
    const one = { masks: "object", parts: "part", keypoints: "point" }[open.kind];
    const untouched = !Object.keys(open.frames).length && store.run.status === "none";
    return [
      make("h2", { id: "objects-title" }, `${one[0]?.toUpperCase()}${one.slice(1)}s`),
      untouched && kindChoice(),
      make("ul", { className: "list" }, ...open.objects.map(objectRow)),
      make("div", { className: "row" },
        make("button", { type: "button", "data-name": "add", onclick: addObject }, `Add ${one}`),
        points
          ? make("button", { type: "button", "data-name": "hide-point", onclick: togglePointVisible }, "Hidden here")
          : make("button", { type: "button", "data-name": "clear", onclick: clearObject }, "Clear on this frame"),
      ),
      points && skeletonEditor(),
    ];
  });
}

function kindChoice() {
  const kind = project()?.kind;
  const kinds = /** @type {const} */ ([["masks", "Masks"], ["parts", "Parts"], ["keypoints", "Keypoints"]]);
  return make(
    "p", { role: "group", "aria-label": "What to annotate" },
    ...kinds.map(([name, title]) =>
      make(
        "button",
        {
          type: "button", "data-name": `kind-${name}`, "aria-pressed": kind === name,
          className: kind === name ? "" : "quiet", onclick: () => void saveSetting("kind", name),
        },
        title,
      ),
    ),
  );
}

/** @param {Labelled} one */
function objectRow(one) {
  const chosen = currentObject()?.id === one.id;
  const swatch = make("button", {
    type: "button", className: "swatch", "data-name": `choose-${one.id}`, "aria-pressed": chosen,
    "aria-label": `Choose ${displayName(one)}`, title: "Draw this one", onclick: () => chooseObject(one.id),
  });
  swatch.style.background = cssColour(one.id);
  const input = make("input", {
    type: "text", id: `name-${one.id}`, value: one.name, placeholder: displayName(one), maxLength: 60,
    "data-name": `name-${one.id}`, "aria-label": `Name of ${displayName(one)}`,
  });
  input.addEventListener("focus", () => {
    if (store.objectId !== one.id) chooseObject(one.id);
  });
  input.addEventListener("change", () => void rename(one, input));
  input.addEventListener("keydown", (event) => {
    if (event.key === "Enter") input.blur();
  });
  const hidden = store.hidden.has(one.id);
  const eye = make(
    "button",
    {
      type: "button", className: "icon quiet", "data-name": `eye-${one.id}`, "aria-pressed": !hidden,
      "aria-label": `Show ${displayName(one)}`, title: hidden ? "Show" : "Hide",
      onclick: () => {
        const all = new Set(store.hidden);
        if (!all.delete(one.id)) all.add(one.id);
        set({ hidden: all });
        repaint();
      },
    },
    hidden ? "○" : "●",
  );
  const remove = make(
    "button",
    {
      type: "button", className: "icon quiet", "data-name": `remove-${one.id}`,
      "aria-label": `Remove ${displayName(one)} from the list`, title: "Remove from the list",
      onclick: () => void saveSetting("objects", project()?.objects.filter((other) => other.id !== one.id)),
    },
    "×",
  );
  const removable = (project()?.objects.length ?? 0) > 1 && !isAnnotated(one) && store.run.status === "none";
  return make("li", { className: chosen ? "chosen" : "" }, swatch, input, eye, removable && remove);
}

/** Lines between points, which are only drawn. */
function skeletonEditor() {
  const open = project();
  if (!open || open.objects.length < 2) return null;
  const names = open.objects.map(displayName);
  const choose = (/** @type {string} */ name, /** @type {number} */ at) => {
    const select = make("select", { "aria-label": name, "data-name": name });
    select.append(...names.map((one, i) => make("option", { value: one, selected: i === at }, one)));
    return select;
  };
  const [from, to] = [choose("Line from", 0), choose("Line to", 1)];
  const connect = () => {
    const line = /** @type {[string, string]} */ ([from.value, to.value]);
    const others = open.skeleton.filter(([a, b]) => !line.includes(a) || !line.includes(b));
    if (line[0] !== line[1]) {
      void saveSetting("skeleton", others.length < open.skeleton.length ? others : [...others, line]);
    }
  };
  return make("details", {}, make("summary", {}, `Skeleton: ${open.skeleton.length} line${open.skeleton.length === 1 ? "" : "s"}`),
    make("div", { className: "row" }, from, to,
      make("button", { type: "button", "data-name": "connect", onclick: connect }, "Connect or cut")));
}
