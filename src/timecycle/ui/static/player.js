/** Moving through the video: steps, jumps and playing at a speed, forwards and backwards. */

import { leaveFrame } from "./editor.js";
import { frameAt, want } from "./frames.js";
import { shownLabels } from "./labels.js";
import { project, set, store } from "./store.js";

let began = 0; // when playing began, in milliseconds
let from = 0; // and at which frame

/** @param {number} index */
export function goTo(index) {
  const open = project();
  if (!open || !Number.isFinite(index)) return;
  const last = open.video.frames - 1;
  const chosen = Math.min(last, Math.max(0, Math.round(index)));
  if (chosen !== store.index) set({ index: chosen });
  leaveFrame();
  askFor();
}

/** @param {number} frames */
export function step(frames) {
  pause();
  goTo(store.index + frames);
}

/** Ask for the frame that is shown, and those that come next. */
export function askFor() {
  const open = project();
  if (!open) return;
  const direction = Math.sign(store.playing) || 1;
  const next = [1, 2, 3, 4].map((ahead) => store.index + direction * ahead);
  const others = store.playing ? next : next.slice(0, 1);
  want(store.index, others.filter((index) => index >= 0 && index < open.video.frames));
}

/** @param {number} speed  1: real time, -1: backwards, 0: stop */
export function play(speed) {
  const last = (project()?.video.frames ?? 1) - 1;
  if (speed > 0 && store.index === last) goTo(0);
  set({ playing: speed });
  began = performance.now();
  from = store.index;
  if (speed) requestAnimationFrame(tick);
}

export function pause() {
  if (store.playing) set({ playing: 0 });
}

/** J, K, L: slower and backwards, stop, faster and forwards. @param {number} direction */
export function shuttle(direction) {
  if (!direction) return pause();
  const speed = store.playing * direction > 0 ? Math.min(8, Math.abs(store.playing) * 2) : 1;
  return play(direction * speed);
}

/** Show the frame of now; a frame that is not there yet is waited for, and time with it. */
function tick() {
  const open = project();
  if (!store.playing || !open) return;
  const now = performance.now();
  const due = from + Math.trunc(((now - began) / 1000) * open.video.fps * store.playing);
  const index = Math.min(open.video.frames - 1, Math.max(0, due));
  if (index !== store.index) {
    if (frameAt(store.index) && shownLabels(store.index)) goTo(index);
    else {
      askFor();
      [began, from] = [now, store.index];
    }
  }
  if (store.index === (store.playing > 0 ? open.video.frames - 1 : 0)) pause();
  else requestAnimationFrame(tick);
}
