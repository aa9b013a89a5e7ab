//! Which columns a model was trained with that takes one matrix and names none of them.

use std::collections::BTreeMap;

use super::columns::is_named_like_label;
use super::{Guess, InitTable};
use crate::engine::ColumnProfile;
use crate::error::{Error, Result};
use crate::feature::ColumnClass;
use crate::job::MatrixSpec;

/// Columns that a message names, at most.
const MOST_NAMED: usize = 12;

/// A matrix and the table that is to fill it.
pub(super) struct MatrixSearch<'a> {
    pub(super) source: &'a InitTable<'a>,
    /// The model's name in messages.
    pub(super) model: String,
    /// Numbers of each row, where the model declares it.
    pub(super) width: Option<usize>,
    /// Columns that are no features.
    pub(super) ignore: &'a BTreeMap<String, String>,
    /// The column that may be the label.
    pub(super) label: Option<&'a Guess<String>>,
}

/// How columns fill a matrix.
pub(super) struct MatrixFit<'a> {
    pub(super) features: Vec<&'a ColumnProfile>,
    pub(super) encoding: MatrixSpec,
    pub(super) why: String,
}

impl<'a> MatrixSearch<'a> {
    /// The columns whose number is that of the matrix: those of numbers, else categories too as codes, else categories
    /// one-hot.
    ///
    /// # Errors
    /// When none of these has the model's width.
    pub(super) fn fit(&self) -> Result<MatrixFit<'a>> {
        let columns: Vec<&ColumnProfile> =
            self.source.profiles.iter().filter(|column| self.is_usable(column)).collect();
        let numbers: Vec<&ColumnProfile> =
            columns.iter().copied().filter(|column| is_number(column)).collect();
        let Some(width) = self.width else {
            let why = "the model does not tell how many numbers it takes of each row: all columns of numbers are \
                       features, in the table's order";
            return Ok(MatrixFit {
                features: numbers,
                encoding: MatrixSpec::Raw,
                why: why.to_string(),
            });
        };
        let order = format!("the model takes {width} numbers of each row and does not name them");
        if let Some(features) = self.without_surplus(&numbers, |_| 1, width) {
            let why = format!("{order}: columns of numbers in the table's order");
            return Ok(MatrixFit { features, encoding: MatrixSpec::Raw, why });
        }
        let texts = columns.len() > numbers.len();
        if let Some(features) = self.without_surplus(&columns, |_| 1, width).filter(|_| texts) {
            let why = format!(
                "{order}: columns in the table's order, categories as the positions of their values"
            );
            return Ok(MatrixFit { features, encoding: MatrixSpec::Codes, why });
        }
        if let Some(features) = self.without_surplus(&columns, cells, width).filter(|_| texts) {
            let why = format!(
                "{order}: columns of numbers as they are, then a number for each value of the categories"
            );
            return Ok(MatrixFit { features, encoding: MatrixSpec::Standardised, why });
        }
        Err(self.misfit(width, &numbers, &columns))
    }

    fn is_usable(&self, column: &ColumnProfile) -> bool {
        let category = column.class == Some(ColumnClass::Text);
        let value =
            column.values > 0 && (!category || column.listed.is_some() || column.is_constant());
        let label = self.is_label(column) && is_named_like_label(column);
        column.class.is_some() && value && !label && !self.ignore.contains_key(&column.name)
    }

    /// The columns without as many doubtful ones as are too many; none if it is not clear which.
    fn without_surplus(
        &self,
        columns: &[&'a ColumnProfile],
        cells: fn(&ColumnProfile) -> usize,
        width: usize,
    ) -> Option<Vec<&'a ColumnProfile>> {
        let mut doubtful: Vec<(u8, &ColumnProfile)> = columns
            .iter()
            .map(|column| (self.doubt(column), *column))
            .filter(|(doubt, _)| *doubt > 0)
            .collect();
        doubtful.sort_by_key(|(doubt, _)| std::cmp::Reverse(*doubt));
        let mut left: usize = columns.iter().map(|column| cells(column)).sum();
        for dropped in 0..=doubtful.len() {
            // One of two that are equally doubtful would be dropped by chance.
            let next = doubtful.get(dropped).map(|(doubt, _)| *doubt);
            let clear = dropped == 0 || next.is_none_or(|next| next < doubtful[dropped - 1].0);
            if left == width && clear {
                let gone = &doubtful[..dropped];
                let kept =
                    |column: &&&ColumnProfile| !gone.iter().any(|(_, out)| out.name == column.name);
                return Some(columns.iter().filter(kept).copied().collect());
            }
            left -= doubtful.get(dropped).map_or(0, |(_, column)| cells(column));
        }
        None
    }

    fn is_label(&self, column: &ColumnProfile) -> bool {
        self.label.is_some_and(|label| label.value == column.name)
    }

    /// How likely it is that the model was not trained with a column; 0 for features.
    fn doubt(&self, column: &ColumnProfile) -> u8 {
        match column.class {
            _ if self.is_label(column) => 3,
            Some(ColumnClass::Time) => 2,
            _ => u8::from(column.is_identifier()),
        }
    }

    fn misfit(
        &self,
        width: usize,
        numbers: &[&ColumnProfile],
        columns: &[&ColumnProfile],
    ) -> Error {
        let texts: Vec<&ColumnProfile> =
            columns.iter().copied().filter(|column| !is_number(column)).collect();
        let problem = format!(
            "takes {width} numbers of each row, but `{}` has {} columns of numbers ({}) and {} of categories ({})",
            self.source.table.shown,
            numbers.len(),
            names(numbers),
            texts.len(),
            names(&texts)
        );
        let label = self.label.map(|label| format!("; `{}` looks like the label", label.value));
        let problem = format!("{problem}{}", label.unwrap_or_default());
        let error = Error::predictor(&self.model, problem);
        if width > columns.iter().map(|column| cells(column)).sum() {
            return error.hint("add the columns to the table that the model was trained with");
        }
        error.hint(
            "leave out those that the model was not trained with: `--ignore COLUMN` for each; features keep the \
             table's order",
        )
    }
}

/// Numbers and what stands for numbers.
fn is_number(column: &ColumnProfile) -> bool {
    column.class.is_some_and(|class| class != ColumnClass::Text)
}

/// Cells that a column fills where categories are one-hot.
fn cells(column: &ColumnProfile) -> usize {
    match (column.class, &column.listed) {
        (Some(ColumnClass::Text | ColumnClass::Boolean), Some(values)) => values.len(),
        _ => 1,
    }
}

fn names(columns: &[&ColumnProfile]) -> String {
    if columns.is_empty() {
        return "none".to_string();
    }
    let shown = columns.iter().take(MOST_NAMED).map(|column| format!("`{}`", column.name));
    let more = columns.len().saturating_sub(MOST_NAMED);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    format!("{}{more}", shown.collect::<Vec<_>>().join(", "))
}
