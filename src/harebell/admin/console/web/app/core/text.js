// What a click does, as text: a request of HTTP, and a command of rabbitmqadmin, to copy, to keep, or to send to
// somebody who may do it. Passwords are left out.

import { user } from "./api.js";

const HIDDEN = "(the password)";

/** A word for a POSIX shell. */
export function quoted(text) {
  return /^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", `'\\''`)}'`;
}

function withoutSecrets(value) {
  if (Array.isArray(value)) return value.map(withoutSecrets);
  if (value && typeof value === "object") {
    return Object.fromEntries(Object.entries(value).map(([name, each]) => (
      [name, ["password", "password_hash"].includes(name) && each ? HIDDEN : withoutSecrets(each)])));
  }
  return value;
}

/** A request {method, path, body} as lines of HTTP. */
export function http({ method, path, body }) {
  const lines = [`${method} ${path}`];
  if (body !== undefined) lines.push("content-type: application/json", "", JSON.stringify(withoutSecrets(body), null, 1));
  return lines.join("\n");
}

export function curl({ method, path, body }) {
  const words = ["curl", "-u", quoted(user.value ? user.value.name : "USER")];
  if (method !== "GET") words.push("-X", method);
  if (body !== undefined) {
    words.push("-H", quoted("content-type: application/json"), "-d", quoted(JSON.stringify(withoutSecrets(body))));
  }
  return [...words, quoted(location.origin + path)].join(" ");
}

/** A command of rabbitmqadmin: command("declare queue", {name: "orders", durable: true}, "/"). */
export function command(what, options = {}, vhost = null) {
  const { hostname, port, protocol } = location;
  const words = ["rabbitmqadmin", "-H", quoted(hostname), "-P", port || (protocol === "https:" ? "443" : "80")];
  if (protocol === "https:") words.push("-s");
  words.push("-u", quoted(user.value ? user.value.name : "USER"));
  if (vhost !== null) words.push("-V", quoted(vhost));
  words.push(...what.split(" "));
  for (const [name, value] of Object.entries(options)) {
    if (value === undefined || value === null || value === "") continue;
    const shown = name === "password" ? HIDDEN : typeof value === "string" ? value : JSON.stringify(value);
    words.push(quoted(`${name}=${shown}`));
  }
  return words.join(" ");
}

export async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    return false; // no secure context, or not allowed: the text can be selected
  }
}

/** Offer a file for download. */
export function download(name, content, type = "application/json") {
  const blob = content instanceof Blob ? content : new Blob([content], { type });
  const address = URL.createObjectURL(blob);
  const anchor = Object.assign(document.createElement("a"), { href: address, download: name });
  document.body.append(anchor);
  anchor.click();
  anchor.remove();
  setTimeout(() => URL.revokeObjectURL(address), 60000);
}
