/** The assisted tool: a box or a few strokes become a mask, which the server finds. */

import { request } from "./api.js";
import { beginEdit, cancelEdit, commitEdit, editorEvents } from "./editor.js";
import { Mask, putRegion } from "./masks.js";
import { decodeIds } from "./png.js";
import { changed, store } from "./store.js";
import { drawSoon, repaint, zoomScale } from "./view.js";

/** @typedef {import("./types.js").Position} Position */
/** @typedef {import("./types.js").ToScreen} ToScreen */

/** @type {Position | null} */
let pointer = null;

/** @typedef {{ points: [number, number][], width_px: number, order: number }} Stroke  order: among all strokes */
const assist = {
  frame: -1,
  object: -1,
  /** @type {[number, number, number, number] | null} */
  box: null,
  /** @type {Stroke[]} */
  inside: [],
  /** @type {Stroke[]} */
  outside: [],
  /** @type {"box" | "inside" | "outside"} */
  mode: "box",
  /** @type {Mask | null} */
  base: null, // the mask before the first mark
  /** @type {Position | null} */
  start: null,
  /** @type {Stroke | null} */
  stroke: null,
  /** @type {"inside" | "outside"} */
  side: "inside",
  working: false,
  again: false,
};

/** The mode of the assisted tool: what the next drag marks. @returns {"box" | "inside" | "outside"} */
export function assistMode() {
  return fresh() ? "box" : assist.mode;
}

/** @param {"box" | "inside" | "outside"} mode */
export function setAssistMode(mode) {
  if (mode === "box" || fresh()) clearMarks();
  assist.mode = mode;
  changed();
}

/** Whether nothing is marked yet for this object on this frame. */
function fresh() {
  return assist.frame !== store.index || assist.object !== store.objectId || !assist.base;
}

/** How many strokes there are. */
function count() {
  return assist.inside.length + assist.outside.length;
}

/** Forget the marks of the assisted tool. */
export function clearMarks() {
  Object.assign(assist, { base: null, box: null, inside: [], outside: [], start: null, stroke: null, mode: "box" });
}

/** Whether the server is looking for an outline. */
export function assistWorks() {
  return assist.working;
}

/** @param {Position} at @param {PointerEvent} event */
function assistDown(at, event) {
  if (fresh()) {
    const mode = assist.mode;
    clearMarks();
    const mask = beginEdit();
    if (!mask) return;
    Object.assign(assist, { frame: store.index, object: store.objectId, base: mask.copy(), mode });
  }
  const isOutside = event.button === 2 || event.shiftKey || assist.mode === "outside";
  if (assist.mode === "box" && !isOutside) assist.start = at;
  else {
    assist.side = isOutside ? "outside" : "inside";
    assist.stroke = { points: [[at.x, at.y]], width_px: Math.max(3, 8 / zoomScale()), order: count() };
  }
}

/** @param {Position} at */
function assistMove(at) {
  pointer = at;
  assist.stroke?.points.push([at.x, at.y]);
  if (assist.stroke || assist.start) drawSoon(null);
}

/** @param {Position} at */
function assistUp(at) {
  if (assist.start) {
    const { x, y } = assist.start;
    if (Math.abs(at.x - x) > 4 && Math.abs(at.y - y) > 4) {
      assist.box = [Math.round(x), Math.round(y), Math.round(at.x), Math.round(at.y)];
    } else {
      // A click marks what is under it.
      assist.inside.push({ points: [[at.x, at.y]], width_px: Math.max(5, 12 / zoomScale()), order: count() });
    }
    assist.start = null;
  } else if (assist.stroke) {
    assist[assist.side].push(assist.stroke);
    assist.stroke = null;
  } else return;
  assist.mode = assist.mode === "box" ? "inside" : assist.mode;
  void segment();
}

/** Ask the server for the mask of the marks; while it works, the newest marks wait. */
async function segment() {
  if (assist.working) {
    assist.again = true;
    return;
  }
  assist.working = true;
  changed();
  const { frame, object } = assist;
  try {
    const body = JSON.stringify({ box: assist.box, inside: assist.inside, outside: assist.outside });
    const headers = { "Content-Type": "application/json" };
    const answer = await request(`/api/assist/${frame}`, { method: "POST", body, headers });
    const [x0, y0, x1, y1] = (answer.headers.get("x-region") ?? "").split(",").map(Number);
    const { ids } = await decodeIds(await answer.arrayBuffer());
    const base = assist.base;
    if (!base || frame !== store.index || object !== assist.object) return;
    const mask = beginEdit();
    if (!mask) return;
    mask.ids.set(base.ids);
    putRegion(mask, { x0: x0 ?? 0, y0: y0 ?? 0, x1: x1 ?? 0, y1: y1 ?? 0 }, ids, object);
    repaint();
    commitEdit(object);
  } catch (error) {
    if (error && typeof error === "object" && "problem" in error) {
      editorEvents.problem(/** @type {import("./api.js").Refused} */ (error).problem);
    }
    clearMarks();
  } finally {
    assist.working = false;
    changed();
  }
  if (assist.again) {
    assist.again = false;
    await segment();
  }
}

/** @param {CanvasRenderingContext2D} context @param {ToScreen} toScreen */
function drawMarks(context, toScreen) {
  const box = assist.start && pointer ? [assist.start.x, assist.start.y, pointer.x, pointer.y] : assist.box;
  if (fresh() && !assist.start) return;
  if (box) {
    const a = toScreen({ x: box[0] ?? 0, y: box[1] ?? 0 });
    const b = toScreen({ x: box[2] ?? 0, y: box[3] ?? 0 });
    context.setLineDash([6, 4]);
    context.lineWidth = 2;
    context.strokeStyle = "black";
    context.strokeRect(a.x + 1, a.y + 1, b.x - a.x, b.y - a.y);
    context.strokeStyle = "white";
    context.strokeRect(a.x, a.y, b.x - a.x, b.y - a.y);
    context.setLineDash([]);
  }
  const drawn = assist.stroke ? { ...assist, [assist.side]: [...assist[assist.side], assist.stroke] } : assist;
  for (const [strokes, colour] of /** @type {[Stroke[], string][]} */ ([
    [drawn.inside, "#35e07a"], [drawn.outside, "#ff5a5a"],
  ])) {
    context.lineCap = context.lineJoin = "round";
    for (const one of strokes) {
      context.beginPath();
      one.points.forEach(([x, y], i) => {
        const at = toScreen({ x, y });
        if (i) context.lineTo(at.x, at.y);
        else context.moveTo(at.x, at.y);
      });
      const first = one.points[0];
      if (one.points.length === 1 && first) {
        const at = toScreen({ x: first[0], y: first[1] });
        context.lineTo(at.x + 0.1, at.y);
      }
      context.lineWidth = Math.max(3, one.width_px * zoomScale()) + 2;
      context.strokeStyle = "rgba(0,0,0,0.6)";
      context.stroke();
      context.lineWidth -= 2;
      context.strokeStyle = colour;
      context.stroke();
    }
  }
}

/** @type {import("./types.js").Tool} */
export const ASSIST = {
  title: "Assist", key: "a", kinds: ["masks", "parts"],
  hint: "Drag a box around the object, then stroke what is missing. Shift: stroke what is too much.",
  down: assistDown, move: assistMove, up: assistUp, draw: drawMarks,
  cancel() {
    clearMarks();
    cancelEdit();
  },
};
