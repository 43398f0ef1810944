// All cells as numbers, from data/answers.js: masks become one row a cell.
"use strict";

MM.cells = (() => {
  let made = null;

  // The places of the bits of a mask that is written as a hexadecimal number, lowest first.
  function bits(text) {
    const found = [];
    for (let place = text.length - 1, base = 0; place >= 0; place -= 1, base += 4) {
      const nibble = parseInt(text[place], 16);
      for (let bit = 0; bit < 4; bit += 1) if (nibble >> bit & 1) found.push(base + bit);
    }
    return found;
  }

  function build(answers) {
    const combinations = [], environments = [], kinds = [], attempts = [], runs = [];
    const width = answers.environments.length;
    const seen = new Int32Array(width), times = new Int32Array(width), when = new Int32Array(width);
    answers.combinations.forEach((row, number) => {
      for (const [into, masks] of [[times, row.attempts], [when, row.runs]]) {
        for (const [value, mask] of Object.entries(masks)) for (const place of bits(mask)) into[place] = Number(value);
      }
      seen.fill(-1);
      for (const [kind, mask] of Object.entries(row.kinds)) for (const place of bits(mask)) seen[place] = Number(kind);
      for (let place = 0; place < width; place += 1) {
        if (seen[place] < 0) continue;
        combinations.push(number);
        environments.push(place);
        kinds.push(seen[place]);
        attempts.push(times[place]);
        runs.push(when[place]);
      }
    });
    return {answers, count: kinds.length, combinations, environments, kinds, attempts, runs, axes: axesOf(answers)};
  }

  // For each axis: its values in order, and which of them a cell has: by its combination or by its environment.
  function axesOf(answers) {
    const axes = new Map();
    answers.axes.forEach((axis, place) => {
      const values = [...new Set(answers.combinations.map((row) => row.values[place]))];
      const places = new Map(values.map((value, number) => [value, number]));
      axes.set(axis, {values, by: "combinations", of: answers.combinations.map((row) => places.get(row.values[place]))});
    });
    for (const [name, column] of Object.entries(answers.packages)) {
      const labels = column.values.map(MM.released);
      const values = [...new Set(labels)];
      const places = new Map(values.map((value, number) => [value, number]));
      if (column.rows.includes(-1)) values.push("none");
      axes.set(name, {values, by: "environments", of: column.rows.map((row) => row < 0 ? values.length - 1 : places.get(labels[row]))});
    }
    axes.set("environment", {values: answers.environments.map((entry) => entry.id), by: "environments", of: answers.environments.map((_, place) => place)});
    return axes;
  }

  async function load() {
    made ??= build(await MM.load("answers"));
    return made;
  }

  function version(answers, environment, name) {
    const column = answers.packages[name];
    return column && column.rows[environment] >= 0 ? MM.released(column.values[column.rows[environment]]) : null;
  }

  function words(answers, environment) {
    return answers.telling
      .map((name) => [name, version(answers, environment, name)])
      .filter(([, found]) => found !== null).map(([name, found]) => `${name} ${found}`).join(", ") || answers.environments[environment].id;
  }

  // The address of a cell's page.
  function address(answers, combination, environment) {
    const row = answers.combinations[combination];
    const entries = [["environment", answers.environments[environment].id], ...answers.axes.map((axis, place) => [axis, row.values[place]])];
    return `${MM.up}cell.html${MM.address(entries)}`;
  }

  return {load, version, words, address};
})();
