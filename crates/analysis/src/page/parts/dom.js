// Elements of the page. Text is only ever set as text: names come from the trace and its programs.

function make(tag, properties = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name in element) element[name] = value;
    else element.setAttribute(name, value);
  }
  element.append(...children);
  return element;
}

const byId = (id) => document.getElementById(id);

const inGroups = new Intl.NumberFormat("en").format;

/** Counts as text: `-` for what is not known. */
function count(value) {
  return value === null || value === undefined ? "-" : inGroups(value);
}

function percent(part, whole) {
  if (!whole) return "-";
  const value = (100 * part) / whole;
  return `${part === whole ? 100 : Math.min(value, 99.9).toFixed(1)} %`;
}

/** A part of a whole as a bar, which says nothing that is not beside it as text. */
function bar(part, whole) {
  const inner = make("i");
  inner.style.width = `${whole ? (100 * part) / whole : 0}%`;
  return make("span", { className: "bar", "aria-hidden": "true" }, inner);
}

/** A button that looks like a link. */
function link(text, action) {
  const button = make("button", { type: "button", className: "link", textContent: text });
  button.addEventListener("click", action);
  return button;
}

const SHOWN_AT_ONCE = 100;

/**
 * A table that can be sorted by its columns, filtered by the text of the first, and shows more
 * rows on request. `columns`: { title, label?, value(row), show(row)?, number? }; `label` is
 * the title for those who do not see the columns beside it.
 */
class DataTable {
  constructor(place, caption, columns, rows, { sort = null, filter = false, empty = "None." } = {}) {
    this.columns = columns;
    this.rows = rows;
    this.sort = sort;
    this.wanted = "";
    this.shown = SHOWN_AT_ONCE;
    place.replaceChildren();
    if (rows.length === 0) {
      place.append(make("p", { className: "note", textContent: `${caption}: ${empty}` }));
      return;
    }
    if (filter && rows.length > 10) place.append(this.filter(caption));
    this.heads = columns.map((column, index) => this.head(column, index));
    this.body = make("tbody");
    const table = make("table", {},
      make("caption", { textContent: caption }),
      make("thead", {}, make("tr", {}, ...this.heads)),
      this.body);
    place.append(make("div", { className: "scroll" }, table));
    this.more = make("button", { type: "button" });
    this.more.addEventListener("click", () => {
      const first = this.shown;
      this.shown *= 10;
      this.fill();
      // The button moves away, or is no longer there.
      this.body.rows[first].tabIndex = -1;
      this.body.rows[first].focus();
    });
    place.append(this.more);
    this.fill();
  }

  filter(caption) {
    const input = make("input", { type: "search", autocomplete: "off" });
    input.addEventListener("input", () => {
      this.wanted = input.value.toLowerCase();
      this.fill();
    });
    this.found = make("output");
    const label = make("label", {}, `Filter ${caption.toLowerCase()}: `, input);
    return make("p", { className: "filter" }, label, " ", this.found);
  }

  head(column, index) {
    const button = make("button", { type: "button", textContent: column.title });
    if (column.label) button.setAttribute("aria-label", column.label);
    button.addEventListener("click", () => {
      const again = this.sort !== null && this.sort.column === index;
      this.sort = { column: index, down: again ? !this.sort.down : Boolean(column.number) };
      this.fill();
    });
    return make("th", { scope: "col", className: column.number ? "number" : "" }, button);
  }

  fill() {
    let rows = this.rows;
    if (this.wanted !== "") {
      const first = this.columns[0];
      rows = rows.filter((row) => String(first.value(row)).toLowerCase().includes(this.wanted));
    }
    if (this.found) this.found.textContent = this.wanted === "" ? "" : `${inGroups(rows.length)} found`;
    if (this.sort !== null) {
      const { column, down } = this.sort;
      const { value } = this.columns[column];
      const sign = down ? -1 : 1;
      rows = rows.slice().sort((a, b) => compare(value(a), value(b), sign));
      this.heads.forEach((head, index) => {
        if (index === column) head.setAttribute("aria-sort", down ? "descending" : "ascending");
        else head.removeAttribute("aria-sort");
      });
    }
    this.body.replaceChildren(...rows.slice(0, this.shown).map((row) => this.line(row)));
    const left = rows.length - this.shown;
    this.more.hidden = left <= 0;
    this.more.textContent = `Show more (${inGroups(Math.max(left, 0))} left)`;
  }

  line(row) {
    const cells = this.columns.map((column) => {
      const shown = column.show ? column.show(row) : null;
      const value = column.value(row);
      const content = shown ?? (column.number ? count(value) : String(value ?? "-"));
      return make("td", { className: column.number ? "number" : "name" }, content);
    });
    return make("tr", {}, ...cells);
  }
}

/** Unknown values come last, whatever the direction (1 or -1). */
function compare(a, b, direction) {
  if (a === b) return 0;
  if (a === null || a === undefined) return 1;
  if (b === null || b === undefined) return -1;
  return a < b ? -direction : direction;
}
