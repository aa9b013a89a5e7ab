//! Chosen rows, ready to be asked about: what the run has found for them, what they may become, and their groups.

use std::collections::BTreeMap;

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch, UInt32Array};
use arrow::compute::{cast, take_record_batch};
use arrow::datatypes::{FieldRef, Float64Type, Schema};
use hashbrown::HashMap;

use super::reservoir::Ticket;
use super::sampler::{ATTRIBUTE, WRITTEN};
use super::search::SearchResult;
use crate::error::{Error, Result};
use crate::explain::{Explainer, Inspected};
use crate::feature::Rows;
use crate::metrics::Status;
use crate::report::written_statuses;

/// Chosen rows in their order.
#[derive(Debug, Clone, Default)]
pub struct Chosen {
    /// Which they are.
    pub tickets: Vec<Ticket>,
    /// The rows: columns of the input, attributes, columns of the counterfactual table.
    pub batch: Option<RecordBatch>,
}

/// Rows with what the run has found for them.
pub struct AuditSample {
    /// The rows as they are, and what they may become.
    pub rows: Inspected,
    /// What became of them.
    pub status: Vec<Status>,
    /// Whether their counterfactual is valid.
    pub valid: Vec<bool>,
    /// What it costs; NaN where there is none.
    pub costs: Vec<f64>,
    /// Their counterfactuals; as they are where there is none.
    pub counterfactuals: Rows,
    /// Texts of the attributes.
    pub attributes: Vec<ArrayRef>,
    /// The rows of the input, each of its own batch of columns.
    pub block: RecordBatch,
}

/// Rows of a sample that belong together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SampledGroup {
    /// Number of the target.
    pub target: u32,
    /// The attribute; none for everybody.
    pub attribute: Option<usize>,
    /// Its value; none is null.
    pub value: Option<String>,
    /// Positions of the rows.
    pub rows: Vec<u32>,
}

impl Chosen {
    /// Rows that were finished.
    pub fn new((tickets, batch): (Vec<Ticket>, Option<RecordBatch>)) -> Chosen {
        Chosen { tickets, batch }
    }

    /// How many they are.
    pub fn len(&self) -> usize {
        self.tickets.len()
    }

    /// Whether there is none.
    pub(in crate::audit) fn is_empty(&self) -> bool {
        self.tickets.is_empty()
    }

    /// The rows from one on, so many.
    pub fn slice(&self, first: usize, rows: usize) -> Chosen {
        let first = first.min(self.len());
        let rows = rows.min(self.len() - first);
        Chosen {
            tickets: self.tickets[first..first + rows].to_vec(),
            batch: self.batch.as_ref().map(|batch| batch.slice(first, rows)),
        }
    }

    /// The rows at these positions.
    ///
    /// # Errors
    /// Only if there is a bug.
    pub fn take(&self, rows: &[u32]) -> Result<Chosen> {
        let batch = self.batch.as_ref().map(|batch| taken(batch, rows)).transpose()?;
        Ok(Chosen { tickets: rows.iter().map(|row| self.tickets[*row as usize]).collect(), batch })
    }

    /// Those with a valid counterfactual.
    ///
    /// # Errors
    /// Only if there is a bug.
    pub fn valid(&self) -> Result<Chosen> {
        let Some(batch) = &self.batch else { return Ok(Chosen::default()) };
        let written = prefixed(batch, WRITTEN)?;
        let (valid, statuses) = (named(&written, "valid")?, written_statuses(&written)?);
        let valid = valid.as_boolean();
        let solved =
            |row: &u32| statuses[*row as usize] == Status::Solved && valid.value(*row as usize);
        self.take(&(0..self.len() as u32).filter(solved).collect::<Vec<_>>())
    }

    /// What the run has found for them.
    ///
    /// # Errors
    /// Only if there is a bug.
    pub fn written(&self) -> Result<Vec<SearchResult>> {
        let Some(batch) = &self.batch else { return Ok(Vec::new()) };
        let written = prefixed(batch, WRITTEN)?;
        let (valid, costs) = (named(&written, "valid")?, named(&written, "cost")?);
        let costs = costs.as_primitive::<Float64Type>().iter();
        let found = valid.as_boolean().iter().zip(costs).map(|(valid, cost)| SearchResult {
            valid: valid.unwrap_or(false),
            cost: cost.unwrap_or(f64::NAN),
        });
        Ok(found.collect())
    }

    /// Everybody and the values of every attribute, for each target, in this order.
    ///
    /// # Errors
    /// Only if there is a bug.
    pub fn groups(&self) -> Result<Vec<SampledGroup>> {
        let Some(batch) = &self.batch else { return Ok(Vec::new()) };
        let targets: Vec<u32> = self.tickets.iter().map(|ticket| ticket.target).collect();
        Ok(grouped(&targets, prefixed(batch, ATTRIBUTE)?.columns()))
    }

    /// Columns of the input, the rows of a key once.
    ///
    /// # Errors
    /// Only if there is a bug.
    pub fn block(&self, table: &Schema) -> Result<Option<RecordBatch>> {
        let Some(batch) = &self.batch else { return Ok(None) };
        let mut seen = hashbrown::HashSet::new();
        let once: Vec<u32> = (0u32..)
            .zip(&self.tickets)
            .filter(|(_, ticket)| seen.insert(ticket.hash))
            .map(|(row, _)| row)
            .collect();
        Ok(Some(taken(&input_of(batch, table)?, &once)?))
    }

    /// The rows, read and decided once more; none without any.
    ///
    /// # Errors
    /// When the model as a whole fails.
    pub fn inspect(&self, explainer: &Explainer, table: &Schema) -> Result<Option<AuditSample>> {
        let Some(block) = self.block(table)? else { return Ok(None) };
        let inspected = explainer.inspect(&block)?;
        let places: HashMap<(u128, u32), u32> = inspected
            .hashes
            .iter()
            .copied()
            .zip(inspected.target_numbers.iter().copied())
            .zip(0..)
            .collect();
        let found = (0u32..)
            .zip(&self.tickets)
            .filter_map(|(row, ticket)| Some((row, *places.get(&(ticket.hash, ticket.target))?)));
        // A row that the model fails on now is left out.
        let (kept, at): (Vec<u32>, Vec<u32>) = found.unzip();
        let chosen = self.take(&kept)?;
        let Some(batch) = &chosen.batch else { return Ok(None) };
        AuditSample::new((inspected.take(&at)?, explainer), (batch, table)).map(Some)
    }
}

impl AuditSample {
    fn new(
        (rows, explainer): (Inspected, &Explainer),
        (batch, table): (&RecordBatch, &Schema),
    ) -> Result<AuditSample> {
        let written = prefixed(batch, WRITTEN)?;
        let attributes = prefixed(batch, ATTRIBUTE)?.columns().to_vec();
        let counterfactuals = prefixed(&written, "cf_")?;
        let counterfactuals: Vec<(String, ArrayRef)> = explainer
            .schema()
            .names()
            .map(|name| Ok((name.to_string(), named(&counterfactuals, name)?)))
            .collect::<Result<_>>()?;
        let counterfactuals =
            counterfactuals.into_iter().map(|(name, column)| (name, column, true));
        let counterfactuals =
            RecordBatch::try_from_iter_with_nullable(counterfactuals).map_err(misfit)?;
        let valid = named(&written, "valid")?;
        let costs = cast(&named(&written, "cost")?, &arrow::datatypes::DataType::Float64);
        let costs = costs.map_err(misfit)?;
        let costs = costs.as_primitive::<Float64Type>().iter();
        Ok(AuditSample {
            status: written_statuses(&written)?,
            valid: valid.as_boolean().iter().map(|valid| valid.unwrap_or(false)).collect(),
            costs: costs.map(|cost| cost.unwrap_or(f64::NAN)).collect(),
            counterfactuals: explainer.reader().read(&counterfactuals)?,
            attributes,
            block: input_of(batch, table)?,
            rows,
        })
    }

    /// How many rows and targets there are.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Everybody and the values of every attribute, for each target, in this order.
    pub fn groups(&self) -> Vec<SampledGroup> {
        grouped(&self.rows.target_numbers, &self.attributes)
    }
}

fn grouped(targets: &[u32], attributes: &[ArrayRef]) -> Vec<SampledGroup> {
    let mut found: BTreeMap<(u32, Option<usize>, Option<String>), Vec<u32>> = BTreeMap::new();
    for (row, target) in targets.iter().enumerate() {
        found.entry((*target, None, None)).or_default().push(row as u32);
        for (attribute, column) in attributes.iter().enumerate() {
            let texts = column.as_string::<i32>();
            let value = texts.is_valid(row).then(|| texts.value(row).to_string());
            found.entry((*target, Some(attribute), value)).or_default().push(row as u32);
        }
    }
    let group =
        |((target, attribute, value), rows)| SampledGroup { target, attribute, value, rows };
    found.into_iter().map(group).collect()
}

fn misfit(error: arrow::error::ArrowError) -> Error {
    Error::internal("sample", "columns do not fit").source(error)
}

fn taken(batch: &RecordBatch, rows: &[u32]) -> Result<RecordBatch> {
    take_record_batch(batch, &UInt32Array::from(rows.to_vec())).map_err(misfit)
}

/// The columns of the input: the first ones.
fn input_of(batch: &RecordBatch, table: &Schema) -> Result<RecordBatch> {
    let indexes: Vec<usize> = (0..table.fields().len()).collect();
    batch.project(&indexes).map_err(misfit)
}

/// Columns that begin like this, without the beginning.
fn prefixed(batch: &RecordBatch, prefix: &str) -> Result<RecordBatch> {
    let schema = batch.schema();
    let fields = schema.fields().iter().zip(batch.columns());
    let columns = fields.filter_map(|(field, column): (&FieldRef, &ArrayRef)| {
        let name = field.name().strip_prefix(prefix)?;
        Some((name.to_string(), column.clone(), true))
    });
    let columns: Vec<_> = columns.collect();
    if columns.is_empty() {
        return Ok(RecordBatch::new_empty(Schema::empty().into()));
    }
    RecordBatch::try_from_iter_with_nullable(columns).map_err(misfit)
}

fn named(batch: &RecordBatch, name: &str) -> Result<ArrayRef> {
    let column = batch.column_by_name(name).cloned();
    column.ok_or_else(|| Error::input("counterfactuals", format!("lack the column `{name}`")))
}
