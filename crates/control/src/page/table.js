// A table that keeps only the visible rows in the document: its cost does not depend on the number
// of rows. Texts are set as text, never as HTML.

import { number } from './model.js';

const MARGIN_ROWS = 6;

/** Sets the text of an element if it differs: an unchanged node needs no layout. */
export function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/** A column of numbers. */
export const numbers = (title, name, show = number, optional = 0) => ({ title, value: (row) => row[name], show, optional, isNumber: true });

const collator = new Intl.Collator('en', { numeric: true });

function compare(a, b) {
  if (typeof a === 'number' && typeof b === 'number') {
    if (Number.isNaN(a) || Number.isNaN(b)) return Number.isNaN(a) - Number.isNaN(b);
    return a - b;
  }
  return collator.compare(a, b);
}

export class Table {
  /**
   * `columns`: [{ title, value, show, style, isNumber, optional, buttons }]. `value(row)` is what rows
   * are sorted by, `show(value, row)` its text. `optional` 1 to 3: hidden below three widths.
   * `buttons`: [{ title, run, label }], which run with the row.
   */
  constructor(parent, { caption, columns, key, empty, sortBy, isDescending = false, rowHeading = 0, onSelect }) {
    this.columns = columns;
    this.key = key;
    this.rowHeading = rowHeading;
    this.onSelect = onSelect;
    this.sort = { column: sortBy ?? 0, isDescending };
    this.rows = [];
    this.shown = [];
    this.filter = '';
    this.pool = [];
    this.scroller = document.createElement('div');
    this.scroller.className = 'scroller';
    this.scroller.tabIndex = 0;
    this.scroller.setAttribute('role', 'region');
    this.scroller.setAttribute('aria-label', caption);
    const table = document.createElement('table');
    const title = document.createElement('caption');
    title.className = 'unseen';
    title.textContent = caption;
    const head = document.createElement('thead');
    head.append(this.heading());
    this.body = document.createElement('tbody');
    this.above = this.spacer();
    this.below = this.spacer();
    this.none = document.createElement('p');
    this.none.className = 'empty';
    this.none.textContent = empty;
    table.append(title, head, this.body);
    this.table = table;
    this.scroller.append(table, this.none);
    parent.append(this.scroller);
    this.scroller.addEventListener('scroll', () => this.schedule(), { passive: true });
    this.body.addEventListener('click', (event) => this.click(event));
    new ResizeObserver(() => this.schedule()).observe(this.scroller);
  }

  heading() {
    const row = document.createElement('tr');
    row.setAttribute('aria-rowindex', 1);
    this.heads = this.columns.map((column, index) => {
      const cell = document.createElement('th');
      cell.scope = 'col';
      cell.className = this.cellClass(column);
      if (column.buttons) {
        const name = document.createElement('span');
        name.className = 'unseen';
        name.textContent = column.title;
        cell.append(name);
      } else {
        const button = document.createElement('button');
        button.type = 'button';
        button.textContent = column.title;
        button.addEventListener('click', () => this.sortBy(index));
        cell.append(button);
      }
      row.append(cell);
      return cell;
    });
    this.markSort();
    return row;
  }

  spacer() {
    const row = document.createElement('tr');
    row.className = 'spacer';
    row.setAttribute('aria-hidden', 'true');
    this.body.append(row);
    return row;
  }

  cellClass(column) {
    const optional = column.optional ? `optional-${column.optional}` : '';
    return [column.isNumber ? 'number' : '', column.buttons ? 'actions' : '', optional].filter(Boolean).join(' ');
  }

  sortBy(index) {
    const isSame = this.sort.column === index;
    this.sort = { column: index, isDescending: isSame ? !this.sort.isDescending : Boolean(this.columns[index].isNumber) };
    this.markSort();
    this.arrange();
  }

  markSort() {
    this.heads.forEach((cell, index) => {
      if (index !== this.sort.column) cell.removeAttribute('aria-sort');
      else cell.setAttribute('aria-sort', this.sort.isDescending ? 'descending' : 'ascending');
    });
  }

  setFilter(text) {
    this.filter = text.trim().toLowerCase();
    this.arrange();
  }

  update(rows) {
    this.rows = rows;
    this.arrange();
  }

  select(key) {
    this.selected = key;
    this.render();
  }

  arrange() {
    const { column, isDescending } = this.sort;
    const { value } = this.columns[column];
    const matches = (row) => this.columns.some((it) => it.value && String(it.value(row)).toLowerCase().includes(this.filter));
    const rows = this.filter ? this.rows.filter(matches) : this.rows.slice();
    rows.sort((a, b) => (compare(value(a), value(b)) * (isDescending ? -1 : 1)) || compare(this.key(a), this.key(b)));
    this.shown = rows;
    this.none.hidden = rows.length > 0;
    this.table.hidden = rows.length === 0;
    this.table.setAttribute('aria-rowcount', rows.length + 1);
    this.render();
  }

  schedule() {
    if (this.frame) return;
    this.frame = requestAnimationFrame(() => {
      this.frame = 0;
      this.render();
    });
  }

  render() {
    const height = this.pool[0]?.row.offsetHeight || 32;
    const visible = Math.ceil((this.scroller.clientHeight || 600) / height);
    const first = Math.max(0, Math.min(Math.floor(this.scroller.scrollTop / height) - MARGIN_ROWS, this.shown.length - visible));
    const last = Math.min(this.shown.length, first + visible + 2 * MARGIN_ROWS);
    while (this.pool.length < last - first) this.pool.push(this.newRow());
    this.pool.forEach((slot, index) => this.fill(slot, first + index, last));
    this.above.style.height = `${first * height}px`;
    this.below.style.height = `${(this.shown.length - last) * height}px`;
    this.above.hidden = first === 0;
    this.below.hidden = last === this.shown.length;
  }

  newRow() {
    const row = document.createElement('tr');
    const cells = this.columns.map((column, index) => {
      const cell = document.createElement(index === this.rowHeading ? 'th' : 'td');
      if (index === this.rowHeading) cell.scope = 'row';
      row.append(cell);
      cell.className = this.cellClass(column);
      if (column.buttons) return { cell, buttons: column.buttons.map((it, at) => this.newButton(cell, at, it.title)) };
      if (index === this.rowHeading && this.onSelect) return { cell, text: this.newButton(cell, 'select', '') };
      return { cell, text: cell };
    });
    this.below.before(row);
    return { row, cells };
  }

  newButton(cell, action, title) {
    const button = document.createElement('button');
    button.type = 'button';
    button.dataset.action = action;
    button.textContent = title;
    cell.append(button);
    return button;
  }

  fill(slot, index, last) {
    const row = this.shown[index];
    slot.row.hidden = index >= last || !row;
    if (slot.row.hidden) return;
    slot.item = row;
    slot.row.setAttribute('aria-rowindex', index + 2);
    const isSelected = this.onSelect && this.key(row) === this.selected;
    slot.row.classList.toggle('selected', Boolean(isSelected));
    this.columns.forEach((column, at) => {
      const { cell, text, buttons } = slot.cells[at];
      if (buttons) {
        buttons.forEach((button, which) => {
          const { label, isShown } = column.buttons[which];
          button.setAttribute('aria-label', label(row));
          button.hidden = isShown ? !isShown(row) : false;
        });
        return;
      }
      const value = column.value(row);
      setText(text, column.show ? column.show(value, row) : String(value));
      if (at === this.rowHeading && cell.title !== text.textContent) cell.title = text.textContent;
      const style = `${this.cellClass(column)} ${column.style?.(row) ?? ''}`.trim();
      if (cell.className !== style) cell.className = style;
      if (text !== cell) text.setAttribute('aria-pressed', String(Boolean(isSelected)));
    });
  }

  click(event) {
    const button = event.target.closest('button[data-action]');
    const slot = button && this.pool.find(({ row }) => row === button.closest('tr'));
    if (!slot) return;
    if (button.dataset.action === 'select') this.onSelect(slot.item);
    else this.columns.find((it) => it.buttons).buttons[Number(button.dataset.action)].run(slot.item);
  }
}
