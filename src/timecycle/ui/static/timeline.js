/** The timeline: a row for each object with its confidence and state, annotated frames, suggestions and findings. */

import { request } from "./api.js";
import { byId, fill, make } from "./dom.js";
import { goTo, pause } from "./player.js";
import { cssColour, displayName, frameNumber, project, store } from "./store.js";
import { pointName } from "./view.js";

const rows = byId("rows");
const canvas = /** @type {HTMLCanvasElement} */ (byId("rows-canvas"));
const context = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
const ROW_PX = 22;
const HEAD_PX = 16; // of the row with annotated frames, suggestions and findings

let stripKey = "";
let stripRun = 0;

/** Draw the timeline. */
export function drawTimeline() {
  const open = project();
  if (!open) return;
  const last = open.video.frames - 1;
  rows.setAttribute("aria-valuemax", String(last));
  rows.setAttribute("aria-valuenow", String(store.index));
  rows.setAttribute("aria-valuetext", spoken());
  fill(byId("row-names"), JSON.stringify(open.objects), () => [
    make("li", { className: "soft", style: `height: ${HEAD_PX}px; line-height: ${HEAD_PX}px` }, "frames"),
    ...open.objects.map((one) => {
      const swatch = make("span", { className: "swatch" });
      swatch.style.background = cssColour(one.id);
      return make("li", {}, swatch, displayName(one));
    }),
  ]);
  const ratio = window.devicePixelRatio || 1;
  const height = HEAD_PX + ROW_PX * open.objects.length;
  const [width, wanted] = [Math.round(canvas.clientWidth * ratio), Math.round(height * ratio)];
  canvas.style.height = `${height}px`;
  if (canvas.width !== width || canvas.height !== wanted) [canvas.width, canvas.height] = [width, wanted];
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  drawRows(width / ratio, height);
  void loadStrip();
}

/** @param {number} width @param {number} height */
function drawRows(width, height) {
  const open = project();
  if (!open) return;
  const style = getComputedStyle(document.documentElement);
  const ink = (/** @type {string} */ name) => style.getPropertyValue(name);
  const frames = open.video.frames;
  const x = (/** @type {number} */ index) => (index / frames) * width;
  context.clearRect(0, 0, width, height);
  open.objects.forEach((one, row) => {
    const top = HEAD_PX + row * ROW_PX;
    context.fillStyle = ink("--chart");
    context.fillRect(0, top + 2, width, ROW_PX - 4);
    const track = store.run.objects[open.kind === "keypoints" ? pointName(one) : String(one.id)];
    if (track) drawTrack(track, x, width, top, cssColour(one.id), ink);
  });
  drawMarks(x, width, ink);
  context.fillStyle = ink("--ink");
  const at = x(store.index + 0.5);
  context.fillRect(at - 1, 0, 2, height);
  context.beginPath();
  context.arc(at, 5, 5, 0, 7);
  context.fill();
}

/**
 * Draw one column for each pixel: as high as the lowest confidence of its frames; what is uncertain or lost is marked
 * at the bottom, so that it shows without colours too.
 * @param {import("./types.js").Track} track
 * @param {(index: number) => number} x
 * @param {number} width
 * @param {number} top
 * @param {string} colour
 * @param {(name: string) => string} ink
 */
function drawTrack(track, x, width, top, colour, ink) {
  const frames = project()?.video.frames ?? 1;
  const full = ROW_PX - 4;
  const step = Math.max(1, Math.floor(frames / Math.max(1, width)));
  for (let index = 0; index < track.confidence.length; index += step) {
    let [lowest, state] = [1, ""];
    let known = false;
    for (let i = index; i < Math.min(index + step, track.confidence.length); i++) {
      const confidence = track.confidence[i] ?? null;
      if (confidence === null) continue;
      known = true;
      if (confidence <= lowest) [lowest, state] = [confidence, track.state[i] ?? ""];
    }
    if (!known) continue;
    const left = Math.round(x(index));
    const right = Math.max(Math.round(x(index + step)), left + 1);
    const high = Math.max(2, full * lowest);
    context.fillStyle = colour;
    context.globalAlpha = state === "annotated" ? 1 : 0.75;
    context.fillRect(left, top + 2 + full - high, right - left, high);
    context.globalAlpha = 1;
    if (state === "uncertain" || state === "lost") {
      context.fillStyle = ink(state === "lost" ? "--bad" : "--warn");
      context.fillRect(left, top + full, right - left, 3);
    }
  }
}

/** @param {(index: number) => number} x @param {number} width @param {(name: string) => string} ink */
function drawMarks(x, width, ink) {
  const open = project();
  if (!open) return;
  for (const finding of store.run.audit ?? []) {
    context.fillStyle = ink("--bad");
    context.fillRect(x(finding.first), 12, Math.max(3, x(finding.last + 1) - x(finding.first)), 3);
  }
  for (const suggestion of store.run.queue ?? []) {
    const at = x(suggestion.index + 0.5);
    context.fillStyle = ink("--warn");
    context.beginPath();
    context.moveTo(at - 5, 2);
    context.lineTo(at + 5, 2);
    context.lineTo(at, 12);
    context.fill();
  }
  const annotated = new Set([
    ...Object.keys(open.frames).map(Number),
    ...store.run.source.flatMap((source, index) => (source === "annotated" ? [index] : [])),
  ]);
  for (const index of annotated) {
    const at = x(index + 0.5);
    const isPending = store.run.status !== "none" && open.pending.includes(index);
    context.beginPath();
    context.moveTo(at, 2);
    context.lineTo(at + 5, 7);
    context.lineTo(at, 12);
    context.lineTo(at - 5, 7);
    context.closePath();
    context.lineWidth = 2;
    context.strokeStyle = context.fillStyle = ink("--action");
    if (isPending) context.stroke();
    else context.fill();
  }
  if (store.run.status === "running") {
    context.fillStyle = ink("--soft");
    context.fillRect(0, 14, Math.min(width, x(store.run.frames)), 2);
  }
}

/** What a screen reader says of the frame. */
function spoken() {
  const open = project();
  const parts = [`frame ${frameNumber(store.index)} of ${open?.video.frames ?? 0}`];
  if (open?.frames[store.index] || store.run.source[store.index] === "annotated") parts.push("annotated");
  const confidence = store.run.confidence[store.index];
  if (typeof confidence === "number") parts.push(`confidence ${Math.round(100 * confidence)} percent`);
  const suggestion = store.run.queue?.find((one) => one.index === store.index);
  if (suggestion) parts.push(`suggested: ${suggestion.reason}`);
  return parts.join(", ");
}

/** Load the thumbnails, one after the other, while nothing else is asked for. */
async function loadStrip() {
  const open = project();
  const strip = byId("strip");
  const count = Math.max(1, Math.min(open?.video.frames ?? 1, Math.floor(strip.clientWidth / 72)));
  const key = `${open?.key}:${count}`;
  if (!open || key === stripKey) return;
  stripKey = key;
  const run = ++stripRun;
  const places = Array.from({ length: count }, () => make("span"));
  strip.replaceChildren(...places);
  for (const [i, place] of places.entries()) {
    const index = Math.round(((i + 0.5) / count) * open.video.frames - 0.5);
    try {
      const answer = await request(`/api/thumbnails/${open.key}/${index}`);
      if (run !== stripRun) return;
      const url = URL.createObjectURL(await answer.blob());
      place.replaceWith(make("img", { src: url, alt: "", onload: () => URL.revokeObjectURL(url) }));
    } catch {
      return; // a strip without pictures still works
    }
  }
}

/** @param {PointerEvent} event */
function scrub(event) {
  const box = canvas.getBoundingClientRect();
  const open = project();
  if (!open) return;
  pause();
  goTo(Math.floor(((event.clientX - box.left) / box.width) * open.video.frames));
}

for (const area of [canvas, byId("strip")]) {
  area.addEventListener("pointerdown", (event) => {
    area.setPointerCapture(event.pointerId);
    scrub(event);
  });
  area.addEventListener("pointermove", (event) => {
    if (area.hasPointerCapture(event.pointerId)) scrub(event);
  });
}
