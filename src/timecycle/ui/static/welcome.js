/** The first page: what is being opened, why it cannot be opened, or what there is to choose from. */

import { getJson, Refused, sendJson } from "./api.js";
import { byId, make, toast } from "./dom.js";
import { take } from "./editor.js";
import { store } from "./store.js";

const ABOUT = { folder: "folder", images: "folder of images", run: "run: review and correct it", video: "video" };
let shown = "";

/** @param {string} [path] */
export async function drawWelcome(path = "") {
  const server = store.server;
  const box = byId("browser");
  const key = JSON.stringify([server?.problem, server?.canBrowse, path]);
  if (!server || key === shown) return;
  shown = key;
  if (server.problem) {
    box.replaceChildren(make("h2", {}, "This cannot be opened"), make("p", { className: "bad" }, server.problem.problem),
      make("p", {}, `Try: ${server.problem.remedy}.`));
  } else if (server.canBrowse) await browse(path);
  else box.replaceChildren(make("h2", {}, "Opening…"), make("p", {}, "The frames of the video are counted."));
}

/** @param {string} path */
async function browse(path) {
  const list = await getJson(`/api/browse?path=${encodeURIComponent(path)}`);
  const rows = list.entries.map((/** @type {{ name: string, path: string, kind: keyof typeof ABOUT }} */ one) =>
    make("li", {}, make(
      "button",
      { type: "button", onclick: () => void (one.kind === "folder" ? drawWelcome(one.path) : open(one.path)) },
      one.name, make("span", { className: "soft" }, ` ${ABOUT[one.kind]}`),
    )));
  byId("browser").replaceChildren(
    make("h2", {}, list.path ? `Videos in ${list.path}` : "Choose a video or a run"),
    make("p", { className: "soft" }, "Annotate a video, or continue with a run: what you did before is kept beside it."),
    list.parent !== null ? make("p", {}, make("button", { type: "button", onclick: () => void drawWelcome(list.parent) }, "Up")) : "",
    rows.length ? make("ul", { className: "list" }, ...rows) : make("p", {}, "There are no videos here."),
  );
}

/** @param {string} path */
async function open(path) {
  byId("browser").replaceChildren(make("h2", {}, `Opening ${path}…`));
  try {
    take(await sendJson("/api/open", { path }));
  } catch (error) {
    if (!(error instanceof Refused)) throw error;
    toast("", error.problem);
    shown = "";
    await drawWelcome();
  }
}
