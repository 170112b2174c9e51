// A line chart over time, as SVG.

const SVG = 'http://www.w3.org/2000/svg';
const RIGHT = 8;
const TOP = 10;

/** Spans of the time axis in minutes: the shortest that contains all points. */
const SPANS = [1, 2, 5, 10];

function draw(name, parent, attributes, text) {
  const element = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  if (text !== undefined) element.textContent = text;
  parent.append(element);
  return element;
}

/** Returns the path of the points of a series; a value that is not finite interrupts the line. */
function path(times, values, x, y) {
  let d = '';
  let isDrawn = false;
  for (let i = 0; i < values.length; i += 1) {
    if (!Number.isFinite(values[i])) {
      isDrawn = false;
      continue;
    }
    d += `${isDrawn ? 'L' : 'M'}${x(times[i]).toFixed(1)} ${y(values[i]).toFixed(1)}`;
    // A point without a successor is drawn as a dot, by its round ends.
    if (!isDrawn && !Number.isFinite(values[i + 1])) d += 'h0';
    isDrawn = true;
  }
  return d;
}

/** Returns 1, 2 or 5 times a power of ten: the smallest that is at least `value`. */
function rounded(value) {
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 5, 10].map((step) => step * power).find((step) => step >= value * 0.999999) ?? value;
}

export class Chart {
  /**
   * `series`: [{ name, style, dashed }], `format`: value to text, `isLog`: logarithmic scale.
   */
  constructor(figure, { title, series, format, isLog = false }) {
    this.options = { title, series, format, isLog };
    const caption = document.createElement('figcaption');
    const name = document.createElement('span');
    name.className = 'chart-title';
    name.textContent = title;
    caption.append(name);
    this.values = series.map(({ name: label, style }) => {
      const legend = document.createElement('span');
      legend.className = `legend ${style}`;
      const value = document.createElement('span');
      value.className = 'number';
      legend.append(`${label} `, value);
      caption.append(legend);
      return value;
    });
    this.svg = draw('svg', figure, { class: 'chart', role: 'img' });
    this.grid = draw('g', this.svg, { class: 'grid' });
    this.lines = series.map(({ style, dashed }) =>
      draw('path', this.svg, { class: `line ${style}${dashed ? ' dashed' : ''}` }));
    this.cursor = draw('line', this.svg, { class: 'cursor', y1: TOP });
    this.svg.addEventListener('pointermove', (event) => this.point(event));
    this.svg.addEventListener('pointerleave', () => this.point(null));
    figure.prepend(caption);
    new ResizeObserver(() => this.measure()).observe(this.svg);
  }

  /** Takes the size of the figure and of its text in pixels. */
  measure() {
    const { width, height } = this.svg.getBoundingClientRect();
    const em = parseFloat(getComputedStyle(this.svg).fontSize);
    this.box = { width, left: 5 * em, bottom: height - 1.8 * em, height, em };
    this.svg.setAttribute('viewBox', `0 0 ${width} ${height}`);
    this.cursor.setAttribute('y2', this.box.bottom);
    this.gridOf = '';
    if (this.times) this.update(this.times, this.columns);
  }

  /** Shows these points: times in milliseconds, and the values of each series. */
  update(times, columns) {
    this.times = times;
    this.columns = columns;
    if (!this.box?.width) return;
    const { isLog } = this.options;
    const { width, left, bottom: floor } = this.box;
    const last = times.at(-1) ?? 0;
    const minutes = SPANS.find((span) => last - (times[0] ?? 0) <= span * 60_000) ?? SPANS.at(-1);
    const finite = columns.flat().filter((it) => Number.isFinite(it) && it > 0);
    const top = rounded(Math.max(...finite, isLog ? 10 : 1));
    const bottom = isLog ? 10 ** Math.floor(Math.log10(Math.min(...finite, top / 10))) : 0;
    this.x = (time) => left + (width - left - RIGHT) * (1 - (last - time) / (minutes * 60_000));
    const share = isLog
      ? (value) => Math.log(Math.max(value, bottom) / bottom) / Math.log(top / bottom)
      : (value) => value / top;
    this.y = (value) => TOP + (floor - TOP) * (1 - share(value));
    this.drawGrid(bottom, top, minutes);
    this.lines.forEach((line, i) => line.setAttribute('d', path(times, columns[i], this.x, this.y)));
    this.tell(times.length - 1);
    this.describe();
  }

  drawGrid(bottom, top, minutes) {
    const { format, isLog } = this.options;
    const { width, left, height, em } = this.box;
    const key = `${bottom} ${top} ${minutes}`;
    if (this.gridOf === key) return;
    this.gridOf = key;
    this.grid.replaceChildren();
    const levels = [bottom, ...(isLog ? [] : [top / 2]), top];
    if (isLog) for (let level = bottom * 10; level < top * 0.999; level *= 10) levels.push(level);
    for (const level of levels) {
      const y = this.y(level);
      draw('line', this.grid, { x1: left, x2: width - RIGHT, y1: y, y2: y });
      draw('text', this.grid, { x: left - em / 2, y: y + em / 3, 'text-anchor': 'end' }, format(level));
    }
    draw('text', this.grid, { x: left, y: height - em / 4 }, `${minutes} min ago`);
    draw('text', this.grid, { x: width - RIGHT, y: height - em / 4, 'text-anchor': 'end' }, 'now');
  }

  /** Shows the values at the pointer in the legend. */
  point(event) {
    if (!this.times?.length || !this.x) return;
    let at = this.times.length - 1;
    this.cursor.classList.toggle('shown', event !== null);
    if (event) {
      const box = this.svg.getBoundingClientRect();
      const x = event.clientX - box.left;
      at = this.times.findIndex((time) => this.x(time) >= x);
      if (at < 0) at = this.times.length - 1;
      this.cursor.setAttribute('x1', this.x(this.times[at]));
      this.cursor.setAttribute('x2', this.x(this.times[at]));
    }
    this.tell(at);
  }

  tell(at) {
    const { format } = this.options;
    this.values.forEach((element, i) => {
      const value = this.columns[i][at];
      element.textContent = Number.isFinite(value) ? format(value) : '–';
    });
  }

  describe() {
    const { title, series } = this.options;
    const parts = series.map(({ name }, i) => `${name} ${this.values[i].textContent}`);
    this.svg.setAttribute('aria-label', `${title}, now: ${parts.join(', ')}`);
  }
}

/** A line without axes. */
export class Sparkline {
  constructor(parent, style) {
    this.svg = draw('svg', parent, { viewBox: '0 0 100 24', preserveAspectRatio: 'none', 'aria-hidden': 'true', class: 'spark' });
    this.line = draw('path', this.svg, { class: `line ${style}` });
  }

  update(values) {
    const finite = values.map((it) => (Number.isFinite(it) ? it : 0));
    const top = Math.max(...finite, 1e-9);
    const step = 100 / Math.max(finite.length - 1, 1);
    this.line.setAttribute('d', path(finite.map((_, i) => i * step), finite, (it) => it, (it) => 22 - (20 * it) / top));
  }
}
