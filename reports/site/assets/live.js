// Watches a run, where `metamatrix serve` tells of one.
"use strict";

MM.page(async () => {
  const {element, plain} = MM;
  const SOON = 2000, LATER = 10000;
  const said = document.getElementById("state"), bar = document.getElementById("progress"), place = document.getElementById("environments");
  let shown = "";

  function words(live) {
    const open = live.total - live.done;
    if (!live.total) return "There is no plan yet.";
    if (!live.running) return open ? `No run is under way; ${open} of ${live.total} cells have no attempt. Run the same command again to go on.` : `All ${live.total} cells are done.`;
    const left = live.seconds_left === null ? "time left unknown" : `about ${live.seconds_left < 90 ? `${live.seconds_left} s` : `${Math.round(live.seconds_left / 60)} min`} left`;
    return `${live.done} of ${live.total} cells, ${left}.`;
  }

  function draw(live) {
    said.textContent = plain(words(live));
    [bar.max, bar.value] = [Math.max(1, live.total), live.done];
    const now = JSON.stringify(live.environments);
    if (now === shown) return;
    shown = now;
    MM.show(place, MM.table("Environments", ["environment", "cells done", "of"], live.environments.map((entry) =>
      [plain(entry.words), String(entry.done), String(entry.total)])));
  }

  // A server that does not answer now may answer later, and a run may begin at any time: it goes on asking.
  async function look() {
    let pause = LATER;
    try {
      const answer = await fetch("live.json", {cache: "no-store"});
      if (!answer.ok) throw new Error(String(answer.status));
      const live = await answer.json();
      draw(live);
      pause = live.running ? SOON : LATER;
    } catch (error) {
      said.textContent = `The server does not answer (${plain(error.message)}); asking again.`;
    }
    setTimeout(look, pause);
  }

  await look();
});
