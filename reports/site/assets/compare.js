// Two runs, row by row: what became red or green, what is new or gone.
"use strict";

MM.page(async () => {
  const {element, plain} = MM;
  const MOST = 200;
  const ORDER = ["new-red", "new-green", "flaky", "no-answer", "new", "gone", "same-bad", "same-good"];
  const ABOUT = new Map([["new-red", "was good, is bad"], ["new-green", "was bad, is good"], ["new", "was not measured before"], ["gone", "is not measured any more"],
    ["flaky", "attempts disagree"], ["no-answer", "one of the runs has no answer"], ["same-bad", "bad in both"], ["same-good", "good in both"]]);
  const GROUPS = new Map([["new-red", "bad"], ["new-green", "good"], ["flaky", "bad"], ["no-answer", "no answer"], ["same-bad", "bad"], ["same-good", "good"]]);
  const pair = document.getElementById("pair");
  const rowsPlace = document.getElementById("rows");
  const begin = MM.newest();
  let chosen = null;

  // What the address says; a pair that is not there is left at the first.
  function read() {
    const state = MM.state();
    pair.value = [...pair.options].some((option) => option.value === state.get("pair")) ? state.get("pair") : pair.options[0].value;
    chosen = state.get("change") ?? null;
  }

  function verdict(data, number) {
    return number < 0 ? "nothing" : MM.tag(data.kinds[number].class, data.kinds[number].verdict);
  }

  function address(data, row) {
    const number = data.rows.after_environment[row] >= 0 ? data.rows.after_environment[row] : data.rows.before_environment[row];
    const entries = [["environment", data.environments[number].id], ...data.axes.map((axis, place) => [axis, data.combinations[data.rows.combination[row]][place]])];
    return `cell.html${MM.address(entries)}`;
  }

  function versions(environment) {
    return MM.PACKAGES.filter((name) => name in environment.installed).map((name) => `${name} ${MM.released(environment.installed[name])}`).join(", ");
  }

  function where(data, row) {
    const before = data.rows.before_environment[row], after = data.rows.after_environment[row];
    const now = data.environments[after >= 0 ? after : before];
    if (before < 0 || after < 0 || before === after) return plain(versions(now));
    const changed = Object.keys(now.installed).filter((name) => data.environments[before].installed[name] !== now.installed[name])
      .map((name) => `${name} ${data.environments[before].installed[name] ?? "none"} → ${now.installed[name]}`);
    return plain(`${versions(now)}${changed.length ? ` (changed: ${changed.join(", ")})` : ""}`);
  }

  function rows(data, change) {
    const found = data.rows.change.flatMap((number, row) => data.changes[number] === change ? [row] : []);
    if (!found.length) return element("p", {class: "notice"}, change === "same-good" ? "They are counted only; the data sets of the runs have them." : "None.");
    const table = MM.table(`${change}: ${ABOUT.get(change)}`, ["cell", "before", "after", "versions", "cause"], found.slice(0, MOST).map((row) => {
      const after = data.rows.after[row], before = data.rows.before[row];
      const kind = data.kinds[after < 0 || (before >= 0 && data.kinds[after].class !== "bad") ? before : after];
      return [element("a", {href: address(data, row)}, plain(data.combinations[data.rows.combination[row]].join(" "))),
        verdict(data, data.rows.before[row]), verdict(data, data.rows.after[row]), where(data, row),
        [data.rows.another_failure[row] ? "another failure than before: " : "", MM.shortened(kind.class === "bad" ? kind.cause : "", 160)]];
    }));
    return [table, found.length > MOST ? element("p", {class: "dim"}, `and ${found.length - MOST} more, in the data`) : null];
  }

  async function render() {
    const current = begin();
    const data = await MM.load(`compare/${pair.value}`);
    if (!current()) return;
    const change = ORDER.includes(chosen) ? chosen : ORDER.find((name) => data.counts[name]) ?? "same-good";
    document.getElementById("counts").replaceChildren(...ORDER.map((name) => {
      const button = element("button", {type: "button", "aria-pressed": String(name === change), title: ABOUT.get(name), class: (GROUPS.get(name) ?? "not applicable").replaceAll(" ", "-")}, element("b", {}, String(data.counts[name])), ` ${name}`);
      button.addEventListener("click", () => { chosen = name; MM.keep([["pair", pair.value], ["change", name]], true); MM.page(render).then(() => document.querySelector("#counts [aria-pressed=true]").focus()); });
      return button;
    }));
    const total = Object.values(data.counts).reduce((sum, count) => sum + count, 0);
    document.getElementById("status").textContent = plain(`${total} cells of ${data.before.started.slice(0, 16)} and ${data.after.started.slice(0, 16)}: ${data.counts["new-red"]} new red, ${data.counts["new-green"]} new green. ${data.another_failure} of the same-bad fail in another way than before.`);
    MM.show(rowsPlace, rows(data, change));
  }

  pair.addEventListener("change", () => { chosen = null; MM.keep([["pair", pair.value]], true); MM.page(render); });
  window.addEventListener("hashchange", () => { read(); MM.page(render); });
  window.addEventListener("popstate", () => { read(); MM.page(render); });
  read();
  await render();
});
