// The spiking network. Every sum is one that Python computes too: products of whole numbers and powers of two are exact
// in double precision, and the result is rounded to float32 once, where Python does.
"use strict";

function bytesOf(text) {
  const raw = atob(text), bytes = new Uint8Array(raw.length);
  for (let i = 0; i < raw.length; i++) bytes[i] = raw.charCodeAt(i);
  return bytes;
}

function weightsOf(packed) {
  const bytes = bytesOf(packed.values);
  const whole = packed.bits === 16 ? new Int16Array(bytes.buffer) : new Int32Array(bytes.buffer);
  const weights = new Float64Array(whole.length), each = whole.length / packed.shape[0];
  for (let i = 0; i < whole.length; i++) weights[i] = whole[i] * 2 ** packed.exponents[Math.floor(i / each)];
  return weights;
}

// Rounds to the nearest whole number, halves to the even one, as torch does.
function roundEven(x) {
  const low = Math.floor(x), rest = x - low;
  if (rest < 0.5) return low;
  if (rest > 0.5) return low + 1;
  return low % 2 === 0 ? low : low + 1;
}

// The exponent e with 2^(e-1) <= x < 2^e.
function exponentOf(x) {
  if (x === 0) return 0;
  let e = Math.floor(Math.log2(x)) + 1;
  while (2 ** e <= x) e++;
  while (2 ** (e - 1) > x) e--;
  return e;
}

// Pixels 0..255 as the network takes them: normalised in float32, then rounded to 26 bits of the largest.
function currentImage(pixels, mean, std) {
  const f = Math.fround, m = f(mean), s = f(std), x = new Float64Array(pixels.length);
  let largest = 0;
  for (let i = 0; i < pixels.length; i++) {
    x[i] = f(f(f(pixels[i] / 255) - m) / s);
    largest = Math.max(largest, Math.abs(x[i]));
  }
  const step = 2 ** (exponentOf(largest) - 26);
  for (let i = 0; i < x.length; i++) x[i] = roundEven(x[i] / step) * step;
  return x;
}

// A 3x3 convolution with padding 1; what is zero is skipped, so the work follows the spikes.
function convolve(x, channels, side, weights, bias) {
  const outputs = bias.length, area = side * side, sums = new Float64Array(outputs * area);
  for (let c = 0; c < channels; c++)
    for (let row = 0; row < side; row++)
      for (let col = 0; col < side; col++) {
        const value = x[c * area + row * side + col];
        if (value === 0) continue;
        for (let kr = 0; kr < 3; kr++) {
          const r = row + 1 - kr;
          if (r < 0 || r >= side) continue;
          for (let kc = 0; kc < 3; kc++) {
            const q = col + 1 - kc;
            if (q < 0 || q >= side) continue;
            const tap = c * 9 + kr * 3 + kc, place = r * side + q;
            for (let o = 0; o < outputs; o++) sums[o * area + place] += value * weights[o * channels * 9 + tap];
          }
        }
      }
  for (let o = 0; o < outputs; o++)
    for (let i = 0; i < area; i++) sums[o * area + i] = Math.fround(sums[o * area + i] + bias[o]);
  return sums;
}

function pooled(x, channels, side) {
  const half = side >> 1, out = new Float64Array(channels * half * half);
  for (let c = 0; c < channels; c++)
    for (let row = 0; row < half; row++)
      for (let col = 0; col < half; col++) {
        const at = c * side * side + 2 * row * side + 2 * col;
        out[c * half * half + row * half + col] = (x[at] + x[at + 1] + x[at + side] + x[at + side + 1]) / 4;
      }
  return out;
}

class SpikingNetwork {
  constructor(data) {
    this.data = data;
    this.layers = data.layers.map(layer => layer.weight ? { ...layer, weights: weightsOf(layer.weight) } : layer);
    this.populations = this.layers.filter(layer => layer.kind === "fire");
  }

  // All steps of one image: spikes of each population and step, summed outputs, the margin of the mean output.
  run(pixels, steps, start) {
    const fires = this.populations.map(p => ({
      potential: new Float32Array(p.shape.reduce((a, b) => a * b)).fill(Math.fround(p.threshold * start)),
      spikes: [],
    }));
    const image = currentImage(pixels, this.data.mean, this.data.std);
    const scores = [], total = new Float64Array(10);
    let still = null; // the current of the first layer, the same at every step
    for (let step = 1; step <= steps; step++) {
      let x = image, channels = 1, side = 28, fire = 0;
      for (const layer of this.layers) {
        if (layer.kind === "conv") {
          if (layer.analog) x = still = still || convolve(x, channels, side, layer.weights, layer.bias);
          else x = convolve(x, channels, side, layer.weights, layer.bias);
          channels = layer.bias.length;
        } else if (layer.kind === "fire") {
          x = this.fire(fires[fire++], x, layer.threshold);
        } else if (layer.kind === "pool") {
          x = pooled(x, channels, side);
          side >>= 1;
        } else {
          for (let o = 0; o < 10; o++) {
            let sum = 0;
            for (let i = 0; i < x.length; i++) sum += x[i] * layer.weights[o * x.length + i];
            total[o] += Math.fround(sum + layer.bias[o]);
          }
        }
      }
      scores.push(Array.from(total, sum => sum / step));
    }
    return { spikes: fires.map(f => f.spikes), scores };
  }

  // Eq. 3: m = v + current; a spike where m reaches the threshold, which is then taken off.
  fire(state, current, threshold) {
    const spikes = new Uint8Array(current.length), v = state.potential;
    for (let i = 0; i < current.length; i++) {
      v[i] += current[i];
      if (v[i] >= threshold) {
        spikes[i] = 1;
        v[i] -= threshold;
      }
    }
    state.spikes.push(spikes);
    return spikes;
  }
}

function argmax(values) {
  let best = 0;
  for (let i = 1; i < values.length; i++) if (values[i] > values[best]) best = i;
  return best;
}

// The step from which on the answer stays what it is at the end.
function settledAt(scores) {
  const last = argmax(scores[scores.length - 1]);
  let step = scores.length;
  while (step > 1 && argmax(scores[step - 2]) === last) step--;
  return step;
}

// The first step whose lead of the best class reaches the threshold of that step.
function exitAt(scores, thresholds) {
  for (let step = 1; step <= scores.length; step++) {
    const sorted = scores[step - 1].map(Math.fround).sort((a, b) => b - a);
    if (Math.fround(sorted[0] - sorted[1]) >= thresholds[step - 1]) return step;
  }
  return scores.length;
}
