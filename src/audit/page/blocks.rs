//! What sections are made of. Texts are plain: the template escapes them.

use super::charts::Caption;

/// A numbered section.
pub(super) struct PageSection {
    pub(super) number: usize,
    /// Its anchor.
    pub(super) id: &'static str,
    pub(super) title: &'static str,
    pub(super) blocks: Vec<Block>,
}

/// A piece of a section.
pub(super) enum Block {
    /// A paragraph.
    Text(String),
    /// A paragraph in small: how a figure is to be read, what was left out.
    Note(String),
    /// A heading below the section's.
    Heading(String),
    /// What was found, as a box.
    Finding(Callout),
    /// A few figures in large.
    Figures(Vec<KeyFigure>),
    /// Drawings side by side.
    Charts(Vec<Chart>),
    /// A table that is always seen.
    Grid(GridBlock),
    /// Names with what they are.
    Terms(Vec<(String, String)>),
    /// A list.
    Items(Vec<String>),
    /// Something to be typed.
    Command { what: String, text: String },
    /// Rows to be looked up.
    Lookup(GridBlock),
}

/// How a finding stands; a sign and a word say it, besides the colour.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Tone {
    /// As demanded.
    Good,
    /// Not as demanded.
    Bad,
    /// Nothing can be said.
    Open,
    /// Nothing was demanded.
    Plain,
}

impl Tone {
    pub(super) fn class(self) -> &'static str {
        match self {
            Tone::Good => "good",
            Tone::Bad => "bad",
            Tone::Open => "open",
            Tone::Plain => "plain",
        }
    }

    pub(super) fn sign(self) -> &'static str {
        match self {
            Tone::Good => "✓",
            Tone::Bad => "✗",
            Tone::Open => "?",
            Tone::Plain => "–",
        }
    }
}

/// A box.
pub(super) struct Callout {
    pub(super) tone: Tone,
    pub(super) title: String,
    pub(super) text: String,
}

/// A figure in large.
pub(super) struct KeyFigure {
    pub(super) value: String,
    pub(super) label: String,
    /// Its n, its interval.
    pub(super) detail: String,
}

/// A drawing with its data.
pub(super) struct Chart {
    pub(super) caption: Caption,
    /// The drawing, whose texts are escaped.
    pub(super) svg: String,
    /// What is seen, in a sentence, and how it is to be read.
    pub(super) reading: String,
    /// What is not in the drawing.
    pub(super) note: String,
    pub(super) grid: GridBlock,
}

/// A table.
#[derive(Debug, Clone, Default)]
pub(super) struct GridBlock {
    pub(super) caption: String,
    pub(super) columns: Vec<GridColumn>,
    pub(super) rows: Vec<Vec<String>>,
    /// What is not shown, and where it is.
    pub(super) more: String,
}

/// A column's heading.
#[derive(Debug, Clone)]
pub(super) struct GridColumn {
    pub(super) name: String,
    /// Whether figures stand in it.
    pub(super) numeric: bool,
}

impl GridBlock {
    /// A table without rows yet; names of columns with figures begin with `#`.
    pub(super) fn new(caption: impl Into<String>, columns: &[&str]) -> GridBlock {
        let column = |name: &&str| GridColumn {
            name: name.trim_start_matches('#').to_string(),
            numeric: name.starts_with('#'),
        };
        let columns = columns.iter().map(column).collect();
        GridBlock { caption: caption.into(), columns, ..GridBlock::default() }
    }

    pub(super) fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.rows.push(cells.into_iter().collect());
    }

    /// The cells of a row with whether figures stand in them.
    pub(super) fn cells<'a>(&'a self, row: &'a [String]) -> impl Iterator<Item = (&'a str, bool)> {
        row.iter().zip(&self.columns).map(|(cell, column)| (cell.as_str(), column.numeric))
    }
}
