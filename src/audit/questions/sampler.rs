//! Which rows are asked about: chosen by the hashes of their keys while the tables of a run are read beside its input.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch, UInt32Array};
use arrow::compute::take_record_batch;
use arrow::datatypes::{Field, FieldRef, Float64Type, Int32Type, Schema};
use hashbrown::HashMap;

use super::reservoir::{Reservoir, Ticket};
use crate::error::{Error, Result};
use crate::metrics::Status;
use crate::report::{Piece, column, written_statuses};

/// Rows of all groups together that are kept to be searched again, at most.
const MOST_IN_GROUPS: usize = 65_536;
/// Rows of a group that are, at most …
pub(super) const GROUP_ROWS: usize = 1_000;
/// … and at least, however many groups there are.
const LEAST_IN_GROUP: usize = 30;
/// Rows at the target that reasons are told against.
pub(crate) const REFERENCE_ROWS: usize = 16;
/// What columns of the counterfactual table are called beside those of the input.
pub(super) const WRITTEN: &str = "written:";
/// What attributes are called beside them.
pub(super) const ATTRIBUTE: &str = "attribute:";

/// How many rows of each kind are kept.
#[derive(Debug, Clone, Copy, Default)]
pub struct SampleSizes {
    /// Refused rows.
    pub refused: usize,
    /// Refused rows without a counterfactual.
    pub stuck: usize,
    /// Rows of any kind.
    pub any: usize,
    /// Refused rows of every group.
    pub group: usize,
    /// Rows at the target that are nearest to the border.
    pub passing: usize,
}

/// What a sampler has to know.
#[derive(Debug, Clone)]
pub struct SampleSetup {
    /// How many are kept.
    pub sizes: SampleSizes,
    /// Names of the targets, in the order of their numbers.
    pub targets: Vec<String>,
    /// Whether a row has a target for every other class.
    pub every: bool,
    /// The range that is the target, if that is what it is.
    pub range: Option<(f64, f64)>,
}

/// A group: target, attribute, value.
pub(super) type GroupKey = (u32, usize, Option<String>);

/// Rows chosen so far, with how many there were.
#[derive(Debug, Clone)]
pub struct Sampler {
    setup: Arc<SampleSetup>,
    pub(super) refused: Reservoir,
    pub(super) stuck: Reservoir,
    pub(super) any: Reservoir,
    pub(super) passing: BTreeMap<u32, Reservoir>,
    groups: BTreeMap<GroupKey, Reservoir>,
    /// Rows of a group that are kept.
    group_limit: usize,
    /// Refused rows and targets.
    pub(super) rows_refused: u64,
    /// Rows and targets of every group, refused or not.
    group_sizes: BTreeMap<GroupKey, u64>,
}

/// Rows of a piece that count, with what decides where they are kept.
struct Offered {
    tickets: Vec<Ticket>,
    /// Rank among the rows at the target; none of a refused row.
    passing: Vec<Option<u64>>,
    stuck: Vec<bool>,
    /// Row of the piece.
    written: Vec<u32>,
    /// Row of the input.
    input: Vec<u32>,
}

impl Sampler {
    /// None yet.
    pub fn new(setup: &Arc<SampleSetup>) -> Sampler {
        let SampleSizes { refused, stuck, any, .. } = setup.sizes;
        Sampler {
            setup: Arc::clone(setup),
            refused: Reservoir::new(refused),
            stuck: Reservoir::new(stuck),
            any: Reservoir::new(any),
            passing: BTreeMap::new(),
            groups: BTreeMap::new(),
            group_limit: setup.sizes.group,
            rows_refused: 0,
            group_sizes: BTreeMap::new(),
        }
    }

    /// Looks at counterfactuals about rows of the input, whose attributes are texts.
    ///
    /// # Errors
    /// When the tables are not those of the run.
    pub fn add(
        &mut self,
        (input, attributes): (&RecordBatch, &[ArrayRef]),
        pieces: &[Piece],
    ) -> Result<()> {
        let firsts = if self.setup.every { firsts(pieces)? } else { HashMap::new() };
        for piece in pieces {
            let offered = self.offered(piece, &firsts)?;
            self.count_groups(&offered, attributes);
            let kept = self.kept(&offered, attributes);
            if kept.is_empty() {
                continue;
            }
            let at = |rows: &[u32]| kept.iter().map(|row| rows[*row]).collect::<Vec<u32>>();
            let joined = joined(
                (input, attributes, &at(&offered.input)),
                (piece.batch(), &at(&offered.written)),
            )?;
            self.keep(&offered, &kept, (&joined, attributes))?;
        }
        self.limit_groups()
    }

    /// The rows of a piece that are the first of their row and target.
    fn offered(&mut self, piece: &Piece, firsts: &HashMap<(u128, String), i32>) -> Result<Offered> {
        let batch = piece.batch();
        let (statuses, samples) = (written_statuses(batch)?, numbers_of(batch, "sample")?);
        let names = column(batch, "target")?.as_string::<i32>();
        let ranks = self.ranks(batch)?;
        let mut found = Offered {
            tickets: Vec::new(),
            passing: Vec::new(),
            stuck: Vec::new(),
            written: Vec::new(),
            input: Vec::new(),
        };
        for (row, hash) in piece.hashes().iter().enumerate() {
            let name = if names.is_valid(row) { names.value(row) } else { "" };
            let first = match self.setup.every {
                true => firsts.get(&(*hash, name.to_string())).copied().unwrap_or(0),
                false => 0,
            };
            if samples[row] != first {
                continue;
            }
            let passes = statuses[row] == Status::AlreadyTarget;
            let stuck = matches!(statuses[row], Status::Unsolved | Status::Infeasible);
            self.rows_refused += u64::from(!passes);
            found.tickets.push(Ticket { rank: 0, hash: *hash, target: self.target(name)? });
            found.passing.push(passes.then(|| ranks[row]));
            found.stuck.push(stuck);
            found.written.push(row as u32);
            found.input.push(piece.rows()[row]);
        }
        Ok(found)
    }

    fn target(&self, name: &str) -> Result<u32> {
        let names = &self.setup.targets;
        if names.len() == 1 {
            return Ok(0);
        }
        let found = names.iter().position(|known| known == name);
        found.map(|index| index as u32).ok_or_else(|| {
            let problem = format!("is `{name}` in a written table, expected one of {names:?}");
            Error::input("target", problem)
        })
    }

    /// How far rows at the target are from the border, where the table tells; 0 where it does not.
    fn ranks(&self, batch: &RecordBatch) -> Result<Vec<u64>> {
        let scores = column(batch, "original_score")?.as_primitive::<Float64Type>();
        let values = batch.column_by_name("original_value");
        let values = values.map(AsArray::as_primitive::<Float64Type>);
        let inside = |row: usize| match (values, self.setup.range) {
            (Some(values), Some((low, high))) => {
                (values.value(row) - low).min(high - values.value(row)).max(0.0)
            }
            _ if scores.is_valid(row) => scores.value(row),
            _ => 0.0,
        };
        // The bits of numbers that are not negative are in their order.
        Ok((0..batch.num_rows()).map(|row| inside(row).abs().to_bits()).collect())
    }

    /// Rows and targets of every group, refused or not.
    pub(super) fn group_sizes(&self) -> &BTreeMap<GroupKey, u64> {
        &self.group_sizes
    }

    /// Rows of a group that are kept, at most.
    pub(super) fn group_limit(&self) -> usize {
        self.group_limit
    }

    fn count_groups(&mut self, offered: &Offered, attributes: &[ArrayRef]) {
        if self.setup.sizes.group == 0 {
            return;
        }
        for (attribute, column) in attributes.iter().enumerate() {
            let texts = column.as_string::<i32>();
            let mut sizes: HashMap<(u32, Option<&str>), u64> = HashMap::new();
            for (ticket, row) in offered.tickets.iter().zip(&offered.input) {
                let row = *row as usize;
                let value = texts.is_valid(row).then(|| texts.value(row));
                *sizes.entry((ticket.target, value)).or_default() += 1;
            }
            for ((target, value), rows) in sizes {
                let key = (target, attribute, value.map(String::from));
                *self.group_sizes.entry(key).or_default() += rows;
            }
        }
    }

    /// Which of the offered rows anybody wants.
    fn kept(&mut self, offered: &Offered, attributes: &[ArrayRef]) -> Vec<usize> {
        let mut kept = Vec::new();
        for (row, ticket) in offered.tickets.iter().enumerate() {
            let selected = match offered.passing[row] {
                Some(rank) => self.wants_passing(&Ticket { rank, ..*ticket }),
                None => {
                    self.refused.wants(ticket)
                        || (offered.stuck[row] && self.stuck.wants(ticket))
                        || self.group_wants(ticket, (attributes, offered.input[row] as usize))
                }
            };
            if selected || self.any.wants(ticket) {
                kept.push(row);
            }
        }
        kept
    }

    fn wants_passing(&self, ticket: &Ticket) -> bool {
        let known = self.passing.get(&ticket.target);
        self.setup.sizes.passing > 0 && known.is_none_or(|known| known.wants(ticket))
    }

    fn group_wants(&self, ticket: &Ticket, (attributes, row): (&[ArrayRef], usize)) -> bool {
        self.setup.sizes.group > 0
            && (0..attributes.len()).any(|attribute| {
                let key = (ticket.target, attribute, value_of(&attributes[attribute], row));
                self.groups.get(&key).is_none_or(|known| known.wants(ticket))
            })
    }

    fn keep(
        &mut self,
        offered: &Offered,
        kept: &[usize],
        (joined, attributes): (&RecordBatch, &[ArrayRef]),
    ) -> Result<()> {
        let all: Vec<(Ticket, usize)> =
            kept.iter().map(|row| offered.tickets[*row]).zip(0..).collect();
        let of = |selected: &dyn Fn(usize) -> bool| -> Vec<(Ticket, usize)> {
            all.iter().filter(|(_, at)| selected(kept[*at])).copied().collect()
        };
        self.any.offer(joined, &all)?;
        let refused = of(&|row| offered.passing[row].is_none());
        self.refused.offer(joined, &refused)?;
        self.stuck.offer(joined, &of(&|row| offered.stuck[row]))?;
        for (ticket, at) in &all {
            let Some(rank) = offered.passing[kept[*at]] else { continue };
            let most = self.setup.sizes.passing;
            let of_target = self.passing.entry(ticket.target);
            let of_target = of_target.or_insert_with(|| Reservoir::new(most));
            of_target.offer(joined, &[(Ticket { rank, ..*ticket }, *at)])?;
        }
        if self.setup.sizes.group == 0 {
            return Ok(());
        }
        let mut by_group: BTreeMap<GroupKey, Vec<(Ticket, usize)>> = BTreeMap::new();
        for (ticket, at) in refused {
            for (attribute, column) in attributes.iter().enumerate() {
                let value = value_of(column, offered.input[kept[at]] as usize);
                by_group.entry((ticket.target, attribute, value)).or_default().push((ticket, at));
            }
        }
        let most = self.group_limit;
        for (key, rows) in by_group {
            let group = self.groups.entry(key).or_insert_with(|| Reservoir::new(most));
            group.offer(joined, &rows)?;
        }
        Ok(())
    }

    /// Rows of a group that are kept: fewer where there are many groups.
    fn group_rows(&self) -> usize {
        let equal = MOST_IN_GROUPS / self.groups.len().max(1);
        self.setup.sizes.group.min(equal.max(LEAST_IN_GROUP))
    }

    fn limit_groups(&mut self) -> Result<()> {
        let most = self.group_rows();
        if most == self.group_limit {
            return Ok(());
        }
        self.group_limit = most;
        self.groups.values_mut().try_for_each(|group| group.prune(most))
    }

    /// Takes over what another one has kept.
    ///
    /// # Errors
    /// Only if there is a bug.
    pub fn merge(&mut self, other: Sampler) -> Result<()> {
        self.rows_refused += other.rows_refused;
        for (key, rows) in other.group_sizes {
            *self.group_sizes.entry(key).or_default() += rows;
        }
        self.refused.merge(other.refused)?;
        self.stuck.merge(other.stuck)?;
        self.any.merge(other.any)?;
        let SampleSizes { passing, group, .. } = self.setup.sizes;
        for (target, more) in other.passing {
            let of_target = self.passing.entry(target).or_insert_with(|| Reservoir::new(passing));
            of_target.merge(more)?;
        }
        for (key, more) in other.groups {
            let of_group = self.groups.entry(key).or_insert_with(|| Reservoir::new(group));
            of_group.merge(more)?;
        }
        self.limit_groups()
    }

    /// Rows of every group, each row and target once: first the first of every group, then the second, and so on.
    ///
    /// # Errors
    /// Only if there is a bug.
    pub(super) fn grouped(&mut self) -> Result<(Vec<Ticket>, Option<RecordBatch>)> {
        let most = self.group_limit;
        let mut all = Reservoir::new(usize::MAX / 4);
        let mut places: HashMap<(u128, u32), u64> = HashMap::new();
        let mut rows = Vec::new();
        for (_, mut group) in std::mem::take(&mut self.groups) {
            group.prune(most)?;
            let (tickets, batch) = group.finish()?;
            for (place, ticket) in tickets.iter().enumerate() {
                let found = places.entry((ticket.hash, ticket.target)).or_insert(u64::MAX);
                *found = (*found).min(place as u64);
            }
            rows.push((tickets, batch));
        }
        for (tickets, batch) in rows {
            let Some(batch) = batch else { continue };
            let once = tickets.into_iter().zip(0..).filter_map(|(ticket, row)| {
                let rank = places.remove(&(ticket.hash, ticket.target))?;
                Some((Ticket { rank, ..ticket }, row))
            });
            all.offer(&batch, &once.collect::<Vec<_>>())?;
        }
        all.finish()
    }
}

/// Where a row has several targets: the first sample of each, whatever files they are in.
fn firsts(pieces: &[Piece]) -> Result<HashMap<(u128, String), i32>> {
    let mut firsts = HashMap::new();
    for piece in pieces {
        let samples = numbers_of(piece.batch(), "sample")?;
        let names = column(piece.batch(), "target")?.as_string::<i32>();
        for ((hash, name), sample) in piece.hashes().iter().zip(names).zip(samples) {
            let key = (*hash, name.unwrap_or_default().to_string());
            let first = firsts.entry(key).or_insert(sample);
            *first = (*first).min(sample);
        }
    }
    Ok(firsts)
}

fn numbers_of(batch: &RecordBatch, name: &str) -> Result<Vec<i32>> {
    Ok(column(batch, name)?.as_primitive::<Int32Type>().values().to_vec())
}

fn value_of(column: &ArrayRef, row: usize) -> Option<String> {
    let texts = column.as_string::<i32>();
    texts.is_valid(row).then(|| texts.value(row).to_string())
}

/// Rows of the input beside their attributes and what was written about them.
fn joined(
    (input, attributes, rows): (&RecordBatch, &[ArrayRef], &[u32]),
    (written, first_rows): (&RecordBatch, &[u32]),
) -> Result<RecordBatch> {
    let misfit = |error| Error::internal("sample", "rows do not fit").source(error);
    let input = take_record_batch(input, &UInt32Array::from(rows.to_vec())).map_err(misfit)?;
    let written =
        take_record_batch(written, &UInt32Array::from(first_rows.to_vec())).map_err(misfit)?;
    let mut fields: Vec<FieldRef> = input.schema().fields().iter().cloned().collect();
    let mut columns = input.columns().to_vec();
    for (number, attribute) in attributes.iter().enumerate() {
        let taken = arrow::compute::take(attribute, &UInt32Array::from(rows.to_vec()), None);
        columns.push(taken.map_err(misfit)?);
        let name = format!("{ATTRIBUTE}{number}");
        fields.push(Arc::new(Field::new(name, attribute.data_type().clone(), true)));
    }
    for (field, column) in written.schema().fields().iter().zip(written.columns()) {
        let name = format!("{WRITTEN}{}", field.name());
        fields.push(Arc::new(Field::new(name, field.data_type().clone(), true)));
        columns.push(Arc::clone(column));
    }
    RecordBatch::try_new(Arc::new(Schema::new(fields)), columns).map_err(misfit)
}
