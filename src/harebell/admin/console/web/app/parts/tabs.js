// Parts of a page of which one is shown; which one, is in the address.

import { html } from "../core/html.js";
import { parameter, setParameters } from "../core/router.js";

/** `tabs`: {id: [title, function that gives the content]}. */
export function Tabs({ name = "tab", tabs }) {
  const ids = Object.keys(tabs).filter((id) => tabs[id]);
  const asked = parameter(name, ids[0]), current = ids.includes(asked) ? asked : ids[0];
  const onKey = (event) => {
    const by = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!by) return;
    event.preventDefault();
    const next = ids[(ids.indexOf(current) + by + ids.length) % ids.length];
    setParameters({ [name]: next });
    event.currentTarget.querySelector(`#tab-${next}`).focus();
  };
  return html`<div class="tabs" role="tablist" onKeyDown=${onKey}>${ids.map((id) => html`<button role="tab" id=${`tab-${id}`} aria-selected=${id === current} tabindex=${id === current ? 0 : -1}
      onClick=${() => setParameters({ [name]: id })}>${tabs[id][0]}</button>`)}</div>
    <div role="tabpanel" aria-labelledby=${`tab-${current}`}>${tabs[current][1]()}</div>`;
}
