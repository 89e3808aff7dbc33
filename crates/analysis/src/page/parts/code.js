// Annotated source and disassembly.

/** Shows functions and files in the code section. */
class CodeView {
  constructor(data) {
    this.data = data;
    /** Line counts by file. */
    this.counts = data.files.map(({ lines }) => {
      const counts = new Map();
      for (let i = 0; i < lines.length; i += 2) counts.set(lines[i], lines[i + 1]);
      return counts;
    });
    this.file = null;
    this.function = null;
  }

  /** Shows a file, a function or both, at a line or an address. Each may be null. */
  show({ file, line, fn, address }) {
    const called = fn === null ? null : this.data.functions[fn];
    byId("code-hint").hidden = true;
    byId("code-shown").hidden = false;
    const title = called?.name ?? this.data.files[file]?.name ?? "";
    byId("code-name").textContent = title;
    const { files } = this.data;
    byId("code-place").textContent =
      file !== null && called !== null && line !== null ? `${files[file].name}:${line}` : "";
    this.showSource(file);
    this.showDisassembly(fn);
    const row = mark(byId("source"), line === null ? null : `[data-line="${line}"]`);
    const instruction = mark(byId("disassembly"), address === null ? null : `[data-offset="${address}"]`);
    byId("code").scrollIntoView();
    (row ?? instruction ?? byId("code-name")).focus({ preventScroll: true });
  }

  showSource(file) {
    const place = byId("source");
    if (this.file === file && file !== null) return;
    this.file = file;
    if (file === null) {
      place.replaceChildren(make("p", { className: "note", textContent: "No source line is known." }));
      return;
    }
    const { name, text, note } = this.data.files[file];
    const counts = this.counts[file];
    const rows = [];
    if (text === null) {
      for (const [line, times] of [...counts].sort((a, b) => a[0] - b[0])) {
        rows.push(sourceRow(line, times, ""));
      }
    } else {
      let before = 0;
      for (const [line, content] of text) {
        if (line !== before + 1) rows.push(make("tr", {}, make("td", { colSpan: 3, textContent: "…" })));
        before = line;
        rows.push(sourceRow(line, counts.get(line), content));
      }
    }
    const caption = make("caption", { textContent: note === null ? name : `${name}: ${note}` });
    const head = ["Line", "Times", "Source"].map((title) => make("th", { scope: "col", textContent: title }));
    place.replaceChildren(make("table", { className: "code" }, caption,
      make("thead", {}, make("tr", {}, ...head)), make("tbody", {}, ...rows)));
  }

  showDisassembly(fn) {
    const place = byId("disassembly");
    if (this.function === fn && fn !== null) return;
    this.function = fn;
    const code = fn === null ? undefined : this.data.code[fn];
    if (code === undefined) {
      const text = fn === null ? "" : "The disassembly of this function is not in this page.";
      place.replaceChildren(make("p", { className: "note", textContent: text }));
      return;
    }
    const start = BigInt(this.data.functions[fn].start);
    const rows = code.map(([offset, times, text, line, file]) => {
      const at = `0x${(start + BigInt(offset)).toString(16)}`;
      const known = line !== null && file !== null;
      const toLine = () => {
        const button = link(String(line), () => go({ file, line, fn, address: offset }));
        button.setAttribute("aria-label", `Line ${line}`);
        return button;
      };
      const row = make("tr", { tabIndex: -1, className: times > 0 ? "run" : "missed", "data-offset": offset },
        make("td", { className: "at", textContent: at }),
        make("td", { className: "count", textContent: count(times) }),
        make("td", { className: "text", textContent: text }),
        make("td", { className: "at" }, known ? toLine() : ""));
      return row;
    });
    const head = ["Address", "Times", "Instruction", "Line"];
    place.replaceChildren(make("table", { className: "code" },
      make("caption", { textContent: "Disassembly" }),
      make("thead", {}, make("tr", {}, ...head.map((title) => make("th", { scope: "col", textContent: title })))),
      make("tbody", {}, ...rows)));
  }
}

function sourceRow(line, times, text) {
  const state = times === undefined ? "" : times > 0 ? "run" : "missed";
  const shown = times === undefined ? "" : count(times);
  return make("tr", { tabIndex: -1, className: state, "data-line": line },
    make("td", { className: "at", textContent: line }),
    make("td", { className: "count", textContent: shown }),
    make("td", { className: "text", textContent: text }));
}

/** Highlights one row of a side and scrolls to it within the side. */
function mark(side, selector) {
  for (const row of side.querySelectorAll("tr.here")) {
    row.classList.remove("here");
    row.removeAttribute("aria-current");
  }
  const row = selector === null ? null : side.querySelector(`tr${selector}`);
  if (row === null) {
    side.scrollTop = 0;
    return null;
  }
  row.classList.add("here");
  row.setAttribute("aria-current", "true");
  const top = (element) => element.getBoundingClientRect().top;
  side.scrollTop += top(row) - top(side) - side.clientHeight / 3;
  return row;
}

const FIELDS = ["file", "line", "fn", "address"];

/** Goes to a place in the code; the browser's Back button returns. */
function go(place) {
  const parts = FIELDS.filter((name) => Number.isInteger(place[name])).map((name) => `${name}=${place[name]}`);
  const hash = `#at:${parts.join("&")}`;
  if (location.hash === hash) window.dispatchEvent(new HashChangeEvent("hashchange"));
  else location.hash = hash;
}

/** Reads such a place from the address of the page; null if it is something else. */
function placeOf(hash, data) {
  if (!hash.startsWith("#at:")) return null;
  const given = new URLSearchParams(hash.slice(4));
  const read = (name) => (/^\d{1,15}$/.test(given.get(name) ?? "") ? Number(given.get(name)) : null);
  const place = Object.fromEntries(FIELDS.map((name) => [name, read(name)]));
  if (place.file !== null && data.files[place.file] === undefined) place.file = null;
  if (place.fn !== null && data.functions[place.fn] === undefined) place.fn = null;
  return place;
}
