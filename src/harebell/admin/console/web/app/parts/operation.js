// Operations: whatever changes something on the broker. Each is asked for in a dialog that says what will happen, counts
// it exactly where something is lost, and shows the same as text.
//
// An operation: {title, about, verb, danger, fields, values, prepare, plan, done}
//   prepare  gives, before anything happens, what there is to say (a text or a template), or throws
//   plan     of the fields' values: {requests: [{method, path, body, headers}], commands: [text], done}; may throw an Error
//   done     called with the answers at the end

import { html, signal, useEffect, useMemo, useRef, useState } from "../core/html.js";
import { request } from "../core/api.js";
import { curl, http } from "../core/text.js";
import { Fields } from "./form.js";
import { Copy, say } from "./small.js";

const AT_A_TIME = 4; // requests of one operation
const SHOWN = 20; // requests shown as text

const asked = signal(null);

/** Ask for an operation. */
export function ask(operation) {
  asked.value = { ...operation, id: Symbol("operation") };
}

export function Operations() {
  const operation = asked.value;
  return operation && html`<${Dialog} key=${operation.id} operation=${operation} close=${() => { asked.value = null; }} />`;
}

export function Modal({ label, close, children, kind = "" }) {
  const dialog = useRef(null), leave = useRef(close);
  leave.current = close;
  useEffect(() => {
    const before = document.activeElement, element = dialog.current;
    const closed = () => leave.current(); // the browser may close it by itself
    element.addEventListener("close", closed);
    element.showModal();
    return () => {
      element.removeEventListener("close", closed);
      element.close(); // what is behind an open one takes no focus
      if (before instanceof HTMLElement && before.isConnected) before.focus();
    };
  }, []);
  return html`<dialog class=${kind} ref=${dialog} aria-label=${label} onCancel=${(event) => { event.preventDefault(); close(); }}
    onClick=${(event) => { if (event.target === dialog.current && kind === "palette") close(); }}>${children}</dialog>`;
}

function Dialog({ operation, close }) {
  const { title, about, verb = "Do it", danger, fields = [], prepare } = operation;
  const [values, set] = useState(operation.values || {});
  const [prepared, setPrepared] = useState(prepare ? undefined : null);
  const [problem, setProblem] = useState("");
  const [progress, setProgress] = useState(null);
  const alive = useRef(true);
  useEffect(() => {
    if (prepare) {
      prepare(values).then((text) => alive.current && setPrepared(text), (error) => {
        if (alive.current) { setPrepared(null); setProblem(error.message); }
      });
    }
    return () => { alive.current = false; };
  }, []);
  const plan = useMemo(() => {
    try {
      return { ...operation.plan(values), error: "" };
    } catch (error) {
      return { requests: [], commands: [], error: error.message };
    }
  }, [values]);

  const run = async (event) => {
    event.preventDefault();
    if (plan.error) return setProblem(plan.error);
    setProblem("");
    const { answers, errors } = await perform(plan.requests, (count) => alive.current && setProgress(count));
    if (errors.length) {
      if (alive.current) {
        setProgress(null);
        const some = plan.requests.length > 1 ? `${errors.length} of ${plan.requests.length} failed. ` : "";
        setProblem(some + [...new Set(errors.map((error) => error.message))].slice(0, 5).join("; "));
      }
      if (operation.changed) operation.changed();
      return;
    }
    close();
    if (operation.changed) operation.changed();
    if (operation.done) operation.done(answers, values);
    else say(plan.done || `${title}: done`);
  };
  const busy = progress !== null;
  return html`<${Modal} label=${title} close=${() => !busy && close()}>
    <form onSubmit=${run}>
      <h2>${title}</h2>
      ${about && html`<p>${about}</p>`}
      ${prepare && html`<p role="status">${prepared === undefined ? "Counting…" : prepared}</p>`}
      <${Fields} ...${{ fields, values, set }} />
      ${operation.more && operation.more(values, set)}
      ${(problem || (plan.error && fields.length === 0)) && html`<div class="note bad" role="alert">${problem || plan.error}</div>`}
      ${busy && plan.requests.length > 1 && html`<p role="status">${progress} of ${plan.requests.length} done</p>`}
      <${AsText} ...${plan} />
      <div class="buttons"><button type="button" disabled=${busy} onClick=${close}>Cancel</button>
        <button class=${`main ${danger ? "danger" : ""}`} autofocus=${!fields.length && !danger} disabled=${busy || prepared === undefined}>${verb}</button></div>
    </form></${Modal}>`;
}

/** Send requests, a few at a time. A request that fails does not keep the others from being sent. */
export async function perform(requests, progress = () => {}) {
  const answers = [], errors = [];
  let next = 0, count = 0;
  progress(0);
  const worker = async () => {
    while (next < requests.length) {
      const number = next++, { method, path, body, headers } = requests[number];
      try {
        answers[number] = await request(method, path, body, { headers });
      } catch (error) {
        errors.push(error);
      }
      progress(++count);
    }
  };
  await Promise.all(Array.from({ length: Math.min(AT_A_TIME, requests.length) }, worker));
  return { answers, errors };
}

/** The same as text: commands, and requests. */
export function AsText({ requests, commands = [], error }) {
  const shown = requests.slice(0, SHOWN), more = requests.length - shown.length;
  const texts = {
    "as a command": commands.slice(0, SHOWN).join("\n"),
    "with curl": shown.map(curl).join("\n"),
    "as a request": shown.map(http).join("\n\n"),
  };
  return html`<details class="as-text"><summary>The same as text</summary><div>
    ${error ? html`<p class="soft">${error}</p>` : Object.entries(texts).filter(([, text]) => text).map(([title, text]) => html`
      <h3 class="gap">${title} <${Copy} text=${text} /></h3><pre>${text}</pre>`)}
    ${more > 0 && html`<p class="soft">and ${more} more of the kind</p>`}</div></details>`;
}
