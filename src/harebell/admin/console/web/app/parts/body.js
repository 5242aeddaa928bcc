// A message's body, decoded: JSON, MessagePack, text or hexadecimal. The one that fits is found by itself; each of the
// others says why it does not.

import { html, useMemo, useState } from "../core/html.js";
import { decode as decodeMessagePack } from "../core/msgpack.js";
import { download } from "../core/text.js";
import { Copy } from "./small.js";

const LINE = 16, MOST_LINES = 512; // of the hexadecimal view

/** The bytes of a message as the API gives it. */
export function bytesOf({ payload, payload_encoding: encoding }) {
  if (encoding === "base64") return Uint8Array.from(atob(payload), (each) => each.charCodeAt(0));
  return new TextEncoder().encode(payload);
}

function asText(bytes) {
  return new TextDecoder("utf-8", { fatal: true }).decode(bytes);
}

function hex(bytes) {
  const lines = [];
  for (let at = 0; at < bytes.length && lines.length < MOST_LINES; at += LINE) {
    const part = [...bytes.slice(at, at + LINE)];
    const codes = part.map((each) => each.toString(16).padStart(2, "0")).join(" ").padEnd(LINE * 3 - 1);
    lines.push(`${at.toString(16).padStart(6, "0")}  ${codes}  ${part.map((each) => (each > 31 && each < 127 ? String.fromCharCode(each) : ".")).join("")}`);
  }
  if (bytes.length > LINE * MOST_LINES) lines.push(`… ${bytes.length - LINE * MOST_LINES} more bytes`);
  return lines.join("\n");
}

export const DECODERS = {
  JSON: (bytes) => JSON.stringify(JSON.parse(asText(bytes)), null, 2),
  MessagePack: (bytes) => JSON.stringify(decodeMessagePack(bytes), null, 2),
  Text: (bytes) => asText(bytes),
  Hex: hex,
};

/** The body in each form: {name: {text}} or {name: {error}}, and the name of the one that fits. */
export function decoded(bytes, type = "") {
  const forms = {};
  for (const [name, decode] of Object.entries(DECODERS)) {
    try {
      forms[name] = { text: decode(bytes) };
    } catch (error) {
      forms[name] = { error: error.message };
    }
  }
  const said = /json/i.test(type) ? "JSON" : /msgpack/i.test(type) ? "MessagePack" : "";
  const looksLikeJson = forms.JSON.text !== undefined && /^\s*[[{"]/.test(forms.Text.text || "");
  const best = said && forms[said].text !== undefined ? said : looksLikeJson ? "JSON" : forms.Text.text !== undefined ? "Text" : forms.MessagePack.text !== undefined ? "MessagePack" : "Hex";
  return { forms, best };
}

export function Body({ message }) {
  const bytes = useMemo(() => bytesOf(message), [message]);
  const type = message.properties && message.properties.content_type;
  const { forms, best } = useMemo(() => decoded(bytes, type), [message]);
  const [chosen, choose] = useState(null);
  const form = forms[chosen || best], cut = message.payload_bytes > bytes.length;
  if (!message.payload_bytes) return html`<p class="soft">It is empty.</p>`;
  return html`<div class="gap" role="group" aria-label="Form of the body">${Object.keys(forms).map((name) => html`
      <button class="small" aria-pressed=${name === (chosen || best)} title=${forms[name].error || ""} onClick=${() => choose(name)}>${name}</button>`)}
      ${form.text !== undefined && html`<${Copy} text=${form.text} />`}
      <button class="small" onClick=${() => download("body.bin", new Blob([bytes]))}>Download</button></div>
    ${cut && html`<p class="soft">The first ${bytes.length} bytes of ${message.payload_bytes}.</p>`}
    ${form.error !== undefined ? html`<p class="bad">It is no ${chosen || best}: ${form.error}</p>` : html`<pre class="body-text">${form.text}</pre>`}`;
}
