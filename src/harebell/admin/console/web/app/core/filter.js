// Filters of lists: words that all must be in a row's text, and columns with values: type:stream ready:>100 -policy:x
// There are no patterns in it, so that no filter can keep the page busy.

const TERM = /^(-?)([a-z_]+):(<=|>=|<|>|=)?(.*)$/i;

/** A function from a row to whether it passes. `texts` gives the text of a row, `columns` its values by name. */
export function parse(text, texts, columns) {
  const tests = words(text.toLowerCase()).map((word) => test(word, texts, columns));
  return tests.length ? (row) => tests.every((each) => each(row)) : () => true;
}

function words(text) {
  return (text.match(/(?:[^\s"]|"[^"]*")+/g) || []).map((word) => word.replaceAll('"', ""));
}

function test(word, texts, columns) {
  const found = TERM.exec(word);
  const column = found && columns[found[2]];
  if (!column) {
    if (word.length > 1 && word[0] === "-") return (row) => !texts(row).includes(word.slice(1));
    return (row) => texts(row).includes(word);
  }
  const [, not, , operator, value] = found;
  const holds = compare(column, operator, value);
  return not ? (row) => !holds(row) : holds;
}

function compare(column, operator, value) {
  const wanted = Number(value);
  switch (operator) {
    case "<": return (row) => Number(column(row) || 0) < wanted;
    case ">": return (row) => Number(column(row) || 0) > wanted;
    case "<=": return (row) => Number(column(row) || 0) <= wanted;
    case ">=": return (row) => Number(column(row) || 0) >= wanted;
    case "=": return (row) => String(column(row) ?? "").toLowerCase() === value;
    default: return value !== "" && !Number.isNaN(wanted)
      ? (row) => Number(column(row) || 0) === wanted
      : (row) => String(column(row) ?? "").toLowerCase().includes(value);
  }
}
