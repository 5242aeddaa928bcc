// Shortcuts. None of them works while something is typed into a field, and none of them needs more than one key.

import { effect, signal } from "./html.js";

export const palette = signal(false);
export const help = signal(false);

const single = new Map();

export function shortcut(key, about, run) {
  single.set(key, { about, run });
}

export function shortcuts() {
  return [...single].map(([key, { about }]) => ({ key, about }));
}

export function isTyping(target) {
  return target instanceof HTMLElement && (target.isContentEditable || ["INPUT", "TEXTAREA", "SELECT"].includes(target.tagName));
}

addEventListener("keydown", (event) => {
  if (event.key.toLowerCase() === "k" && (event.ctrlKey || event.metaKey) && !event.altKey) {
    event.preventDefault();
    palette.value = true;
    return;
  }
  if (isTyping(event.target) || event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
  const found = single.get(event.key);
  if (found) {
    event.preventDefault();
    found.run();
  }
});

// -- the theme: the system's, until somebody chooses

const NEXT = { system: "light", light: "dark", dark: "system" };
const dark = matchMedia("(prefers-color-scheme: dark)");
const systemIsDark = signal(dark.matches);
dark.addEventListener("change", () => { systemIsDark.value = dark.matches; });

export const theme = signal(localStorage.getItem("theme") || "system");
/** "light" or "dark", as shown. */
export const shade = signal("light");

export function nextTheme() {
  theme.value = NEXT[theme.value] || "light";
}

effect(() => {
  if (theme.value === "system") localStorage.removeItem("theme");
  else localStorage.setItem("theme", theme.value);
  shade.value = theme.value === "system" ? (systemIsDark.value ? "dark" : "light") : theme.value;
  document.documentElement.dataset.theme = shade.value;
});
