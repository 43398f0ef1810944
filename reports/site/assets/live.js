// Watches a run, where `metamatrix serve` tells of one.
"use strict";

MM.page(async () => {
  const {element, plain} = MM;
  const EVERY = 2000;

  function words(live) {
    const open = live.total - live.done;
    if (!live.running) return open ? `No run is under way; ${open} of ${live.total} cells have no attempt. Run the same command again to go on.` : `All ${live.total} cells are done.`;
    const left = live.seconds_left === null ? "time left unknown" : `about ${live.seconds_left < 90 ? `${live.seconds_left} s` : `${Math.round(live.seconds_left / 60)} min`} left`;
    return `${live.done} of ${live.total} cells, ${left}.`;
  }

  async function look() {
    const answer = await fetch("live.json", {cache: "no-store"});
    if (!answer.ok) throw new Error(`the server answers ${answer.status}`);
    const live = await answer.json();
    document.getElementById("state").textContent = plain(words(live));
    const bar = document.getElementById("progress");
    [bar.max, bar.value] = [Math.max(1, live.total), live.done];
    MM.show(document.getElementById("environments"), MM.table("Environments", ["environment", "cells done", "of"], live.environments.map((entry) =>
      [plain(entry.words), String(entry.done), String(entry.total)])));
    if (live.running) setTimeout(() => MM.page(look), EVERY);
  }

  await look();
});
