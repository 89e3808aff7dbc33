// Unpacks the columns of numbers that the page carries as text.

/** Reads unsigned LEB128 numbers from base64. Numbers beyond 2^53 are rounded. */
class Packed {
  constructor(text) {
    const bytes = atob(text);
    this.bytes = new Uint8Array(bytes.length);
    for (let i = 0; i < bytes.length; i++) this.bytes[i] = bytes.charCodeAt(i);
    this.at = 0;
  }
  get more() {
    return this.at < this.bytes.length;
  }
  number() {
    let value = 0;
    let scale = 1;
    for (;;) {
      const byte = this.bytes[this.at++];
      value += (byte & 127) * scale;
      if (byte < 128) return value;
      scale *= 128;
    }
  }
}

/** What is peculiar about a slice; the same bits as in `slices.rs`. */
const EXCEPTION = 1;
const MERGED = 2;
const ENTRY_UNSEEN = 4;
const EXIT_UNSEEN = 8;
const FLAG_BITS = 16;

/** The slices of one depth of a track, in order, with coarser levels for views of many. */
class Row {
  constructor(text) {
    const packed = new Packed(text);
    const count = packed.number();
    this.starts = new Float64Array(count);
    this.ends = new Float64Array(count);
    this.what = new Int32Array(count);
    this.flags = new Uint8Array(count);
    /** The number of slices in one. */
    this.counts = new Float64Array(count).fill(1);
    let at = 0;
    for (let i = 0; i < count; i++) {
      at += packed.number();
      this.starts[i] = at;
      at += packed.number();
      this.ends[i] = at;
      const what = packed.number();
      this.flags[i] = what % FLAG_BITS;
      this.what[i] = Math.floor(what / FLAG_BITS) - 1;
      if (this.flags[i] & MERGED) this.counts[i] = packed.number();
    }
    this.levels = levelsOf(this);
  }
}

/** Executed blocks, in stretches without a hole. */
class BlockRow {
  constructor(text, table) {
    const starts = [];
    const ends = [];
    const ids = [];
    const packed = new Packed(text);
    let at = 0;
    while (packed.more) {
      at += packed.number();
      for (let left = packed.number(); left > 0; left--) {
        const id = packed.number();
        starts.push(at);
        at += table[id][1];
        ends.push(at);
        ids.push(id);
      }
    }
    this.starts = Float64Array.from(starts);
    this.ends = Float64Array.from(ends);
    this.blocks = Int32Array.from(ids);
    this.what = this.blocks.map((id) => table[id][2]);
    this.flags = new Uint8Array(ids.length);
    this.counts = new Float64Array(ids.length).fill(1);
    this.levels = levelsOf(this);
  }
}

/** The finest level is the slices themselves; in each coarser one, four times as long a stretch
 * is one piece, until a level is quick to draw. `first` is the longest slice of a piece. */
function levelsOf(row) {
  const all = Int32Array.from(row.starts, (_, i) => i);
  const levels = [{ starts: row.starts, ends: row.ends, first: all, counts: row.counts }];
  let span = 4;
  while (levels.at(-1).starts.length > 2000 && span < Number.MAX_SAFE_INTEGER) {
    const finer = levels.at(-1);
    const coarse = coarser(row, finer, span);
    span *= 4;
    if (coarse.starts.length <= finer.starts.length / 2) levels.push(coarse);
  }
  return levels;
}

function coarser(row, finer, span) {
  const most = finer.starts.length;
  const starts = new Float64Array(most);
  const ends = new Float64Array(most);
  const first = new Int32Array(most);
  const counts = new Float64Array(most);
  const length = (slice) => row.ends[slice] - row.starts[slice];
  let n = -1;
  for (let i = 0; i < most; i++) {
    if (n >= 0 && finer.ends[i] - starts[n] <= span) {
      ends[n] = finer.ends[i];
      counts[n] += finer.counts[i];
      if (length(finer.first[i]) > length(first[n])) first[n] = finer.first[i];
    } else {
      n++;
      starts[n] = finer.starts[i];
      ends[n] = finer.ends[i];
      first[n] = finer.first[i];
      counts[n] = finer.counts[i];
    }
  }
  n++;
  return {
    starts: starts.slice(0, n),
    ends: ends.slice(0, n),
    first: first.slice(0, n),
    counts: counts.slice(0, n),
  };
}

/** The first index whose number is beyond `value`. */
function after(numbers, value) {
  let low = 0;
  let high = numbers.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (numbers[middle] <= value) low = middle + 1;
    else high = middle;
  }
  return low;
}

/** Places where a clock was read: ascending instruction counts, with the clock's value there. */
class Clock {
  constructor(text) {
    const places = [];
    const values = [];
    const packed = new Packed(text);
    let place = 0;
    let value = 0;
    while (packed.more) {
      place += packed.number();
      value += packed.number();
      places.push(place);
      values.push(value);
    }
    this.places = places;
    this.values = values;
  }
  get known() {
    return this.places.length > 0;
  }
  /** Where an instruction is drawn: on a line between the readings around it. */
  at(place) {
    return interpolated(this.places, this.values, place);
  }
  /** The last instruction that is drawn at or before a value. */
  place(value) {
    return interpolated(this.values, this.places, value);
  }
  /** The readings around an instruction: what is really known. */
  around(place) {
    const next = after(this.places, place);
    return [this.values[next - 1], this.values[next]];
  }
}

function interpolated(from, to, value) {
  const next = after(from, value);
  if (next === 0) return to[0];
  if (next === from.length) return to[next - 1];
  const part = (value - from[next - 1]) / (from[next] - from[next - 1]);
  return to[next - 1] + part * (to[next] - to[next - 1]);
}

/** Marks without a length: gaps, events, messages. */
class Marks {
  constructor(text) {
    this.places = [];
    this.kinds = [];
    this.texts = [];
    this.counts = [];
    const packed = new Packed(text);
    let at = 0;
    while (packed.more) {
      at += packed.number();
      this.places.push(at);
      const kind = packed.number();
      this.kinds.push(kind % 8);
      this.texts.push(packed.number());
      this.counts.push(kind >= 8 ? packed.number() : 1);
    }
  }
}

/** A core, a thread, or a source of messages. */
class Track {
  constructor(given, table) {
    this.name = given.name;
    this.note = given.note;
    this.first = given.first;
    this.length = given.length;
    this.unit = given.unit;
    this.rows = given.rows.map((text) => new Row(text));
    const blocks = new BlockRow(given.blocks, table);
    if (blocks.starts.length > 0) {
      this.rows.push(blocks);
      this.blocks = blocks;
    }
    this.marks = new Marks(given.marks);
    this.clocks = {
      time: new Clock(given.time),
      cycles: new Clock(given.cycles),
    };
  }
}
