/** The pointer on the picture: the chosen tool draws; Space, the middle button or the wheel move the view. */

import { byId } from "./dom.js";
import { store } from "./store.js";
import { TOOLS } from "./tools.js";
import { draw, pan, toCanvas, toVideo, zoom } from "./view.js";

const canvas = /** @type {HTMLCanvasElement} */ (byId("canvas"));
/** @type {import("./types.js").Position | null} */
let grabbed = null;
let space = false;

/** @param {PointerEvent} event */
function moves(event) {
  return space || event.button === 1 || store.tool === "pan";
}

/** Listen to the pointer. */
export function installPointer() {
  canvas.addEventListener("pointerdown", (event) => {
    canvas.focus();
    canvas.setPointerCapture(event.pointerId);
    if (moves(event)) grabbed = toCanvas(event);
    else TOOLS[store.tool]?.down?.(toVideo(event), event);
    event.preventDefault();
  });
  canvas.addEventListener("pointermove", (event) => {
    if (grabbed) {
      const at = toCanvas(event);
      pan(at.x - grabbed.x, at.y - grabbed.y);
      grabbed = at;
      return;
    }
    // Every position between two drawings, so that fast strokes stay round.
    const all = event.getCoalescedEvents?.() ?? [];
    for (const one of all.length ? all : [event]) TOOLS[store.tool]?.move?.(toVideo(one), one);
  });
  canvas.addEventListener("pointerup", (event) => {
    if (grabbed) grabbed = null;
    else TOOLS[store.tool]?.up?.(toVideo(event), event);
  });
  canvas.addEventListener("pointercancel", () => {
    grabbed = null;
    TOOLS[store.tool]?.cancel?.();
    draw();
  });
  canvas.addEventListener("dblclick", () => TOOLS[store.tool]?.double?.());
  canvas.addEventListener("contextmenu", (event) => event.preventDefault());
  canvas.addEventListener("wheel", (event) => {
    event.preventDefault();
    zoom(Math.exp(-event.deltaY / 400), toCanvas(event));
  }, { passive: false });
  document.addEventListener("keydown", (event) => {
    if (event.key === " " && document.activeElement === canvas) {
      space = true;
      event.preventDefault();
    }
  });
  document.addEventListener("keyup", (event) => {
    if (event.key === " ") space = false;
  });
}
