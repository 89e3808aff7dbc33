// The page: reads its data, fills the tables, and connects the timeline to the code.

const FUNCTION_FIELDS = ["name", "start", "file", "line", "self", "total", "calls", "executed", "size"];

function readData() {
  const data = JSON.parse(byId("data").textContent);
  data.functions = data.functions.map((fields, index) => {
    const called = { index };
    FUNCTION_FIELDS.forEach((name, field) => (called[name] = fields[field]));
    return called;
  });
  for (const file of data.files) {
    if (file.text === null) continue;
    file.text = file.text.flatMap(([first, text]) => text.split("\n").map((line, i) => [first + i, line]));
  }
  return data;
}

class Page {
  constructor(data) {
    this.data = data;
    this.functions = data.functions;
    this.tracks = data.tracks.map((track) => new Track(track, data.blocks));
    this.code = new CodeView(data);
    this.colours = theme();
    this.tip = make("div", { id: "tip", hidden: true, "aria-hidden": "true" });
    document.body.append(this.tip);
    this.fillSummary();
    this.fillTables();
    this.view = new View(this.tracks, () => this.redraw());
    this.canvases = this.tracks.map((track) => new TrackCanvas(track, this.view, this));
    byId("tracks").append(...this.canvases.map((canvas) => canvas.element));
    this.canvases.forEach((canvas) => this.listen(canvas));
    this.addTools();
    this.resize();
    window.addEventListener("resize", () => this.resize());
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
      this.colours = theme();
      this.redraw();
    });
    window.addEventListener("hashchange", () => this.follow());
    this.follow();
  }

  follow() {
    const place = placeOf(location.hash, this.data);
    if (place !== null) this.code.show(place);
  }

  fillSummary() {
    const { data } = this;
    byId("totals").append(...data.totals.map(([name, value, unit]) => make("div", {},
      make("dt", { textContent: unit }),
      make("dd", { textContent: count(value), "data-total": name, "data-value": value }))));
    byId("footer").textContent = data.made_by;
  }

  fillTables() {
    const { data } = this;
    const all = data.instructions;
    const toFunction = (called) => link(called.name, () => this.goTo(called.index, null));
    new DataTable(byId("functions-table"), "Functions", [
      { title: "Function", value: (f) => f.name, show: toFunction },
      { title: "Self", value: (f) => f.self, number: true },
      { title: "Self %", value: (f) => f.self, show: (f) => percent(f.self, all), number: true },
      { title: "Total", value: (f) => f.total, number: true },
      { title: "Total %", value: (f) => f.total, show: (f) => percent(f.total, all), number: true },
      { title: "Calls", value: (f) => f.calls, number: true },
    ], this.functions.filter((f) => f.self > 0 || f.total > 0), { sort: { column: 1, down: true }, filter: true });
    const part = (title, covered, known) => [
      { title, value: covered, number: true },
      { title: "of", label: `${title}: of`, value: known, number: true },
      { title: "%", label: `${title}: %`, value: (row) => (known(row) ? covered(row) / known(row) : null),
        show: (row) => percent(covered(row), known(row)), number: true },
      { title: "Part", value: (row) => (known(row) ? covered(row) / known(row) : null),
        show: (row) => bar(covered(row), known(row)) },
    ];
    data.files.forEach((file, index) => (file.index = index));
    new DataTable(byId("coverage-files"), "Files", [
      { title: "File", value: (f) => f.name,
        show: (f) => link(f.name, () => go({ file: f.index, line: null, fn: null, address: null })) },
      ...part("Lines", (f) => f.covered, (f) => f.known),
    ], data.files, { filter: true, empty: "no source lines are known." });
    new DataTable(byId("coverage-functions"), "Functions by instructions executed", [
      { title: "Function", value: (f) => f.name, show: toFunction },
      ...part("Instructions", (f) => f.executed, (f) => f.size),
    ], this.functions.filter((f) => f.size > 0), { filter: true });
    const spread = (title, of) => ["Minimum", "median", "maximum"].map((name, index) => ({
      title: index === 0 ? `${title}: minimum` : name, label: `${title}: ${name.toLowerCase()}`,
      value: (e) => of(e)?.[index] ?? null, number: true }));
    new DataTable(byId("exceptions-table"), "Exceptions, with the latency from entry to return", [
      { title: "Exception", value: (e) => e.name },
      { title: "On", value: (e) => e.track },
      { title: "Taken", value: (e) => e.taken, number: true },
      { title: "Returned", value: (e) => e.returned, number: true },
      ...spread("Instructions", (e) => e.instructions),
      ...(data.exceptions.some((e) => e.cycles) ? spread("Cycles", (e) => e.cycles) : []),
      ...(data.exceptions.some((e) => e.time) ? spread("Timestamp", (e) => e.time) : []),
    ], data.exceptions);
    new DataTable(byId("gaps-table"), "Gaps", [
      { title: "Reason", value: (g) => g.reason },
      { title: "On", value: (g) => this.tracks[g.track].name },
      { title: "Number", value: (g) => g.count, number: true },
      { title: "First before instruction", value: (g) => g.place,
        show: (g) => link(count(g.place), () => this.showPlace(g.track, g.place)), number: true },
    ], data.gaps);
    byId("notes").append(...data.notes.map((note) => make("li", { textContent: note })));
  }

  /** Goes to a function's first line, or to the line of one of its instructions. */
  goTo(fn, address) {
    const called = this.functions[fn];
    if (called === undefined) return;
    const offset = address === null ? 0 : Number(BigInt(address) - BigInt(called.start));
    const row = address === null ? undefined : this.data.code[fn]?.find(([at]) => at === offset);
    const [line, file] = row === undefined ? [null, null] : [row[3], row[4]];
    go({ file: file ?? called.file, line: line ?? called.line, fn, address: offset });
  }

  showPlace(number, place) {
    const track = this.tracks[number];
    const at = this.view.at(track, place);
    if (this.view.has(track)) {
      const span = Math.min(this.view.to - this.view.from, 2000);
      this.view.show(at - span / 2, at + span / 2);
    }
    byId("timeline").scrollIntoView();
    this.canvases[number].canvas.focus({ preventScroll: true });
  }

  addTools() {
    const usable = Object.keys(AXES).filter((axis) =>
      axis === "instructions" || this.tracks.some((track) => track.clocks[axis].known));
    for (const axis of usable) {
      const input = make("input", { type: "radio", name: "axis", value: axis, checked: axis === this.view.axis });
      input.addEventListener("change", () => this.view.measure(axis));
      byId("axis").append(make("label", {}, input, ` ${AXES[axis].title}`));
    }
    const act = (id, action) => byId(id).addEventListener("click", action);
    act("zoom-in", () => this.view.zoom(0.5));
    act("zoom-out", () => this.view.zoom(2));
    act("pan-left", () => this.view.pan(-0.3));
    act("pan-right", () => this.view.pan(0.3));
    act("whole", () => this.view.whole());
    byId("in-view").addEventListener("toggle", () => this.listInView());
  }

  listen(canvas) {
    const { view } = this;
    const element = canvas.canvas;
    let drag = null;
    const valueAt = (x) => view.from + (x / canvas.width) * (view.to - view.from);
    element.addEventListener("pointerdown", (event) => {
      if (event.button !== 0) return;
      drag = { x: event.clientX, from: view.from, to: view.to, moved: false };
      element.setPointerCapture(event.pointerId);
    });
    element.addEventListener("pointermove", (event) => {
      if (drag === null) {
        this.point(canvas, event);
        return;
      }
      const by = event.clientX - drag.x;
      if (Math.abs(by) > 3) drag.moved = true;
      if (drag.moved) {
        const shift = (by / canvas.width) * (drag.to - drag.from);
        view.show(drag.from - shift, drag.to - shift);
      }
    });
    element.addEventListener("pointerup", (event) => {
      const clicked = drag !== null && !drag.moved;
      drag = null;
      if (clicked) this.click(canvas, event);
    });
    element.addEventListener("pointercancel", () => (drag = null));
    element.addEventListener("pointerleave", () => (this.tip.hidden = true));
    element.addEventListener("wheel", (event) => {
      if (event.ctrlKey || event.metaKey) {
        event.preventDefault();
        const steps = Math.max(-4, Math.min(4, event.deltaY / 50));
        view.zoom(1.25 ** steps, valueAt(event.offsetX));
      } else if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
        event.preventDefault();
        view.pan((event.deltaX || event.deltaY) / canvas.width);
      }
    }, { passive: false });
    element.addEventListener("keydown", (event) => {
      if (event.altKey || event.ctrlKey || event.metaKey) return;
      if (this.key(canvas, event)) event.preventDefault();
    });
  }

  /** Returns whether the key means something here. */
  key(canvas, event) {
    const { view } = this;
    const selected = canvas.drawn ? canvas.selected : null;
    switch (event.key) {
      case "+": case "=": view.zoom(0.5, this.middle(canvas)); return true;
      case "-": case "_": view.zoom(2, this.middle(canvas)); return true;
      case "0": view.whole(); return true;
      case "Home": view.show(view.first, view.first + view.to - view.from); return true;
      case "End": view.show(view.last - (view.to - view.from), view.last); return true;
      case "m": case "M": {
        const found = canvas.stepMark(event.shiftKey ? -1 : 1);
        if (found !== null) this.select(canvas, found);
        return true;
      }
      case "ArrowLeft": case "ArrowRight": case "ArrowUp": case "ArrowDown": {
        if (event.shiftKey) {
          if (event.key === "ArrowLeft") view.pan(-0.2);
          else if (event.key === "ArrowRight") view.pan(0.2);
          return true;
        }
        const found = canvas.step(event.key);
        if (found !== null) this.select(canvas, found);
        return true;
      }
      case "z":
        if (selected !== null) view.around(...canvas.stretch(selected));
        return true;
      case "Enter":
        if (selected !== null && selected.mark === undefined) this.open(canvas, selected);
        return true;
      default: return false;
    }
  }

  /** Zooming keeps what is selected in view. */
  middle(canvas) {
    const { view } = this;
    if (canvas.selected !== null) {
      const [at] = canvas.stretch(canvas.selected);
      if (at >= view.from && at <= view.to) return at;
    }
    return (view.from + view.to) / 2;
  }

  click(canvas, event) {
    const found = canvas.under(event.offsetX, event.offsetY);
    if (found === null) return;
    this.select(canvas, found);
    if (found.mark === undefined) this.open(canvas, found);
  }

  select(canvas, found) {
    for (const other of this.canvases) if (other !== canvas) other.selected = null;
    canvas.select(found);
    byId("selected").textContent = this.text(canvas.track, found).replaceAll("\n", ", ");
    this.redraw();
  }

  open(canvas, { row, slice }) {
    const { rows, blocks } = canvas.track;
    const here = rows[row];
    if (here.what[slice] < 0) return;
    const address = here === blocks ? this.data.blocks[here.blocks[slice]][0] : null;
    this.goTo(here.what[slice], address);
  }

  point(canvas, event) {
    const found = canvas.under(event.offsetX, event.offsetY);
    this.tip.hidden = found === null;
    if (found === null) return;
    this.tip.textContent = this.text(canvas.track, found);
    const { width, height } = this.tip.getBoundingClientRect();
    this.tip.style.left = `${Math.max(Math.min(event.clientX + 14, innerWidth - width - 8), 0)}px`;
    this.tip.style.top = `${Math.max(Math.min(event.clientY + 16, innerHeight - height - 8), 0)}px`;
  }

  name(what) {
    return what < 0 ? "unknown function" : this.functions[what].name;
  }

  colour(what) {
    const { colours } = this;
    if (what < 0) return colours.raised;
    let colour = colours.hues.get(what);
    if (colour === undefined) {
      colour = colours.slice(hueOf(this.functions[what].name));
      colours.hues.set(what, colour);
    }
    return colour;
  }

  label(row, slice, merged) {
    const more = merged > 1 ? ` and ${inGroups(merged - 1)} more` : "";
    const name = this.name(row.what[slice]);
    if (!(row instanceof BlockRow)) return name + more;
    // Only symbols say for certain which function a block belongs to.
    const address = this.data.blocks[row.blocks[slice]][0];
    const known = row.what[slice] >= 0 && this.functions[row.what[slice]].size > 0;
    return `block at ${address}${known ? ` in ${name}` : ""}${more}`;
  }

  /** A slice or a mark in words. */
  text(track, found) {
    return found.mark === undefined ? this.describe(track, found) : this.markText(track, found.mark);
  }

  /** A slice in words. */
  describe(track, { row: number, slice, count: merged }) {
    const row = track.rows[number];
    const shown = merged ?? row.counts[slice];
    const lines = [this.label(row, slice, shown)];
    const [start, end] = [row.starts[slice], row.ends[slice]];
    lines.push(`${inGroups(end - start)} instructions from ${inGroups(start)}`);
    if (row.counts[slice] > 1) lines.push("short slices, drawn as one");
    if (row.flags[slice] & ENTRY_UNSEEN) lines.push("its entry is not in the trace");
    if (row.flags[slice] & EXIT_UNSEEN) lines.push("its return is not in the trace");
    for (const [axis, clock] of Object.entries(track.clocks)) {
      if (clock.known) lines.push(this.bounds(axis, clock, start));
    }
    return lines.join("\n");
  }

  /** What is known of the time of a place: the readings around it. */
  bounds(axis, clock, place) {
    const base = axis === "time" ? BigInt(this.data.time_base) : 0n;
    const shown = (value) => (base + BigInt(Math.round(value))).toString();
    const [before, next] = clock.around(place);
    const title = AXES[axis].title;
    if (before === undefined) return `${title} before ${shown(next)}`;
    if (next === undefined) return `${title} ${shown(before)} or later`;
    return before === next ? `${title} ${shown(before)}` : `${title} ${shown(before)} to ${shown(next)}`;
  }

  markText(track, index) {
    const { marks } = track;
    const more = marks.counts[index] > 1 ? `, and ${inGroups(marks.counts[index] - 1)} more close by` : "";
    const text = this.data.texts[marks.texts[index]];
    return `${MARK_KINDS[marks.kinds[index]]}: ${text}${more}\nbefore ${track.unit} ${inGroups(marks.places[index])}`;
  }

  /** The longest slices in view, for those who cannot see the canvas. */
  listInView() {
    if (!byId("in-view").open) return;
    const found = [];
    for (const canvas of this.canvases.filter((canvas) => this.view.has(canvas.track))) {
      canvas.track.rows.forEach((row, number) => {
        const { level, first, last } = canvas.visible(row);
        for (let i = first; i < last; i++) {
          found.push({ canvas, row: number, slice: level.first[i], count: level.counts[i],
            start: level.starts[i], length: level.ends[i] - level.starts[i] });
        }
      });
    }
    found.sort((a, b) => b.length - a.length);
    const open = (s) => () => {
      this.select(s.canvas, s);
      this.open(s.canvas, s);
    };
    new DataTable(byId("in-view-table"), "Slices", [
      { title: "Slice", value: (s) => this.label(s.canvas.track.rows[s.row], s.slice, s.count),
        show: (s) => link(this.label(s.canvas.track.rows[s.row], s.slice, s.count), open(s)) },
      { title: "On", value: (s) => s.canvas.track.name },
      { title: "Depth", value: (s) => s.row, number: true },
      { title: "From", value: (s) => s.start, number: true },
      { title: "Instructions", value: (s) => s.length, number: true },
    ], found.slice(0, 500), { sort: { column: 4, down: true } });
  }

  resize() {
    this.canvases.forEach((canvas) => canvas.resize());
    this.redraw();
  }

  redraw() {
    if (this.waiting || this.view === undefined) return;
    this.waiting = requestAnimationFrame(() => {
      this.waiting = 0;
      this.canvases.forEach((canvas) => canvas.draw());
      this.drawRuler();
      clearTimeout(this.listing);
      this.listing = setTimeout(() => this.listInView(), 150);
    });
  }

  drawRuler() {
    const ruler = byId("ruler");
    const scale = window.devicePixelRatio || 1;
    const width = this.canvases[0]?.width || ruler.clientWidth;
    ruler.width = Math.round(ruler.clientWidth * scale);
    ruler.height = Math.round(22 * scale);
    const context = ruler.getContext("2d");
    context.scale(scale, scale);
    context.font = "11px system-ui, sans-serif";
    const { from, to, axis } = this.view;
    const about = (to - from) / (width / 120);
    const power = 10 ** Math.floor(Math.log10(about));
    const step = Math.max([1, 2, 5, 10].find((factor) => factor * power >= about) * power, 1);
    for (let value = Math.ceil(from / step) * step; value <= to; value += step) {
      const x = ((value - from) / (to - from)) * width;
      context.fillStyle = this.colours.line;
      context.fillRect(x, 12, 1, 10);
      context.fillStyle = this.colours.quiet;
      const label = (axis === "time" ? "+" : "") + tick(value);
      const length = context.measureText(label).width;
      // At the right edge, before its line.
      context.fillText(label, x + 3 + length <= ruler.clientWidth ? x + 3 : x - 3 - length, 14);
    }
    const base = axis === "time" ? `, from timestamp ${this.data.time_base}` : "";
    byId("range").textContent = `${tick(from)} to ${tick(to)} ${AXES[axis].title}${base}`;
  }
}

const page = new Page(readData());
