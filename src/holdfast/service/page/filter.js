// Conditions on label and metadata: rows of field, comparison and value, read as the filter that the service takes.

import { button, byId, element } from "./dom.js";

const COMPARISONS = [
  ["is", "is"],
  ["among", "is one of"],
  ["lt", "is below"],
  ["lte", "is at most"],
  ["gte", "is at least"],
  ["gt", "is above"],
];

let fields = [];

export function offerFields(names) {
  fields = names;
  byId("filter").hidden = names.length === 0;
}

export function addCondition() {
  const label = (name) => ({ "aria-label": name, name });
  const field = element("select", label("Field"), ...fields.map((name) => element("option", { value: name }, name)));
  const how = element(
    "select",
    label("Comparison"),
    ...COMPARISONS.map(([value, text]) => element("option", { value }, text)),
  );
  const value = element("input", { ...label("Value"), "aria-describedby": "filter-hint", spellcheck: "false" });
  const row = element("li", {}, field, how, value);
  const remove = button(
    "×",
    () => {
      row.remove();
      byId("add-condition").focus();
      byId("controls").dispatchEvent(new Event("change"));
    },
    { class: "quiet", "aria-label": "Remove this condition" },
  );
  row.append(remove);
  byId("conditions").append(row);
  field.focus();
}

/** The filter as the service takes it, or null; throws an Error that says what is wrong. Rows without a value wait. */
export function readFilter() {
  const filter = {};
  for (const row of byId("conditions").children) {
    const [field, how, value] = [...row.querySelectorAll("select, input")].map((control) => control.value.trim());
    if (value === "") continue;
    const there = filter[field];
    if (how === "is" || how === "among") {
      if (there !== undefined) throw new Error(`${field} is asked for twice`);
      filter[field] = how === "is" ? plain(value, field) : value.split(",").map((one) => plain(one.trim(), field));
      continue;
    }
    const bound = plain(value, field);
    if (typeof bound !== "number") throw new Error(`${field}: ${value} is not a number`);
    if (there !== undefined && (typeof there !== "object" || Array.isArray(there) || how in there)) {
      throw new Error(`${field} is asked for twice`);
    }
    filter[field] = { ...there, [how]: bound };
  }
  return Object.keys(filter).length ? filter : null;
}

function plain(text, field) {
  if (/^".*"$/s.test(text)) return text.slice(1, -1);
  if (field === "label") return text;
  if (text === "true" || text === "false") return text === "true";
  if (!/^[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?$/i.test(text)) return text;
  const number = Number(text);
  if (Math.abs(number) > Number.MAX_SAFE_INTEGER) throw new Error(`${field}: ${text} is too large a number`);
  return number;
}
