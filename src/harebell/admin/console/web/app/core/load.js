// Objects that are loaded when a view is shown, and again when a change says so, or when somebody asks.

import { useCallback, useEffect, useRef, useState } from "./html.js";
import { get } from "./api.js";
import { useChanges } from "./live.js";

const TOGETHER = 150; // milliseconds of changes that lead to one request

/**
 * {value, error, loading, again}: what a path has. `load` may be a path, a function that gives a promise, or null for
 * nothing. What was loaded stays until something newer has come, also after an error.
 */
export function useLoaded(load, matches = null, inputs = [load]) {
  const [result, setResult] = useState({ value: undefined, error: null, loading: true });
  const turn = useRef(0);
  const waiting = useRef(null);
  const again = useCallback(async () => {
    if (load === null) return;
    const own = ++turn.current;
    try {
      const value = await (typeof load === "string" ? get(load) : load());
      if (own === turn.current) setResult({ value, error: null, loading: false });
    } catch (error) {
      if (own === turn.current && error.name !== "AbortError") setResult((last) => ({ ...last, error, loading: false }));
    }
  }, inputs);
  useEffect(() => {
    setResult((last) => ({ ...last, error: null, loading: true }));
    again();
    return () => {
      turn.current++;
      clearTimeout(waiting.current);
    };
  }, inputs);
  useChanges(matches || /$^/, () => {
    clearTimeout(waiting.current);
    waiting.current = setTimeout(again, TOGETHER);
  });
  return { ...result, again };
}
