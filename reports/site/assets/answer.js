// The first page: a question of a few choices, answered in ranges of versions.
"use strict";

MM.page(async () => {
  const {element, plain} = MM;
  const form = document.getElementById("question");
  const place = document.getElementById("answer"), said = document.getElementById("said");
  const cells = await MM.cells.load();
  const {answers} = cells;
  const fields = [...form.querySelectorAll("select")];
  const fileName = await MM.fileNames();
  const {caveats} = await MM.load("index");
  const failures = new Map((await MM.load("errors")).errors.map((entry) => [entry.id, entry]));

  const first = (field) => field.options[0].value;
  let unknown = [];

  // What the address says; what it names and nobody measured is told, not left out.
  function read() {
    const state = MM.state();
    unknown = [];
    for (const field of fields) {
      const value = state.get(field.name);
      const known = [...field.options].some((option) => option.value === value);
      field.value = known ? value : first(field);
      if (value !== undefined && !known) unknown.push(`${field.name}=${value}`);
    }
    document.getElementById("more").open ||= [...document.querySelectorAll("#more select")].some((field) => field.value !== first(field));
  }

  function question() {
    return new Map(fields.filter((field) => field.value !== "").map((field) => [field.name, field.value]));
  }

  function words(asked) {
    const terms = [...asked].map(([name, value]) => `${name}=${value}`);
    return `metamatrix lookup ${terms.map(MM.quoted).join(" ")}`;
  }

  function sure(line) {
    if (line.rebuilt !== null) return `approximate: ${line.rebuilt}`;
    return line.emulated ? "emulated on the CPU" : "measured";
  }

  function ranges(versions) {
    return [...versions].map(([name, [low, high]]) => element("span", {class: "range"}, `${name} `, element("b", {}, plain(low === high ? low : `${low} … ${high}`))));
  }

  // What is different between the last environment of one range and the first of the next.
  function turn(before, after) {
    const last = before.environments.at(-1), next = after.environments[0];
    const changed = answers.telling.map((name) => [name, MM.cells.version(answers, last, name), MM.cells.version(answers, next, name)])
      .filter(([, one, other]) => one !== other);
    // Environments are in the order of the first package that differs; what goes back with it is only its company.
    const order = (name, version) => cells.axes.get(name).values.indexOf(version);
    const newer = changed.filter(([name, one, other]) => order(name, other) > order(name, one)).map(([name, one, other]) => `${name} ${one} → ${other}`);
    const older = changed.filter(([name, one, other]) => order(name, other) < order(name, one)).map(([name, , other]) => `${name} ${other}`);
    return newer.join(", ") + (older.length ? ` (with ${older.join(", ")})` : "");
  }

  // Since when the newest failure of a line is there: neighbouring failures of other kinds are one stretch.
  function since(line) {
    const bad = (span) => span?.kind.class === "bad";
    const last = line.spans.findLastIndex(bad);
    if (last < 0) return null;
    let first = last;
    while (bad(line.spans[first - 1])) first -= 1;
    const before = line.spans[first - 1], after = line.spans[last + 1];
    const start = before?.kind.class === "good" ? `Broken since ${turn(before, line.spans[first])}`
      : before?.kind.class === "not applicable" ? `Broken ever since it is supported: ${turn(before, line.spans[first])}`
        : before ? "Broken, and before that there is no answer" : "Broken in the oldest that was measured";
    const end = after?.kind.class === "good" ? `good again since ${turn(line.spans[last], after)}` : after ? "what came after does not apply, or has no answer" : "and still in the newest";
    return element("p", {class: "since"}, plain(`${start}; ${end}.`));
  }

  function cause(kind) {
    const known = failures.get(kind.signature);
    const parts = [element("span", {class: "stage"}, `at ${plain(kind.stage)}: `), MM.shortened(kind.cause, 220)];
    if (known) {
      parts.push(element("br"), known.exact ? "when " : "no rule tells it from what is good; the nearest: ", known.rules.map((rule, number) => [number ? " or " : "", element("code", {}, plain(rule))]));
    }
    return element("p", {class: "excerpt"}, parts);
  }

  function spanRow(line, span) {
    const {kind} = span;
    const tag = MM.tag(kind.class, kind.verdict);
    const name = kind.class === "bad" && failures.has(kind.signature) ? element("a", {class: "cause-link", href: `causes/${fileName(kind.signature)}.html`}, tag) : tag;
    const count = span.environments.length;
    const example = MM.cells.address(answers, line.combination, span.environments.at(-1));
    return element("li", {}, name, " ", ranges(span.versions), " ",
      element("span", {class: "dim"}, `${count} environment${count > 1 ? "s" : ""}, ${span.attempts} attempt${span.attempts > 1 ? "s" : ""}, `,
        element("a", {href: example}, "a cell")), kind.cause ? cause(kind) : null);
  }

  // Combinations that answer alike are told once.
  function together(lines) {
    const found = new Map();
    for (const line of lines) {
      const key = JSON.stringify([line.rebuilt, line.emulated, line.spans.map((span) => [span.kind.verdict, span.kind.signature, span.environments])]);
      if (!found.has(key)) found.set(key, []);
      found.get(key).push(line);
    }
    return [...found.values()];
  }

  function heading(lines) {
    const parts = answers.axes.map((axis, place) => [axis, [...new Set(lines.map((line) => line.values[place]))]])
      .filter(([axis, values]) => values.length > 1 || !["canonical", "single", "float32"].includes(values[0]) || axis === "pipeline")
      .map(([, values]) => values.join(", "));
    return plain(parts.join(" · "));
  }

  function runsOf(lines) {
    const numbers = new Set(lines.flatMap((line) => line.spans.flatMap((span) => span.runs)));
    return [...new Set([...numbers].map((number) => answers.runs[number].started.slice(0, 10)))].sort();
  }

  // With versions fixed, what is left does not tell since when.
  const asksVersions = () => fields.some((field) => field.name in answers.packages && field.value !== "");

  function lineCard(lines) {
    const [line] = lines;
    return element("section", {class: "card"},
      element("h3", {}, heading(lines), " ", element("span", {class: "count"}, plain(sure(line)))),
      asksVersions() ? null : since(line), element("ul", {class: "spans"}, line.spans.map((span) => spanRow(line, span))));
  }

  function command(label, line) {
    return element("div", {class: "command"}, element("span", {class: "dim label"}, label), element("pre", {tabindex: "0", "aria-label": label}, plain(line)), MM.copyButton(line));
  }

  // A lock has one build of torch, which may not be the one that somebody wants.
  function lockWords(environment) {
    const column = answers.packages.torch;
    const torch = column && column.rows[environment] >= 0 ? column.values[column.rows[environment]] : null;
    return plain(torch ? `The very wheels that were measured (torch ${torch})` : "The very wheels that were measured");
  }

  function newest(found) {
    if (found.newestGood === null) {
      return element("section", {class: "card none"}, element("h2", {}, "No set of versions that was measured is good in all of this"),
        found.goodByLoad.size ? element("p", {}, "By the way to load:") : null,
        [...found.goodByLoad].map(([load, environment]) => command(`Newest good with ${plain(load)}`, MM.lookup.installLine(answers, environment))));
    }
    const id = answers.environments[found.newestGood].id;
    const line = MM.lookup.installLine(answers, found.newestGood);
    const attempts = found.lines.flatMap((own) => own.spans.flatMap((span) => span.cells)).filter((cell) => cells.environments[cell] === found.newestGood)
      .reduce((sum, cell) => sum + cells.attempts[cell], 0);
    const kinds = MM.sentence([...new Set(found.lines.map(sure))].join("; "));
    const card = element("section", {class: "card answer"}, element("h2", {}, "Newest good set"),
      command("Install with pip", line), command("Install with uv", `uv ${line}`),
      found.badLifecycles.length ? element("p", {}, `For one image. In the same set it is bad with lifecycle ${plain(found.badLifecycles.join(", "))}: choose it above to see.`) : null);
    card.append(element("p", {class: "dim"}, `${kinds}, ${attempts} attempt${attempts === 1 ? "" : "s"} here, ${plain(runsOf(found.lines).join(" and "))}. `,
      element("a", {href: `locks/${fileName(id)}.txt`}, lockWords(found.newestGood)), " · ", element("a", {href: `environments/${fileName(id)}.html`}, "All about it")));
    return card;
  }

  // What could be left open so that something was measured.
  function nearest(asked) {
    const open = [...asked.keys()].filter((name) => MM.lookup.lookUp(cells, new Map([...asked].filter(([other]) => other !== name))).counts.size);
    return `Nothing was measured that fits all of this.${open.length ? ` Something was with any ${open.join(", or any ")}.` : ""}`;
  }

  function answer(asked) {
    const found = MM.lookup.lookUp(cells, asked);
    const total = [...found.counts.values()].reduce((sum, count) => sum + count, 0);
    if (!total) return element("p", {class: "notice"}, plain(nearest(asked)));
    const counts = [...found.counts].sort((one, other) => other[1] - one[1]).map(([verdict, count]) => `${count} ${verdict}`).join(", ");
    const notes = caveats.filter(({axes}) => found.lines.some((line) => Object.entries(axes).every(([axis, value]) => line.values[answers.axes.indexOf(axis)] === value)));
    const parts = [newest(found), element("p", {}, plain(`${total} cell${total > 1 ? "s" : ""}: ${counts}.`)),
      notes.map(({text}) => element("p", {class: "notice"}, plain(text))),
      element("p", {class: "dim"}, "A range names the oldest and the newest version of each package among its environments; not every set in between was measured, or exists."),
      together(found.lines).map(lineCard)];
    if (found.proofs.length) {
      parts.push(element("details", {}, element("summary", {}, `${found.proofs.length} of the environments cannot exist: the proof`),
        found.proofs.map((number) => element("pre", {tabindex: "0"}, MM.shortened(answers.environments[number].proof, 2000)))));
    }
    return parts;
  }

  function render() {
    const asked = question();
    MM.keep(fields.filter((field) => field.value !== first(field)).map((field) => [field.name, field.value]));
    const runner = asked.get("runner");
    const here = cells.axes.get("runner").values;
    const parts = unknown.length ? [element("p", {class: "notice"}, `Nothing was measured about ${plain(unknown.join(", "))}; this is the answer without it.`)] : [];
    if (runner && !here.includes(runner)) {
      const label = runner === "cuda" ? "CUDA" : runner;
      parts.push(element("p", {class: "notice", id: "unmeasured"}, `Not measured on ${plain(label)}. What other runners show:`));
      const others = element("div", {class: "beside"});
      for (const other of ["cpu", "emulated"].filter((name) => name !== runner)) {
        const body = here.includes(other) ? answer(new Map([...asked, ["runner", other]])) : element("p", {class: "notice"}, `Not measured on ${other}.`);
        others.append(element("section", {"aria-label": other}, element("h2", {}, other === "cpu" ? "CPU" : "Emulated accelerator"), ...[body].flat(Infinity).filter(Boolean)));
      }
      parts.push(others);
    } else {
      parts.push(answer(asked));
    }
    parts.push(command("The same question in a terminal", words(asked)));
    MM.show(place, parts);
    said.textContent = place.querySelector("h2, .notice")?.textContent ?? "";
  }

  read();
  form.addEventListener("change", () => { unknown = []; render(); });
  form.addEventListener("submit", (event) => event.preventDefault());
  window.addEventListener("hashchange", () => { read(); render(); });
  render();
});
