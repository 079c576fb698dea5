/** What to do next: one card with one obvious action, and below it the details of the step. */

import { sendJson } from "./api.js";
import { byId, duration, fill, make, toast } from "./dom.js";
import { take } from "./editor.js";
import { goTo, pause } from "./player.js";
import { fetchRun, jobRuns, startJob } from "./run.js";
import { frameNumber, project, set, store } from "./store.js";
import { pointName } from "./view.js";

/** @typedef {import("./types.js").Suggestion} Suggestion */

const STEPS = /** @type {const} */ ([
  ["annotate", "1 Annotate"], ["propagate", "2 Propagate"], ["review", "3 Review"], ["export", "4 Export"],
]);

/** The frames that the person annotated. */
function annotated() {
  return Object.keys(project()?.frames ?? {}).length;
}

/** Whether the run has frames that wait to be applied as corrections. */
export function pendingCorrections() {
  return store.run.status === "finished" ? (project()?.pending ?? []) : [];
}

export function drawSteps() {
  const done = {
    annotate: annotated() > 0 || store.run.status !== "none",
    propagate: store.run.status === "finished",
    review: store.run.status === "finished" && store.run.queue?.length === 0,
    export: false,
  };
  fill(byId("steps"), JSON.stringify([done, store.step]), () =>
    STEPS.map(([name, title]) =>
      make("li", {},
        make(
          "button",
          {
            type: "button", "data-name": name, className: done[name] ? "done" : "",
            ...(store.step === name ? { "aria-current": "step" } : {}), onclick: () => set({ step: name }),
          },
          title,
        ))));
}

/** The suggestion to look at next: the first that is not corrected, and not the frame that is shown. */
export function nextSuggestion() {
  const queue = store.run.queue ?? [];
  const pending = pendingCorrections();
  const open = queue.filter((one) => !pending.includes(one.index));
  return open.find((one) => one.index !== store.index) ?? open[0] ?? null;
}

/** Go to the next frame to check. */
export function goToNext() {
  const next = nextSuggestion();
  if (!next) return toast("No frame needs a look");
  pause();
  set({ step: "review", objectId: objectOf(next) ?? store.objectId });
  goTo(next.index);
  return undefined;
}

/** @param {Suggestion} suggestion */
function objectOf(suggestion) {
  const open = project();
  return open?.objects.find((one) =>
    open.kind === "keypoints" ? pointName(one) === suggestion.object : String(one.id) === suggestion.object)?.id;
}

/** Do what the card proposes. */
export function doNext() {
  byId("next").querySelector(/** @type {"button"} */ ("button.primary"))?.click();
}

/** @param {string} title @param {() => void} act */
function primary(title, act) {
  return make("button", { type: "button", className: "primary", "data-name": "primary", onclick: act }, title);
}

/** @param {string} name @param {string} title @param {() => void} act */
function secondary(name, title, act) {
  return make("button", { type: "button", "data-name": name, onclick: act }, title);
}

/** @returns {(Node | string | null | false)[]} */
function card() {
  const job = store.server?.job;
  if (job && jobRuns()) return runningCard();
  if (job?.status === "failed" && job.error) {
    const resume = store.run.status === "running";
    return [
      title("That did not work"), make("p", { className: "bad" }, job.error.problem),
      make("p", {}, `Try: ${job.error.remedy}.`),
      resume ? primary("Resume", () => void startJob("propagate", { resume: true })) : againCard(job.verb),
    ];
  }
  if (store.run.status === "running") return pausedCard();
  if (pendingCorrections().length) return correctionCard();
  if (store.run.status === "finished" && store.step !== "annotate") return reviewCard();
  if (store.run.status === "finished") return moreAnnotationCard();
  return annotated() ? propagateCard() : firstCard();
}

/** @param {string} text */
function title(text) {
  return make("h2", { id: "next-title" }, text);
}

/** @param {string} verb */
function againCard(verb) {
  if (verb === "propagate" && store.run.status === "none") return propagateButton("Propagate again");
  return primary("Continue", () => {
    if (store.server) store.server.job.status = "idle";
    set({});
  });
}

function firstCard() {
  const points = project()?.kind === "keypoints";
  return [
    title("Mark your object"),
    make("p", {}, points
      ? "Name your points in the list below, then click each of them on the picture."
      : "Choose a frame on which the object is whole. Drag a box around it on the picture."),
    make("p", { className: "soft" }, points
      ? "One annotated frame is enough to begin."
      : "Refine with + Inside and − Outside strokes, or with the brush. One frame is enough to begin."),
  ];
}

/** @param {string} text */
function propagateButton(text) {
  const overwrite = store.run.status !== "none";
  return primary(text, () => {
    set({ step: "propagate" });
    void startJob("propagate", { preset: store.preset, direction: store.direction, overwrite });
  });
}

function settings() {
  /** @param {string} label @param {"preset" | "direction"} name @param {Record<string, string>} choices */
  const choice = (label, name, choices) => {
    const select = make("select", { "data-name": name, id: `choose-${name}` });
    select.append(...Object.entries(choices).map(([value, about]) =>
      make("option", { value, selected: store[name] === value }, name === "preset" ? `${value}: ${about}` : about)));
    select.addEventListener("change", () => set({ [name]: select.value }));
    return make("label", { for: `choose-${name}` }, label, select);
  };
  return make("div", {},
    choice("Preset", "preset", store.server?.presets ?? {}),
    choice("Direction", "direction", store.server?.directions ?? {}));
}

function propagateCard() {
  const frames = annotated();
  return [
    title("Propagate through the video"),
    make("p", {}, `${frames} annotated frame${frames === 1 ? "" : "s"}. The rest of the video follows from ${
      frames === 1 ? "it" : "them"}.`),
    settings(), propagateButton("Propagate"),
    make("p", { className: "soft" }, "You can annotate other frames first, and correct results later."),
  ];
}

function runningCard() {
  const job = store.server?.job;
  if (!job) return [];
  const text = { propagate: "Propagating", correct: "Correcting", undo: "Undoing", audit: "Auditing",
    export: "Exporting", check: "Ranking frames to check" }[job.verb] ?? job.verb;
  const eta = job.etaSeconds === null ? "" : `, about ${duration(job.etaSeconds)} left`;
  const bar = make("progress", { "aria-label": text });
  if (job.total) [bar.max, bar.value] = [job.total, job.done];
  return [
    title(job.status === "stopping" ? "Stopping" : text), bar,
    make("p", {}, job.total ? `${job.done} of ${job.total} steps${eta}` : "Starting"),
    job.verb === "propagate" && make("p", { className: "soft" },
      "Finished frames are shown as they come. You can keep annotating."),
    make("div", { className: "row" },
      job.verb === "propagate" && secondary("pause", "Pause", () => void stop("pause")),
      secondary("cancel", "Cancel", () => void stop("cancel"))),
  ];
}

/** @param {"pause" | "cancel"} how */
async function stop(how) {
  take(await sendJson(`/api/jobs/${how}`));
  await fetchRun();
}

function pausedCard() {
  return [
    title("Paused"),
    make("p", {}, `${store.run.frames} of ${project()?.video.frames ?? 0} frames are done. Resuming gives the same result.`),
    primary("Resume", () => void startJob("propagate", { resume: true })),
    make("div", { className: "row" }, secondary("cancel", "Discard", () => void stop("cancel"))),
  ];
}

function correctionCard() {
  const frames = pendingCorrections();
  const listed = frames.slice(0, 6).map(frameNumber).join(", ");
  return [
    title(`Apply your correction${frames.length === 1 ? "" : "s"}`),
    make("p", {}, `Frame${frames.length === 1 ? "" : "s"} ${listed}${frames.length > 6 ? ", …" : ""}: only the frames ` +
      "between the annotated ones around are computed again."),
    primary(`Apply ${frames.length} corrected frame${frames.length === 1 ? "" : "s"}`, () => void startJob("correct")),
    make("p", { className: "soft" }, "Or correct more frames first: together they are computed once."),
  ];
}

function reviewCard() {
  const queue = store.run.queue;
  if (queue === null) {
    return [title("Which frames to check?"), primary("Rank the frames", () => void startJob("check"))];
  }
  const here = queue.find((one) => one.index === store.index);
  if (here && store.step !== "export") {
    return [
      title(`Check frame ${here.frame_number}`), make("p", {}, reason(here)),
      make("p", {}, "If it is wrong, correct it here with the tools. If it is right, continue."),
      primary("Next frame to check", goToNext),
    ];
  }
  const next = nextSuggestion();
  if (next && store.step !== "export") {
    return [
      title("Review the result"), make("p", {}, `Look at frame ${next.frame_number} first: ${reason(next)}`),
      primary(`Go to frame ${next.frame_number}`, goToNext),
    ];
  }
  return [
    title(store.step === "export" ? "Export the result" : "Looks good"),
    make("p", {}, store.step === "export" ? "The labels are on disk already; download them in the format you need."
      : "No frame needs a look. Export the result."),
    store.step === "export" ? primary("Download the labels", () => void startJob("export", { format: plainFormat() }))
      : primary("Export", () => set({ step: "export" })),
  ];
}

/** The format of the labels on disk: the first that is listed. */
function plainFormat() {
  return (store.run.formats.find((one) => one.group === "labels") ?? { name: "labels" }).name;
}

/** @param {Suggestion} one */
function reason(one) {
  return `${one.name}: ${one.reason}.`;
}

function moreAnnotationCard() {
  return [
    title("Everything is propagated"),
    make("p", {}, "Draw on any frame to correct it, or start over from the frames that you annotated."),
    primary("Review the result", () => set({ step: "review" })),
    make("details", {}, make("summary", {}, "Start over"), settings(),
      annotated() > 0 && secondary("over", "Propagate again from scratch", () =>
        void startJob("propagate", { preset: store.preset, direction: store.direction, overwrite: true }))),
  ];
}

export function drawNext() {
  const job = store.server?.job;
  const key = JSON.stringify([job, store.run.status, store.run.version, store.run.frames, store.run.queue, store.step,
    annotated(), pendingCorrections(), store.index, store.preset, store.direction, project()?.kind]);
  fill(byId("next"), key, card);
}
