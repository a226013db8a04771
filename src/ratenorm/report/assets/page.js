"use strict";
// Sliders over figures that are already on the page; nothing essential depends on this script.
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const make = (name, text, parent) => {
    const element = document.createElement(name);
    element.textContent = text;
    parent.append(element);
    return element;
  };
  const connect = (box, steps, start, show) => {
    const input = box.querySelector("input");
    const output = box.querySelector("output");
    const update = () => {
      output.textContent = input.value;
      show(Number(input.value));
    };
    input.max = String(steps);
    input.value = String(start);
    input.addEventListener("input", update);
    box.hidden = false;
    update();
  };

  const steps = document.getElementById("steps");
  if (steps && data.runs.length) {
    const longest = Math.max(...data.runs.map((run) => run.accuracy.length));
    const table = steps.querySelector("table");
    connect(steps, longest, Math.min(longest, 16), (step) => {
      table.replaceChildren();
      const head = make("tr", "", make("thead", "", table));
      ["run", "accuracy (%)", "loss (points)", "spikes per neuron", "energy (µJ)"].forEach((text) => make("th", text, head));
      const body = make("tbody", "", table);
      for (const run of data.runs) {
        const row = make("tr", "", body);
        make("th", run.name, row);
        const known = step <= run.accuracy.length;
        const accuracy = run.accuracy[step - 1];
        const cells = known
          ? [accuracy.toFixed(2), (100 * run.ann - accuracy).toFixed(2), run.spikes[step - 1], run.energy[step - 1]]
          : ["–", "–", "–", "–"];
        cells.forEach((text) => make("td", String(text), row));
      }
    });
  }

  document.querySelectorAll(".panel").forEach((panel) => {
    const example = data.examples[Number(panel.dataset.example)];
    const box = panel.querySelector(".explore");
    const bars = box.querySelector(".bars");
    const all = example.scores.flat();
    const low = Math.min(0, ...all);
    const span = Math.max(...all) - low || 1;
    connect(box, example.scores.length, Math.min(example.scores.length, 4), (step) => {
      const scores = example.scores[step - 1];
      const top = scores.indexOf(Math.max(...scores));
      // With many classes only the ten highest are worth a row.
      const shown = [...scores.keys()].sort((a, b) => scores[b] - scores[a]).slice(0, 10);
      if (scores.length <= 10) shown.sort((a, b) => a - b);
      bars.replaceChildren();
      for (const index of shown) {
        make("b", example.classes[index] + (index === example.label ? " ✓" : ""), bars);
        const bar = make("i", "", bars);
        bar.className = index === top ? "top" : "";
        bar.style.width = `${(100 * (scores[index] - low)) / span}%`;
        make("span", scores[index].toFixed(2).replace(/^-(0\.0+)$/, "$1"), bars);
      }
    });
  });

  // A click on a column head sorts its table; numbers by size, missing ones last.
  document.querySelectorAll("table.sortable").forEach((table) => {
    const body = table.tBodies[0];
    [...table.tHead.rows[0].cells].forEach((head, column) => {
      const button = document.createElement("button");
      button.type = "button";
      button.append(...head.childNodes);
      head.append(button);
      let down = false;
      button.addEventListener("click", () => {
        const value = (row) => row.cells[column].textContent;
        const number = (row) => { const n = parseFloat(value(row).replace(/,/g, "")); return Number.isNaN(n) ? Infinity : n; };
        const rows = [...body.rows].sort((a, b) =>
          column === 0 ? value(a).localeCompare(value(b)) : (number(a) === number(b) ? 0 : number(a) - number(b)));
        if (down) rows.reverse();
        down = !down;
        [...table.tHead.rows[0].cells].forEach((other) => other.removeAttribute("aria-sort"));
        head.setAttribute("aria-sort", down ? "ascending" : "descending");
        body.append(...rows);
      });
    });
  });
})();
