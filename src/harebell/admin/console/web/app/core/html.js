// Templates, components and signals, from the libraries in vendor/: the one place that names them.

import { Component, Fragment, createContext, h, render } from "../../vendor/preact.mjs";
import { useCallback, useContext, useEffect, useLayoutEffect, useMemo, useRef, useState } from "../../vendor/hooks.mjs";
import { batch, computed, effect, signal, useComputed, useSignal } from "../../vendor/signals.mjs";
import htm from "../../vendor/htm.mjs";

export const html = htm.bind(h);

/** The same value for all the life of a component: made once. */
export function useId(make) {
  const kept = useRef(null);
  if (kept.current === null) kept.current = make();
  return kept.current;
}

export {
  Component, Fragment, batch, computed, createContext, effect, render, signal, useCallback, useComputed, useContext,
  useEffect, useLayoutEffect, useMemo, useRef, useSignal, useState,
};
