//! Tables for people: aligned columns without lines, one row per line.
//!
//! On a terminal a row is never wider than the screen: long texts are cut with `…`, and what is
//! needed to go on (ids, receipts, times) never is. In a pipe nothing is cut and nothing is coloured.

use std::io::{self, IsTerminal as _};

use comfy_table::{
    Attribute, Cell, CellAlignment, ColumnConstraint, ContentArrangement, Row, Width, presets,
};
use ratatui::crossterm::terminal;

use super::line;

/// Space between two columns.
const GAP: u16 = 2;
/// A column that may be cut keeps at least this much.
const CUT_WIDTH_MIN: u16 = 8;

/// The head of a column, and what is in it.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Column {
    /// A text that is always shown in full.
    Whole(&'static str),
    /// A text that may be cut where the screen ends.
    Cut(&'static str),
    /// A number.
    Number(&'static str),
}

impl Column {
    const fn head(self) -> &'static str {
        match self {
            Self::Whole(head) | Self::Cut(head) | Self::Number(head) => head,
        }
    }
}

/// Rows that are gathered until their widths are known.
#[derive(Debug)]
pub(crate) struct Table {
    columns: &'static [Column],
    rows: Vec<Vec<String>>,
    has_head: bool,
}

impl Table {
    pub(crate) const fn new(columns: &'static [Column]) -> Self {
        Self { columns, rows: Vec::new(), has_head: true }
    }

    /// Adds a row; a cell for each column.
    pub(crate) fn row(&mut self, cells: Vec<String>) {
        debug_assert_eq!(cells.len(), self.columns.len(), "a cell for each column");
        self.rows.push(cells);
    }

    /// Prints the rows so far, the head only the first time.
    pub(crate) fn print(&mut self) -> anyhow::Result<()> {
        if self.rows.is_empty() {
            return Ok(());
        }
        let text = self.text(screen_width(), is_coloured());
        self.rows.clear();
        self.has_head = false;
        text.lines().try_for_each(|row| line(row.trim_end()))
    }

    fn text(&self, width: Option<u16>, is_coloured: bool) -> String {
        let mut table = comfy_table::Table::new();
        table.load_style(presets::NOTHING).set_truncation_indicator("…");
        if self.has_head {
            let head = |column: &Column| Cell::new(column.head()).add_attribute(Attribute::Bold);
            table.set_header(self.columns.iter().map(head));
        }
        if is_coloured {
            table.enforce_styling()
        } else {
            table.force_no_tty()
        };
        for cells in &self.rows {
            let mut row = Row::from(cells);
            row.max_height(1);
            table.add_row(row);
        }
        match width {
            Some(width) => table
                .set_content_arrangement(ContentArrangement::Dynamic)
                .set_width(width.max(CUT_WIDTH_MIN)),
            None => table.set_content_arrangement(ContentArrangement::Disabled),
        };
        for (index, (column, kind)) in table.column_iter_mut().zip(self.columns).enumerate() {
            column.set_padding((0, GAP));
            match kind {
                Column::Whole(_) => column.set_constraint(ColumnConstraint::ContentWidth),
                Column::Cut(_) if width.is_none() => column,
                Column::Cut(_) => {
                    let least = self.width(index).min(CUT_WIDTH_MIN);
                    column.set_constraint(ColumnConstraint::LowerBoundary(Width::Fixed(least)))
                }
                Column::Number(_) => {
                    column.set_cell_alignment(CellAlignment::Right);
                    column.set_constraint(ColumnConstraint::ContentWidth)
                }
            };
        }
        table.trim_fmt()
    }
}

impl Table {
    /// How wide the longest cell of a column is, about.
    fn width(&self, index: usize) -> u16 {
        let cells = self.rows.iter().filter_map(|cells| cells.get(index));
        let heads = self.columns.get(index).map(|column| column.head().len());
        let longest = cells.map(|cell| cell.chars().count()).chain(heads).max();
        u16::try_from(longest.unwrap_or_default()).unwrap_or(u16::MAX).saturating_add(GAP)
    }
}

/// The width of the terminal that standard output is.
fn screen_width() -> Option<u16> {
    if !io::stdout().is_terminal() {
        return None;
    }
    terminal::size().ok().map(|(width, _)| width).filter(|width| *width > 0)
}

/// Whether standard output takes colours and is to have them.
pub(crate) fn is_coloured() -> bool {
    let is_set = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    let is_dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
    io::stdout().is_terminal() && !is_set("NO_COLOR") && !is_dumb
}

#[cfg(test)]
mod tests {
    use super::*;

    const COLUMNS: &[Column] = &[Column::Whole("ID"), Column::Number("LAG"), Column::Cut("BODY")];

    fn sample() -> Table {
        let mut table = Table::new(COLUMNS);
        table.row(vec!["abc".into(), "5".into(), "a body of some length, and more".into()]);
        table.row(vec!["abcdef".into(), "1234".into(), "short".into()]);
        table
    }

    fn lines(table: &Table, width: Option<u16>) -> Vec<String> {
        table.text(width, false).lines().map(|line| line.trim_end().to_owned()).collect()
    }

    #[test]
    fn columns_are_aligned_and_nothing_is_cut_in_a_pipe() {
        let expected = [
            "ID       LAG  BODY",
            "abc        5  a body of some length, and more",
            "abcdef  1234  short",
        ];
        assert_eq!(lines(&sample(), None), expected);
    }

    #[test]
    fn long_texts_are_cut_where_the_screen_ends_and_ids_are_not() {
        let lines = lines(&sample(), Some(30));
        assert!(lines.iter().all(|line| line.chars().count() <= 30), "{lines:#?}");
        assert!(lines[1].starts_with("abc        5  a body") && lines[1].ends_with('…'));
        assert_eq!(lines[2], "abcdef  1234  short");
    }

    #[test]
    fn the_head_is_bold_only_where_colours_are_wanted() {
        assert!(!sample().text(Some(80), false).contains('\u{1b}'));
        assert!(sample().text(Some(80), true).contains('\u{1b}'));
    }
}
