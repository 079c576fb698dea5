/** Keys: all of them in one table, which the help shows. */

import { byId, make } from "./dom.js";
import { replay } from "./editor.js";
import { addObject, chooseObject, chooseTool, clearObject } from "./panel.js";
import { goTo, play, shuttle, step } from "./player.js";
import { doNext, goToNext } from "./steps.js";
import { project, set, store } from "./store.js";
import { TOOLS, togglePointVisible } from "./tools.js";
import { fit, zoom } from "./view.js";

/** @typedef {{ keys: string[], about: string, act: (event: KeyboardEvent) => void }} Shortcut */

const dialog = /** @type {HTMLDialogElement} */ (byId("shortcuts"));

/** @param {number} factor */
function resizeBrush(factor) {
  const size = factor > 1 ? Math.ceil(store.brushPx * factor) : Math.floor(store.brushPx * factor);
  set({ brushPx: Math.min(200, Math.max(1, size)) });
}

/** @type {Record<string, Shortcut[]>} */
const GROUPS = {
  "Moving through the video": [
    { keys: ["ArrowRight", "ArrowLeft"], about: "next or previous frame; with Shift, ten",
      act: (event) => step((event.key === "ArrowRight" ? 1 : -1) * (event.shiftKey ? 10 : 1)) },
    { keys: ["l", "j"], about: "play forwards or backwards; again: faster",
      act: (event) => shuttle(event.key.toLowerCase() === "l" ? 1 : -1) },
    { keys: ["k"], about: "stop, or play", act: () => play(store.playing ? 0 : 1) },
    { keys: ["Home", "End"], about: "first or last frame",
      act: (event) => goTo(event.key === "Home" ? 0 : Number.MAX_SAFE_INTEGER) },
    { keys: ["n"], about: "next frame to check", act: goToNext },
  ],
  "Drawing": [
    ...Object.entries(TOOLS).map(([name, tool]) => (
      { keys: [tool.key], about: tool.title, act: () => chooseTool(name) })),
    { keys: ["[", "]"], about: "smaller or larger brush", act: (event) => resizeBrush(event.key === "[" ? 0.8 : 1.25) },
    { keys: ["Enter"], about: "close the polygon", act: () => TOOLS[store.tool]?.confirm?.() },
    { keys: ["Escape"], about: "give up what is being drawn", act: () => TOOLS[store.tool]?.cancel?.() },
    { keys: ["Delete"], about: "clear the object on this frame", act: clearObject },
    { keys: ["h"], about: "point hidden or visible", act: togglePointVisible },
    { keys: ["1 … 9"], about: "choose an object", act: () => {} },
    { keys: ["+"], about: "add an object or point", act: addObject },
  ],
  "Looking": [
    { keys: ["v"], about: "show or hide labels", act: () => set({ showLabels: !store.showLabels }) },
    { keys: ["x"], about: "before or after the correction",
      act: () => store.run.corrections && set({ before: !store.before }) },
    { keys: ["z"], about: "zoom in; with Shift, out; the wheel does both",
      act: (event) => zoom(event.shiftKey ? 0.8 : 1.25) },
    { keys: ["0"], about: "whole frame", act: fit },
    { keys: ["Space"], about: "hold and drag: move the picture", act: () => {} },
  ],
  "Everything": [
    { keys: ["Ctrl+Z", "Ctrl+Shift+Z"], about: "undo, redo", act: () => {} },
    { keys: ["Ctrl+Enter"], about: "do the next step", act: () => {} },
    { keys: ["?"], about: "this list", act: () => dialog.showModal() },
  ],
};

/** @type {Map<string, Shortcut>} */
const byKey = new Map();
for (const shortcut of Object.values(GROUPS).flat()) {
  for (const key of shortcut.keys) byKey.set(key.length === 1 ? key.toLowerCase() : key, shortcut);
}

/** @param {KeyboardEvent} event */
function onKey(event) {
  if (!project() || dialog.open) return;
  const control = event.ctrlKey || event.metaKey;
  if (control) return onControl(event);
  if (event.target instanceof HTMLElement && event.target.matches("input[type=text], input[type=number], select")) return;
  if (event.altKey) return;
  // A focused slider or button keeps the keys that it answers itself.
  const isRange = event.target instanceof HTMLInputElement && event.target.type === "range";
  if (isRange && /^(Arrow|Home|End|Page)/.test(event.key)) return;
  const isButton = event.target instanceof HTMLButtonElement || event.target instanceof HTMLElement && event.target.tagName === "SUMMARY";
  if (isButton && event.key === "Enter") return;
  if (/^[1-9]$/.test(event.key)) {
    const object = project()?.objects[Number(event.key) - 1];
    if (object) chooseObject(object.id);
    return;
  }
  const shortcut = byKey.get(event.key.length === 1 ? event.key.toLowerCase() : event.key);
  if (!shortcut) return;
  event.preventDefault();
  shortcut.act(event);
}

/** @param {KeyboardEvent} event */
function onControl(event) {
  const key = event.key.toLowerCase();
  if (event.target instanceof HTMLInputElement && event.target.type === "text" && key !== "enter") return;
  if (key === "z" || key === "y") {
    event.preventDefault();
    void replay(key === "y" || event.shiftKey ? "redo" : "undo");
  } else if (key === "enter") {
    event.preventDefault();
    doNext();
  }
}

/** Listen to keys, and fill the list of them. */
export function installShortcuts() {
  document.addEventListener("keydown", onKey);
  const shown = (/** @type {string} */ key) =>
    ({ ArrowRight: "→", ArrowLeft: "←" })[key] ?? (key.length === 1 ? key.toUpperCase() : key);
  const list = Object.entries(GROUPS).map(([title, shortcuts]) =>
    make("div", {}, make("h3", {}, title),
      make("dl", {}, ...shortcuts.flatMap(({ keys, about }) => [
        make("dt", {}, ...keys.flatMap((key, i) => [i ? " " : "", make("kbd", {}, shown(key))])),
        make("dd", {}, about),
      ]))));
  dialog.append(
    make("h2", { id: "shortcuts-title" }, "Shortcuts"), make("div", { className: "columns" }, ...list),
    make("button", { type: "button", onclick: () => dialog.close() }, "Close"),
  );
  byId("help").addEventListener("click", () => dialog.showModal());
}
