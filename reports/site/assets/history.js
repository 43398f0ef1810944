// Counts of each class in each run, for one value of an axis.
"use strict";

MM.page(async () => {
  const {element, plain} = MM;
  const GROUPS = ["good", "bad", "not applicable", "no answer"];
  const NS = "http://www.w3.org/2000/svg";
  const {runs} = await MM.load("history");
  const axis = document.getElementById("axis"), value = document.getElementById("value");

  function values() {
    const found = new Set(runs.flatMap((run) => Object.keys(run.axes[axis.value] ?? {})));
    const kept = value.value;
    value.replaceChildren(...[...found].map((name) => element("option", {value: name}, plain(name))));
    if (found.has(kept)) value.value = kept;
  }

  function svg(tag, attributes, ...children) {
    const made = document.createElementNS(NS, tag);
    for (const [name, text] of Object.entries(attributes)) made.setAttribute(name, text);
    made.append(...children);
    return made;
  }

  function chart(counts) {
    const height = 220, wide = 52, most = Math.max(1, ...counts.map((run) => GROUPS.reduce((sum, group) => sum + (run.groups[group] ?? 0), 0)));
    const drawing = svg("svg", {viewBox: `0 0 ${Math.max(900, counts.length * wide + 10)} ${height + 30}`, role: "img", class: "chart"}, svg("title", {}, `Verdicts of ${plain(axis.value)} ${plain(value.value)} by run; the table below has the numbers`));
    counts.forEach((run, number) => {
      let top = height;
      for (const group of GROUPS) {
        const size = (run.groups[group] ?? 0) / most * (height - 10);
        if (!size) continue;
        top -= size;
        drawing.append(svg("rect", {x: number * wide + 6, y: top, width: wide - 8, height: size, class: `bar-${group.replaceAll(" ", "-")}`}, svg("title", {}, `${run.started.slice(0, 10)}: ${run.groups[group]} ${group}`)));
      }
      drawing.append(svg("text", {x: number * wide + wide / 2 + 2, y: height + 18, "text-anchor": "middle", class: "label"}, run.started.slice(5, 10)));
    });
    return drawing;
  }

  function render() {
    const counts = runs.map((run) => ({started: run.started, groups: run.axes[axis.value]?.[value.value] ?? {}}));
    MM.keep([["axis", axis.value], ["value", value.value]].filter(([, text]) => text !== "all"));
    const latest = counts.at(-1).groups;
    document.getElementById("said").textContent = plain(`${axis.value} ${value.value}, newest run: ${GROUPS.map((group) => `${latest[group] ?? 0} ${group}`).join(", ")}`);
    MM.show(document.getElementById("history"), element("div", {class: "scroll", role: "region", "aria-label": "Chart", tabindex: "0"}, chart(counts)),
      MM.table(axis.value === "all" ? "Cells of each run" : `Cells of each run: ${axis.value} ${value.value}`, ["run", ...GROUPS], counts.map((run) => [plain(run.started.slice(0, 16)), ...GROUPS.map((group) => String(run.groups[group] ?? 0))])));
  }

  // What the address says; what it does not know is left at the first choice.
  function read() {
    const state = MM.state();
    const choose = (select, wanted) => {
      select.value = [...select.options].some((option) => option.value === wanted) ? wanted : select.options[0].value;
    };
    choose(axis, state.get("axis"));
    values();
    choose(value, state.get("value"));
    render();
  }

  axis.addEventListener("change", () => { values(); render(); });
  value.addEventListener("change", render);
  window.addEventListener("hashchange", read);
  read();
});
