// The charts, by uPlot (MIT, uplot/LICENSE).

import uPlot from "./uplot/uPlot.esm.js";
import { hoursMinutes, make, ms, rate, tick } from "./text.js";

const heightPx = 220;
const leastSpan = 2 * 60; // seconds that are shown at least
const minute = 60; // seconds; labels have no shorter steps, as they show no seconds
const steps = [1, 2, 5, 10, 15, 20, 30, 60].map((minutes) => minutes * minute);

const color = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();

// Chart draws lines over the last hour. Each line has a label, the member of a history that it shows, a color, and
// perhaps dashes, by which lines differ without their colors, too.
export class Chart {
  constructor(place, lines, format, empty) {
    Object.assign(this, { place, lines, format, empty, plot: null, history: null });
    new ResizeObserver(() => this.plot?.setSize({ width: this.width(), height: heightPx })).observe(place);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.redraw());
  }

  width() {
    return Math.max(200, Math.floor(this.place.clientWidth));
  }

  show(history) {
    this.history = history;
    const data = [history.times, ...this.lines.map((line) => lasting(history[line.member]))];
    if (!data.slice(1).some((line) => line.some((value) => value))) {
      this.plot?.destroy();
      this.plot = null;
      this.place.replaceChildren(make("p", "empty", history.times.length > 0 ? this.empty : "The first figures show a few seconds after the start."));
    } else if (this.plot) {
      this.plot.setData(data);
    } else {
      this.place.replaceChildren();
      this.plot = new uPlot(this.options(), data, this.place);
    }
  }

  redraw() {
    if (!this.plot) return;
    this.plot.destroy();
    this.plot = null;
    this.show(this.history);
  }

  told(value) {
    return value === null || value === undefined ? "–" : this.format(value);
  }

  options() {
    const axis = { stroke: color("quiet"), grid: { stroke: color("line"), width: 1 }, ticks: { show: false }, font: "12px system-ui, sans-serif" };
    return {
      width: this.width(),
      height: heightPx,
      scales: {
        x: { range: (_, from, to) => [Math.min(from, to - leastSpan), to] },
        y: { range: (_, __, most) => [0, Math.max(most * 1.1, 1e-3)] },
      },
      axes: [
        { ...axis, size: 28, space: 70, incrs: steps, values: (_, times) => times.map((t) => hoursMinutes(new Date(1000 * t))) },
        { ...axis, size: 48, values: (_, values) => values.map(tick) },
      ],
      cursor: { y: false, points: { size: 6 } },
      series: [
        { label: "Time", value: (_, t) => (t ? hoursMinutes(new Date(1000 * t)) : "now") },
        ...this.lines.map((line) => ({
          label: line.label,
          stroke: color(line.color),
          width: 2,
          dash: line.dash,
          fill: line.filled ? `${color(line.color)}22` : undefined,
          points: { show: false },
          spanGaps: line.spanGaps ?? false,
          value: (u, v, i, at) => this.told(at === null ? u.data[i].at(-1) : v),
        })),
      ],
    };
  }
}

// lasting has a value hold since the sample before it, where that has none: a single one is a line, too.
const lasting = (values) => values.map((value, i) => value ?? values[i + 1] ?? null);

export const decisionsChart = (place) => new Chart(place, [
  { label: "Allowed", member: "allowed", color: "allowed", filled: true },
  { label: "Denied", member: "denied", color: "denied" },
  { label: "Would deny", member: "would_deny", color: "would-deny", dash: [6, 4] },
], rate, "No decisions within the last hour.");

export const latencyChart = (place) => new Chart(place, [
  { label: "Requests, p50", member: "p50_ms", color: "allowed", spanGaps: true },
  { label: "Requests, p99", member: "p99_ms", color: "denied", spanGaps: true },
  { label: "Store, p99", member: "store_p99_ms", color: "would-deny", dash: [6, 4], spanGaps: true },
], ms, "No requests for decisions within the last hour.");
