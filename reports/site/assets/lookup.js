// The same question as `metamatrix lookup`, with the same answer: tests hold the two against each other.
"use strict";

MM.lookup = (() => {
  const ASSUMED = [["checkpoint", "canonical"], ["lifecycle", "single"]];

  // question: a Map of axis or package to the one value that is meant.
  function lookUp(cells, question) {
    const {answers} = cells;
    const wanted = new Map([...ASSUMED.filter(([axis]) => !question.has(axis)), ...question]);
    const environments = answers.environments.map((_, place) =>
      [...wanted].every(([name, value]) => !(name in answers.packages) || MM.cells.version(answers, place, name) === value));
    const chosen = answers.combinations.map((row) => (question.has("load") || row.rebuilt === null) &&
      answers.axes.every((axis, place) => !wanted.has(axis) || wanted.get(axis) === "any" || wanted.get(axis) === row.values[place]));
    const rows = new Map(), counts = new Map(), proofs = new Set(), used = new Set();
    for (let cell = 0; cell < cells.count; cell += 1) {
      const combination = cells.combinations[cell], environment = cells.environments[cell];
      if (!chosen[combination] || !environments[environment]) continue;
      const kind = answers.kinds[cells.kinds[cell]];
      counts.set(kind.verdict, (counts.get(kind.verdict) ?? 0) + 1);
      used.add(environment);
      if (answers.environments[environment].exists) {
        if (!rows.has(combination)) rows.set(combination, []);
        rows.get(combination).push(cell);
      } else if (answers.environments[environment].proof) {
        proofs.add(environment);
      }
    }
    const lines = [...rows].map(([combination, own]) => line(cells, combination, own));
    lines.sort((one, other) => compare(one.values, other.values));
    const newest = newestGood(cells, chosen, environments);
    return {lines, counts, proofs: [...proofs].sort((one, other) => one - other), newestGood: newest,
      goodByLoad: newest === null && !question.has("load") ? byLoad(cells, question, lines) : new Map(),
      badLifecycles: newest === null || question.has("lifecycle") ? [] : badLifecycles(cells, question, newest)};
  }

  // Where not all ways to load are good: the newest good environment of each that has one.
  function byLoad(cells, question, lines) {
    const place = cells.answers.axes.indexOf("load");
    const loads = [...new Set(lines.map((own) => own.values[place]))].sort();
    const found = loads.map((load) => [load, lookUp(cells, new Map([...question, ["load", load]])).newestGood]);
    return new Map(found.filter(([, environment]) => environment !== null));
  }

  // The lifecycles beyond the assumed one that are bad in an environment.
  function badLifecycles(cells, question, environment) {
    const {lines} = lookUp(cells, new Map([...question, ["lifecycle", "any"]]));
    const place = cells.answers.axes.indexOf("lifecycle");
    const bad = lines.filter((own) => own.spans.some((span) => span.kind.class === "bad" && span.environments.includes(environment)));
    return [...new Set(bad.map((own) => own.values[place]))].sort();
  }

  function compare(one, other) {
    const place = one.findIndex((value, number) => value !== other[number]);
    return place < 0 ? 0 : one[place] < other[place] ? -1 : 1;
  }

  // The cells of a combination, oldest environment first, cut where the verdict or its signature changes.
  function line(cells, combination, own) {
    const {answers} = cells;
    const stretches = [];
    for (const cell of own) {
      const kind = answers.kinds[cells.kinds[cell]];
      const last = stretches.at(-1);
      if (last && alike(last.kind, kind)) last.cells.push(cell);
      else stretches.push({kind, cells: [cell]});
    }
    const spans = stretches.flatMap((stretch) => unmixed(cells, stretch, own.filter((cell) => !alike(answers.kinds[cells.kinds[cell]], stretch.kind))));
    for (const span of spans) {
      span.environments = span.cells.map((cell) => cells.environments[cell]);
      span.attempts = span.cells.reduce((sum, cell) => sum + cells.attempts[cell], 0);
      span.runs = [...new Set(span.cells.map((cell) => cells.runs[cell]))].sort((one, other) => one - other);
      span.versions = versions(answers, span.environments);
    }
    const row = answers.combinations[combination];
    return {combination, values: row.values, rebuilt: row.rebuilt, emulated: row.emulated, spans};
  }

  const alike = (one, other) => one.verdict === other.verdict && one.signature === other.signature;

  // A stretch cut so that the ranges of its versions hold none of the other cells.
  function unmixed(cells, stretch, others) {
    const rows = (cell) => cells.answers.telling.map((name) => ranks(cells.answers, name)[cells.environments[cell]]);
    const mixed = (own) => {
      const inside = own.map(rows);
      const ends = cells.answers.telling.map((_, place) => {
        const there = inside.map((row) => row[place]).filter((rank) => rank >= 0);
        return there.length ? [Math.min(...there), Math.max(...there)] : null;
      });
      return others.some((cell) => rows(cell).every((rank, place) => !ends[place] || (rank >= ends[place][0] && rank <= ends[place][1])));
    };
    if (!mixed(stretch.cells)) return [stretch];
    const spans = [];
    for (const cell of stretch.cells) {
      const last = spans.at(-1);
      if (last && !mixed([...last.cells, cell])) last.cells.push(cell);
      else spans.push({kind: stretch.kind, cells: [cell]});
    }
    return spans;
  }

  // The places of the versions of a package in their order; builds of one version have one place.
  function ranks(answers, name) {
    const column = answers.packages[name];
    column.ranks ??= column.rows.map((row) => row < 0 ? -1 : column.values.findIndex((value) => MM.released(value) === MM.released(column.values[row])));
    return column.ranks;
  }

  // The lowest and the highest version of each package: the values of a package are in order.
  function versions(answers, environments) {
    const found = new Map();
    for (const name of answers.telling) {
      if (!(name in answers.packages)) continue;
      const column = answers.packages[name];
      const rows = environments.map((place) => column.rows[place]).filter((row) => row >= 0);
      if (rows.length) found.set(name, [Math.min(...rows), Math.max(...rows)].map((row) => MM.released(column.values[row])));
    }
    return found;
  }

  // The newest environment where all that is asked about was measured good, each of its pipelines at least once.
  function newestGood(cells, chosen, environments) {
    const {answers} = cells;
    const pipeline = answers.axes.indexOf("pipeline");
    const asked = new Set(), spoilt = new Set(), passed = new Map();
    for (let cell = 0; cell < cells.count; cell += 1) {
      const combination = cells.combinations[cell], environment = cells.environments[cell];
      if (!chosen[combination] || !environments[environment]) continue;
      const name = answers.combinations[combination].values[pipeline];
      const group = answers.kinds[cells.kinds[cell]].class;
      asked.add(name);
      if (group === "good") {
        if (!passed.has(environment)) passed.set(environment, new Set());
        passed.get(environment).add(name);
      } else if (group !== "not applicable") {
        spoilt.add(environment);
      }
    }
    const good = [...passed].filter(([place, names]) => names.size === asked.size && !spoilt.has(place)).map(([place]) => place);
    return good.length ? Math.max(...good) : null;
  }

  // The line that installs the chosen packages of an environment.
  function installLine(answers, environment) {
    const pins = answers.environments[environment].chosen.filter((name) => name !== "python")
      .map((name) => [name.replaceAll("_", "-"), MM.cells.version(answers, environment, name)]).filter(([, version]) => version !== null)
      .map(([name, version]) => MM.quoted(`${name}==${version}`));
    return `pip install ${pins.join(" ")}`;
  }

  return {lookUp, installLine};
})();
