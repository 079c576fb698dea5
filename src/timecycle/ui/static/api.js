/** Requests to the server. An answer that is no success becomes an error that says what is wrong and what to do. */

/** @typedef {import("./types.js").Problem} Problem */

export class Refused extends Error {
  /**
   * @param {Problem} problem
   * @param {number} status
   */
  constructor(problem, status) {
    super(`${problem.problem}; ${problem.remedy}`);
    this.problem = problem;
    this.status = status;
  }
}

/**
 * @param {string} path
 * @param {RequestInit} [options]
 */
export async function request(path, options = {}) {
  let answer;
  try {
    answer = await fetch(path, { ...options, headers: { "X-Timecycle": "1", ...options.headers } });
  } catch (error) {
    if (error instanceof DOMException && error.name === "AbortError") throw error;
    const remedy = "start `timecycle ui` again and open the address it prints; nothing that was saved is lost";
    throw new Refused({ problem: "the server does not answer", remedy }, 0);
  }
  if (answer.ok) return answer;
  /** @type {Problem} */
  let problem = { problem: `the server answered ${answer.status}`, remedy: "reload the page" };
  try {
    problem = (await answer.json()).error ?? problem;
  } catch {
    // not JSON: what was said above
  }
  throw new Refused(problem, answer.status);
}

/** @param {string} path */
export async function getJson(path) {
  return (await request(path)).json();
}

/**
 * @param {string} path
 * @param {unknown} [content]
 * @param {Record<string, string>} [headers]
 * @param {string} [method]
 */
export async function sendJson(path, content = {}, headers = {}, method = "POST") {
  const body = JSON.stringify(content);
  return (await request(path, { method, body, headers: { "Content-Type": "application/json", ...headers } })).json();
}
