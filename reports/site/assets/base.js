// What every page uses: data files, the address, elements made of text only. No page puts foreign text into markup.
"use strict";

const MM = (() => {
  const up = document.documentElement.dataset.up;
  document.documentElement.classList.add("scripted"); // choices are shown only where they do something
  const values = new Map();
  const loading = new Map();
  const PACKAGES = ["diffusers", "transformers", "accelerate", "torch"];
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

  // Gives a function: what is a thing from outside called as a file? As reports/names.py says, whose exceptions are in
  // the index.
  async function fileNames() {
    const names = new Map((await load("index")).names);
    return (text) => {
      if (/^[A-Za-z0-9][A-Za-z0-9_-]{0,63}$/.test(text)) return text;
      const found = names.get(text);
      if (found === undefined) throw new Error("the data have no file for this");
      return found;
    };
  }

  // 2.13.0+cpu is 2.13.0 to who asks.
  const released = (version) => version.split("+")[0];

  // For work that takes a while: gives a function that says whether nothing newer has begun since.
  function newest() {
    let last = 0;
    return () => {
      const mine = last += 1;
      return () => mine === last;
    };
  }

  // element("a", {href: "x"}, "text", child): children that are no nodes become text.
  function element(tag, attributes = {}, ...children) {
    const made = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) {
      if (value === false || value === null || value === undefined) continue;
      made.setAttribute(name, value === true ? "" : value);
    }
    made.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
    return made;
  }

  // Control characters and marks that turn text around are shown as numbers, as on the pages made by Python.
  function plain(text) {
    return String(text).replace(/[\p{C}\p{Z}]/gu, (letter) =>
      letter === "\n" || letter === "\t" || letter === " " ? letter : `\\x${letter.codePointAt(0).toString(16).padStart(2, "0")}`);
  }

  function sentence(text) {
    return plain(text).replace(/^./u, (letter) => letter.toUpperCase());
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

  // For a shell: text from outside stays one word of a line that is made to be copied.
  function quoted(word) {
    return /^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", `'"'"'`)}'`;
  }

  function copyButton(text) {
    const button = element("button", {type: "button", class: "copy", "aria-live": "polite"}, "Copy");
    button.addEventListener("click", async () => {
      try {
        await navigator.clipboard.writeText(text);
        button.textContent = "Copied";
        setTimeout(() => { button.textContent = "Copy"; }, 3000);
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
    document.getElementById("trouble").hidden = true;
    try {
      await run();
    } catch (error) {
      const trouble = document.getElementById("trouble");
      trouble.textContent = `This page could not be made: ${plain(error.message)}. Load it again; if that does not help, the site is damaged.`;
      trouble.hidden = false;
      for (const busy of document.querySelectorAll('[aria-busy="true"]')) busy.setAttribute("aria-busy", "false");
    }
  }

  return {put, load, fileNames, released, newest, element, plain, sentence, shortened, tag, table, state, address, keep, copyButton, quoted, show, page, up, PACKAGES, SHAPES};
})();
