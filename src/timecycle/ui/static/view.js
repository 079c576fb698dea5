/** The picture: frame, labels and what a tool draws, with zoom and pan. */

import { currentMask } from "./editor.js";
import { frameAt } from "./frames.js";
import { shownLabels } from "./labels.js";
import { union } from "./masks.js";
import { colourOf, cssColour, project, store } from "./store.js";

/** @typedef {import("./types.js").Position} Position */
/** @typedef {import("./types.js").Rect} Rect */
/** @typedef {import("./masks.js").Mask} Mask */

const canvas = /** @type {HTMLCanvasElement} */ (document.getElementById("canvas"));
const context = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d", { alpha: false }));
const layer = document.createElement("canvas");
const layerContext = /** @type {CanvasRenderingContext2D} */ (layer.getContext("2d", { willReadFrequently: true }));

const view = { scale: 1, x: 0, y: 0, fitted: true };
let painted = ""; // what the layer shows
/** @type {Mask | null} */
let paintedMask = null;

/** @type {((context: CanvasRenderingContext2D, toScreen: (at: Position) => Position) => void) | null} */
let drawTool = null;

/** @param {typeof drawTool} draw */
export function setToolDrawing(draw) {
  drawTool = draw;
}

/** How many screen pixels a pixel of the video has. */
export function zoomScale() {
  return view.scale;
}

/** Show the whole frame. */
export function fit() {
  view.fitted = true;
  draw();
}

function fitNow() {
  const open = project();
  if (!open) return;
  const { width_px: width, height_px: height } = open.video;
  view.scale = Math.min(canvas.width / width, canvas.height / height) * 0.98;
  view.x = (canvas.width - width * view.scale) / 2;
  view.y = (canvas.height - height * view.scale) / 2;
}

/** @param {number} factor @param {Position} [around]  in screen pixels */
export function zoom(factor, around = { x: canvas.width / 2, y: canvas.height / 2 }) {
  const scale = Math.min(40, Math.max(0.05, view.scale * factor));
  view.x = around.x - ((around.x - view.x) * scale) / view.scale;
  view.y = around.y - ((around.y - view.y) * scale) / view.scale;
  view.scale = scale;
  view.fitted = false;
  draw();
}

/** @param {number} dx @param {number} dy */
export function pan(dx, dy) {
  view.x += dx;
  view.y += dy;
  view.fitted = false;
  draw();
}

/** The position in the video, with pixel centres at whole numbers. @param {PointerEvent | WheelEvent | MouseEvent} event */
export function toVideo(event) {
  const at = toCanvas(event);
  return { x: (at.x - view.x) / view.scale - 0.5, y: (at.y - view.y) / view.scale - 0.5 };
}

/** @param {PointerEvent | WheelEvent | MouseEvent} event */
export function toCanvas(event) {
  const box = canvas.getBoundingClientRect();
  const ratio = canvas.width / box.width;
  return { x: (event.clientX - box.left) * ratio, y: (event.clientY - box.top) * ratio };
}

/** @param {Position} at */
function toScreen(at) {
  return { x: view.x + (at.x + 0.5) * view.scale, y: view.y + (at.y + 0.5) * view.scale };
}

/** @type {Rect | null} */
let waiting = null; // the part of the mask that has changed since the last drawing
let scheduled = false;

/** Draw at the next animation frame, once for all that has changed by then. @param {Rect | null} changed */
export function drawSoon(changed) {
  waiting = union(waiting, changed);
  if (scheduled) return;
  scheduled = true;
  requestAnimationFrame(() => {
    scheduled = false;
    draw(waiting);
  });
}

/** Draw everything. @param {Rect | null} [changed]  the part of the mask that has changed; all of it if left out */
export function draw(changed) {
  const open = project();
  changed = union(waiting, changed ?? null);
  waiting = null;
  resize();
  context.fillStyle = getComputedStyle(canvas).backgroundColor;
  context.fillRect(0, 0, canvas.width, canvas.height);
  if (!open) return;
  if (view.fitted) fitNow();
  const { width_px: width, height_px: height } = open.video;
  context.imageSmoothingEnabled = view.scale < 3;
  context.setTransform(view.scale, 0, 0, view.scale, view.x, view.y);
  const picture = frameAt(store.index);
  if (picture) context.drawImage(picture, 0, 0, width, height);
  canvas.dataset["shown"] = picture ? String(store.index) : "";
  const mask = store.showLabels ? currentMask() : null;
  if (mask) {
    paint(mask, changed);
    context.imageSmoothingEnabled = false;
    context.drawImage(layer, 0, 0);
  }
  canvas.dataset["labels"] = mask || open.kind === "keypoints" ? String(store.index) : "";
  context.setTransform(1, 0, 0, 1, 0, 0);
  if (open.kind === "keypoints" && store.showLabels) drawPoints();
  drawTool?.(context, toScreen);
}

function resize() {
  const ratio = window.devicePixelRatio || 1;
  const [width, height] = [Math.round(canvas.clientWidth * ratio), Math.round(canvas.clientHeight * ratio)];
  if (canvas.width !== width || canvas.height !== height) [canvas.width, canvas.height] = [width, height];
}

/** Paint a mask, or a part of it, on the layer. @param {Mask} mask @param {Rect | null} changed */
function paint(mask, changed) {
  const key = `${store.opacity}:${[...store.hidden].join()}:${store.server?.colours.length}`;
  if (layer.width !== mask.width || layer.height !== mask.height) {
    [layer.width, layer.height] = [mask.width, mask.height];
    painted = "";
  }
  if (!changed && painted === key && paintedMask === mask) return;
  const whole = painted !== key || paintedMask !== mask || !changed;
  const rect = whole
    ? { x0: 0, y0: 0, x1: mask.width, y1: mask.height }
    : {
        x0: Math.max(0, changed.x0 - 1), y0: Math.max(0, changed.y0 - 1),
        x1: Math.min(mask.width, changed.x1 + 1), y1: Math.min(mask.height, changed.y1 + 1),
      };
  [painted, paintedMask] = [key, mask];
  layerContext.putImageData(tinted(mask, rect), rect.x0, rect.y0);
}

/** A mask was changed in place: paint all of it at the next drawing. */
export function repaint() {
  painted = "";
}

/** Colours of a part of a mask: objects tinted, their outlines opaque. @param {Mask} mask @param {Rect} rect */
function tinted(mask, rect) {
  const { width, height, ids } = mask;
  const [columns, rows] = [rect.x1 - rect.x0, rect.y1 - rect.y0];
  const image = layerContext.createImageData(columns, rows);
  const pixels = new Uint32Array(image.data.buffer);
  const alpha = Math.round(store.opacity * 255);
  /** @type {Map<number, [number, number]>} */
  const table = new Map();
  for (let y = rect.y0; y < rect.y1; y++) {
    for (let x = rect.x0; x < rect.x1; x++) {
      const at = y * width + x;
      const id = ids[at] ?? 0;
      if (!id || store.hidden.has(id)) continue;
      let colour = table.get(id);
      if (!colour) {
        const [red, green, blue] = colourOf(id);
        const base = (blue << 16) | (green << 8) | red;
        const light = (Math.min(255, blue + 70) << 16) | (Math.min(255, green + 70) << 8) | Math.min(255, red + 70);
        colour = [((alpha << 24) | base) >>> 0, ((255 << 24) | light) >>> 0];
        table.set(id, colour);
      }
      const edge =
        (x > 0 && ids[at - 1] !== id) || (x + 1 < width && ids[at + 1] !== id) ||
        (y > 0 && ids[at - width] !== id) || (y + 1 < height && ids[at + width] !== id);
      pixels[(y - rect.y0) * columns + x - rect.x0] = colour[edge ? 1 : 0];
    }
  }
  return image;
}

function drawPoints() {
  const open = project();
  const points = shownLabels(store.index)?.points;
  if (!open || !points) return;
  context.lineWidth = 2;
  for (const [one, other] of open.skeleton) {
    const [a, b] = [points[one], points[other]];
    if (!a || !b || a[0] === null || a[1] === null || b[0] === null || b[1] === null) continue;
    const [from, to] = [toScreen({ x: a[0], y: a[1] }), toScreen({ x: b[0], y: b[1] })];
    context.strokeStyle = "rgba(255,255,255,0.8)";
    context.beginPath();
    context.moveTo(from.x, from.y);
    context.lineTo(to.x, to.y);
    context.stroke();
  }
  for (const one of open.objects) {
    const point = points[pointName(one)];
    if (!point || point[0] === null || point[1] === null || store.hidden.has(one.id)) continue;
    const at = toScreen({ x: point[0], y: point[1] });
    context.beginPath();
    context.arc(at.x, at.y, one.id === store.objectId ? 8 : 6, 0, 7);
    context.fillStyle = point[2] ? cssColour(one.id) : "transparent";
    context.strokeStyle = point[2] ? "white" : cssColour(one.id);
    context.fill();
    context.stroke();
    context.font = "12px system-ui";
    context.lineWidth = 3;
    context.strokeStyle = "rgba(0,0,0,0.7)";
    context.strokeText(pointName(one), at.x + 10, at.y + 4);
    context.fillStyle = "white";
    context.fillText(pointName(one), at.x + 10, at.y + 4);
    context.lineWidth = 2;
  }
}

/** The name of a point in files. @param {import("./types.js").Labelled} one */
export function pointName(one) {
  return one.name || `point ${one.id}`;
}
