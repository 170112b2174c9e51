//! The visible part of a board on a terminal, and the effects of keys. `cmd/top.rs` takes the
//! samples, reads the keys and owns the terminal.

use crate::board::{Board, GAP, Row, Table, padded};
use base::printable;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::Line;
use ratatui::widgets::Widget as _;

/// Lines of a pane before its rows: its name, and its columns' titles.
const HEAD: usize = 2;

/// Smallest useful number of lines of a pane.
const PANE_MIN: usize = HEAD + 1;

const KEYS: &str = "q quit  Tab pane  arrows scroll  s sort";

/// An action of the user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Key {
    NextPane,
    PreviousPane,
    Up,
    Down,
    PageUp,
    PageDown,
    First,
    Last,
    Left,
    Right,
    NextSort,
    PreviousSort,
}

/// A board, and the user's position on it.
#[derive(Debug)]
pub struct Screen {
    address: String,
    board: Board,
    error: Option<String>,
    focus: usize,
    views: Vec<View>,
}

/// The position in a table.
#[derive(Clone, Copy, Debug, Default)]
struct View {
    /// First visible row.
    row: usize,
    /// Columns scrolled out to the left.
    columns: usize,
    /// Sort column; `None` keeps the target's order.
    sort: Option<usize>,
    /// Visible rows when last drawn.
    visible: usize,
}

impl Screen {
    /// A first board of the target at `address`.
    #[must_use]
    pub fn new(address: String, board: Board) -> Self {
        Self {
            address,
            views: vec![View::default(); board.tables.len()],
            board,
            error: None,
            focus: 0,
        }
    }

    /// A newer board.
    pub fn show(&mut self, board: Board) {
        if board.tables.len() != self.views.len() {
            // Another kind of process now listens at the address.
            self.views = vec![View::default(); board.tables.len()];
            self.focus = 0;
        }
        self.board = board;
        self.error = None;
    }

    /// Shows why there is no new sample; the last one stays.
    pub fn fail(&mut self, error: &str) {
        self.error = Some(printable(error).into_owned());
    }

    /// Handles a key.
    pub fn press(&mut self, key: Key) {
        let tables = self.board.tables.len();
        let table = &self.board.tables[self.focus];
        let view = &mut self.views[self.focus];
        let last = table.rows.len().saturating_sub(1);
        let page = view.visible.max(1);
        match key {
            Key::NextPane => self.focus = (self.focus + 1) % tables,
            Key::PreviousPane => self.focus = (self.focus + tables - 1) % tables,
            Key::Up => view.row = view.row.saturating_sub(1),
            Key::Down => view.row = (view.row + 1).min(last),
            Key::PageUp => view.row = view.row.saturating_sub(page),
            Key::PageDown => view.row = (view.row + page).min(last),
            Key::First => view.row = 0,
            Key::Last => view.row = last,
            Key::Left => view.columns = view.columns.saturating_sub(1),
            Key::Right => {
                let most = table.columns.len() - table.fixed - 1;
                view.columns = (view.columns + 1).min(most);
            }
            Key::NextSort => {
                let next = view.sort.map_or(0, |column| column + 1);
                view.sort = (next < table.columns.len()).then_some(next);
            }
            Key::PreviousSort => {
                view.sort = match view.sort {
                    None => Some(table.columns.len() - 1),
                    Some(column) => column.checked_sub(1),
                };
            }
        }
    }

    /// Draws it on `area`, however small that is.
    pub fn draw(&mut self, area: Rect, buffer: &mut Buffer) {
        let lines = usize::from(area.height);
        let summary = format!("{}: {}", self.address, self.board.summary);
        put(buffer, area, 0, summary, Modifier::BOLD.into());
        if lines < 2 {
            return;
        }
        match &self.error {
            None => put(buffer, area, lines - 1, KEYS.to_owned(), Style::new()),
            Some(error) => {
                let text = format!("retrying: {error}");
                put(buffer, area, lines - 1, text, Color::Red.into());
            }
        }
        let mut line = 1;
        let heights = self.heights(lines - 2);
        for (index, height) in heights.into_iter().enumerate() {
            let table = &self.board.tables[index];
            let view = &mut self.views[index];
            view.visible = height.saturating_sub(HEAD);
            // If rows vanished or the terminal grew: no empty lines below the last row.
            view.row = view.row.min(table.rows.len().saturating_sub(view.visible));
            let shown = pane(table, *view, area.width.into(), index == self.focus);
            for (text, style) in shown.into_iter().take(height) {
                put(buffer, area, line, text, style);
                line += 1;
            }
        }
    }

    /// Lines for each pane: the focused pane has priority, and gets the remaining lines.
    fn heights(&self, lines: usize) -> Vec<usize> {
        let wanted = |index: usize| HEAD + self.board.tables[index].rows.len().max(1);
        let mut heights = vec![0; self.board.tables.len()];
        let first = wanted(self.focus).min((lines / 2).max(PANE_MIN)).min(lines);
        heights[self.focus] = first;
        let mut left = lines - first;
        for (index, height) in heights.iter_mut().enumerate() {
            if index != self.focus && left >= PANE_MIN {
                *height = wanted(index).min(left);
                left -= *height;
            }
        }
        heights[self.focus] = wanted(self.focus).min(first + left);
        heights
    }
}

fn put(buffer: &mut Buffer, area: Rect, line: usize, text: String, style: Style) {
    let Ok(line) = u16::try_from(line) else {
        return;
    };
    if line < area.height {
        let place = Rect::new(area.x, area.y + line, area.width, 1);
        Line::styled(text, style).render(place, buffer);
    }
}

/// The columns that fit in `width`. Names may be truncated, numbers not.
fn columns(table: &Table, view: View, widths: &[usize], width: usize) -> Vec<usize> {
    let scrolled = (table.fixed + view.columns)..table.columns.len();
    let mut end = 0;
    let fits = |&column: &usize| {
        let start = end;
        end += widths[column] + GAP.len();
        let is_text = table.is_text(column);
        start + widths[column] <= width || (is_text && start < width)
    };
    (0..table.fixed).chain(scrolled).take_while(fits).collect()
}

/// All lines of a pane.
fn pane(table: &Table, view: View, width: usize, focus: bool) -> Vec<(String, Style)> {
    let mut name = table.name.to_uppercase();
    let rows = table.rows.len();
    if rows > view.visible && view.visible > 0 {
        let (first, last) = (view.row + 1, view.row + view.visible);
        name.push_str(&format!(" {first}-{last} of {rows}"));
    }
    if let Some(column) = view.sort {
        name.push_str(&format!(" by {}", table.columns[column].title));
    }
    let name_style = if focus {
        Modifier::REVERSED
    } else {
        Modifier::UNDERLINED
    };
    let mut lines = vec![(name, name_style.into())];
    if table.rows.is_empty() {
        lines.push((table.empty.to_owned(), Style::new()));
        return lines;
    }
    let widths = table.widths();
    let columns = columns(table, view, &widths, width);
    let titles = columns.iter().map(|&c| table.title(c, widths[c]));
    lines.push((titles.collect::<Vec<_>>().join(GAP), Modifier::BOLD.into()));
    for row in sorted(table, view.sort).into_iter().skip(view.row) {
        let cells = columns.iter().map(|&c| padded(&row.cells[c], widths[c]));
        lines.push((cells.collect::<Vec<_>>().join(GAP), Style::new()));
    }
    lines
}

/// Rows sorted by a column within their groups; a stable sort.
fn sorted(table: &Table, sort: Option<usize>) -> Vec<&Row> {
    let mut rows: Vec<&Row> = table.rows.iter().collect();
    if let Some(column) = sort {
        rows.sort_by(|a, b| {
            let place = |row: &Row| (row.group, !row.is_head);
            let cells = (&a.cells[column], &b.cells[column]);
            place(a).cmp(&place(b)).then(cells.0.order(cells.1))
        });
    }
    rows
}

#[cfg(test)]
mod tests;
