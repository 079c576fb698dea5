/** The page: fetch what there is, and draw everything again whenever something changes. */

import { assistWorks, clearMarks } from "./assist.js";
import { byId, fill, icon, make, toast } from "./dom.js";
import { editorEvents, refresh, removeAnnotation, replay } from "./editor.js";
import { frameAt, frameEvents } from "./frames.js";
import { runHas, shownLabels } from "./labels.js";
import { drawObjects, drawOptions, drawTools } from "./panel.js";
import { askFor, goTo, play, step } from "./player.js";
import { installPointer } from "./pointer.js";
import { fetchRun, listen, runEvents, settled } from "./run.js";
import { installShortcuts } from "./shortcuts.js";
import { download, drawSection } from "./sections.js";
import { drawNext, drawSteps, goToNext } from "./steps.js";
import { changed, frameNumber, project, set, store, subscribe } from "./store.js";
import { drawTimeline } from "./timeline.js";
import { TOOLS } from "./tools.js";
import { draw, setToolDrawing } from "./view.js";
import { drawWelcome } from "./welcome.js";

let opened = ""; // the project that is shown

function drawAll() {
  const open = project();
  byId("work").hidden = !open;
  byId("welcome").hidden = Boolean(open);
  for (const name of ["undo", "redo", "help"]) byId(name).hidden = !open;
  if (!open) {
    void drawWelcome();
    return;
  }
  if (opened !== open.key) begin(open.key);
  if (!open.objects.some((one) => one.id === store.objectId)) set({ objectId: open.objects[0]?.id ?? 1 });
  byId("video-name").textContent = open.video.name;
  byId("video-name").title = open.folder;
  document.title = `${open.video.name} – timecycle`;
  byId("saved").textContent = store.connected ? (store.saving ? "Saving…" : "Saved") : "Not connected";
  /** @type {HTMLButtonElement} */ (byId("undo")).disabled = !open.canUndo;
  /** @type {HTMLButtonElement} */ (byId("redo")).disabled = !open.canRedo;
  drawSteps();
  drawTools();
  drawOptions();
  drawObjects();
  drawNext();
  drawSection();
  drawTransport();
  drawTimeline();
  drawBadge();
  setToolDrawing(TOOLS[store.tool]?.draw ?? null);
  byId("canvas").className = store.tool === "pan" ? "moves" : "draws";
  draw();
}

/** Show another project from its start. @param {string} key */
function begin(key) {
  opened = key;
  const annotated = Object.keys(project()?.frames ?? {}).map(Number);
  const saved = sessionStorage.getItem("timecycle-index");
  set({ index: saved ? Number(saved) : (annotated[0] ?? 0), objectId: project()?.objects[0]?.id ?? 1 });
  goTo(store.index);
  void fetchRun().then(() => {
    if (store.run.status === "finished") set({ step: "review" });
    else if (store.run.status === "running") set({ step: "propagate" });
  });
}

/** What is shown of the frame: who made its labels, and how far to trust them. */
function drawBadge() {
  const open = project();
  if (!open) return;
  const confidence = store.run.confidence[store.index];
  const parts = [`Frame ${frameNumber(store.index)}`];
  if (store.before) parts.push("before the correction");
  else if (open.pending.includes(store.index) && store.run.status !== "none") parts.push("corrected, not applied yet");
  else if (open.frames[store.index] || store.run.source[store.index] === "annotated") parts.push("annotated");
  else if (runHas(store.index)) parts.push(store.run.source[store.index] ?? "propagated");
  else parts.push("no labels");
  if (typeof confidence === "number" && runHas(store.index) && !store.before) {
    parts.push(`confidence ${confidence.toFixed(2)}`);
  }
  byId("badge").textContent = parts.join(" · ");
  byId("remove-annotation").hidden = store.before || !open.frames[store.index];
  byId("waiting").textContent = !frameAt(store.index) ? "Reading the frame…"
    : !shownLabels(store.index) ? "Reading the labels…"
    : assistWorks() ? "Finding the outline…" : "";
}

/** Remove what the person annotated on this frame; a run keeps what it has been given. */
function removeHere() {
  const isApplied = runHas(store.index) && !project()?.pending.includes(store.index);
  clearMarks();
  void removeAnnotation(store.index);
  byId("canvas").focus(); // the button is hidden now
  if (isApplied) toast("Removed for the next propagation; the result that is shown keeps it");
}

function drawTransport() {
  const open = project();
  if (!open) return;
  const { fps, frames } = open.video;
  fill(byId("transport"), `${open.key}:${store.playing !== 0}:${store.run.queue?.length ?? 0}`, () => {
    const button = (/** @type {string} */ name, /** @type {string} */ path, /** @type {string} */ about, /** @type {() => void} */ act) =>
      make("button", { type: "button", title: about, "aria-label": about, "data-name": name, onclick: act }, icon(path));
    const input = make("input", { type: "number", id: "frame-number", "aria-label": "Frame", "data-name": "frame-number" });
    input.addEventListener("change", () => goTo(indexOf(Number(input.value))));
    const speed = make("select", { "aria-label": "Speed", "data-name": "speed" });
    speed.append(...[0.25, 0.5, 1, 2, 4].map((one) => make("option", { value: String(one), selected: one === 1 }, `${one}×`)));
    speed.addEventListener("change", () => store.playing && play(Number(speed.value)));
    return [
      button("first", "M6 5v14M18 6l-9 6 9 6z", "First frame", () => goTo(0)),
      button("back", "M16 6l-9 6 9 6z", "Previous frame", () => step(-1)),
      button("play", store.playing ? "M8 5v14M16 5v14" : "M7 4l13 8-13 8z", store.playing ? "Stop" : "Play",
        () => play(store.playing ? 0 : Number(speed.value))),
      button("forward", "M8 6l9 6-9 6z", "Next frame", () => step(1)),
      button("last", "M18 5v14M6 6l9 6-9 6z", "Last frame", () => goTo(frames - 1)),
      input, make("span", { className: "soft", id: "time" }), speed,
      make("span", { className: "soft spread" }, "◆ annotated ▼ to check"),
      make("button", { type: "button", "data-name": "next-check", disabled: !store.run.queue?.length,
        title: "N", onclick: goToNext }, "Next to check"),
    ];
  });
  const input = /** @type {HTMLInputElement} */ (byId("frame-number"));
  if (document.activeElement !== input) input.value = String(frameNumber(store.index));
  byId("time").textContent = `of ${frameNumber(frames - 1)} · ${(store.index / fps).toFixed(2)} s`;
}

/** @param {number} number */
function indexOf(number) {
  const numbers = project()?.video.numbers;
  return numbers ? Math.max(0, numbers.indexOf(number)) : number;
}

frameEvents.loaded = () => changed();
frameEvents.failed = (error) => toast("", "problem" in error ? /** @type {any} */ (error).problem : { problem: error.message, remedy: "try again" });
editorEvents.problem = (problem) => toast("", problem);
editorEvents.note = (text) => toast(text);
runEvents.connected = (connected) => set({ connected });
runEvents.opened = () => void refresh();
runEvents.finished = (job) => {
  if (job.status === "done" && job.verb === "export" && job.result) void download(job.result["file"]);
  if (job.status === "done" && job.verb === "propagate") {
    toast(`All ${job.result?.["frames"]} frames are labelled`);
    set({ step: "review" });
  }
  if (job.status === "done" && job.verb === "correct") {
    const changedFrames = (job.result?.["intervals"] ?? []).flatMap((/** @type {any} */ one) => one.changed);
    toast(`${changedFrames.length} frame${changedFrames.length === 1 ? "" : "s"} changed`);
  }
  if (job.status === "done" && job.verb === "undo") set({ before: false });
  for (const note of job.notes) toast(note);
};

byId("undo").addEventListener("click", () => void replay("undo"));
byId("redo").addEventListener("click", () => void replay("redo"));
byId("remove-annotation").addEventListener("click", removeHere);
window.addEventListener("resize", changed);
window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", changed);
window.addEventListener("beforeunload", (event) => {
  sessionStorage.setItem("timecycle-index", String(store.index));
  if (store.saving) event.preventDefault();
});
subscribe(drawAll);
installPointer();
installShortcuts();
await refresh();
listen();
askFor();

// For tests and for people who are curious: the state as it is.
const busy = () => store.saving > 0 || assistWorks();
Object.assign(window, { timecycle: { store, project, busy, settled } });
