// What every page uses: data files, the address, elements made of text only. No page puts foreign text into markup.
"use strict";

const MM = (() => {
  const up = document.documentElement.dataset.up;
  const values = new Map();
  const loading = new Map();
  const SHAPES = new Map([["good", "✓"], ["bad", "✗"], ["not applicable", "–"], ["no answer", "?"], ["unfinished", "…"]]);

  const policy = window.trustedTypes
    ? window.trustedTypes.createPolicy("metamatrix", {createScriptURL: (address) => {
        if (!/^(\.\.\/)*data\/[\w./-]+\.js$/.test(address) || /\.\.\//.test(address.slice(up.length))) {
          throw new TypeError(`${address} is no data file of this site`);
        }
        return address;
      }})
    : {createScriptURL: (address) => address};

  // A data file calls this. It is JSON in a string: parsing it cannot run anything.
  function put(name, text) {
    values.set(name, JSON.parse(text));
  }

  // A classic script, because a page that was opened from a disk may neither fetch nor load modules.
  function load(name) {
    if (!loading.has(name)) {
      loading.set(name, new Promise((done, failed) => {
        const script = document.createElement("script");
        script.src = policy.createScriptURL(`${up}data/${name}.js`);
        script.onload = () => values.has(name) ? done(values.get(name)) : failed(new Error(`data/${name}.js is damaged`));
        script.onerror = () => failed(new Error(`data/${name}.js is not there`));
        document.head.append(script);
      }));
    }
    return loading.get(name);
  }

  // What a thing from outside is called as a file: as reports/names.py says, whose exceptions are in the index.
  async function fileName(text) {
    if (/^[A-Za-z0-9][A-Za-z0-9_-]{0,63}$/.test(text)) return text;
    const index = await load("index");
    const found = new Map(index.names).get(text);
    if (found === undefined) throw new Error("the data have no file for this");
    return found;
  }

  // element("a", {href: "x"}, "text", child): children that are no nodes become text.
  function element(tag, attributes = {}, ...children) {
    const made = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) {
      if (value === false || value === null || value === undefined) continue;
      if (name === "onclick") made.addEventListener("click", value);
      else made.setAttribute(name, value === true ? "" : value);
    }
    made.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
    return made;
  }

  // Control characters and marks that turn text around are shown as numbers, as on the pages made by Python.
  function plain(text) {
    return String(text).replace(/[\p{Cc}\p{Cf}\p{Cs}\p{Co}\p{Cn}\u2028\u2029]/gu, (letter) =>
      letter === "\n" || letter === "\t" ? letter : `\\x${letter.codePointAt(0).toString(16).padStart(2, "0")}`);
  }

  function shortened(text, most) {
    const whole = plain(text);
    return whole.length > most ? `${whole.slice(0, most - 1)}…` : whole;
  }

  function tag(group, verdict) {
    return element("span", {class: `tag ${group.replaceAll(" ", "-")}`},
      element("span", {"aria-hidden": "true"}, SHAPES.get(group) ?? "?"), ` ${plain(verdict ?? "unfinished")}`);
  }

  function table(caption, header, rows) {
    const said = plain(caption);
    return element("div", {class: "scroll", role: "region", "aria-label": said, tabindex: "0"},
      element("table", {}, element("caption", {}, said),
        element("thead", {}, element("tr", {}, header.map((name) => element("th", {scope: "col"}, name)))),
        element("tbody", {}, rows.map(([first, ...others]) =>
          element("tr", {}, element("th", {scope: "row"}, first), others.map((value) => element("td", {}, value)))))));
  }

  // The state of a page: names with texts, after the #.
  function state() {
    return new Map(new URLSearchParams(location.hash.slice(1)));
  }

  function address(entries) {
    const query = new URLSearchParams();
    for (const [name, value] of entries) if (value !== "" && value !== null) query.set(name, value);
    return `#${query}`;
  }

  // Keep the state in the address: a new entry of the history where somebody may want to come back.
  function keep(entries, step = false) {
    const wanted = address(entries);
    if (wanted === location.hash || (wanted === "#" && location.hash === "")) return;
    history[step ? "pushState" : "replaceState"](null, "", wanted === "#" ? location.pathname : wanted);
  }

  function copyButton(text) {
    const button = element("button", {type: "button", class: "copy"}, "Copy");
    button.addEventListener("click", async () => {
      try {
        await navigator.clipboard.writeText(text);
        button.textContent = "Copied";
      } catch {
        button.textContent = "Select and copy it by hand";
      }
    });
    return button;
  }

  function show(place, ...children) {
    place.replaceChildren(...children.flat(Infinity).filter((child) => child));
    place.setAttribute("aria-busy", "false");
  }

  // Run a page; what goes wrong is told on it.
  async function page(run) {
    try {
      await run();
    } catch (error) {
      const trouble = document.getElementById("trouble");
      trouble.textContent = `This page could not be made: ${plain(error.message)}. Load it again; if that does not help, the site is damaged.`;
      trouble.hidden = false;
      for (const busy of document.querySelectorAll('[aria-busy="true"]')) busy.setAttribute("aria-busy", "false");
    }
  }

  return {put, load, fileName, element, plain, shortened, tag, table, state, address, keep, copyButton, show, page, up, SHAPES};
})();
