// Requests to the HTTP API, in the session of this browser. A path is made of parts, each of which may be any text.

import { signal } from "./html.js";

/** Who is logged in: {name, tags}; null: nobody; undefined: not known yet. */
export const user = signal(undefined);

export class ApiError extends Error {
  constructor(status, reason, method, path) {
    super(reason);
    this.status = status;
    this.method = method;
    this.path = path;
  }
}

// A browser takes "." and ".." out of a path, however they are written, and an empty part at its end does not count.
// The octet FF before them, which no text has, keeps them (admin/http/paths.py).
const LOST = new Set(["", ".", ".."]);

/** The path of an endpoint: path("queues", vhost, name). */
export function path(...parts) {
  return "/api/" + parts.map((part) => (LOST.has(part) ? "%FF" : "") + encodeURIComponent(part)).join("/");
}

export function query(parameters) {
  const given = Object.entries(parameters).filter(([, value]) => value !== undefined && value !== null && value !== "");
  return given.length ? "?" + new URLSearchParams(given) : "";
}

/** The answer's JSON, or null without any. Throws ApiError, also when no server answers (status 0). */
export async function request(method, where, body, { headers = {}, signal: abort } = {}) {
  const answer = await send(method, where, body, headers, abort);
  const text = await answer.text();
  return text && (answer.headers.get("content-type") || "").startsWith("application/json") ? JSON.parse(text) : null;
}

export async function send(method, where, body, headers = {}, abort = undefined) {
  const sent = { "x-harebell-console": "1", ...headers };
  if (body !== undefined && typeof body !== "string") sent["content-type"] = "application/json";
  let answer;
  try {
    answer = await fetch(where, {
      method, headers: sent, credentials: "same-origin", cache: "no-store", signal: abort,
      body: body === undefined ? undefined : typeof body === "string" ? body : JSON.stringify(body),
    });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ApiError(0, "The broker does not answer. The console tries again by itself.", method, where);
  }
  if (answer.ok) return answer;
  throw await failure(answer, method, where);
}

async function failure(answer, method, where) {
  const text = await answer.text();
  let reason = text;
  try {
    reason = JSON.parse(text).reason || text;
  } catch { /* no JSON: the text itself */ }
  // 401 without a text: no session (any more). With one it may be a missing permission, which ends nothing.
  if (answer.status === 401 && !text) user.value = null;
  return new ApiError(answer.status, reason || `${answer.status} ${answer.statusText}`, method, where);
}

export const get = (where, options) => request("GET", where, undefined, options);

/** What is there, or null when it is not (or may not be seen). */
export async function getOrNull(where) {
  try {
    return await get(where);
  } catch (error) {
    if (error instanceof ApiError && [401, 403, 404].includes(error.status)) return null;
    throw error;
  }
}

export async function whoami() {
  try {
    user.value = await get("/api/whoami");
  } catch (error) {
    if (error.status === 401) user.value = null;
    else throw error;
  }
}

export async function login(username, password) {
  user.value = await request("POST", "/api/login", { username, password });
}

export async function logout() {
  await request("POST", "/api/logout", "");
  user.value = null;
}

const TAGS = {
  administrator: ["administrator"],
  monitoring: ["monitoring", "administrator"],
  policymaker: ["policymaker", "administrator"],
  management: ["management", "policymaker", "monitoring", "administrator"],
};

/** Whether the user has a tag, or one that includes it. */
export function has(tag) {
  return Boolean(user.value && user.value.tags.some((each) => TAGS[tag].includes(each)));
}
