// Looks for the messages of measured failures in a log. The log does not leave the page.
"use strict";

MM.page(async () => {
  const {element, plain} = MM;
  const MOST = 2_000_000;
  const {errors} = await MM.load("errors");
  const known = errors.filter((entry) => entry.regex !== null);
  const log = document.getElementById("log");

  async function look() {
    const text = log.value.slice(-MOST);
    if (!text.trim()) return document.getElementById("found").replaceChildren();
    const found = [];
    for (const entry of known) {
      const match = new RegExp(entry.regex, "u").exec(text);
      if (match) found.push([entry, match[0]]);
    }
    const cards = await Promise.all(found.map(async ([entry, words]) => element("section", {class: "card"},
      element("h2", {}, element("a", {href: `causes/${await MM.fileName(entry.id)}.html`}, MM.tag("bad", entry.verdict), ` at ${plain(entry.stage)}`), " ", element("span", {class: "count"}, `${entry.cells} cells`)),
      element("p", {class: "excerpt"}, MM.shortened(words, 300)),
      element("p", {}, "Measured when ", entry.rules.map((rule, number) => [number ? " or " : "", element("code", {}, plain(rule))])))));
    document.getElementById("found").replaceChildren(...(cards.length ? cards : [element("p", {class: "notice"}, "No message of a measured failure is in it. That does not mean that all is well.")]));
    return null;
  }

  log.addEventListener("input", look);
});
