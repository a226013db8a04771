// The page: drawing, settings, time.
"use strict";
const $ = id => document.getElementById(id);
const network = new SpikingNetwork(DATA);
const pad = $("pad"), ink = new Float64Array(784);
let result = null, playing = 0, pen = { x: 14, y: 14, shown: false };

// -- drawing ---------------------------------------------------------------------------------------------------------

function paint(x, y) {
  for (let row = 0; row < 28; row++)
    for (let col = 0; col < 28; col++) {
      const distance = Math.hypot(col + 0.5 - x, row + 0.5 - y);
      const value = Math.max(0, Math.min(1, 1.75 - distance));
      ink[row * 28 + col] = Math.max(ink[row * 28 + col], value);
    }
}

function showPad() {
  const context = pad.getContext("2d"), image = context.createImageData(28, 28);
  for (let i = 0; i < 784; i++) {
    const value = Math.round(ink[i] * 255);
    image.data.set([value, value, value, 255], 4 * i);
  }
  if (pen.shown) image.data.set([245, 176, 65, 255], 4 * (pen.y * 28 + pen.x));
  context.putImageData(image, 0, 0);
}

// The digit in the middle, as MNIST has it: its centre of mass moves to the centre of the field.
function pixels() {
  let mass = 0, x = 0, y = 0;
  for (let i = 0; i < 784; i++) { mass += ink[i]; x += ink[i] * (i % 28); y += ink[i] * Math.floor(i / 28); }
  const moves = mass > 0 && $("center").checked && !sample;
  const dx = moves ? Math.round(13.5 - x / mass) : 0, dy = moves ? Math.round(13.5 - y / mass) : 0;
  const out = new Uint8Array(784);
  for (let i = 0; i < 784; i++) {
    const col = (i % 28) + dx, row = Math.floor(i / 28) + dy;
    if (col >= 0 && col < 28 && row >= 0 && row < 28) out[row * 28 + col] = Math.round(ink[i] * 255);
  }
  return out;
}

let sample = false, last = null;
function place(event) {
  const box = pad.getBoundingClientRect();
  return { x: (event.clientX - box.left) / box.width * 28, y: (event.clientY - box.top) / box.height * 28 };
}
function startFresh() { if (sample) { ink.fill(0); sample = false; } }
pad.addEventListener("pointerdown", event => {
  pad.setPointerCapture(event.pointerId);
  startFresh();
  last = place(event);
  paint(last.x, last.y);
  showPad();
});
pad.addEventListener("pointermove", event => {
  if (!last) return;
  const now = place(event), parts = Math.ceil(Math.hypot(now.x - last.x, now.y - last.y) * 2) + 1;
  for (let i = 1; i <= parts; i++) paint(last.x + (now.x - last.x) * i / parts, last.y + (now.y - last.y) * i / parts);
  last = now;
  showPad();
});
for (const name of ["pointerup", "pointercancel"]) pad.addEventListener(name, () => { if (last) { last = null; compute(); } });
pad.addEventListener("keydown", event => {
  const moves = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
  if (moves[event.key]) {
    pen.x = Math.max(0, Math.min(27, pen.x + moves[event.key][0]));
    pen.y = Math.max(0, Math.min(27, pen.y + moves[event.key][1]));
  } else if (event.key === " ") {
    startFresh();
    paint(pen.x + 0.5, pen.y + 0.5);
    compute();
  } else return;
  event.preventDefault();
  pen.shown = true;
  showPad();
});
pad.addEventListener("blur", () => { pen.shown = false; showPad(); });
$("clear").onclick = () => { ink.fill(0); sample = false; showPad(); compute(); };
$("center").onchange = () => compute();
DATA.samples.forEach((packed, digit) => {
  const button = document.createElement("button");
  button.type = "button";
  button.textContent = digit;
  button.setAttribute("aria-label", `Test image of a ${digit}`);
  button.onclick = () => {
    bytesOf(packed).forEach((value, i) => { ink[i] = value / 255; });
    sample = true;
    showPad();
    compute();
  };
  $("digits").append(button);
});

// -- results ---------------------------------------------------------------------------------------------------------

const rows = [];
for (let digit = 0; digit < 10; digit++) {
  const row = document.createElement("div");
  row.className = "score";
  row.innerHTML = `<span>${digit}</span><span class="bar"><i></i></span><span class="number"></span>`;
  $("scores").append(row);
  rows.push(row);
}
const maps = network.populations.map((layer, number) => {
  const title = document.createElement("p"), box = document.createElement("div"), [channels, side] = layer.shape;
  title.className = "soft";
  title.textContent = `Layer ${number + 1}: ${channels} channels of ${side} x ${side}`;
  box.className = "maps";
  box.setAttribute("role", "img");
  const canvases = Array.from({ length: channels }, () => {
    const canvas = document.createElement("canvas");
    canvas.width = canvas.height = side;
    box.append(canvas);
    return canvas;
  });
  $("layers").append(title, box);
  return { box, canvases, side };
});

function compute() {
  stop();
  const steps = Number($("steps").value);
  $("steps-shown").value = steps;
  if (!ink.some(value => value > 0)) { result = null; show(); return; }
  const run = network.run(pixels(), steps, Number($("start").value));
  const exit = $("exit").checked ? exitAt(run.scores, DATA.exits[$("start").value]) : null;
  result = { ...run, settled: settledAt(run.scores), exit, end: exit || steps };
  $("time").max = result.end;
  $("time").value = result.end;
  show();
}

function show() {
  const step = Number($("time").value);
  $("time-shown").value = result ? `${step} of ${result.end}` : "";
  for (const id of ["time", "play", "back", "forward"]) $(id).disabled = !result;
  showTimeline(step);
  showScores(step);
  showSpikes(step);
  if (!result) { $("answer").textContent = "Draw a digit, or take a test image."; return; }
  const now = argmax(result.scores[step - 1]), end = argmax(result.scores[result.end - 1]);
  const settled = settledAt(result.scores.slice(0, result.end));
  const early = result.exit ? ` Early exit stopped at step ${result.exit} of ${$("steps").value}.` : "";
  $("answer").textContent = `After step ${step}: ${now}. The answer is ${end} and is settled from step ${settled} on.${early}`;
}

function showTimeline(step) {
  const line = $("timeline");
  line.replaceChildren();
  if (!result) return;
  const settled = settledAt(result.scores.slice(0, result.end));
  for (let t = 1; t <= result.scores.length; t++) {
    const mark = document.createElement("span");
    if (t <= step) mark.className = t >= settled ? "settled" : "done";
    if (t === result.exit) mark.classList.add("exit");
    line.append(mark);
  }
}

function showScores(step) {
  const scores = result ? result.scores[step - 1] : new Array(10).fill(0);
  const low = Math.min(...scores, 0), high = Math.max(...scores, low + 1e-6), best = result ? argmax(scores) : -1;
  rows.forEach((row, digit) => {
    row.classList.toggle("best", digit === best);
    row.querySelector("i").style.width = result ? `${100 * (scores[digit] - low) / (high - low)}%` : "0";
    row.querySelector(".number").textContent = result ? scores[digit].toFixed(2) : "";
  });
}

function showSpikes(step) {
  let now = 0, before = 0;
  maps.forEach((layer, number) => {
    const area = layer.side * layer.side;
    let own = 0;
    layer.canvases.forEach((canvas, channel) => {
      const context = canvas.getContext("2d"), image = context.createImageData(layer.side, layer.side);
      for (let i = 0; i < area; i++) {
        let sum = 0, spike = 0;
        if (result) {
          for (let t = 0; t < step; t++) sum += result.spikes[number][t][channel * area + i];
          spike = result.spikes[number][step - 1][channel * area + i];
        }
        own += spike;
        before += sum;
        const dim = result ? Math.round(150 * sum / step) : 0;
        image.data.set(spike ? [255, 214, 102, 255] : [dim >> 1, dim * 0.8, dim, 255], 4 * i);
      }
      context.putImageData(image, 0, 0);
    });
    layer.box.setAttribute("aria-label", `${own} spikes in layer ${number + 1} at step ${step}`);
    now += own;
  });
  $("count").textContent = result ? `${now.toLocaleString("en")} spikes now, ${before.toLocaleString("en")} so far.` : "";
}

// -- time ------------------------------------------------------------------------------------------------------------

function stop() { clearInterval(playing); playing = 0; $("play").textContent = "Play"; }
function go(step) {
  $("time").value = Math.max(1, Math.min(result ? result.end : 1, step));
  show();
}
$("play").onclick = () => {
  if (playing) { stop(); return; }
  if (Number($("time").value) >= result.end) go(1);
  $("play").textContent = "Pause";
  playing = setInterval(() => {
    if (Number($("time").value) >= result.end) stop();
    else go(Number($("time").value) + 1);
  }, 350);
};
$("back").onclick = () => { stop(); go(Number($("time").value) - 1); };
$("forward").onclick = () => { stop(); go(Number($("time").value) + 1); };
$("time").oninput = () => { stop(); show(); };
for (const id of ["steps", "start", "exit"]) $(id).oninput = compute;
showPad();
compute();
$("digits").children[3].click();
