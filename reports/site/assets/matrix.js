// Any axes against any others, from all cells down to one. The address keeps the state.
"use strict";

MM.page(async () => {
  const {element, plain} = MM;
  const LETTERS = new Map(JSON.parse(document.getElementById("matrix").dataset.letters ?? "[]"));
  const COLUMNS = [...MM.PACKAGES, "python", "environment"];
  const FIRST = new Map([["checkpoint", "canonical"], ["lifecycle", "single"]]);
  const MOST_SQUARES = 6000, MOST_LISTED = 200;
  const cells = await MM.cells.load();
  const {answers} = cells;
  const ROWS = answers.axes;
  const axes = new Map([...ROWS, ...COLUMNS].filter((axis) => cells.axes.has(axis)).map((axis) => [axis, cells.axes.get(axis)]));
  const verdictOf = answers.kinds.map((kind) => kind.verdict);
  axes.set("verdict", {values: [...new Set(verdictOf)], by: "kinds", of: numbered(verdictOf)});
  const classOf = answers.kinds.map((kind) => kind.class);
  axes.set("class", {values: [...new Set(classOf)], by: "kinds", of: numbered(classOf)});
  const causeOf = answers.kinds.map((kind) => kind.signature);
  axes.set("cause", {values: [...new Set(causeOf)], by: "kinds", of: numbered(causeOf)});
  const shown = Object.fromEntries(["rows", "rows2", "columns", "columns2"].map((name) => [name, document.getElementById(name)]));
  const filters = new Map();

  function numbered(texts) {
    const values = [...new Set(texts)];
    return texts.map((text) => values.indexOf(text));
  }

  const at = (axis, cell) => axis.of[cells[axis.by][cell]];

  function makeFilters() {
    const place = document.getElementById("filters");
    for (const [name, axis] of axes) {
      if (axis.values.length < 2) continue;
      const select = element("select", {id: `filter-${name}`, name}, element("option", {value: ""}, "all"),
        axis.values.map((value) => element("option", {value}, plain(value === "" ? "none" : value))));
      filters.set(name, select);
      place.append(element("div", {class: "field"}, element("label", {for: `filter-${name}`}, name), select));
    }
  }

  function selected(wanted) {
    const tests = [...wanted].filter(([name]) => axes.has(name)).map(([name, value]) => {
      const axis = axes.get(name), number = axis.values.indexOf(value);
      return {of: axis.of.map((own) => own === number), cells: cells[axis.by]};
    });
    const found = [];
    for (let cell = 0; cell < cells.count; cell += 1) {
      if (tests.every((test) => test.of[test.cells[cell]])) found.push(cell);
    }
    return found;
  }

  // Axes that differ among some cells, in the order in which one wants to see them.
  function varied(own, names) {
    return names.filter((name) => {
      const axis = axes.get(name);
      if (!axis || !own.length) return false;
      const first = at(axis, own[0]);
      return own.some((cell) => at(axis, cell) !== first);
    });
  }

  function layout(state, own) {
    const free = (names) => varied(own, names);
    const named = (name) => state.has(name) && axes.has(state.get(name)) ? state.get(name) : "";
    const columns = state.has("columns") ? [named("columns"), named("columns2")] : free(COLUMNS).slice(0, 2);
    const rows = state.has("rows") ? [named("rows"), named("rows2")] : free(ROWS).slice(0, 2);
    if (!state.has("columns") && !columns.length) columns.push(...free(ROWS).filter((name) => !rows.includes(name)).slice(0, 2));
    if (!rows[0]) rows[0] = "pipeline";
    if (!columns[0]) columns[0] = axes.has("diffusers") ? "diffusers" : "offload";
    const known = [rows, columns].map((pair) => [...new Set(pair.filter(Boolean))]);
    return {rows: known[0], columns: known[1].filter((name) => !known[0].includes(name))};
  }

  // Cells by row and column: each square counts its cells by class and knows one of them.
  function grid(own, {rows, columns}) {
    const number = (names, cell) => names.reduce((sum, name) => sum * axes.get(name).values.length + at(axes.get(name), cell), 0);
    const squares = new Map(), rowKeys = new Set(), columnKeys = new Set();
    for (const cell of own) {
      const row = number(rows, cell), column = number(columns, cell);
      rowKeys.add(row);
      columnKeys.add(column);
      if (!squares.has(row)) squares.set(row, new Map());
      const line = squares.get(row);
      let square = line.get(column);
      if (!square) line.set(column, square = {count: 0, good: 0, bad: 0, silent: 0, cell, kind: cells.kinds[cell], same: true, expected: true});
      const kind = answers.kinds[cells.kinds[cell]];
      square.count += 1;
      if (kind.class === "good") square.good += 1;
      else if (kind.class === "bad") square.bad += 1;
      else if (kind.class !== "not applicable") square.silent += 1;
      square.expected &&= kind.class !== "bad" || kind.expected;
      square.same &&= verdictOf[square.kind] === kind.verdict;
    }
    // Versions are read newest first, other values in their order.
    const sorted = (keys, names) => [...keys].sort((one, other) => COLUMNS.includes(names[0]) ? other - one : one - other);
    return {squares, rows: sorted(rowKeys, rows), columns: sorted(columnKeys, columns)};
  }

  function names(axesOf, key) {
    const found = [];
    for (const name of [...axesOf].reverse()) {
      const {values} = axes.get(name);
      found.unshift(values[key % values.length]);
      key = Math.floor(key / values.length);
    }
    return found;
  }

  function group(square) {
    if (square.bad) return "bad";
    if (square.silent) return "no answer";
    return square.good ? "good" : "not applicable";
  }

  function squareLink(state, view, square, row, column) {
    const kind = answers.kinds[square.kind];
    const group_ = group(square);
    const letter = square.same ? LETTERS.get(kind.verdict) ?? "" : "";
    const count = square.count === 1 ? "" : square.bad ? ` ${square.bad}/${square.count}` : ` ${square.count}`;
    const where = [...names(view.rows, row), ...names(view.columns, column)].join(", ");
    const said = square.count === 1 ? kind.verdict : square.bad ? `${square.bad} of ${square.count} bad` : `${square.count} cells, ${group_}`;
    let href;
    if (square.count === 1) {
      href = MM.cells.address(answers, cells.combinations[square.cell], cells.environments[square.cell]);
    } else {
      const entries = new Map([...state].filter(([name]) => !["rows", "rows2", "columns", "columns2"].includes(name)));
      view.rows.forEach((name, place) => entries.set(name, names(view.rows, row)[place]));
      view.columns.forEach((name, place) => entries.set(name, names(view.columns, column)[place]));
      href = MM.address(entries);
    }
    const label = plain(`${where}: ${said}`);
    const expected = square.bad && square.expected ? " expected" : "";
    return element("a", {href, class: `square ${group_.replaceAll(" ", "-")}${expected}`, title: label, "aria-label": label, tabindex: "-1"}, `${MM.SHAPES.get(group_)}${letter}${count}`);
  }

  // Column heads on as many levels as there are axes; neighbours with one name share a head.
  function heads(view, columns) {
    return view.columns.map((name, level) => {
      const cellsOf = [];
      for (const column of columns) {
        const text = names(view.columns, column).slice(0, level + 1);
        const key = JSON.stringify(text), last = cellsOf.at(-1);
        if (last && last.key === key) last.span += 1;
        else cellsOf.push({key, span: 1, text: text.at(-1)});
      }
      return element("tr", {},
        level === 0 ? view.rows.map((row) => element("th", {scope: "col", rowspan: view.columns.length}, row)) : null,
        cellsOf.map(({span, text}) => element("th", {scope: span > 1 ? "colgroup" : "col", colspan: span, class: "head"}, element("span", {}, plain(text)))));
    });
  }

  function draw(state, view, own) {
    const {squares, rows, columns} = grid(own, view);
    const fit = Math.max(1, Math.min(rows.length, Math.floor(MOST_SQUARES / Math.max(1, columns.length))));
    const seenColumns = columns.slice(0, MOST_SQUARES);
    const body = rows.slice(0, fit).map((row) => element("tr", {},
      names(view.rows, row).map((text) => element("th", {scope: "row"}, plain(text))),
      seenColumns.map((column) => {
        const square = squares.get(row).get(column);
        return element("td", {}, square ? squareLink(state, view, square, row, column) : null);
      })));
    const caption = `${view.rows.join(" and ")} by ${view.columns.join(" and ")}`;
    const table = element("table", {class: "grid"}, element("caption", {}, caption), element("thead", {}, heads(view, seenColumns)), element("tbody", {}, body));
    const first = table.querySelector("a");
    if (first) first.tabIndex = 0;
    const cut = rows.length > fit || columns.length > seenColumns.length;
    return [table, cut ? element("p", {class: "notice"}, `Too much to draw: the first ${fit} of ${rows.length} rows are shown. Filter, or take other axes.`) : null];
  }

  function list(own) {
    const place = document.getElementById("list");
    if (!own.length || own.length > MOST_LISTED) return place.replaceChildren();
    const rows = own.map((cell) => {
      const kind = answers.kinds[cells.kinds[cell]], combination = cells.combinations[cell], environment = cells.environments[cell];
      const values = answers.combinations[combination].values.join(" ");
      return [element("a", {href: MM.cells.address(answers, combination, environment)}, plain(values)), MM.tag(kind.class, kind.verdict),
        plain(MM.cells.words(answers, environment)), MM.shortened(kind.class === "bad" ? `${kind.stage}: ${kind.cause}` : "", 160)];
    });
    return place.replaceChildren(element("h2", {}, "Cells"), MM.table("The cells above", ["cell", "verdict", "versions", "cause"], rows));
  }

  function render() {
    const state = location.hash.length > 1 ? MM.state() : new Map(FIRST);
    const wanted = new Map([...state].filter(([name]) => axes.has(name)));
    for (const [name, select] of filters) select.value = wanted.get(name) ?? "";
    document.getElementById("filtered").textContent = wanted.size ? `(${[...wanted].map(([name, value]) => `${name}=${plain(value) || "none"}`).join(", ")})` : "";
    const own = selected(wanted);
    const view = layout(state, own);
    [shown.rows.value, shown.rows2.value] = [view.rows[0] ?? "", view.rows[1] ?? ""];
    [shown.columns.value, shown.columns2.value] = [view.columns[0] ?? "", view.columns[1] ?? ""];
    const counts = new Map();
    for (const cell of own) counts.set(classOf[cells.kinds[cell]], (counts.get(classOf[cells.kinds[cell]]) ?? 0) + 1);
    document.getElementById("summary").textContent = `${own.length} of ${cells.count} cells: ${[...counts].map(([name, count]) => `${count} ${plain(name)}`).join(", ") || "none"}.`;
    MM.show(document.getElementById("matrix"), own.length ? draw(state, view, own) : element("p", {class: "notice"}, "No cell fits these filters."));
    list(own);
  }

  function change() {
    const entries = Object.entries(shown).map(([name, select]) => [name, select.value]);
    for (const [name, select] of filters) entries.push([name, select.value]);
    MM.keep(entries.filter(([, value]) => value !== ""), true);
    render();
  }

  // Arrow keys go from square to square; Tab leaves the matrix.
  document.getElementById("matrix").addEventListener("keydown", (event) => {
    const step = {ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0]}[event.key];
    const square = event.target.closest("a.square");
    if (!step || !square) return;
    event.preventDefault();
    const cell = square.closest("td");
    let row = cell.parentElement, column = cell.cellIndex, next = null;
    while (!next) {
      if (step[0]) row = step[0] < 0 ? row.previousElementSibling : row.nextElementSibling;
      column += step[1];
      const there = row?.cells[column];
      if (!there || there.tagName !== "TD") return;
      next = there.querySelector("a");
    }
    square.tabIndex = -1;
    next.tabIndex = 0;
    next.focus();
  });
  makeFilters();
  for (const form of document.querySelectorAll("form")) {
    form.addEventListener("change", change);
    form.addEventListener("submit", (event) => event.preventDefault());
  }
  window.addEventListener("popstate", render);
  render();
});
