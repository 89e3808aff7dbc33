// The timeline: slices of nested calls, drawn on one canvas for each track.

const ROW = 17;
const MARKS = 16;
const LEAST_TEXT = 34;

const MARK_KINDS = ["gap", "event", "message", "exception", "transaction"];
const GAP = 0;
const EXCEPTION_MARK = 3;

/** Reads the colours of the style sheet, which differ between light and dark. */
function theme() {
  const style = getComputedStyle(document.documentElement);
  const read = (name) => style.getPropertyValue(`--${name}`).trim();
  const names = ["ground", "text", "quiet", "line", "raised", "gap", "mark", "exception", "slice-text", "link"];
  const colours = Object.fromEntries(names.map((name) => [name, read(name)]));
  colours.slice = (hue) => `hsl(${hue} ${read("slice-colour")} ${read("slice-light")})`;
  colours.hues = new Map();
  return colours;
}

function hueOf(name) {
  let hash = 7;
  for (let i = 0; i < name.length; i++) hash = (hash * 31 + name.charCodeAt(i)) >>> 0;
  return (hash * 137) % 360;
}

/** The ways to measure the horizontal axis. */
const AXES = {
  instructions: { title: "instructions" },
  time: { title: "timestamp" },
  cycles: { title: "cycles" },
};

/** A value of an axis for people. */
function tick(value) {
  return inGroups(Math.round(value));
}

/** What all tracks share: the axis, and the part of it in view. */
class View {
  constructor(tracks, changed) {
    this.tracks = tracks;
    this.changed = changed;
    this.axis = "instructions";
    this.whole();
  }

  /** Whether a track can be drawn on the axis. */
  has(track) {
    return this.axis === "instructions" || track.clocks[this.axis].known;
  }

  at(track, place) {
    return this.axis === "instructions" ? place : track.clocks[this.axis].at(place);
  }

  place(track, value) {
    return this.axis === "instructions" ? value : track.clocks[this.axis].place(value);
  }

  extent() {
    let from = Infinity;
    let to = -Infinity;
    const filled = this.tracks.filter((track) => this.has(track) && track.length > track.first);
    for (const track of filled) {
      from = Math.min(from, this.at(track, track.first));
      to = Math.max(to, this.at(track, track.length));
    }
    return from < to ? [from, to] : [0, 1];
  }

  whole() {
    [this.first, this.last] = this.extent();
    this.show(this.first, this.last);
  }

  measure(axis) {
    this.axis = axis;
    this.whole();
  }

  /** Shows a part of the axis, at least a few units and within the trace. */
  show(from, to) {
    const most = this.last - this.first;
    const span = Math.min(Math.max(to - from, Math.min(8, most)), most);
    const start = Math.min(Math.max(from + (to - from - span) / 2, this.first), this.last - span);
    this.from = start;
    this.to = start + span;
    this.changed();
  }

  zoom(factor, around = (this.from + this.to) / 2) {
    this.show(around - (around - this.from) * factor, around + (this.to - around) * factor);
  }

  pan(part) {
    const by = (this.to - this.from) * part;
    this.show(this.from + by, this.to + by);
  }

  /** Shows a stretch with some room on both sides. */
  around(from, to) {
    const room = Math.max((to - from) * 0.1, 1);
    this.show(from - room, to + room);
  }

  /** Moves as little as possible so that a stretch, or its start, is in view. */
  reveal(from, to) {
    if (from >= this.from && to <= this.to) return;
    const span = this.to - this.from;
    if (to - from > span) this.around(from, to);
    else if (from < this.from) this.show(from - span * 0.1, from + span * 0.9);
    else this.show(to - span * 0.9, to + span * 0.1);
  }
}

/** Draws one track. */
class TrackCanvas {
  constructor(track, view, page) {
    this.track = track;
    this.view = view;
    this.page = page;
    this.selected = null;
    this.canvas = make("canvas", { tabIndex: 0, role: "application", "aria-roledescription": "timeline" });
    this.canvas.setAttribute("aria-label", `Timeline of ${track.name}`);
    this.canvas.setAttribute("aria-describedby", "timeline-help");
    this.sheet = make("div", { className: "sheet" }, this.canvas);
    this.rows = make("div", { className: "rows" }, this.sheet);
    this.element = make("div", { className: "track" }, make("h3", { textContent: track.name }));
    if (track.note) this.element.append(make("p", { className: "note", textContent: track.note }));
    this.element.append(this.rows);
    this.height = MARKS + ROW * track.rows.length + 2;
    this.sheet.style.height = `${this.height}px`;
    this.rows.addEventListener("scroll", () => page.redraw());
  }

  /** Adapts to the size of the window. */
  resize() {
    const scale = window.devicePixelRatio || 1;
    this.width = this.rows.clientWidth;
    this.shown = Math.min(this.height, this.rows.clientHeight || this.height);
    this.canvas.style.height = `${this.shown}px`;
    this.canvas.width = Math.round(this.width * scale);
    this.canvas.height = Math.round(this.shown * scale);
    this.scale = scale;
  }

  /** Whether the track is on the axis of the view. */
  get drawn() {
    return this.view.has(this.track);
  }

  x(place) {
    const { from, to } = this.view;
    return ((this.view.at(this.track, place) - from) / (to - from)) * this.width;
  }

  /** The coarsest level is enough when a finer one has more slices than pixels. */
  visible(row) {
    const { view, track } = this;
    const from = view.place(track, view.from);
    const to = view.place(track, view.to);
    for (const level of row.levels) {
      // A slice of no length on this axis is at a clock's reading: its end may be `from`.
      const first = Math.max(after(level.ends, from) - 1, 0);
      const last = Math.min(after(level.starts, to), level.starts.length);
      if (last - first <= 2 * this.width + 2 || level === row.levels.at(-1)) {
        return { level, first, last };
      }
    }
    return { level: row.levels[0], first: 0, last: 0 };
  }

  draw() {
    const context = this.canvas.getContext("2d");
    const { colours } = this.page;
    context.setTransform(this.scale, 0, 0, this.scale, 0, 0);
    context.fillStyle = colours.ground;
    context.fillRect(0, 0, this.width, this.shown);
    context.font = "12px system-ui, sans-serif";
    context.textBaseline = "middle";
    if (!this.drawn) {
      context.fillStyle = colours.quiet;
      context.fillText(`No ${AXES[this.view.axis].title} in this trace.`, 4, MARKS / 2 + 4);
      return;
    }
    const top = this.rows.scrollTop;
    const firstRow = Math.max(0, Math.floor((top - MARKS) / ROW));
    const lastRow = Math.min(this.track.rows.length, Math.ceil((top - MARKS + this.shown) / ROW));
    for (let row = firstRow; row < lastRow; row++) {
      this.drawRow(context, row, MARKS + row * ROW - top);
    }
    this.drawMarks(context);
    if (this.selected?.mark !== undefined) {
      context.strokeStyle = colours.text;
      context.lineWidth = 2;
      context.strokeRect(this.x(this.track.marks.places[this.selected.mark]) - 6, 1 - top, 12, MARKS - 2);
    }
  }

  drawRow(context, number, y) {
    const { colours, functions } = this.page;
    const row = this.track.rows[number];
    const { level, first, last } = this.visible(row);
    const height = row === this.track.blocks ? ROW - 7 : ROW - 2;
    let drawn = -1;
    for (let i = first; i < last; i++) {
      const slice = level.first[i];
      const left = this.x(level.starts[i]);
      const right = this.x(level.ends[i]);
      if (right < 0 || left > this.width) continue;
      const from = Math.max(left, -2);
      const width = Math.max(Math.min(right, this.width + 2) - from, 1);
      // What lies within a pixel that is drawn already cannot be seen.
      if (from + width <= drawn) continue;
      drawn = from + width;
      context.fillStyle = this.page.colour(row.what[slice]);
      context.fillRect(from, y, width > 3 ? width - 1 : width, height);
      if (row.flags[slice] & EXCEPTION && width > 3) {
        context.fillStyle = colours.exception;
        context.fillRect(from, y, width - 1, 3);
      }
      const merged = level.counts[i] > 1;
      if (merged && width > 8) {
        context.fillStyle = colours.ground;
        for (let x = from + 6; x < from + width - 2; x += 6) context.fillRect(x, y + height - 4, 1, 4);
      }
      if (width > LEAST_TEXT && height > 12) {
        context.fillStyle = colours["slice-text"];
        this.drawText(context, this.page.label(row, slice, level.counts[i]), from + 3, width - 6, y + height / 2 + 1);
      }
      const { selected } = this;
      if (selected !== null && selected.row === number && slice === selected.slice) {
        context.strokeStyle = colours.text;
        context.lineWidth = 2;
        context.strokeRect(from + 1, y + 1, Math.max(width - 3, 1), height - 2);
      }
    }
  }

  /** Writes as much of a text as fits. */
  drawText(context, text, x, room, y) {
    const fitting = Math.floor(room / 6);
    let shown = text.length > fitting ? `${text.slice(0, Math.max(fitting - 1, 0))}…` : text;
    while (shown.length > 1 && context.measureText(shown).width > room) {
      shown = `${shown.slice(0, -2)}…`;
    }
    if (shown.length > 1) context.fillText(shown, x, y);
  }

  drawMarks(context) {
    const { colours } = this.page;
    const { marks } = this.track;
    const y = -this.rows.scrollTop;
    const drawn = new Array(MARK_KINDS.length).fill(-9);
    let line = -99;
    const from = this.view.place(this.track, this.view.from);
    const to = this.view.place(this.track, this.view.to);
    const last = after(marks.places, to);
    for (let i = Math.max(after(marks.places, from) - 1, 0); i < last; i++) {
      const kind = marks.kinds[i];
      const x = this.x(marks.places[i]);
      if (x < -6 || x > this.width + 6 || x - drawn[kind] < 2) continue;
      drawn[kind] = x;
      if (kind === GAP) {
        context.fillStyle = colours.gap;
        // Lines side by side would hide the slices.
        if (x - line >= 12) {
          context.fillRect(x - 0.5, 0, 1, this.shown);
          line = x;
        }
        context.fillRect(x - 3, y + 1, 6, 6);
        continue;
      }
      context.fillStyle = kind === EXCEPTION_MARK ? colours.exception : colours.mark;
      context.beginPath();
      context.moveTo(x - 4, y + 2);
      context.lineTo(x + 4, y + 2);
      context.lineTo(x, y + MARKS - 3);
      context.fill();
    }
  }

  /** What is drawn at a point of the canvas: a slice, a mark, or nothing. */
  under(x, y) {
    if (!this.drawn) return null;
    const down = y + this.rows.scrollTop;
    if (down < MARKS) return this.markAt(x);
    const number = Math.floor((down - MARKS) / ROW);
    const row = this.track.rows[number];
    if (row === undefined) return null;
    const { level, first, last } = this.visible(row);
    for (let i = first; i < last; i++) {
      const left = this.x(level.starts[i]);
      if (x >= left && x < Math.max(this.x(level.ends[i]), left + 2)) {
        return { row: number, slice: level.first[i], count: level.counts[i] };
      }
    }
    return null;
  }

  markAt(x) {
    const { marks } = this.track;
    let best = null;
    const near = this.view.place(this.track, this.view.from + ((x - 5) / this.width) * (this.view.to - this.view.from));
    for (let i = Math.max(after(marks.places, near) - 1, 0); i < marks.places.length; i++) {
      const away = Math.abs(this.x(marks.places[i]) - x);
      if (this.x(marks.places[i]) > x + 5) break;
      if (away <= 5 && (best === null || away < best.away)) best = { mark: i, away };
    }
    return best;
  }

  /** Where on the axis a slice or a mark is, from and to. */
  stretch({ mark, row, slice }) {
    const { rows, marks } = this.track;
    const ends = mark === undefined
      ? [rows[row].starts[slice], rows[row].ends[slice]]
      : [marks.places[mark], marks.places[mark]];
    return ends.map((place) => this.view.at(this.track, place));
  }

  /** The next mark (1) or the previous one (-1): of the selected one, slice or view. */
  stepMark(by) {
    if (!this.drawn) return null;
    const { places } = this.track.marks;
    const mark = this.selected?.mark !== undefined
      ? this.selected.mark + by
      : after(places, Math.ceil(this.here()) - 1) - (by < 0 ? 1 : 0);
    return mark >= 0 && mark < places.length ? { mark } : null;
  }

  /** The place that is selected, or else the start of the view. */
  here() {
    if (this.selected === null) return this.view.place(this.track, this.view.from);
    const { mark, row, slice } = this.selected;
    return mark === undefined ? this.track.rows[row].starts[slice] : this.track.marks.places[mark];
  }

  /** The slice that an arrow key leads to. */
  step(key) {
    const { rows } = this.track;
    if (!this.drawn) return null;
    if (this.selected === null || this.selected.mark !== undefined) {
      const row = rows.findIndex((row) => row.starts.length > 0);
      if (row < 0) return null;
      const from = this.here();
      return { row, slice: Math.min(after(rows[row].ends, from), rows[row].starts.length - 1) };
    }
    const { row, slice } = this.selected;
    const here = rows[row];
    if (key === "ArrowLeft") return slice > 0 ? { row, slice: slice - 1 } : null;
    if (key === "ArrowRight") return slice + 1 < here.starts.length ? { row, slice: slice + 1 } : null;
    if (key === "ArrowUp") {
      for (let outer = row - 1; outer >= 0; outer--) {
        const found = Math.max(after(rows[outer].starts, here.starts[slice]) - 1, 0);
        if (rows[outer].starts.length > 0) return { row: outer, slice: found };
      }
      return null;
    }
    for (let inner = row + 1; inner < rows.length; inner++) {
      const found = after(rows[inner].ends, here.starts[slice]);
      if (found < rows[inner].starts.length && rows[inner].starts[found] < here.ends[slice]) {
        return { row: inner, slice: found };
      }
    }
    return null;
  }

  select(found) {
    this.selected = found;
    this.view.reveal(...this.stretch(found));
    if (found.mark !== undefined) {
      this.rows.scrollTop = 0;
      return;
    }
    const top = found.row * ROW;
    if (top < this.rows.scrollTop || top + MARKS + ROW > this.rows.scrollTop + this.shown) {
      this.rows.scrollTop = Math.max(top - this.shown / 2, 0);
    }
  }
}
