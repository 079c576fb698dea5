/** The tools that draw: each answers the pointer. Positions are pixels of the video. */

import { request } from "./api.js";
import { beginEdit, cancelEdit, commitEdit, currentMask, editorEvents, savePoints } from "./editor.js";
import { shownLabels } from "./labels.js";
import { drawLine, fillPolygon, floodFill, Mask, putRegion } from "./masks.js";
import { decodeIds } from "./png.js";
import { changed, currentObject, project, set, store } from "./store.js";
import { draw, drawSoon, pointName, repaint, zoomScale } from "./view.js";

/** @typedef {import("./types.js").Position} Position */
/** @typedef {(at: Position) => Position} ToScreen */
/**
 * @typedef {{ title: string, key: string, hint: string, kinds: string[],
 *   down?: (at: Position, event: PointerEvent) => void, move?: (at: Position, event: PointerEvent) => void,
 *   up?: (at: Position, event: PointerEvent) => void, double?: () => void, cancel?: () => void, confirm?: () => void,
 *   draw?: (context: CanvasRenderingContext2D, toScreen: ToScreen) => void }} Tool
 */

/** @type {Position | null} */
let last = null;
/** @type {Position | null} */
let pointer = null;

// Brush and eraser

/** @param {boolean} erases @returns {Partial<Tool>} */
function stroke(erases) {
  /** @param {Position} from @param {Position} to */
  const paint = (from, to) => {
    const [mask, object] = [beginEdit(), currentObject()];
    if (!mask || !object) return;
    drawSoon(drawLine(mask, from, to, store.brushPx / 2, erases ? 0 : object.id, erases ? object.id : null));
  };
  return {
    down(at) {
      last = at;
      paint(at, at);
    },
    move(at) {
      pointer = at;
      if (last) {
        paint(last, at);
        last = at;
      } else drawSoon(null);
    },
    up() {
      if (last) commitEdit(currentObject()?.id ?? 1);
      last = null;
    },
    cancel() {
      last = null;
      cancelEdit();
      repaint();
    },
    draw(context, toScreen) {
      if (!pointer) return;
      const at = toScreen(pointer);
      context.lineWidth = 1.5;
      for (const [style, more] of /** @type {[string, number][]} */ ([["black", 1], ["white", 0]])) {
        context.strokeStyle = style;
        context.beginPath();
        context.arc(at.x, at.y, (store.brushPx / 2) * zoomScale() + more, 0, 7);
        context.stroke();
      }
    },
  };
}

// The assisted tool

/** @typedef {{ points: [number, number][], width_px: number }} Stroke */
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
    assist.stroke = { points: [[at.x, at.y]], width_px: Math.max(3, 8 / zoomScale()) };
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
      assist.inside.push({ points: [[at.x, at.y]], width_px: Math.max(5, 12 / zoomScale()) });
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

// Polygon

/** @type {Position[]} */
let corners = [];

function closePolygon() {
  const [mask, object] = [beginEdit(), currentObject()];
  if (mask && object && corners.length >= 3) {
    draw(fillPolygon(mask, corners, object.id));
    commitEdit(object.id);
  }
  corners = [];
  draw(null);
}

// Points

/** @type {string | null} */
let held = null;

/** @param {Position} at @returns {string | null} */
function pointAt(at) {
  const points = shownLabels(store.index)?.points ?? {};
  const near = Object.entries(points)
    .filter(([, [x, y]]) => x !== null && y !== null)
    .map(([name, [x, y]]) => ({ name, distance: Math.hypot((x ?? 0) - at.x, (y ?? 0) - at.y) * zoomScale() }))
    .sort((a, b) => a.distance - b.distance)[0];
  return near && near.distance < 14 ? near.name : null;
}

/** @param {string} name @param {Position} at @param {boolean} [visible] */
function placePoint(name, at, visible = true) {
  const own = project()?.frames[store.index]?.points ?? {};
  const round = (/** @type {number} */ value) => Math.round(value * 100) / 100;
  savePoints(store.index, { ...own, [name]: [round(at.x), round(at.y), visible] });
}

/** Say whether the chosen point can be seen on this frame. */
export function togglePointVisible() {
  const object = currentObject();
  const point = object && shownLabels(store.index)?.points?.[pointName(object)];
  if (object && point && point[0] !== null && point[1] !== null) {
    placePoint(pointName(object), { x: point[0], y: point[1] }, !point[2]);
  }
}

/** Choose the next point that is not placed yet, so that clicks place one after the other. */
function advance() {
  const placed = project()?.frames[store.index]?.points ?? {};
  const next = project()?.objects.find((one) => !(pointName(one) in placed));
  if (next) set({ objectId: next.id });
}

// All tools

const PAINTED = ["masks", "parts"]; // kinds that are painted: an id at every pixel

/** @type {Record<string, Tool>} */
export const TOOLS = {
  assist: {
    title: "Assist", key: "a", kinds: PAINTED,
    hint: "Drag a box around the object, then stroke what is missing. Shift: stroke what is too much.",
    down: assistDown, move: assistMove, up: assistUp, draw: drawMarks,
    cancel() {
      clearMarks();
      cancelEdit();
    },
  },
  brush: {
    title: "Brush", key: "b", kinds: PAINTED, ...stroke(false),
    hint: "Paint the object. [ and ] change the size.",
  },
  eraser: {
    title: "Eraser", key: "e", kinds: PAINTED, ...stroke(true),
    hint: "Erase the chosen object. [ and ] change the size.",
  },
  polygon: {
    title: "Polygon", key: "p", kinds: PAINTED,
    hint: "Click the corners; Enter or a double click closes, Esc gives up.",
    down(at) {
      corners.push(at);
      draw(null);
    },
    move(at) {
      pointer = at;
      if (corners.length) drawSoon(null);
    },
    double() {
      corners.pop(); // the second click of a double click
      closePolygon();
    },
    confirm: closePolygon,
    cancel() {
      corners = [];
      draw(null);
    },
    draw(context, toScreen) {
      if (!corners.length) return;
      context.beginPath();
      [...corners, ...(pointer ? [pointer] : [])].forEach((corner, i) => {
        const at = toScreen(corner);
        if (i) context.lineTo(at.x, at.y);
        else context.moveTo(at.x, at.y);
      });
      context.lineWidth = 2;
      context.strokeStyle = "white";
      context.stroke();
    },
  },
  fill: {
    title: "Fill", key: "f", kinds: PAINTED,
    hint: "Click into a closed outline to fill it.",
    down(at) {
      const [mask, object] = [beginEdit(), currentObject()];
      if (!mask || !object) return;
      const rect = floodFill(mask, at, object.id);
      if (!rect) return;
      draw(rect);
      commitEdit(object.id);
    },
  },
  point: {
    title: "Point", key: "d", kinds: ["keypoints"],
    hint: "Click to place the chosen point, drag to move one. H: hidden or visible.",
    down(at) {
      held = pointAt(at);
      const object = project()?.objects.find((one) => pointName(one) === held);
      if (object) set({ objectId: object.id });
    },
    move(at) {
      pointer = at;
    },
    up(at) {
      const object = currentObject();
      if (object) placePoint(held ?? pointName(object), at);
      if (!held) advance();
      held = null;
    },
    cancel() {
      held = null;
    },
  },
  pan: {
    title: "Move view", key: "m", kinds: [...PAINTED, "keypoints"],
    hint: "Drag to move the picture; the wheel zooms. With any tool: hold Space.",
  },
};

/** Whether a mask with this object is shown. @param {number} id */
export function isOnFrame(id) {
  return currentMask()?.has(id) ?? false;
}
