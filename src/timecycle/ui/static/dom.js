/** Small helpers to build elements. Text is always set as text, so that a name is never taken for HTML. */

/**
 * Make an element.
 * @template {keyof HTMLElementTagNameMap} Tag
 * @param {Tag} tag
 * @param {Record<string, any>} [properties]  `on...` are listeners, `aria-...` and `data-...` attributes
 * @param {...(Node | string | null | false)} children
 * @returns {HTMLElementTagNameMap[Tag]}
 */
export function make(tag, properties = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name.includes("-") || name === "role" || name === "for") element.setAttribute(name, String(value));
    else Object.assign(element, { [name]: value });
  }
  element.append(...children.filter((child) => child !== null && child !== false));
  return element;
}

/** The element with an id, which the page has. @param {string} id @returns {HTMLElement} */
export function byId(id) {
  const element = document.getElementById(id);
  if (!element) throw new Error(`the page lacks #${id}`);
  return element;
}

/**
 * Replace the children of an element, but only if what they show has changed: focus and typing survive.
 * @param {HTMLElement} element
 * @param {string} key  changes with what is shown
 * @param {() => (Node | string | null | false)[]} build
 */
export function fill(element, key, build) {
  if (element.dataset["key"] === key) return;
  const focused = document.activeElement instanceof HTMLElement && element.contains(document.activeElement)
    ? document.activeElement.dataset["name"] : undefined;
  element.dataset["key"] = key;
  element.replaceChildren(...build().filter((child) => child !== null && child !== false));
  if (focused) element.querySelector(/** @type {"button"} */ (`[data-name="${CSS.escape(focused)}"]`))?.focus();
}

/** A picture of one line, which takes the colour of the text. @param {string} path */
export function icon(path) {
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  svg.setAttribute("viewBox", "0 0 24 24");
  svg.setAttribute("aria-hidden", "true");
  const line = document.createElementNS("http://www.w3.org/2000/svg", "path");
  for (const [name, value] of Object.entries({
    d: path, fill: "none", stroke: "currentColor", "stroke-width": "1.8", "stroke-linecap": "round",
    "stroke-linejoin": "round",
  })) line.setAttribute(name, value);
  svg.append(line);
  return svg;
}

/** @param {string} text @param {import("./types.js").Problem | null} [problem] */
export function toast(text, problem = null) {
  const box = byId("toasts");
  const element = make("div", { className: problem ? "toast problem" : "toast" });
  if (problem) element.append(make("strong", {}, sentence(problem.problem)), " ", sentence(problem.remedy));
  else element.append(text);
  element.append(make("button", { type: "button", onclick: () => element.remove() }, "OK"));
  box.append(element);
  while (box.children.length > 3) box.firstElementChild?.remove();
  setTimeout(() => element.remove(), problem ? 20000 : 5000);
}

/** @param {string} text */
function sentence(text) {
  return text ? `${text[0]?.toUpperCase()}${text.slice(1)}.` : "";
}

/** @param {number} seconds */
export function duration(seconds) {
  if (seconds < 90) return `${Math.max(1, Math.round(seconds))} s`;
  const minutes = Math.round(seconds / 60);
  return minutes < 90 ? `${minutes} min` : `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
}
