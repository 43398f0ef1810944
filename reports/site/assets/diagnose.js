// Looks for the messages of measured failures in a log. The log does not leave the page.
"use strict";

MM.page(async () => {
  const {element, plain} = MM;
  const MOST = 200_000, PAUSE = 250;
  const META = /meta tensor|device=meta|on meta device/i;
  const {errors} = await MM.load("errors");
  const fileName = await MM.fileNames();
  const known = errors.filter((entry) => entry.regex !== null).map((entry) => ({...entry, pattern: new RegExp(entry.regex, "u")}));
  const log = document.getElementById("log"), place = document.getElementById("found"), said = document.getElementById("said");
  let waiting = 0;

  function card(entry, words) {
    return element("section", {class: "card"},
      element("h2", {}, element("a", {href: `causes/${fileName(entry.id)}.html`}, MM.tag("bad", entry.verdict), ` at ${plain(entry.stage)}`), " ", element("span", {class: "count"}, `${entry.cells} cells`)),
      element("p", {class: "excerpt"}, MM.shortened(words, 300)),
      element("p", {}, entry.exact ? "Measured when " : "No rule tells it from what is good; the nearest: ", entry.rules.map((rule, number) => [number ? " or " : "", element("code", {}, plain(rule))])));
  }

  // Such a message does not tell which weights were lost, nor when: these failures can end in it, too.
  function others(silent) {
    const rows = silent.sort((one, other) => other.sound - one.sound || other.cells - one.cells).map((entry) => [
      element("a", {href: `causes/${fileName(entry.id)}.html`}, MM.shortened(entry.cause, 90)), String(entry.sound), String(entry.cells),
      entry.rules.map((rule, number) => [number ? " or " : "", element("code", {}, plain(rule))]), plain(entry.fix.join(", "))]);
    return element("section", {}, element("h2", {}, "A meta tensor error does not tell which weights were lost"),
      element("p", {}, "These failures leave weights on the meta device before anybody asks for them, and can end in the same message. Those that sound checkpoints have come first."),
      MM.table("Failures that leave weights on meta", ["what is lost", "cells with a sound checkpoint", "all cells", "when", "with this instead, all passed"], rows));
  }

  function look() {
    const text = log.value.slice(-MOST);
    const found = text.trim() ? known.map((entry) => [entry, entry.pattern.exec(text)]).filter(([, match]) => match) : [];
    const none = text.trim() && !found.length ? element("p", {class: "notice"}, "No message of a measured failure is in it. That does not mean that all is well.") : "";
    const silent = META.test(text) ? errors.filter((entry) => entry.regex === null && ["orphan-meta", "unexpected-meta"].includes(entry.verdict)) : [];
    place.replaceChildren(...found.map(([entry, match]) => card(entry, match[0])), silent.length ? others(silent) : "", none);
    said.textContent = text.trim() ? `${found.length} measured failures have a message like one in it` : "";
  }

  // Not at every key: a long log takes a moment.
  log.addEventListener("input", () => {
    clearTimeout(waiting);
    waiting = setTimeout(() => MM.page(look), PAUSE);
  });
});
