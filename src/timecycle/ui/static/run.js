/** The run: its tables, which grow while it is propagated, and the jobs that change it. */

import { getJson, Refused, sendJson } from "./api.js";
import { editorEvents, heardOf, refresh, take } from "./editor.js";
import { changed, NO_RUN, project, set, store } from "./store.js";

/** @typedef {import("./types.js").Run} Run */
/** @typedef {import("./types.js").Job} Job */

let fetching = false;
let again = false;
let live = false; // whether the rows of `store.run` belong to the propagation that runs now
let ending = 0; // jobs that have ended, whose results are being fetched

/** @type {{ finished: (job: Job) => void, connected: (is: boolean) => void, opened: () => void }} */
export const runEvents = { finished: () => {}, connected: () => {}, opened: () => {} };

export function jobRuns() {
  const status = store.server?.job.status;
  return status === "running" || status === "stopping";
}

/** Whether the page knows what the last job has made. */
export function settled() {
  return !jobRuns() && !ending && !fetching;
}

/** Fetch the run, or while it grows only the rows that are new. */
export async function fetchRun() {
  if (!project()) return;
  if (fetching) {
    again = true;
    return;
  }
  fetching = true;
  try {
    do {
      again = false;
      const grows = live && store.run.status === "running";
      const since = grows ? store.run.frames : 0;
      /** @type {Run} */
      const run = { ...NO_RUN, ...(await getJson(`/api/run?since=${since}`)) };
      set({ run: since && run.status === "running" ? joined(store.run, run, since) : run });
      live = run.status === "running";
      if (live && since === 0) changed();
    } while (again);
  } finally {
    fetching = false;
  }
}

/** @param {Run} old @param {Run} more @param {number} since @returns {Run} */
function joined(old, more, since) {
  if (more.frames < since) return more;
  /** @type {Run["objects"]} */
  const objects = {};
  for (const [name, track] of Object.entries(more.objects)) {
    const before = old.objects[name];
    const blank = Array.from({ length: since }, () => null);
    objects[name] = {
      confidence: [...(before?.confidence ?? blank), ...track.confidence],
      state: [...(before?.state ?? blank), ...track.state],
    };
  }
  const source = [...old.source, ...more.source];
  return { ...more, source, confidence: [...old.confidence, ...more.confidence], objects };
}

/**
 * Start a job.
 * @param {string} verb
 * @param {Record<string, unknown>} [options]
 */
export async function startJob(verb, options = {}) {
  try {
    if (verb === "propagate" && !options["resume"]) {
      live = false;
      set({ run: NO_RUN });
    }
    take(await sendJson(`/api/jobs/${verb}`, options));
  } catch (error) {
    if (!(error instanceof Refused)) throw error;
    editorEvents.problem(error.problem);
    await fetchRun();
  }
}

/** Listen to what the server tells, and connect again when it comes back. */
export function listen() {
  const events = new EventSource("/api/events");
  events.onopen = () => {
    runEvents.connected(true);
    void refresh().then(fetchRun, () => {});
  };
  events.onerror = () => runEvents.connected(false);
  events.onmessage = (message) => {
    const told = JSON.parse(message.data);
    if (told.kind === "annotations") heardOf(told.revision);
    else if (told.kind === "job") hearJob(told.job);
    else if (told.kind === "opened") runEvents.opened();
  };
}

/** @param {Job} job */
function hearJob(job) {
  const was = jobRuns();
  if (store.server) store.server.job = job;
  changed();
  if (job.verb === "propagate" && job.status === "running" && job.done) void fetchRun();
  if (was && !jobRuns()) {
    live = false;
    ending += 1;
    void Promise.all([refresh(), fetchRun()]).then(() => runEvents.finished(job)).finally(() => { ending -= 1; });
  }
}
