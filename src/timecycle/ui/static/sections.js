/** The details of a step: the review queue and the audit, and the formats of an export. */

import { request } from "./api.js";
import { byId, fill, make, toast } from "./dom.js";
import { goTo, pause } from "./player.js";
import { jobRuns, startJob } from "./run.js";
import { project, set, store } from "./store.js";

/** @typedef {import("./types.js").Format} Format */

export function drawSection() {
  const key = JSON.stringify([store.step, store.run.version, store.run.status, store.run.queue, store.run.audit,
    store.run.corrections, store.before, store.run.formats, jobRuns(), store.index]);
  fill(byId("section"), key, () => {
    if (store.step === "review" && store.run.status === "finished") return reviewSection();
    if (store.step === "export" && store.run.status === "finished") return exportSection();
    if (store.step === "annotate") return [];
    const missing = store.step === "propagate" ? "" : "There is nothing to show yet: propagate first.";
    return missing ? [make("p", { className: "soft" }, missing)] : [];
  });
}

function reviewSection() {
  const [queue, findings] = [store.run.queue ?? [], store.run.audit];
  return [
    store.run.corrections > 0 && make("div", { className: "row" },
      make(
        "button",
        {
          type: "button", "data-name": "before", "aria-pressed": store.before,
          title: "Labels before and after the last correction (X)", onclick: () => set({ before: !store.before }),
        },
        store.before ? "Showing: before" : "Showing: after",
      ),
      make("button", { type: "button", "data-name": "undo-correction", disabled: jobRuns(),
        onclick: () => void startJob("undo") }, "Undo the correction")),
    make("h3", {}, `Frames to check (${queue.length})`),
    make("ol", { className: "list findings" }, ...queue.map((one) =>
      make("li", {}, frameButton(one.index, `Frame ${one.frame_number}`, `${one.name}: ${one.reason}`)))),
    make("h3", {}, "Audit"),
    findings === null
      ? make("button", { type: "button", "data-name": "audit", disabled: jobRuns(),
        onclick: () => void startJob("audit") }, "Look for swaps, jumps and drift")
      : make("ul", { className: "list findings" },
        ...(findings.length ? findings.map((one) => make("li", {}, frameButton(one.first, one.kind, one.message)))
          : ["Nothing was found."])),
  ];
}

/** @param {number} index @param {string} name @param {string} about */
function frameButton(index, name, about) {
  return make(
    "button",
    {
      type: "button", "data-name": `frame-${index}-${name}`, ...(index === store.index ? { "aria-current": "true" } : {}),
      onclick: () => {
        pause();
        goTo(index);
      },
    },
    name, make("span", { className: "soft" }, about),
  );
}

function exportSection() {
  /** @param {"files" | "labels"} group */
  const offered = (group) => make("ul", { className: "list findings whole" },
    ...store.run.formats.filter((one) => one.group === group).map(exportItem));
  return [
    make("h3", {}, "Results"), offered("files"),
    store.run.formats.some((one) => one.group === "labels") && make("h3", {}, "Labels for other tools"),
    offered("labels"),
    make("p", { className: "soft" }, `On disk: ${project()?.folder ?? ""}`),
  ];
}

/** A file to download; where a package is missing, the command that installs it instead. @param {Format} one */
function exportItem(one) {
  const about = one.group === "labels" ? `Cannot hold: ${one.about}` : one.about;
  return make("li", { className: "offer" },
    make(
      "button",
      {
        type: "button", "data-name": `export-${one.name}`, disabled: jobRuns() || one.install !== null,
        onclick: () => void startJob("export", { format: one.name }),
      },
      `${one.title} (${one.suffix.slice(1)})`, make("span", { className: "soft" }, about),
    ),
    one.install !== null && make("p", { className: "soft" }, "Needs: ", make("code", {}, one.install)));
}

/** Give the browser a file that was exported. @param {string} name */
export async function download(name) {
  const answer = await request(`/api/exports/${encodeURIComponent(name)}`, { method: "HEAD" }).catch(() => null);
  if (!answer) return toast("The export is gone: export it again");
  make("a", { href: `/api/exports/${encodeURIComponent(name)}`, download: name }).click();
  toast(`Exported ${name}`);
  return undefined;
}
