/** The tools that draw: each answers the pointer. Positions are pixels of the video. */

import { ASSIST } from "./assist.js";
import { beginEdit, cancelEdit, commitEdit, savePoints } from "./editor.js";
import { shownLabels } from "./labels.js";
import { drawLine, fillPolygon, floodFill } from "./masks.js";
import { currentObject, project, set, store } from "./store.js";
import { draw, drawSoon, pointName, repaint, zoomScale } from "./view.js";

/** @typedef {import("./types.js").Position} Position */
/** @typedef {import("./types.js").Tool} Tool */

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
  assist: ASSIST,
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
