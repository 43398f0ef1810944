// One cell, found by its environment and axes: what was asked, what was found, and the command that runs it again.
"use strict";

MM.page(async () => {
  const {element, plain} = MM;

  function section(title, ...children) {
    return [element("h2", {}, title), ...children];
  }

  function facts(entries) {
    return Object.entries(entries).map(([name, value]) => element("div", {}, element("b", {}, plain(name)), ": ", MM.shortened(typeof value === "string" ? value : JSON.stringify(value), 300)));
  }

  function execution(attempt) {
    const title = `${attempt.mode}${attempt.alone ? ", alone" : ""}: ${attempt.verdict} at ${attempt.stage}`;
    const stages = attempt.stages.map((stage) => [plain(stage.stage), stage.seconds.toFixed(3),
      stage.findings.map((finding) => element("div", {}, element("b", {}, plain(finding.kind)), ": ", MM.shortened(finding.text ?? "", 400))), facts(stage.facts ?? {})]);
    const traces = attempt.stages.flatMap((stage) => stage.findings.filter((finding) => finding.exception)
      .map((finding) => element("details", {}, element("summary", {}, `Traceback at ${plain(stage.stage)}`), element("pre", {tabindex: "0"}, plain(finding.exception.traceback ?? "")))));
    return [element("h3", {}, plain(title)),
      element("p", {class: "dim"}, plain(`${attempt.started} · ${attempt.seconds.toFixed(2)} s · peak ${Math.round(attempt.peak_rss_kb / 1024)} MiB with the imported libraries · ${attempt.id}`)),
      MM.table(`Stages of ${attempt.mode}`, ["stage", "seconds", "findings", "facts"], stages), traces,
      attempt.text ? element("details", {}, element("summary", {}, "Log"), element("pre", {tabindex: "0"}, plain(attempt.text))) : null];
  }

  function describe(cell, meanings, runs, fileName) {
    const probe = Object.values(cell.axes).filter(Boolean).join(" ");
    document.title = plain(`${cell.verdict}: ${probe} · metamatrix`);
    const sure = cell.rebuilt ? `approximate: ${cell.rebuilt}` : cell.emulated ? "emulated on the CPU" : "measured";
    const parts = [
      element("h1", {}, MM.tag(cell.class, cell.verdict), ` ${plain(probe)}`),
      element("p", {}, `${MM.sentence(meanings[cell.verdict] ?? "")}.`, cell.stage ? ` Decided at stage ${plain(cell.stage)}.` : "",
        ` ${MM.sentence(sure)}, ${cell.attempts} attempt${cell.attempts === 1 ? "" : "s"}, run of ${plain((runs.get(cell.run) ?? "").slice(0, 10))}.`),
      element("p", {}, "Environment: ", element("a", {href: `environments/${fileName(cell.environment)}.html`}, plain(Object.entries(cell.versions).map(([name, value]) => `${name} ${MM.released(value)}`).join(", ") || Object.entries(cell.requested).map(([name, value]) => `${name} ${value}`).join(", ")))),
    ];
    if (cell.expectation) {
      const {verdict, expires, reason, link} = cell.expectation;
      parts.push(element("p", {}, plain(`${cell.expected ? "Expected" : "Another verdict was expected"}: ${verdict} until ${expires}. ${reason ?? ""} ${link ?? ""}`)));
    }
    if (cell.cause) parts.push(section("Cause", element("pre", {tabindex: "0"}, plain(cell.cause)), cell.class === "bad" ? element("p", {}, element("a", {href: `causes/${fileName(cell.signature)}.html`}, "When it happens, and what passed instead")) : null));
    if (cell.tensors.length) {
      parts.push(section("Tensors", MM.table("Tensors", ["name", "module", "kind", "state", "shape", "detail"], cell.tensors.map((row) =>
        [element("code", {}, plain(row.name ?? "")), plain(row.module ?? ""), plain(row.kind ?? ""), plain(row.state ?? ""), plain((row.shape ?? []).join("×")), plain(row.detail ?? "")]))));
    }
    if (cell.tensors.length >= 40) parts.push(element("p", {class: "dim"}, "The first 40 are kept; the cause tells how many there are."));
    const again = cell.rerun || `metamatrix run --plan FOLDER --select ${MM.quoted(`subject == ${cell.subject}`)} --output out/cell`;
    parts.push(section("Run it again", element("div", {class: "command"}, element("pre", {tabindex: "0"}, plain(again)), MM.copyButton(again)),
      cell.rerun ? null : element("p", {class: "dim"}, "Put the ", element("a", {href: `api/v1/runs/${fileName(cell.run)}/dataset.json`}, "data set of the run"), " into a folder, as dataset.json, and give its name for FOLDER.")));
    parts.push(section("History", MM.table("Each run", ["run", "verdict", "environment"], cell.history.map((entry) =>
      [plain((runs.get(entry.run) ?? entry.run).slice(0, 16)), MM.tag(entry.class, entry.verdict), element("code", {}, plain(entry.environment))]))));
    parts.push(section("Time and memory", element("p", {}, cell.seconds === null || cell.seconds === undefined ? "Not measured." : plain(`${cell.seconds} s, peak ${cell.peak_rss_mb} MiB with the imported libraries.`))));
    parts.push(section("Attempts", cell.executions ? cell.executions.map(execution) : element("p", {}, "Attempts and logs stay with the run that made them.")));
    parts.push(element("p", {}, element("a", {href: `api/v1/cells/${fileName(cell.subject)}.json`}, "As JSON"), element("span", {class: "dim"}, plain(` · subject ${cell.subject} · cell ${cell.id}`))));
    return parts;
  }

  const begin = MM.newest();

  async function render() {
    const current = begin();
    const wanted = MM.state();
    const place = document.getElementById("cell");
    if (!wanted.has("environment") || !wanted.has("pipeline")) {
      MM.show(place, element("h1", {}, "Cell"), element("p", {class: "notice"}, "Which one? Choose it in the ", element("a", {href: "matrix.html"}, "matrix"), "."));
      return;
    }
    const index = await MM.load("index");
    const runs = new Map(index.runs.map((run) => [run.id, run.started]));
    const fileName = await MM.fileNames();
    const environment = fileName(wanted.get("environment"));
    const known = await MM.load(`cells/${environment}/${fileName(wanted.get("pipeline"))}`).catch(() => []);
    const found = known.filter((cell) => Object.entries(cell.axes).every(([axis, value]) => !wanted.has(axis) || wanted.get(axis) === value));
    if (!current()) return;
    const parts = found.slice(0, 20).map((cell) => describe(cell, index.meanings, runs, fileName));
    MM.show(place, parts.length ? parts : [element("h1", {}, "Cell"), element("p", {class: "notice"}, "These data have no such cell. A link to it may be older than they are; the ", element("a", {href: "matrix.html"}, "matrix"), " has what there is.")]);
  }

  window.addEventListener("hashchange", () => MM.page(render));
  await render();
});
