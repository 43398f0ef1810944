// The first page: a question of a few choices, answered in ranges of versions.
"use strict";

MM.page(async () => {
  const {element, plain} = MM;
  const form = document.getElementById("question");
  const place = document.getElementById("answer");
  const cells = await MM.cells.load();
  const {answers} = cells;
  const fields = [...form.querySelectorAll("select")];
  const failures = new Map((await MM.load("errors")).errors.map((entry) => [entry.id, entry]));

  function read() {
    const state = MM.state();
    for (const field of fields) {
      const value = state.get(field.name);
      field.value = [...field.options].some((option) => option.value === value) ? value : field.dataset.first;
    }
    document.getElementById("more").open ||= [...document.querySelectorAll("#more select")].some((field) => field.value !== field.dataset.first);
  }

  function question() {
    return new Map(fields.filter((field) => field.value !== "").map((field) => [field.name, field.value]));
  }

  function words(asked) {
    const terms = [...asked].map(([name, value]) => `${name}=${value}`);
    return `metamatrix lookup ${terms.map((term) => /^[\w=.-]+$/.test(term) ? term : `'${term.replaceAll("'", "'\\''")}'`).join(" ")}`;
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
    const last = before.environments.at(-1), first = after.environments[0];
    const changed = MM.lookup.PACKAGES.map((name) => [name, MM.cells.version(answers, last, name), MM.cells.version(answers, first, name)])
      .filter(([, one, other]) => one !== other).map(([name, one, other]) => `${name} ${one} → ${other}`);
    return changed.join(", ");
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
      : before?.kind.class === "not applicable" ? `Broken since there is such a thing: ${turn(before, line.spans[first])}`
        : before ? "Broken, and before that there is no answer" : "Broken in the oldest that was measured";
    const end = after?.kind.class === "good" ? `good again since ${turn(line.spans[last], after)}` : after ? "and then there is nothing to say" : "and in the newest";
    return element("p", {class: "since"}, plain(`${start}; ${end}.`));
  }

  function cause(kind) {
    const known = failures.get(kind.signature);
    const parts = [element("span", {class: "stage"}, `at ${plain(kind.stage)}: `), MM.shortened(kind.cause, 220)];
    if (known) {
      parts.push(element("br"), "when ", known.rules.map((rule, number) => [number ? " or " : "", element("code", {}, plain(rule))]));
    }
    return element("p", {class: "excerpt"}, parts);
  }

  function spanRow(line, span) {
    const {kind} = span;
    const name = kind.class === "bad" ? element("a", {class: "cause-link"}, MM.tag(kind.class, kind.verdict)) : MM.tag(kind.class, kind.verdict);
    if (kind.class === "bad") MM.fileName(kind.signature).then((file) => name.setAttribute("href", `causes/${file}.html`));
    const count = span.environments.length;
    const example = MM.cells.address(answers, line.combination, span.environments.at(-1));
    return element("li", {}, name, " ", ranges(span.versions), " ",
      element("span", {class: "dim"}, `${count} environment${count > 1 ? "s" : ""}, ${span.attempts} attempt${span.attempts > 1 ? "s" : ""}, `,
        element("a", {href: example}, "a cell")), kind.class === "bad" ? cause(kind) : null);
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

  function lineCard(lines) {
    const [line] = lines;
    return element("section", {class: "card"},
      element("h3", {}, heading(lines), " ", element("span", {class: "count"}, plain(sure(line)))),
      since(line), element("ul", {class: "spans"}, line.spans.map((span) => spanRow(line, span))));
  }

  function newest(found) {
    if (found.newestGood === null) return element("section", {class: "card none"}, element("h2", {}, "No set of versions that was measured is good in all of this"));
    const id = answers.environments[found.newestGood].id;
    const line = MM.lookup.installLine(answers, found.newestGood);
    const attempts = found.lines.flatMap((own) => own.spans.flatMap((span) => span.cells)).filter((cell) => cells.environments[cell] === found.newestGood)
      .reduce((sum, cell) => sum + cells.attempts[cell], 0);
    const kinds = [...new Set(found.lines.map(sure))].map(plain).join("; ");
    const card = element("section", {class: "card answer"}, element("h2", {}, "Newest good set"),
      element("div", {class: "command"}, element("pre", {tabindex: "0", "aria-label": "Install with pip"}, plain(line)), MM.copyButton(line)),
      element("div", {class: "command"}, element("pre", {tabindex: "0", "aria-label": "Install with uv"}, plain(`uv ${line}`)), MM.copyButton(`uv ${line}`)));
    const facts = element("p", {class: "dim"}, `${kinds}, ${attempts} attempt${attempts === 1 ? "" : "s"} here, ${plain(runsOf(found.lines).join(" and "))}. `);
    MM.fileName(id).then((file) => facts.append(element("a", {href: `locks/${file}.txt`}, "Lock with digests"), " · ", element("a", {href: `environments/${file}.html`}, "All about it")));
    card.append(facts);
    return card;
  }

  function answer(asked) {
    const found = MM.lookup.lookUp(cells, asked);
    const total = [...found.counts.values()].reduce((sum, count) => sum + count, 0);
    if (!total) return element("p", {class: "notice"}, "Nothing was measured that fits all of this. Leave something open.");
    const counts = [...found.counts].sort((one, other) => other[1] - one[1]).map(([verdict, count]) => `${count} ${verdict}`).join(", ");
    const parts = [newest(found), element("p", {}, plain(`${total} cell${total > 1 ? "s" : ""}: ${counts}.`)), together(found.lines).map(lineCard)];
    if (found.proofs.length) {
      parts.push(element("details", {}, element("summary", {}, `${found.proofs.length} of the environments cannot exist: the proof`),
        found.proofs.map((number) => element("pre", {tabindex: "0"}, MM.shortened(answers.environments[number].proof, 2000)))));
    }
    return parts;
  }

  function render() {
    const asked = question();
    MM.keep(fields.filter((field) => field.value !== field.dataset.first).map((field) => [field.name, field.value]));
    const runner = asked.get("runner");
    const here = cells.axes.get("runner").values;
    const parts = [];
    if (runner && !here.includes(runner)) {
      const label = runner === "cuda" ? "CUDA" : runner;
      parts.push(element("p", {class: "notice", role: "status"}, `Not measured on ${plain(label)}. What other runners show:`));
      const others = element("div", {class: "beside"});
      for (const other of ["cpu", "emulated"].filter((name) => name !== runner)) {
        const body = here.includes(other) ? answer(new Map([...asked, ["runner", other]])) : element("p", {class: "notice"}, `Not measured on ${other}.`);
        others.append(element("section", {"aria-label": other}, element("h2", {}, other === "cpu" ? "CPU" : "Emulated accelerator"), ...[body].flat(Infinity).filter(Boolean)));
      }
      parts.push(others);
    } else {
      parts.push(answer(asked));
    }
    const command = words(asked);
    parts.push(element("div", {class: "command"}, element("pre", {tabindex: "0", "aria-label": "The same question in a terminal"}, plain(command)), MM.copyButton(command)));
    MM.show(place, parts);
  }

  for (const field of fields) field.dataset.first = field.value;
  read();
  form.addEventListener("change", render);
  form.addEventListener("submit", (event) => event.preventDefault());
  window.addEventListener("hashchange", () => { read(); render(); });
  render();
});
