// Elements made of text: what a server says becomes a text node or an attribute's value, never markup.

export const byId = (id) => document.getElementById(id);

export function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== null && value !== undefined && value !== false) made.setAttribute(name, value === true ? "" : value);
  }
  made.append(...children.filter((child) => child !== null && child !== undefined));
  return made;
}

// Text from outside may hold letters that turn the direction of what stands beside it: bdi keeps that inside.
export const foreign = (text, name = null) => element("bdi", { class: name }, String(text));

/** Names and values; a row may have a longer form of its value as its title. */
export function definitions(rows) {
  const made = rows.map(([name, value, title = null]) =>
    element("div", { title }, element("dt", {}, foreign(name)), element("dd", {}, foreign(value))),
  );
  return element("dl", {}, ...made);
}

export function button(text, action, attributes = {}) {
  const made = element("button", { type: "button", ...attributes }, text);
  made.addEventListener("click", action);
  return made;
}
