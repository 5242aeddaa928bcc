// Where the console is: the part of the address after "#". A place is parts and parameters: #/queues/%2F/orders?tab=get
// What is typed into a filter replaces the address, so that it can be copied, and Back leads to the view before.

import { signal } from "./html.js";

export const place = signal(read());

function read() {
  const [parts, parameters] = location.hash.replace(/^#\/?/, "").split("?");
  return {
    parts: parts.split("/").filter(Boolean).map(decode),
    parameters: new URLSearchParams(parameters || ""),
  };
}

function decode(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part; // typed by hand
  }
}

/** The address of a place: link("queues", vhost, name). An empty part is written as "~", which no object's name is. */
export function link(...parts) {
  const last = parts[parts.length - 1];
  const parameters = last && typeof last === "object" ? parts.pop() : {};
  const given = Object.entries(parameters).filter(([, value]) => value !== "" && value !== undefined && value !== null);
  return "#/" + parts.map((part) => encodeURIComponent(part)).join("/") + (given.length ? "?" + new URLSearchParams(given) : "");
}

export function go(address) {
  location.hash = address;
}

/** A parameter of the address. */
export function parameter(name, otherwise = "") {
  return place.value.parameters.get(name) ?? otherwise;
}

/** Set parameters; "" removes one. */
export function setParameters(values) {
  const parameters = new URLSearchParams(place.value.parameters);
  for (const [name, value] of Object.entries(values)) {
    if (value === "" || value === null || value === undefined) parameters.delete(name);
    else parameters.set(name, value);
  }
  const text = parameters.toString();
  history.replaceState(null, "", location.hash.split("?")[0] + (text ? "?" + text : ""));
  place.value = read();
}

addEventListener("hashchange", () => {
  place.value = read();
});
