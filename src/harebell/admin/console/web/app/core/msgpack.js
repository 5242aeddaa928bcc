// Reads MessagePack (https://github.com/msgpack/msgpack/blob/master/spec.md) as values that JSON has: keys of maps become
// text, bytes become {"bytes": base64}, extensions {"type", "bytes"}, and numbers beyond 53 bits become text.

const DEEPEST = 100; // nested arrays and maps

export function decode(bytes) {
  const reader = { view: new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength), bytes, at: 0 };
  const value = read(reader, 0);
  if (reader.at !== bytes.length) throw new Error(`${bytes.length - reader.at} bytes follow the value`);
  return value;
}

function take(reader, size, name) {
  if (reader.at + size > reader.bytes.length) throw new Error("it ends too early");
  const value = reader.view[name](reader.at);
  reader.at += size;
  return value;
}

function part(reader, size) {
  if (reader.at + size > reader.bytes.length) throw new Error("it ends too early");
  reader.at += size;
  return reader.bytes.subarray(reader.at - size, reader.at);
}

const text = (reader, size) => new TextDecoder("utf-8", { fatal: true }).decode(part(reader, size));
const base64 = (bytes) => btoa(Array.from(bytes, (each) => String.fromCharCode(each)).join(""));
const binary = (reader, size) => ({ bytes: base64(part(reader, size)) });
const big = (value) => (value >= Number.MIN_SAFE_INTEGER && value <= Number.MAX_SAFE_INTEGER ? Number(value) : String(value));
const number = (value) => (Number.isFinite(value) ? value : String(value));

function extension(reader, size) {
  const type = take(reader, 1, "getInt8");
  return { type, bytes: base64(part(reader, size)) };
}

function list(reader, size, depth) {
  const found = [];
  for (let count = 0; count < size; count++) found.push(read(reader, depth + 1));
  return found;
}

function map(reader, size, depth) {
  const found = Object.create(null);
  for (let count = 0; count < size; count++) {
    const key = read(reader, depth + 1);
    found[typeof key === "string" ? key : JSON.stringify(key)] = read(reader, depth + 1);
  }
  return found;
}

const U8 = [1, "getUint8"], U16 = [2, "getUint16"], U32 = [4, "getUint32"];
const FORMS = {
  0xc0: () => null, 0xc2: () => false, 0xc3: () => true,
  0xc4: (reader) => binary(reader, take(reader, ...U8)), 0xc5: (reader) => binary(reader, take(reader, ...U16)), 0xc6: (reader) => binary(reader, take(reader, ...U32)),
  0xc7: (reader) => extension(reader, take(reader, ...U8)), 0xc8: (reader) => extension(reader, take(reader, ...U16)), 0xc9: (reader) => extension(reader, take(reader, ...U32)),
  0xca: (reader) => number(take(reader, 4, "getFloat32")), 0xcb: (reader) => number(take(reader, 8, "getFloat64")),
  0xcc: (reader) => take(reader, ...U8), 0xcd: (reader) => take(reader, ...U16), 0xce: (reader) => take(reader, ...U32), 0xcf: (reader) => big(take(reader, 8, "getBigUint64")),
  0xd0: (reader) => take(reader, 1, "getInt8"), 0xd1: (reader) => take(reader, 2, "getInt16"), 0xd2: (reader) => take(reader, 4, "getInt32"), 0xd3: (reader) => big(take(reader, 8, "getBigInt64")),
  0xd4: (reader) => extension(reader, 1), 0xd5: (reader) => extension(reader, 2), 0xd6: (reader) => extension(reader, 4), 0xd7: (reader) => extension(reader, 8), 0xd8: (reader) => extension(reader, 16),
  0xd9: (reader) => text(reader, take(reader, ...U8)), 0xda: (reader) => text(reader, take(reader, ...U16)), 0xdb: (reader) => text(reader, take(reader, ...U32)),
  0xdc: (reader, depth) => list(reader, take(reader, ...U16), depth), 0xdd: (reader, depth) => list(reader, take(reader, ...U32), depth),
  0xde: (reader, depth) => map(reader, take(reader, ...U16), depth), 0xdf: (reader, depth) => map(reader, take(reader, ...U32), depth),
};

function read(reader, depth) {
  if (depth > DEEPEST) throw new Error(`more than ${DEEPEST} levels`);
  const form = take(reader, ...U8);
  if (form < 0x80) return form;
  if (form < 0x90) return map(reader, form & 0x0f, depth);
  if (form < 0xa0) return list(reader, form & 0x0f, depth);
  if (form < 0xc0) return text(reader, form & 0x1f);
  if (form >= 0xe0) return form - 0x100;
  if (!(form in FORMS)) throw new Error(`0x${form.toString(16)} begins no value`);
  return FORMS[form](reader, depth);
}
